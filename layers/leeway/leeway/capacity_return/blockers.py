"""Everything that keeps a node now: annotations, budgets of pods and of pools, windows, times."""

from collections.abc import Iterator

from leeway.capacity_return import reasons
from leeway.capacity_return.budgets import Allowances
from leeway.capacity_return.moving import Moving
from leeway.capacity_return.protection import (
    Blocker,
    against_consolidation,
    may_be_forced,
    protections,
)
from leeway.capacity_return.rules import Cause
from leeway.capacity_return.snapshot import OwnNode, Snapshot


def pending_cause(one: OwnNode, snapshot: Snapshot) -> Cause:
    """Return the cause for which a node would be given back. Its pool has rules."""
    if snapshot.rules[one.pool].deleted_at is not None:
        return Cause.POOL_DELETED
    if snapshot.rules[one.pool].expired(one.created_at, snapshot.now):
        return Cause.EXPIRED
    if one.drift:
        return Cause.DRIFTED
    return Cause.UNDERUTILIZED if one.pods else Cause.EMPTY


def blockers_of(one: OwnNode, moving: Moving, allowances: Allowances) -> tuple[Blocker, ...]:
    """Return everything that keeps a node, whether or not it would pay to give it back."""
    snapshot = moving.snapshot
    found = list(protections(one, snapshot))
    if one.pool not in snapshot.rules or one.going:
        return tuple(found)
    cause = pending_cause(one, snapshot)
    if cause in {Cause.EMPTY, Cause.UNDERUTILIZED}:
        found += _against_saving(one, moving)
    elif may_be_forced(one, snapshot):
        found = []
    return (*found, *allowances.exhausted(one.pool, cause))


def _against_saving(one: OwnNode, moving: Moving) -> Iterator[Blocker]:
    snapshot = moving.snapshot
    yield from against_consolidation(one, snapshot)
    if expected := moving.expected.get(one.name, 0):
        yield Blocker(reasons.NODE_IS_EXPECTED(node=one.name, pods=expected))
    if snapshot.rules[one.pool].only_empty and one.pods:
        reason = reasons.POOL_ONLY_EMPTY(node=one.name, pods=len(one.pods), pool=one.pool)
        yield Blocker(reason)
    if one.pods and one.price is None:
        reason = reasons.NODE_WITHOUT_PRICE(
            type=one.instance_type, capacity_type=one.capacity_type, zone=one.zone
        )
        yield Blocker(reason)
