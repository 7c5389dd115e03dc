"""The decision how a retiring instance is replaced, with its reason."""

from dataclasses import dataclass

from leeway.instances.facts import GroupFacts, Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import VOLUNTARY, Replacement
from leeway.reasons import Reason
from leeway.retirement.reasons import (
    NO_SUCCESSOR,
    REPLACEMENT_DECIDED,
)
from leeway.retirement.record import Method

BY_GROUP = frozenset({Method.TERMINATE_IN_GROUP, Method.LAUNCH, Method.DETACH})
"""The methods with which the group of the instance launches the successor."""


@dataclass(frozen=True, slots=True)
class ReplacementDecision:
    """How an instance is replaced, and why. `before` says that its pods are evicted only when the
    successor is ready for pods."""

    method: Method
    reason: Reason
    before: bool = False


def decide_replacement(
    kind: NoticeKind,
    replacement: Replacement,
    owner: Owner,
    group: GroupFacts | None,
    requested: Method | None = None,
    refused: str = "",
    use_pools: bool = False,
) -> ReplacementDecision:
    """Decide how a retiring instance is replaced.

    `group` is read now or from the cache; None says that the instance is in no group now.
    `requested` is the method that an earlier attempt recorded, and may have requested.
    `refused` is why the group has just refused LaunchInstances. `use_pools` says that EC2 has no
    capacity for the group in any zone, and that the Cluster manifest allows nodes of Leeway's pools
    instead.

    Sources: EC2 Auto Scaling user guide, "Launch instances synchronously", "Detach EC2 instances",
    "Lifecycle hooks", "Capacity Rebalancing", "Use instance scale-in protection".
    """
    if decision := decide_without_group(kind, replacement, owner):
        return decision
    before = _waits(kind, replacement)
    if group is None:
        return _outside_any_group(owner, requested is not None, before)
    if requested is Method.LAUNCH and group.lifecycle_state == "InService" and not refused:
        reason = REPLACEMENT_DECIDED(
            f"An earlier attempt requested the successor from group {group.name}."
        )
        return ReplacementDecision(Method.LAUNCH, reason, before)
    if requested is Method.REQUEST_CAPACITY and group.lifecycle_state == "InService":
        return _with_pools(group, before, refused)
    if requested is Method.TERMINATE_IN_GROUP and group.lifecycle_state.startswith("Terminating"):
        reason = REPLACEMENT_DECIDED(
            f"Group {group.name} terminates the instance already, as an earlier attempt requested."
        )
        return ReplacementDecision(Method.LEFT_TO_OWNER, reason, before)
    if replaces := why_group_replaces(kind, group):
        return ReplacementDecision(Method.LEFT_TO_OWNER, replaces)
    if "Launch" in group.suspended:
        return ReplacementDecision(
            Method.NOTHING,
            NO_SUCCESSOR(
                f"Group {group.name} launches no successor, because its Launch "
                "process is suspended. Resume it."
            ),
        )
    may_stay = kind is NoticeKind.CAPACITY_RETURN  # the node drifted, and still works
    if use_pools and not may_stay:
        return _with_pools(group, before, refused)
    if kind not in VOLUNTARY:
        return _without_launch_instances(owner, group, before)
    if not (refused := refused or _why_no_launch_instances(group)):
        return _with_launch_instances(group, before)
    if may_stay:
        return ReplacementDecision(Method.NOTHING, NO_SUCCESSOR(refused))
    otherwise = _without_launch_instances(owner, group, before)
    reason = otherwise.reason.and_then(refused)
    return ReplacementDecision(otherwise.method, reason, otherwise.before)


def why_no_successor_first(group: GroupFacts) -> Reason | None:
    """Return why a group cannot launch the successor of an instance before it leaves the group, or
    does so without a request; None if it can."""
    kind, owner = NoticeKind.CAPACITY_RETURN, Owner(OwnerKind.AUTO_SCALING_GROUP, group.name)
    decision = decide_replacement(kind, Replacement.BEFORE, owner, group)
    return None if decision.method is Method.LAUNCH else decision.reason


def _why_no_launch_instances(group: GroupFacts) -> str:
    """Return why LaunchInstances cannot replace this instance; empty if it can."""
    if group.launch_unsupported:
        return (
            f"LaunchInstances does not support group {group.name}, which "
            f"{group.launch_unsupported}."
        )
    if group.desired + group.units > group.maximum:
        return (
            "LaunchInstances would exceed the maximum of group "
            f"{group.name}, which is {group.maximum}."
        )
    if "Terminate" in group.suspended:
        return (
            f"After LaunchInstances group {group.name} could not terminate "
            "the instance, because its Terminate process is suspended."
        )
    return ""


def decide_without_group(
    kind: NoticeKind, replacement: Replacement, owner: Owner
) -> ReplacementDecision | None:
    """Return the decision if it does not depend on the instance's group; None if it does."""
    if replacement is Replacement.NONE:
        by_hook = kind is NoticeKind.TERMINATE_HOOK
        reason = (
            REPLACEMENT_DECIDED(
                "The group terminates the instance and decides itself whether "
                "to launch a successor."
            )
            if by_hook
            else REPLACEMENT_DECIDED(f"The policy for {kind} requests no replacement.")
        )
        return ReplacementDecision(Method.NOTHING, reason)
    if owner.kind is OwnerKind.LEEWAY:
        reason = REPLACEMENT_DECIDED(
            f"The instance is of Leeway's pool {owner.name}: "
            "provision_nodes launches nodes for its pods."
        )
        return ReplacementDecision(Method.REQUEST_CAPACITY, reason, _waits(kind, replacement))
    return _owner_replaces(owner)


