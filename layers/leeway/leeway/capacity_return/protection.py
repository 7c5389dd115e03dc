"""Why a node is not disrupted voluntarily now."""

from leeway.capacity_return import reasons
from leeway.capacity_return.snapshot import OwnNode, Snapshot
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT
from leeway.reasons import Reason


def why_protected(one: OwnNode, snapshot: Snapshot) -> Reason | None:
    """Return why a node is kept whatever speaks against it; None if nothing protects it."""
    if one.pool not in snapshot.rules:
        return reasons.POOL_WITHOUT_RULES(pool=one.pool)
    if one.going:
        return reasons.NODE_GOES_ALREADY(node=one.name)
    if one.protected:
        return reasons.NODE_IS_PROTECTED(node=one.name, annotation=DO_NOT_DISRUPT)
    for movable in one.pods:
        until = movable.protected_until
        if until is not None and snapshot.now < until:
            return reasons.POD_IS_PROTECTED(
                pod=movable.pod.name, node=one.name, annotation=DO_NOT_DISRUPT
            )
        if movable.blocked_by:
            return reasons.POD_IS_BLOCKED(
                budget=movable.blocked_by[0], pod=movable.pod.name, node=one.name
            )
    return None


def may_be_forced(one: OwnNode, snapshot: Snapshot) -> bool:
    """Whether a protected node goes nevertheless when it has expired or drifted, because its pool
    bounds the drain. Source: Karpenter documentation, "TerminationGracePeriod"."""
    rules = snapshot.rules.get(one.pool)
    return rules is not None and rules.drain_within is not None and not one.going


def why_not_consolidated(one: OwnNode, snapshot: Snapshot) -> Reason | None:
    """Return why a node is not consolidated now, before it is known whether that would pay; None if
    it may be."""
    rules = snapshot.rules[one.pool]
    if not one.ready:
        return reasons.NODE_STARTS(node=one.name)
    if one.busy:
        return reasons.NODE_IS_BUSY(node=one.name)
    for movable in one.pods:
        if movable.bare:
            return reasons.POD_IS_BARE(pod=movable.pod.name, node=one.name)
    if rules.after is None:
        return reasons.POOL_NEVER_CONSOLIDATED(pool=one.pool)
    quiet = snapshot.now - one.quiet_since
    if quiet < rules.after:
        return reasons.NODE_NOT_QUIET(node=one.name, ago=quiet, pool=one.pool, after=rules.after)
    return None
