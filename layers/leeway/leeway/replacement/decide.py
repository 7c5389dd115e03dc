"""How a retiring instance's group is to replace it: one decision, with its reason."""

from dataclasses import dataclass, replace

from leeway.instances.groups import GroupFacts
from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import VOLUNTARY, Replacement
from leeway.retirement.replacement_intent import Method


@dataclass(frozen=True, slots=True)
class Decision:
    """A way to replace, and why. `before` says that pods are to be evicted only when the successor
    is Ready."""

    method: Method
    reason: str
    before: bool = False


def decide_replacement(
    kind: NoticeKind,
    wanted: Replacement,
    owner: Owner,
    group: GroupFacts | None,
    asked: Method | None = None,
    taken: bool = False,
    refused: str = "",
) -> Decision:
    """Decide how a retiring instance is replaced.

    `group` is a fresh read, or recalled; None says that the instance is in no group now. `asked`
    is how far an earlier attempt or attempt got: what it intended, and may have done. `taken`
    says that the policy has Leeway retire this owner's instances although it would do it itself.
    `refused` says why the group launched no successor by name just now, where it was asked to.

    Sources: EC2 Auto Scaling user guide, "Launch instances synchronously", "Detach EC2 instances",
    "Lifecycle hooks", "Capacity Rebalancing", "Use instance scale-in protection".
    """
    if settled := decide_without_group(kind, wanted, owner, taken):
        return settled
    if group is None:
        return _outside_any_group(owner, asked is not None, _waits(kind, wanted))
    if asked is Method.LAUNCH and group.lifecycle_state == "InService" and not refused:
        return Decision(
            Method.LAUNCH,
            f"group {group.name} was asked for its successor before",
            before=_waits(kind, wanted),
        )
    if asked is Method.TERMINATE_IN_GROUP and group.lifecycle_state.startswith("Terminating"):
        ends = f"group {group.name} ends the instance already, as it was asked to"
        return Decision(Method.LEFT_TO_OWNER, ends, before=_waits(kind, wanted))
    if owns := groups_own_business(kind, group):
        return Decision(Method.LEFT_TO_OWNER, owns)
    if "Launch" in group.suspended:
        return Decision(
            Method.NOTHING, f"group {group.name} has its Launch process suspended: none would come"
        )
    if kind not in VOLUNTARY:
        return _by_the_group(kind, wanted, owner, group)
    if not (refused := refused or _why_not_by_name(group)):
        return _by_name(kind, wanted, group)
    otherwise = _by_the_group(kind, wanted, owner, group)
    return replace(otherwise, reason=f"no successor by name: {refused}; {otherwise.reason}")


def _why_not_by_name(group: GroupFacts) -> str:
    """Say why the group can't launch one more for this instance alone; empty where it can."""
    if group.launch_unsupported:
        return f"group {group.name} {group.launch_unsupported}"
    if group.desired + group.units > group.maximum:
        return f"group {group.name} is at its maximum of {group.maximum}"
    if "Terminate" in group.suspended:
        return f"group {group.name} has its Terminate process suspended"
    return ""


def decide_without_group(
    kind: NoticeKind, wanted: Replacement, owner: Owner, taken: bool
) -> Decision | None:
    """Decide what does not depend on the instance's group; None where it does."""
    if wanted is Replacement.NONE:
        return Decision(Method.NOTHING, _why_nothing(kind))
    return _owner_replaces(owner, taken)


_NOT_RECOMMENDED = frozenset({NoticeKind.SCHEDULED_CHANGE, NoticeKind.IMPAIRED_STATUS})


def groups_own_business(kind: NoticeKind, group: GroupFacts) -> str | None:
    """Say why the group needs no telling, or None where it does. Capacity Rebalancing follows
    rebalance recommendations, which neither a scheduled change nor a failed status check is."""
    if group.lifecycle_state != "InService":
        return f"group {group.name} has the instance {group.lifecycle_state}: already its business"
    if group.capacity_rebalance and kind not in _NOT_RECOMMENDED:
        return f"group {group.name} has Capacity Rebalancing on and replaces the instance itself"
    if group.refreshing:
        return f"group {group.name} is in an instance refresh and replaces the instance itself"
    return None