_NOT_RECOMMENDED = VOLUNTARY - {NoticeKind.REBALANCE}
"""Notices that are no rebalance recommendation, after which Capacity Rebalancing does nothing."""


def why_group_replaces(kind: NoticeKind, group: GroupFacts) -> Reason | None:
    """Return why the group replaces the instance without a request; None if it does not."""
    if group.lifecycle_state != "InService":
        return REPLACEMENT_DECIDED(
            f"Group {group.name} has the instance in lifecycle state "
            f"{group.lifecycle_state} and replaces it if needed."
        )
    if group.capacity_rebalance and kind not in _NOT_RECOMMENDED:
        return REPLACEMENT_DECIDED(
            f"Capacity Rebalancing is on in group {group.name} and replaces the instance."
        )
    if group.refreshing:
        return REPLACEMENT_DECIDED(
            f"An instance refresh of group {group.name} replaces the instance."
        )
    return None


def _with_launch_instances(group: GroupFacts, before: bool) -> ReplacementDecision:
    reason = REPLACEMENT_DECIDED(
        f"Group {group.name} launches the successor with "
        f"LaunchInstances ({group.desired + group.units} of at most "
        f"{group.maximum}) and terminates the instance when its pods "
        "are gone."
    )
    return ReplacementDecision(Method.LAUNCH, _with_cautions(reason, group), before)


def _with_pools(group: GroupFacts, before: bool, refused: str) -> ReplacementDecision:
    """Return the method by which Leeway's pools launch in place of the group. The group then gets
    smaller by the instance, so that it does not launch another one, unless it is at its minimum."""
    capacity = " with a decrement"
    if not (group.from_cache or group.may_shrink):
        capacity = f", and keeps its desired capacity, which is its minimum of {group.minimum}"
    reason = REPLACEMENT_DECIDED(
        "Leeway's pools launch nodes for the pods instead of group "
        f"{group.name}, which terminates the instance after the "
        f"drain{capacity}."
    )
    reason = reason.and_then(refused) if refused else reason
    return ReplacementDecision(Method.REQUEST_CAPACITY, _with_cautions(reason, group), before)


def _without_launch_instances(owner: Owner, group: GroupFacts, before: bool) -> ReplacementDecision:
    """Return a method by which the group launches a successor because the instance leaves it. The
    group's desired capacity does not change."""
    if not group.terminate_hook_waits:
        return _without_hook(owner, group, before)
    reason = REPLACEMENT_DECIDED(
        f"Group {group.name} launches the successor at once, and its "
        f"terminate hook {group.terminate_hooks[0]} keeps the instance "
        "while the pods move."
    )
    reason = _with_cautions(_with_zones(reason, group), group)
    return ReplacementDecision(Method.TERMINATE_IN_GROUP, reason, before)


def _without_hook(owner: Owner, group: GroupFacts, before: bool) -> ReplacementDecision:
    why = "it has no terminate hook"
    if group.terminate_hooks:
        why = "its Terminate process is suspended"
    elif group.foreign_terminate_hooks:
        why = f"its terminate hook {group.foreign_terminate_hooks[0]} notifies another target"
    if owner.kind is OwnerKind.MANAGED_NODE_GROUP:
        reason = NO_SUCCESSOR(
            f"No successor is requested from group {group.name}: {why}, and "
            "EKS does not let instances leave its groups."
        )
        return ReplacementDecision(Method.NOTHING, reason)
    reason = REPLACEMENT_DECIDED(
        f"Leeway detaches the instance from group {group.name} and drains it, while the group "
        f"launches the successor: {why}."
    )
    reason = _with_zones(reason, group)
    return ReplacementDecision(Method.DETACH, _with_cautions(reason, group), before)


def _waits(kind: NoticeKind, replacement: Replacement) -> bool:
    """Whether the drain waits for the successor. In an interruption there is no time to."""
    return replacement is Replacement.BEFORE and kind in VOLUNTARY


def _with_zones(reason: Reason, group: GroupFacts) -> Reason:
    zones = len(group.zones)
    return (
        reason.and_then(f"The successor may start in any of the group's {zones} zones.")
        if zones > 1
        else reason
    )


def _with_cautions(reason: Reason, group: GroupFacts) -> Reason:
    """Add what an operator of the group may not expect."""
    return (
        reason.and_then(
            "The instance's scale-in protection does not prevent an explicit termination."
        )
        if group.protected
        else reason
    )


def _owner_replaces(owner: Owner) -> ReplacementDecision | None:
    if not owner.retires_itself or owner.kind is OwnerKind.MANAGED_NODE_GROUP:
        return None
    name = f"{owner.kind} {owner.name}".strip()
    return ReplacementDecision(
        Method.LEFT_TO_OWNER,
        REPLACEMENT_DECIDED(f"{name} launches the capacity that the evicted pods need."),
    )


def _outside_any_group(owner: Owner, requested: bool, before: bool) -> ReplacementDecision:
    if requested:
        return ReplacementDecision(
            Method.NOTHING,
            REPLACEMENT_DECIDED(
                "The instance has left its group, and its successor is requested already."
            ),
            before,
        )
    if owner.kind in {OwnerKind.AUTO_SCALING_GROUP, OwnerKind.MANAGED_NODE_GROUP}:
        return ReplacementDecision(
            Method.NOTHING,
            REPLACEMENT_DECIDED(
                f"The instance is no longer in group {owner.name}, which replaces it."
            ),
        )
    return ReplacementDecision(
        Method.NOTHING,
        REPLACEMENT_DECIDED(
            "The instance is in no Auto Scaling group: no group launches a successor."
        ),
    )
