"""Reads all facts: the stack, the account and the clusters, few calls each, at the same time.

A part that fails becomes an `Unread`, and the others go on.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from leeway import __version__
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.custom_resources import HttpClusterApi
from leeway.manifests.in_cluster import launch_block
from leeway.retirement.surge import ROLE as SURGE_ROLE
from leeway.wiring.clients import client, clock, session, table

from leeway_cli.adopt.plan import RBAC, read_objects
from leeway_cli.adopt.reachability import FunctionsNetwork, functions_network
from leeway_cli.adopt.settings.access import AccessEntry, Eks, Mode
from leeway_cli.adopt.settings.groups import AutoScaling
from leeway_cli.adopt.settings.leeway_stack import CloudFormation, LeewayStack
from leeway_cli.adopt.settings.objects import ClusterObject, KubernetesObjects, is_limited
from leeway_cli.adopt.settings.spot_role import spot_role_exists
from leeway_cli.doctor.facts import (
    ClusterFacts,
    Facts,
    FunctionAnswers,
    InstanceUse,
    PoolFacts,
    Read,
    Unread,
    known,
)
from leeway_cli.doctor.finding import Severity
from leeway_cli.doctor.names import FUNCTIONS, function_name
from leeway_cli.doctor.read import aws, cluster, kubernetes
from leeway_cli.doctor.read.targets import targets_of
from leeway_cli.doctor.rights import Right, rights_in_namespaces, rights_of
from leeway_cli.errors import AccountError, CommandError, as_clause, aws_errors, kubernetes_errors
from leeway_cli.kubeconfig import KubeconfigConnection
from leeway_cli.stack import Stack, connect

AT_ONCE = 16


class NotReadError(Exception):
    """A part needs another one, which could not be read for this reason."""


class Part[T]:
    """A part that is being read in a thread. Its reader may wait for parts that began before it."""

    def __init__(self, future: "Future[Read[T]]") -> None:
        self._future = future

    def get(self) -> Read[T]:
        """Wait for the part.

        Raises:
            CommandError: nothing can be read, because there are no valid credentials or no region.
        """
        return self._future.result()

    def needed(self) -> T:
        """Wait for the part.

        Raises:
            NotReadError: it could not be read.
            CommandError: as `get`.
        """
        found = self.get()
        if isinstance(found, Unread):
            raise NotReadError(found.problem)
        return found


class Parts(AbstractContextManager["Parts"]):
    """Starts the readers of parts in threads, in the order of the calls."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start[T](self, part: str, severity: Severity, read: Callable[[], T]) -> Part[T]:
        """Begin to read a part. `part` names it in a sentence; `severity` is that of the worst
        finding that it could hide."""
        return Part(self._pool.submit(_read, part, severity, read))


def _read[T](part: str, severity: Severity, read: Callable[[], T]) -> Read[T]:
    try:
        with aws_errors(part), kubernetes_errors():
            return read()
    except (CommandError, NotReadError) as error:
        if isinstance(error, AccountError):
            raise
        return Unread(part, str(error), severity)
    except Exception as error:  # noqa: BLE001 - the other parts are worth reading
        problem = f"{type(error).__name__}: {as_clause(error)}"
        return Unread(part, f"{problem}. Set LEEWAY_DEBUG=1 to see the traceback.", severity)


@dataclass(frozen=True, slots=True)
class Sources:
    """The readers. `connect` connects to the API server of a cluster; `wanted` are the objects that
    it needs. `kubeconfig` is the file that a user named."""

    stacks: CloudFormation
    clusters: Eks
    groups: AutoScaling
    network: Callable[[LeewayStack], FunctionsNetwork]
    connect: Callable[[str], Connection]
    wanted: tuple[ClusterObject, ...]
    kubeconfig: Path | None = None


def sources(kubeconfig: Path | None, context: str | None) -> Sources:
    """Return the readers of AWS, and of clusters by this kubeconfig.

    Raises:
        BadInputError: the objects that a cluster needs cannot be read.
    """
    return Sources(
        stacks=CloudFormation(partial(client, "cloudformation")),
        clusters=Eks(partial(client, "eks")),
        groups=AutoScaling(partial(client, "autoscaling"), partial(client, "ec2")),
        network=partial(functions_network, ec2=partial(client, "ec2")),
        connect=lambda name: connect(name, kubeconfig, context),
        wanted=read_objects(RBAC),
        kubeconfig=kubeconfig,
    )


