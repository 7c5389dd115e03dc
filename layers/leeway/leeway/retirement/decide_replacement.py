"""The decision how a retiring instance is replaced, with its reason."""

from dataclasses import dataclass

from leeway.instances.groups import GroupFacts
from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import VOLUNTARY, Replacement
from leeway.reasons import Reason
from leeway.retirement.reasons import (
    CAPACITY_REBALANCING,
    CAPACITY_REQUESTED,
    DETACHES,
    GROUP_AT_MAXIMUM,
    GROUP_DECIDES,
    GROUP_TERMINATES_ALREADY,
    IN_ANY_ZONE,
    INSTANCE_REFRESH,
    LAUNCH_SUSPENDED,
    LAUNCH_UNSUPPORTED,
    LAUNCHES_SUCCESSOR,
    LEFT_GROUP,
    NO_GROUP,
    NO_REPLACEMENT,
    NOT_DETACHABLE,
    NOT_IN_SERVICE,
    OWNER_LAUNCHES,
    OWNER_REPLACES,
    POOLS_REPLACE_IN_GROUP,
    REMOVED_FROM_GROUP,
    SCALE_IN_PROTECTION,
    SUCCESSOR_REQUESTED,
    TERMINATE_SUSPENDED,
    TERMINATES_IN_GROUP,
)
from leeway.retirement.record import Method

BY_GROUP = frozenset({Method.TERMINATE_IN_GROUP, Method.LAUNCH, Method.DETACH})
"""The methods with which the group of the instance launches the successor."""


@dataclass(frozen=True, slots=True)
class ReplacementDecision:
    """How an instance is replaced, and why. `before` says that its pods are evicted only when the
    successor is Ready."""

    method: Method
    reason: Reason
    before: bool = False


def decide_replacement(
    kind: NoticeKind,
    replacement: Replacement,
    owner: Owner,
    group: GroupFacts | None,
    requested: Method | None = None,
    leeway_retires: bool = False,
    refused: Reason | None = None,
    use_pools: bool = False,
) -> ReplacementDecision:
    """Decide how a retiring instance is replaced.

    `group` is read now or from the cache; None says that the instance is in no group now.
    `requested` is the method that an earlier attempt recorded, and may have requested.
    `leeway_retires` says that by the policy Leeway retires this owner's instances, although the
    owner would do so itself. `refused` is why the group has just refused LaunchInstances.
    `use_pools` says that EC2 has no capacity for the group in any zone, and that the Cluster
    manifest allows nodes of Leeway's pools instead.

    Sources: EC2 Auto Scaling user guide, "Launch instances synchronously", "Detach EC2 instances",
    "Lifecycle hooks", "Capacity Rebalancing", "Use instance scale-in protection".
    """
    if decision := decide_without_group(kind, replacement, owner, leeway_retires):
        return decision
    before = _waits(kind, replacement)
    if group is None:
        return _outside_any_group(owner, requested is not None, before)
    if requested is Method.LAUNCH and group.lifecycle_state == "InService" and not refused:
        reason = SUCCESSOR_REQUESTED(group=group.name)
        return ReplacementDecision(Method.LAUNCH, reason, before)
    if requested is Method.REQUEST_CAPACITY and group.lifecycle_state == "InService":
        return _with_pools(group, before, refused)
    if requested is Method.TERMINATE_IN_GROUP and group.lifecycle_state.startswith("Terminating"):
        reason = GROUP_TERMINATES_ALREADY(group=group.name)
        return ReplacementDecision(Method.LEFT_TO_OWNER, reason, before)
    if replaces := why_group_replaces(kind, group):
        return ReplacementDecision(Method.LEFT_TO_OWNER, replaces)
    if "Launch" in group.suspended:
        return ReplacementDecision(Method.NOTHING, LAUNCH_SUSPENDED(group=group.name))
    if use_pools:
        return _with_pools(group, before, refused)
    if kind not in VOLUNTARY:
        return _without_launch_instances(owner, group, before)
    if not (refused := refused or _why_no_launch_instances(group)):
        return _with_launch_instances(group, before)
    otherwise = _without_launch_instances(owner, group, before)
    reason = otherwise.reason.and_then(refused)
    return ReplacementDecision(otherwise.method, reason, otherwise.before)


def _why_no_launch_instances(group: GroupFacts) -> Reason | None:
    """Return why LaunchInstances cannot replace this instance; None if it can."""
    if group.launch_unsupported:
        return LAUNCH_UNSUPPORTED(group=group.name, detail=group.launch_unsupported)
    if group.desired + group.units > group.maximum:
        return GROUP_AT_MAXIMUM(group=group.name, maximum=group.maximum)
    if "Terminate" in group.suspended:
        return TERMINATE_SUSPENDED(group=group.name)
    return None


