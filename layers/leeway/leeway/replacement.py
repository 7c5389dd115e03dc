"""How a retiring instance's group is to replace it: one decision, with its reason."""

from dataclasses import dataclass
from enum import StrEnum

from leeway.notices import NoticeKind
from leeway.owners import Owner, OwnerKind
from leeway.policies import Replacement


class Method(StrEnum):
    """What is done so that a successor starts."""

    NOTHING = "nothing"
    LEFT_TO_OWNER = "left-to-owner"
    TERMINATE_IN_GROUP = "terminate-in-group"
    DETACH = "detach"


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """An Auto Scaling group as it is now, and one of its instances in it.

    `terminate_hooks` are the names of its hooks on
    `autoscaling:EC2_INSTANCE_TERMINATING`.
    """

    name: str
    lifecycle_state: str
    capacity_rebalance: bool
    refreshing: bool
    suspended: frozenset[str]
    terminate_hooks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """A way to replace, and why."""

    method: Method
    reason: str


def decide_replacement(
    kind: NoticeKind,
    wanted: Replacement,
    owner: Owner,
    group: GroupFacts | None,
    asked_already: bool = False,
) -> Decision:
    """Decide how a retiring instance is replaced.

    `group` is a fresh read; None says that the instance is in no group now. `asked_already`
    says that an earlier generation or attempt got as far as asking.

    Sources: EC2 Auto Scaling user guide, "Detach EC2 instances", "Lifecycle hooks",
    "Capacity Rebalancing".
    """
    if wanted is Replacement.NONE:
        return Decision(Method.NOTHING, _why_nothing(kind))
    if owner.retires_itself:
        return Decision(Method.LEFT_TO_OWNER, f"{owner.kind} {owner.name} replaces its own nodes")
    if group is None:
        return _outside_any_group(owner, asked_already)
    if owns := _groups_own_business(group):
        return Decision(Method.LEFT_TO_OWNER, owns)
    if "Launch" in group.suspended:
        return Decision(
            Method.NOTHING, f"group {group.name} has its Launch process suspended: none would come"
        )
    if group.terminate_hooks and "Terminate" not in group.suspended:
        return Decision(
            Method.TERMINATE_IN_GROUP,
            f"group {group.name} has the terminate hook {group.terminate_hooks[0]}: it keeps the "
            "instance while its successor starts",
        )
    why = (
        "has its Terminate process suspended" if group.terminate_hooks else "has no terminate hook"
    )
    return Decision(
        Method.DETACH,
        f"group {group.name} {why}: detached, the instance can be drained while the group "
        "launches its successor",
    )


def _why_nothing(kind: NoticeKind) -> str:
    if kind is NoticeKind.TERMINATE_HOOK:
        return "the group ends this instance itself; whether it wants a successor is its decision"
    return f"the policy for {kind} asks for no replacement"


def _outside_any_group(owner: Owner, asked_already: bool) -> Decision:
    if owner.kind is OwnerKind.DETACHED:
        return Decision(
            Method.NOTHING, f"it left group {owner.name} before: its successor is asked"
        )
    if asked_already:
        return Decision(Method.NOTHING, "it left its group before: its successor is asked")
    if owner.kind is OwnerKind.AUTO_SCALING_GROUP:
        return Decision(
            Method.NOTHING, f"group {owner.name} has the instance no more and replaces it itself"
        )
    return Decision(Method.NOTHING, "the instance belongs to no group that could replace it")


def _groups_own_business(group: GroupFacts) -> str | None:
    """Say why the group needs no telling, or None where it does."""
    if group.lifecycle_state != "InService":
        return f"group {group.name} has the instance {group.lifecycle_state}: already its business"
    if group.capacity_rebalance:
        return f"group {group.name} has Capacity Rebalancing on and replaces the instance itself"
    if group.refreshing:
        return f"group {group.name} is in an instance refresh and replaces the instance itself"
    return None
