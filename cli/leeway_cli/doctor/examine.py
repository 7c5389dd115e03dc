"""Makes all checks of facts, and renders the findings for a terminal and as JSON."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from leeway.reasons import counted, some

from leeway_cli.doctor import reasons
from leeway_cli.doctor.checks.clusters import (
    check_catalog,
    check_clock,
    check_clusters,
    check_pools,
    spending_limit,
)
from leeway_cli.doctor.checks.groups import check_groups, check_hooks
from leeway_cli.doctor.checks.probes import check_answers
from leeway_cli.doctor.checks.quotas import (
    check_concurrency,
    check_starts,
    check_terminations,
    check_vcpus,
)
from leeway_cli.doctor.checks.second_handlers import (
    check_managed_groups,
    check_other_rules,
    check_workloads,
)
from leeway_cli.doctor.checks.setup import check_endpoints, check_rights, check_setup
from leeway_cli.doctor.checks.stack import (
    check_alarms,
    check_aliases,
    check_consumers,
    check_failures,
    check_functions,
    check_rules,
    check_schedules,
    check_stack,
)
from leeway_cli.doctor.checks.targets import check_targets
from leeway_cli.doctor.facts import Facts, known, unread_parts
from leeway_cli.doctor.finding import About, Cause, Finding, Severity

if TYPE_CHECKING:
    from rich.console import RenderableType


def check_unread(facts: Facts) -> Iterator[Finding]:
    """Report every part that could not be read, with the error."""
    for cluster, one in unread_parts(facts):
        message = f"The doctor could not read {one.part}: {one.problem}."
        yield About(reasons.PART_NOT_READ, one.part, cluster).finding(one.severity, message)


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    check_unread,
    check_stack,
    check_functions,
    check_aliases,
    check_rules,
    check_schedules,
    check_consumers,
    check_failures,
    check_alarms,
    check_concurrency,
    check_starts,
    check_terminations,
    check_vcpus,
    check_catalog,
    check_clock,
    check_setup,
    check_rights,
    check_endpoints,
    check_answers,
    check_groups,
    check_hooks,
    check_targets,
    check_workloads,
    check_managed_groups,
    check_other_rules,
    check_clusters,
    check_pools,
)

_ORDER = {Severity.FAILS: 0, Severity.WARNS: 1}


def examine(facts: Facts) -> tuple[Finding, ...]:
    """Return what the checks find: failures first, and of each severity in the order of the checks.
    `causes` joins findings that belong together."""
    found = dict.fromkeys(finding for check in CHECKS for finding in check(facts))
    return tuple(sorted(found, key=lambda one: _ORDER[one.severity]))


_STYLES = {Severity.FAILS: "bold red", Severity.WARNS: "yellow"}


MOST_REASONS = 6
"""How many sentences and commands of one finding are printed; the others are counted."""


def as_view(facts: Facts, found: Sequence[Cause]) -> "RenderableType":
    """Render the findings for a terminal, each with its sentences and its command below."""
    from rich.console import Group

    return Group(*_lines(facts, found))


def _lines(facts: Facts, found: Sequence[Cause]) -> "Iterator[RenderableType]":
    from rich.text import Text

    for one in found:
        line = Text()
        line.append(f"{one.severity.value:<5}  ", style=_STYLES[one.severity])
        line.append(one.code, style="bold")
        where = f"{one.cluster}: " if one.cluster else ""
        yield line.append(f"  {where}{some(one.subjects)}", style="dim")
        for reason in one.reasons[:MOST_REASONS]:
            yield Text(f"       {reason}")
        if (more := len(one.reasons) - MOST_REASONS) > 0:
            yield Text(f"       and {more} more, which -o json lists")
        commands = one.command.splitlines()
        for command in commands[:MOST_REASONS]:
            yield Text(f"       $ {command}", style="cyan")
        if (more := len(commands) - MOST_REASONS) > 0:
            yield Text(f"       and {counted(more, 'more command')}, which -o json lists")
    for cluster in facts.clusters:
        configuration = known(cluster.configuration)
        if configuration is not None and configuration.pools:
            most = spending_limit(configuration.usd_per_hour)
            yield Text(f"{cluster.name}: Leeway's nodes may cost {most}")
            for pool, usd in configuration.pool_limits:
                yield Text(
                    f"{cluster.name}: the nodes of pool {pool} may cost {usd:.2f} USD per hour"
                )
    yield Text(_summary(facts, found))


def _summary(facts: Facts, found: Sequence[Cause]) -> str:
    names = ", ".join(one.name for one in facts.clusters) or "no cluster"
    fails, warns = (count(found, severity) for severity in Severity)
    unread = sum(1 for _ in unread_parts(facts))
    text = f"{names}: {counted(fails, 'failure')}, {counted(warns, 'warning')}"
    if unread:
        return f"{text}; {counted(unread, 'part')} could not be read"
    return f"{text}; everything was read" if found else f"{names}: all is well"


def count(found: Sequence[Cause], severity: Severity) -> int:
    """Count the findings of a severity."""
    return sum(one.severity is severity for one in found)


def as_data(facts: Facts, found: Sequence[Cause]) -> dict[str, Any]:
    """Render findings for JSON."""
    return {
        "region": facts.region,
        "clusters": [one.name for one in facts.clusters],
        "fails": count(found, Severity.FAILS),
        "warns": count(found, Severity.WARNS),
        "unread": [
            {"part": one.part, "cluster": cluster, "reason": one.problem}
            for cluster, one in unread_parts(facts)
        ],
        "findings": [asdict(one) for one in found],
    }
