"""Decides what in the status of a cluster needs a person: the most urgent first."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from leeway.manifests.configuration import MANIFEST_INVALID
from leeway.reasons import Reason
from leeway.retirement.progress import Stage
from leeway.retirement.reasons import (
    BUDGET_EXHAUSTED,
    CLUSTER_PAUSED,
    EVICTION_DENIED,
    POD_DOES_NOT_END,
    POD_EVICTED,
    TARGETS_DRAIN,
)
from leeway.retirement.record import OVER

if TYPE_CHECKING:
    from leeway_cli.status.view import ClusterStatus, RetirementStatus

TIME_OF_A_DRAIN = timedelta(minutes=10)
"""After this time since its notice, a pod that does not leave its node needs a person. Before, it
waits for a budget, as drains do."""


@dataclass(frozen=True, slots=True)
class Attention:
    """What a person has to look at. `subject` is an instance, a pool, a pod or a manifest; `more`
    counts others with the same reason; `runbook` is the anchor of a section of docs/runbook.md."""

    subject: str
    reason: Reason
    more: int = 0
    runbook: str = ""


def needs_a_person(
    status: "ClusterStatus", runbook: Mapping[str, str], now: datetime
) -> tuple[Attention, ...]:
    """Return what needs a person: first nodes that stop with their pods, then pods that get no
    node, then what will cause either. `runbook` has the section of each code that somebody has to
    act on; other codes are left out."""
    found: dict[Reason, Attention] = {}
    for subject, reason, more in _candidates(status, now):
        if (section := runbook.get(reason.code)) is None:
            continue
        before = found.get(reason)
        if before is None:
            found[reason] = Attention(subject, reason, more, section)
        elif before.subject != subject:
            found[reason] = Attention(before.subject, reason, before.more + 1 + more, section)
    return tuple(found.values())


def codes_of(status: "ClusterStatus", now: datetime) -> Collection[str]:
    """Return the codes of all that may need a person: empty for a healthy cluster."""
    return {reason.code for _, reason, _ in _candidates(status, now)}


def _candidates(status: "ClusterStatus", now: datetime) -> Iterator[tuple[str, Reason, int]]:
    """Yield subjects, reasons, and how many others have the same."""
    for one in status.retirements:
        yield from ((_name(one), reason, 0) for reason in _of_retirement(one, now))
    run = status.provisioning
    if run is not None:
        if run.failure is not None:
            yield status.cluster, run.failure, 0
        for group in run.without_node:
            yield f"pod {group.some[0]}", group.reason, group.count - 1
    for pool in status.pools:
        if pool.paused is not None:
            yield f"pool {pool.pool}", pool.paused, 0
    rolls = [one.roll for one in status.rolls]
    yield from ((f"group {one.group}", one.halted, 0) for one in rolls if one.halted)
    if run is not None:
        yield from ((f"pool {late.pool}", late.reason, 0) for late in run.late)
        yield from ((status.cluster, problem, 0) for problem in run.problems)
    for kept in status.headroom:
        if kept.problem is not None:
            yield kept.subject, kept.problem, 0
    for invalid in status.problems:
        yield status.cluster, MANIFEST_INVALID(problem=invalid, author=""), 0


def _name(one: "RetirementStatus") -> str:
    return (one.drain and one.drain.node) or one.record.instance


_WAITS = frozenset({BUDGET_EXHAUSTED.name, CLUSTER_PAUSED.name, TARGETS_DRAIN.name})
"""Brakes that work as their settings say: nobody has to act on a retirement that waits for them."""

_REMAIN = frozenset({Stage.PENDING, Stage.BLOCKED, Stage.TERMINATING, Stage.RETURNED})


def _of_retirement(one: "RetirementStatus", now: datetime) -> Iterator[Reason]:
    record, drain = one.record, one.drain
    if drain is None or record.phase in OVER:
        return
    if drain.problem is not None and drain.problem.code not in _WAITS:
        yield drain.problem
    late = record.deadline is not None and now > record.deadline
    late = late or now - record.noticed_at > TIME_OF_A_DRAIN
    for pod in drain.pods:
        denied = pod.reason.code == EVICTION_DENIED.name
        if denied or pod.stage is Stage.FAILED or (late and pod.stage in _REMAIN):
            evicted = pod.reason.code == POD_EVICTED.name
            yield POD_DOES_NOT_END(pod.reason) if evicted else pod.reason