def _by_name(kind: NoticeKind, wanted: Replacement, group: GroupFacts) -> Decision:
    return Decision(
        Method.LAUNCH,
        f"group {group.name} launches its successor by name, {group.desired + group.units} of at "
        f"most {group.maximum}, and ends the instance when its pods have gone{_cautions(group)}",
        before=_waits(kind, wanted),
    )


def _by_the_group(
    kind: NoticeKind, wanted: Replacement, owner: Owner, group: GroupFacts
) -> Decision:
    """The group launches another one by itself when the instance leaves it, and is as large as
    before whatever happens."""
    if not group.terminate_hook_waits:
        return _without_hook(kind, wanted, owner, group)
    return Decision(
        Method.TERMINATE_IN_GROUP,
        f"group {group.name} has the terminate hook {group.terminate_hooks[0]}: it keeps the "
        f"instance while its successor starts{_anywhere(group)}{_cautions(group)}",
        before=_waits(kind, wanted),
    )


def _without_hook(
    kind: NoticeKind, wanted: Replacement, owner: Owner, group: GroupFacts
) -> Decision:
    why = "has no terminate hook"
    if group.terminate_hooks:
        why = "has its Terminate process suspended"
    elif group.foreign_terminate_hooks:
        why = f"keeps no instance for its pods: its hook {group.foreign_terminate_hooks[0]} calls others"
    if owner.kind is OwnerKind.MANAGED_NODE_GROUP:
        return Decision(
            Method.NOTHING,
            f"group {group.name} {why}, and EKS does not let instances leave its groups",
        )
    return Decision(
        Method.DETACH,
        f"group {group.name} {why}: detached, the instance can be drained while the group "
        f"launches its successor{_anywhere(group)}{_cautions(group)}",
        before=_waits(kind, wanted),
    )


def _waits(kind: NoticeKind, wanted: Replacement) -> bool:
    """Whether there is time to wait for the successor: EC2 waits for nobody in an interruption."""
    return wanted is Replacement.BEFORE and kind in VOLUNTARY


def _anywhere(group: GroupFacts) -> str:
    zones = len(group.zones)
    return f"; the successor may come in any of {zones} zones" if zones > 1 else ""


def _cautions(group: GroupFacts) -> str:
    """Say what may surprise somebody who looks at the group."""
    if not group.protected:
        return ""
    return "; its protection from scale-in does not hold for an instance that is named"


def _why_nothing(kind: NoticeKind) -> str:
    if kind is NoticeKind.TERMINATE_HOOK:
        return "the group ends this instance itself; whether it wants a successor is its decision"
    return f"the policy for {kind} asks for no replacement"


def _owner_replaces(owner: Owner, taken: bool) -> Decision | None:
    if not owner.retires_itself:
        return None
    if not taken:
        reason = f"{owner.kind} {owner.name} replaces its own nodes"
    elif owner.kind is OwnerKind.MANAGED_NODE_GROUP:
        return None
    else:
        reason = f"{owner.kind} {owner.name} launches what the evicted pods need"
    return Decision(Method.LEFT_TO_OWNER, reason)


def _outside_any_group(owner: Owner, asked_already: bool, waits: bool) -> Decision:
    if asked_already:
        reason = "it left its group before: its successor is asked"
        return Decision(Method.NOTHING, reason, before=waits)
    if owner.kind in {OwnerKind.AUTO_SCALING_GROUP, OwnerKind.MANAGED_NODE_GROUP}:
        return Decision(
            Method.NOTHING, f"group {owner.name} has the instance no more and replaces it itself"
        )
    return Decision(Method.NOTHING, "the instance belongs to no group that could replace it")