def decide_without_group(
    kind: NoticeKind, replacement: Replacement, owner: Owner, leeway_retires: bool
) -> ReplacementDecision | None:
    """Return the decision if it does not depend on the instance's group; None if it does."""
    if replacement is Replacement.NONE:
        by_hook = kind is NoticeKind.TERMINATE_HOOK
        reason = GROUP_DECIDES() if by_hook else NO_REPLACEMENT(kind=kind)
        return ReplacementDecision(Method.NOTHING, reason)
    if owner.kind is OwnerKind.LEEWAY:
        reason = CAPACITY_REQUESTED(pool=owner.name)
        return ReplacementDecision(Method.REQUEST_CAPACITY, reason, _waits(kind, replacement))
    return _owner_replaces(owner, leeway_retires)


_NOT_RECOMMENDED = frozenset({NoticeKind.SCHEDULED_CHANGE, NoticeKind.IMPAIRED_STATUS})
"""Notices that are no rebalance recommendation, after which Capacity Rebalancing does nothing."""


def why_group_replaces(kind: NoticeKind, group: GroupFacts) -> Reason | None:
    """Return why the group replaces the instance without a request; None if it does not."""
    if group.lifecycle_state != "InService":
        return NOT_IN_SERVICE(group=group.name, state=group.lifecycle_state)
    if group.capacity_rebalance and kind not in _NOT_RECOMMENDED:
        return CAPACITY_REBALANCING(group=group.name)
    if group.refreshing:
        return INSTANCE_REFRESH(group=group.name)
    return None


def _with_launch_instances(group: GroupFacts, before: bool) -> ReplacementDecision:
    reason = LAUNCHES_SUCCESSOR(
        group=group.name, capacity=group.desired + group.units, maximum=group.maximum
    )
    return ReplacementDecision(Method.LAUNCH, _with_cautions(reason, group), before)


def _with_pools(group: GroupFacts, before: bool, refused: Reason | None) -> ReplacementDecision:
    """Return the method by which Leeway's pools launch in place of the group. The group then gets
    smaller by the instance, so that it does not launch another one, unless it is at its minimum."""
    capacity = " with a decrement"
    if not (group.from_cache or group.may_shrink):
        capacity = f", and keeps its desired capacity, which is its minimum of {group.minimum}"
    reason = POOLS_REPLACE_IN_GROUP(group=group.name, capacity=capacity)
    reason = reason.and_then(refused) if refused else reason
    return ReplacementDecision(Method.REQUEST_CAPACITY, _with_cautions(reason, group), before)


def _without_launch_instances(owner: Owner, group: GroupFacts, before: bool) -> ReplacementDecision:
    """Return a method by which the group launches a successor because the instance leaves it. The
    group's desired capacity does not change."""
    if not group.terminate_hook_waits:
        return _without_hook(owner, group, before)
    reason = TERMINATES_IN_GROUP(group=group.name, hook=group.terminate_hooks[0])
    reason = _with_cautions(_with_zones(reason, group), group)
    return ReplacementDecision(Method.TERMINATE_IN_GROUP, reason, before)


def _without_hook(owner: Owner, group: GroupFacts, before: bool) -> ReplacementDecision:
    why = "it has no terminate hook"
    if group.terminate_hooks:
        why = "its Terminate process is suspended"
    elif group.foreign_terminate_hooks:
        why = f"its terminate hook {group.foreign_terminate_hooks[0]} notifies another target"
    if owner.kind is OwnerKind.MANAGED_NODE_GROUP:
        reason = NOT_DETACHABLE(group=group.name, why=why)
        return ReplacementDecision(Method.NOTHING, reason)
    reason = _with_zones(DETACHES(group=group.name, why=why), group)
    return ReplacementDecision(Method.DETACH, _with_cautions(reason, group), before)


def _waits(kind: NoticeKind, replacement: Replacement) -> bool:
    """Whether the drain waits for the successor. In an interruption there is no time to."""
    return replacement is Replacement.BEFORE and kind in VOLUNTARY


def _with_zones(reason: Reason, group: GroupFacts) -> Reason:
    zones = len(group.zones)
    return reason.and_then(IN_ANY_ZONE(zones=zones)) if zones > 1 else reason


def _with_cautions(reason: Reason, group: GroupFacts) -> Reason:
    """Add what an operator of the group may not expect."""
    return reason.and_then(SCALE_IN_PROTECTION()) if group.protected else reason


def _owner_replaces(owner: Owner, leeway_retires: bool) -> ReplacementDecision | None:
    if not owner.retires_itself:
        return None
    name = f"{owner.kind} {owner.name}".strip()
    if not leeway_retires:
        return ReplacementDecision(Method.LEFT_TO_OWNER, OWNER_REPLACES(owner=name))
    if owner.kind is OwnerKind.MANAGED_NODE_GROUP:
        return None
    return ReplacementDecision(Method.LEFT_TO_OWNER, OWNER_LAUNCHES(owner=name))


def _outside_any_group(owner: Owner, requested: bool, before: bool) -> ReplacementDecision:
    if requested:
        return ReplacementDecision(Method.NOTHING, LEFT_GROUP(), before)
    if owner.kind in {OwnerKind.AUTO_SCALING_GROUP, OwnerKind.MANAGED_NODE_GROUP}:
        return ReplacementDecision(Method.NOTHING, REMOVED_FROM_GROUP(group=owner.name))
    return ReplacementDecision(Method.NOTHING, NO_GROUP())
