"""instances.groups"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """What holds for every instance of an Auto Scaling group alike, and seldom changes.

    `terminate_hooks` are the names of its hooks on `autoscaling:EC2_INSTANCE_TERMINATING` that call
    Leeway, which keeps the instance by them, and `foreign_terminate_hooks` of those that call somebody else,
    who lets it go when he is done. `timeouts` is the HeartbeatTimeout of each of its hooks, in
    seconds, and `with_target` are the names of those that notify a target of their own. `types` are
    the instance types that it may launch, where it names them, and `launch_unsupported` says why
    LaunchInstances does not work on it; empty where it does.
    """

    name: str
    capacity_rebalance: bool
    refreshing: bool
    suspended: frozenset[str]
    terminate_hooks: tuple[str, ...]
    foreign_terminate_hooks: tuple[str, ...] = ()
    timeouts: Mapping[str, int] = field(default_factory=dict)
    with_target: frozenset[str] = frozenset()
    zones: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    launch_unsupported: str = ""

    @property
    def terminate_hook_waits(self) -> bool:
        """Whether a terminate hook keeps an instance that the group terminates, until Leeway lets
        it go."""
        return bool(self.terminate_hooks) and "Terminate" not in self.suspended


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts(GroupRules):
    """An Auto Scaling group as it is now, and one of its instances in it.

    `units` is how much of the group's capacity the instance is: 1, or its type's weight, or what
    the group counts in. `protected` says that this instance is protected from scale-in. `from_cache`
    says that only the group's rules were looked at, some seconds ago, and that the instance is
    taken for one in service.
    """

    lifecycle_state: str
    desired: int = 0
    minimum: int = 0
    maximum: int = 0
    units: int = 1
    protected: bool = False
    from_cache: bool = False

    @property
    def stays_in_group(self) -> bool:
        """Whether the instance is in the group to stay, as far as the group is concerned."""
        return self.lifecycle_state.startswith(("Pending", "InService"))

    @property
    def may_shrink(self) -> bool:
        """Whether the group may want as many units less as the instance is."""
        return self.desired - self.units >= self.minimum


def in_service(rules: GroupRules) -> GroupFacts:
    """Return the facts of an instance of which nothing is known but its group's rules."""
    known = {one.name: getattr(rules, one.name) for one in fields(GroupRules)}
    return GroupFacts(**known, lifecycle_state="InService", from_cache=True)