FAILS, WARNS = Severity.FAILS, Severity.WARNS


def _cluster(
    parts: Parts,
    name: str,
    sources: Sources,
    stack: Part[LeewayStack],
    instances: Part[tuple[InstanceUse, ...]],
) -> Callable[[], ClusterFacts]:
    """Start to read a cluster; return a function that waits for its facts."""
    start = parts.start
    groups = start(
        "the Auto Scaling groups with their hooks",
        FAILS,
        lambda: tuple(sources.groups.groups_of(name)),
    )
    eks = start("the cluster in EKS", FAILS, lambda: sources.clusters.cluster(name))
    manifests = start(
        "the manifests", FAILS, lambda: cluster.manifests_of(_table(stack.needed()), name)
    )
    connection = start("the API server", FAILS, lambda: sources.connect(name))

    def read_pools() -> tuple[PoolFacts, ...]:
        written = manifests.needed()[1]
        launched = {one.pool for one in known(instances.get()) or () if one.cluster == name}
        return cluster.pools_of(_table(stack.needed()), name, written, launched)

    def read_objects() -> tuple[ClusterObject, ...]:
        objects = KubernetesObjects(connection.needed())
        read = (objects.read(one) for one in sources.wanted)
        return tuple(one for one in read if one is not None)

    def read_rights() -> tuple[Right, ...]:
        asked, limited = connection.needed(), known(policies.get()) is False
        wanted = (one for one in sources.wanted if not (limited and is_limited(one)))
        objects = [one.body for one in wanted]
        found = known(manifests.get())
        bindings = found[0].bindings if found is not None else ()
        if found is not None and found[0].surges:
            kept = kubernetes.namespaces_of_blocked_pods(asked)
            bindings = (*bindings, *((SURGE_ROLE, namespace) for namespace in kept))
        rights = (*rights_of(objects), *rights_in_namespaces(objects, bindings))
        return kubernetes.missing_rights(asked, rights)

    def read_entries() -> tuple[AccessEntry, ...]:
        mode, deployed = eks.needed().mode, known(stack.get())
        if mode is Mode.CONFIG_MAP or deployed is None:
            return ()
        arns = {*deployed.groups, *(one.arn for one in known(roles.get()) or () if one.arn)}
        return tuple(sources.clusters.entries(name, sorted(arns)))

    pools = start("the pools", FAILS, read_pools)
    policies = start(
        "the kinds of the API server",
        FAILS,
        lambda: KubernetesObjects(connection.needed()).has_policies(),
    )
    objects = start("the objects of rbac/", FAILS, read_objects)
    rights = start("the rights of Leeway's groups", FAILS, read_rights)
    workloads = start(
        "the DaemonSets and Deployments", WARNS, lambda: kubernetes.workloads(connection.needed())
    )
    targets = start(
        "the targets of load balancers",
        WARNS,
        lambda: targets_of(connection.needed(), known(groups.get()) or ()),
    )
    roles = start(
        "the IAM roles of nodes",
        FAILS,
        lambda: cluster.roles_named([one.role for one in pools.needed()]),
    )
    entries = start("the access entries", FAILS, read_entries)
    block = start(
        "the home of the manifests",
        WARNS,
        lambda: launch_block(
            table(name=stack.needed().table),
            lambda _: HttpClusterApi(connection.needed()),
            name,
            clock().now(),
        ),
    )

    def facts() -> ClusterFacts:
        stored = manifests.get()
        opened = known(connection.get())
        found = ClusterFacts(
            name=name,
            eks=eks.get(),
            entries=entries.get(),
            objects=objects.get(),
            policies=policies.get(),
            configuration=stored if isinstance(stored, Unread) else stored[0],
            groups=groups.get(),
            pools=pools.get(),
            roles=roles.get(),
            workloads=workloads.get(),
            rights=rights.get(),
            launch_block=block.get(),
            targets=targets.get(),
            context=_context_of(opened, sources.kubeconfig),
        )
        if opened is not None:
            opened.close()
        return found

    return facts


