"""Why a node is not disrupted voluntarily now."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from leeway.capacity_return import reasons
from leeway.capacity_return.snapshot import MovablePod, OwnNode, Snapshot
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT
from leeway.provisioning.cluster_state import FOREVER
from leeway.reasons import Reason


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing that keeps a node. `until` is when it ends by itself (UTC), None if it stays until
    somebody changes something."""

    reason: Reason
    until: datetime | None = None


def why_protected(one: OwnNode, snapshot: Snapshot) -> Reason | None:
    """Return why a node is kept whatever speaks against it; None if nothing protects it."""
    first = next(protections(one, snapshot), None)
    return first.reason if first else None


def may_be_forced(one: OwnNode, snapshot: Snapshot) -> bool:
    """Whether a protected node goes nevertheless when it has expired or drifted, because its pool
    bounds the drain. Source: Karpenter documentation, "TerminationGracePeriod"."""
    rules = snapshot.rules.get(one.pool)
    return rules is not None and rules.drain_within is not None and not one.going


def why_not_consolidated(one: OwnNode, snapshot: Snapshot) -> Reason | None:
    """Return why a node is not consolidated now, before it is known whether that would pay; None if
    it may be."""
    first = next(against_consolidation(one, snapshot), None)
    return first.reason if first else None


def protections(one: OwnNode, snapshot: Snapshot) -> Iterator[Blocker]:
    """Yield everything that protects a node."""
    if one.pool not in snapshot.rules:
        yield Blocker(reasons.POOL_WITHOUT_RULES(pool=one.pool))
    if one.going:
        yield Blocker(reasons.NODE_GOES_ALREADY(node=one.name))
    if one.protected:
        yield Blocker(reasons.NODE_IS_PROTECTED(node=one.name, annotation=DO_NOT_DISRUPT))
    for movable in one.pods:
        yield from _protections_by(movable, one, snapshot)


def _protections_by(movable: MovablePod, one: OwnNode, snapshot: Snapshot) -> Iterator[Blocker]:
    pod, until = movable.pod.name, movable.protected_until
    if until is not None and snapshot.now < until:
        reason = reasons.POD_IS_PROTECTED(pod=pod, node=one.name, annotation=DO_NOT_DISRUPT)
        yield Blocker(reason, until if until < FOREVER else None)
    for budget in movable.blocked_by:
        yield Blocker(reasons.POD_IS_BLOCKED(budget=budget, pod=pod, node=one.name))


def against_consolidation(one: OwnNode, snapshot: Snapshot) -> Iterator[Blocker]:
    """Yield everything that keeps a node of a pool with rules from being consolidated now, before
    it is known whether that would pay."""
    rules = snapshot.rules[one.pool]
    if not one.ready:
        yield Blocker(reasons.NODE_STARTS(node=one.name))
    if one.busy:
        yield Blocker(reasons.NODE_IS_BUSY(node=one.name))
    for movable in one.pods:
        if movable.bare:
            yield Blocker(reasons.POD_IS_BARE(pod=movable.pod.name, node=one.name))
    if rules.after is None:
        yield Blocker(reasons.POOL_NEVER_CONSOLIDATED(pool=one.pool))
        return
    quiet = snapshot.now - one.quiet_since
    if quiet < rules.after:
        reason = reasons.NODE_NOT_QUIET(node=one.name, ago=quiet, pool=one.pool, after=rules.after)
        yield Blocker(reason, one.quiet_since + rules.after)
    age, least = snapshot.now - one.created_at, snapshot.worth.least_age
    if one.pods and age < least:
        reason = reasons.NODE_TOO_YOUNG(node=one.name, age=age, least=least)
        yield Blocker(reason, one.created_at + least)
