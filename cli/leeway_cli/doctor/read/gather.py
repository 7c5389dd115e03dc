"""Reads all facts: the stack, the account and the clusters, few calls each, at the same time."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from leeway import __version__
from leeway.wiring.clients import client, clock, session

from leeway_cli.cluster_setup.desired import LeewayStack
from leeway_cli.cluster_setup.spot_role import spot_role_exists
from leeway_cli.doctor.facts import Facts, FunctionAnswers, known
from leeway_cli.doctor.finding import Severity
from leeway_cli.doctor.names import FUNCTIONS, function_name
from leeway_cli.doctor.read import account, probes, stack
from leeway_cli.doctor.read.cluster_parts import ClusterReading
from leeway_cli.doctor.read.parts import Parts, Pending
from leeway_cli.doctor.read.sources import Sources

FAILS, WARNS = Severity.FAILS, Severity.WARNS


def read_facts(name: str, asked: str, sources: Sources) -> Facts:
    """Read the facts about a stack, and about the cluster that was asked for or, without one, all
    clusters of the stack.

    Raises:
        CommandError: nothing can be read, because there are no valid credentials or no region.
    """
    with Parts() as parts:
        instances = parts.start("the instances of the account", FAILS, account.instances)
        pending = _of_stack(parts, name)
        found = parts.start(f"stack {name}", FAILS, lambda: sources.stacks.stack(name)).get()
        deployed = known(found)
        names = (asked,) if asked else deployed.clusters if deployed else ()
        region = str(session().region_name)
        catalog = parts.start_with(
            found, "the catalog", FAILS, lambda one: account.catalog(one.table, region)
        )
        network = parts.start_with(
            found, "the network of the functions", FAILS, lambda one: sources.network(one)
        )
        answers = parts.start_with(
            found, "the answers of the functions", FAILS, partial(_answers, names, pending)
        )
        known_instances = instances.get()
        reading = [
            ClusterReading(parts, one, sources, found, known_instances)
            for one in dict.fromkeys(names)
        ]
        for step in (ClusterReading.read_more, ClusterReading.read_roles):
            for one in reading:
                step(one)
        return Facts(
            region=region,
            version=__version__,
            stack=found,
            instances=known_instances,
            catalog=catalog.get(),
            network=network.get(),
            wanted_objects=sources.wanted,
            clusters=tuple(one.facts() for one in reading),
            answers=answers.get(),
            **{part: one.get() for part, one in pending.items()},
            # Last: every answer of AWS has a date.
            ahead=clock().offset.ahead,
            now=clock().now(),
        )


def _answers(
    clusters: Sequence[str], pending: Mapping[str, Pending[Any]], stack: LeewayStack
) -> tuple[FunctionAnswers, ...]:
    """Ask the functions that run, if they are of this version: others know other probes."""
    functions = known(pending["functions"].get())
    if functions is None or stack.version != __version__:
        return ()
    run = {one.name for one in functions if one.state == "Active" and one.reserved != 0}
    fit = [one for one in FUNCTIONS if function_name(stack.name, one) in run]
    return probes.answers_of(stack.name, [one for one in clusters if one in stack.clusters], fit)


def _of_stack(parts: Parts, name: str) -> Mapping[str, Pending[Any]]:
    """Start to read what needs only the name of the stack."""
    found: Mapping[str, tuple[str, Severity, Callable[[], Any]]] = {
        "functions": ("the functions of the stack", FAILS, partial(stack.functions_of, name)),
        "aliases": ("the aliases of the functions", FAILS, partial(stack.aliases_of, name)),
        "consumers": ("the event source mappings", FAILS, partial(stack.consumers_of, name)),
        "concurrency": ("the concurrency of the account", FAILS, stack.concurrency),
        "rules": ("the rules of EventBridge", FAILS, stack.rules),
        "schedules": ("the schedules", FAILS, partial(stack.schedules_of, name)),
        "queues": ("the queues of failures", WARNS, partial(stack.failure_queues_of, name)),
        "alarms": ("the alarms", WARNS, partial(stack.alarms_of, name)),
        "quotas": ("the quotas of EC2", FAILS, account.ec2_quotas),
        "spot_role": ("EC2's role for Spot", WARNS, lambda: spot_role_exists(client("iam"))),
    }
    return {key: parts.start(*given) for key, given in found.items()}
