"""How a retiring instance's group is to replace it: one decision, with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from leeway.notices import NoticeKind
from leeway.owners import Owner, OwnerKind
from leeway.policies import VOLUNTARY, Replacement


class Method(StrEnum):
    """What is done so that a successor starts.

    `raise-desired` has the group start one more instance, and ends this one, with a decrement,
    when its pods have gone there.
    """

    NOTHING = "nothing"
    LEFT_TO_OWNER = "left-to-owner"
    TERMINATE_IN_GROUP = "terminate-in-group"
    RAISE_DESIRED = "raise-desired"
    DETACH = "detach"


@dataclass(frozen=True, slots=True)
class GroupRules:
    """What holds for every instance of an Auto Scaling group alike, and seldom changes.

    `terminate_hooks` are the names of its hooks on `autoscaling:EC2_INSTANCE_TERMINATING` that call
    Leeway, which keeps the instance by them, and `others_hooks` of those that call somebody else,
    who lets it go when he is done. `timeouts` is the HeartbeatTimeout of each of its hooks, in
    seconds, `with_target` are the names of those that notify a target of their own, and `zones` is
    how many it has.
    """

    name: str
    capacity_rebalance: bool
    refreshing: bool
    suspended: frozenset[str]
    terminate_hooks: tuple[str, ...]
    others_hooks: tuple[str, ...] = ()
    timeouts: Mapping[str, int] = field(default_factory=dict)
    with_target: frozenset[str] = frozenset()
    zones: int = 1


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """An Auto Scaling group as it is now, and one of its instances in it.

    Its hooks are those of its rules. `protected` says that this instance is protected from
    scale-in. `recalled` says that only the group's rules were looked at, some seconds ago, and that
    the instance is taken for one in service.
    """

    name: str
    lifecycle_state: str
    capacity_rebalance: bool
    refreshing: bool
    suspended: frozenset[str]
    terminate_hooks: tuple[str, ...]
    others_hooks: tuple[str, ...] = ()
    desired: int = 0
    maximum: int = 0
    zones: int = 1
    protected: bool = False
    recalled: bool = False

    @property
    def holds(self) -> bool:
        """Whether a terminate hook keeps an instance that the group terminates, until Leeway lets
        it go."""
        return bool(self.terminate_hooks) and "Terminate" not in self.suspended


def in_service(rules: GroupRules) -> GroupFacts:
    """Return the facts of an instance of which nothing is known but its group's rules."""
    return GroupFacts(
        name=rules.name,
        lifecycle_state="InService",
        capacity_rebalance=rules.capacity_rebalance,
        refreshing=rules.refreshing,
        suspended=rules.suspended,
        terminate_hooks=rules.terminate_hooks,
        others_hooks=rules.others_hooks,
        zones=rules.zones,
        recalled=True,
    )


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
) -> Decision:
    """Decide how a retiring instance is replaced.

    `group` is a fresh read, or recalled; None says that the instance is in no group now. `asked`
    is how far an earlier generation or attempt got: what it intended, and may have done. `taken`
    says that the policy has Leeway retire this owner's instances although it would do it itself.

    Sources: EC2 Auto Scaling user guide, "Detach EC2 instances", "Lifecycle hooks",
    "Capacity Rebalancing", "Use instance scale-in protection".
    """
    if settled := decide_without_group(kind, wanted, owner, taken):
        return settled
    if group is None:
        return _outside_any_group(owner, asked is not None, _waits(kind, wanted))
    if asked is Method.RAISE_DESIRED and group.lifecycle_state == "InService":
        return Decision(
            Method.RAISE_DESIRED,
            f"group {group.name} was asked for one more instance before",
            before=_waits(kind, wanted),
        )
    if owns := groups_own_business(kind, group):
        return Decision(Method.LEFT_TO_OWNER, owns)
    if "Launch" in group.suspended:
        return Decision(
            Method.NOTHING, f"group {group.name} has its Launch process suspended: none would come"
        )
    if group.holds:
        return _with_hook(kind, wanted, group)
    may_wait = _waits(kind, wanted) and group.desired < group.maximum
    if group.others_hooks and may_wait and "Terminate" not in group.suspended:
        return _with_one_more(group)
    return _without_hook(kind, wanted, owner, group)


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


def _with_hook(kind: NoticeKind, wanted: Replacement, group: GroupFacts) -> Decision:
    held = (
        f"group {group.name} has the terminate hook {group.terminate_hooks[0]}: it keeps the "
        f"instance while its successor starts{_cautions(group)}"
    )
    if not _waits(kind, wanted):
        return Decision(Method.TERMINATE_IN_GROUP, held)
    if group.desired >= group.maximum:
        return Decision(
            Method.TERMINATE_IN_GROUP,
            f"group {group.name} is at its maximum of {group.maximum}, so none can start before "
            f"the instance goes; {held}",
        )
    return _with_one_more(group)


def _with_one_more(group: GroupFacts) -> Decision:
    return Decision(
        Method.RAISE_DESIRED,
        f"group {group.name} may start one more, {group.desired + 1} of at most {group.maximum}: "
        f"its pods go when that is Ready, and then the instance{_cautions(group)}",
        before=True,
    )


def _without_hook(
    kind: NoticeKind, wanted: Replacement, owner: Owner, group: GroupFacts
) -> Decision:
    why = "has no terminate hook"
    if group.terminate_hooks:
        why = "has its Terminate process suspended"
    elif group.others_hooks:
        why = f"keeps no instance for its pods: its hook {group.others_hooks[0]} calls others"
    if owner.kind is OwnerKind.MANAGED_NODE_GROUP:
        return Decision(
            Method.NOTHING,
            f"group {group.name} {why}, and EKS does not let instances leave its groups",
        )
    return Decision(
        Method.DETACH,
        f"group {group.name} {why}: detached, the instance can be drained while the group "
        f"launches its successor{_cautions(group)}",
        before=_waits(kind, wanted),
    )


def _waits(kind: NoticeKind, wanted: Replacement) -> bool:
    """Whether there is time to wait for the successor: EC2 waits for nobody in an interruption."""
    return wanted is Replacement.BEFORE and kind in VOLUNTARY


def _cautions(group: GroupFacts) -> str:
    """Say what may surprise somebody who looks at the group."""
    said = ""
    if group.zones > 1:
        said += f"; the successor may come in any of {group.zones} zones"
    if group.protected:
        said += "; its protection from scale-in does not hold for an instance that is named"
    return said


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