def _context_of(connection: Connection | None, kubeconfig: Path | None) -> tuple[str, ...]:
    """Return the options of kubectl that select the cluster of a connection; none if it is not by a
    kubeconfig. `kubeconfig` is the file that a user named."""
    if not isinstance(connection, KubeconfigConnection):
        return ()
    file = ("--kubeconfig", str(kubeconfig.absolute())) if kubeconfig is not None else ()
    return (*file, "--context", connection.context)


def _table(stack: LeewayStack) -> Stack:
    return Stack(stack.table, stack.clusters)


def read_facts(name: str, asked: str, sources: Sources) -> Facts:
    """Read the facts about a stack, and about the cluster that was asked for or, without one, all
    clusters of the stack.

    Raises:
        CommandError: nothing can be read, because there are no valid credentials or no region.
    """
    with Parts() as parts:
        instances = parts.start("the instances of the account", FAILS, aws.instances)
        stack = parts.start(f"stack {name}", FAILS, lambda: sources.stacks.stack(name))
        pending = _of_stack(parts, name, stack)
        deployed = known(stack.get())
        names = (asked,) if asked else deployed.clusters if deployed else ()
        region = str(session().region_name)
        catalog = parts.start(
            "the catalog", FAILS, lambda: aws.catalog(stack.needed().table, region)
        )
        network = parts.start(
            "the network of the functions", FAILS, lambda: sources.network(stack.needed())
        )
        answers = parts.start(
            "the answers of the functions",
            FAILS,
            lambda: _answers(names, pending, stack.needed()),
        )
        reading = [_cluster(parts, one, sources, stack, instances) for one in dict.fromkeys(names)]
        return Facts(
            region=region,
            version=__version__,
            stack=stack.get(),
            instances=instances.get(),
            catalog=catalog.get(),
            network=network.get(),
            wanted_objects=sources.wanted,
            clusters=tuple(facts() for facts in reading),
            answers=answers.get(),
            **{part: one.get() for part, one in pending.items()},
            # Last: every answer of AWS has a date.
            ahead=clock().offset.ahead,
            now=clock().now(),
        )


def _answers(
    clusters: Sequence[str], pending: Mapping[str, Part[Any]], stack: LeewayStack
) -> tuple[FunctionAnswers, ...]:
    """Ask the functions that run, if they are of this version: others know other probes."""
    functions = known(pending["functions"].get())
    if functions is None or stack.version != __version__:
        return ()
    run = {one.name for one in functions if one.state == "Active" and one.reserved != 0}
    fit = [one for one in FUNCTIONS if function_name(stack.name, one) in run]
    return aws.answers_of(stack.name, [one for one in clusters if one in stack.clusters], fit)


def _of_stack(parts: Parts, name: str, stack: Part[LeewayStack]) -> Mapping[str, Part[Any]]:
    """Start to read what needs only the names of the stack: names that CloudFormation makes begin
    with its own one."""

    def made() -> str:
        return stack.needed().stack_name

    found: Mapping[str, tuple[str, Severity, Callable[[], Any]]] = {
        "functions": ("the functions of the stack", FAILS, partial(aws.functions_of, name)),
        "aliases": ("the aliases of the functions", FAILS, partial(aws.aliases_of, name)),
        "consumers": ("the event source mappings", FAILS, partial(aws.consumers_of, name)),
        "concurrency": ("the concurrency of the account", FAILS, aws.concurrency),
        "rules": ("the rules of EventBridge", FAILS, aws.rules),
        "schedules": ("the schedules", FAILS, partial(aws.schedules_of, name)),
        "queues": ("the queues of failures", WARNS, lambda: aws.failure_queues_of(made())),
        "alarms": ("the alarms", WARNS, lambda: aws.alarms_of(made())),
        "quotas": ("the quotas of EC2", FAILS, aws.ec2_quotas),
        "spot_role": ("EC2's role for Spot", WARNS, lambda: spot_role_exists(client("iam"))),
    }
    return {key: parts.start(*given) for key, given in found.items()}
