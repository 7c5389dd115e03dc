"""Facts about an Auto Scaling group and one of its instances."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """What is the same for all instances of an Auto Scaling group and seldom changes.

    - `capacity_rebalance`: Capacity Rebalancing is on. `refreshing`: an instance refresh runs.
    - `suspended`: the names of the suspended processes.
    - `terminate_hooks`: the names of the hooks on `autoscaling:EC2_INSTANCE_TERMINATING` that
      notify Leeway. `foreign_terminate_hooks`: those that notify another client, which answers
      them itself.
    - `timeouts`: hook name → HeartbeatTimeout in seconds. `with_target`: the names of the hooks
      that notify a target of their own (SNS, SQS, Lambda).
    - `types`: the instance types that the group may launch, empty if it does not list them.
    - `launch_unsupported`: why LaunchInstances cannot be called for the group, empty if it can.
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
        """Whether a terminate hook holds an instance that the group terminates until Leeway answers
        the hook."""
        return bool(self.terminate_hooks) and "Terminate" not in self.suspended


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts(GroupRules):
    """An Auto Scaling group as it is now, and one of its instances.

    - `lifecycle_state`: the lifecycle state of the instance, for example `InService`.
    - `desired`, `minimum`, `maximum`: the capacity of the group, in its own units.
    - `units`: how much of that capacity the instance is: 1, the weight of its type, or the unit
      that the group counts in.
    - `protected`: the instance is protected from scale-in.
    - `from_cache`: only the rules of the group were read, some seconds ago; the instance is assumed
      to be in service.
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
        """Whether the group keeps the instance: it is pending or in service."""
        return self.lifecycle_state.startswith(("Pending", "InService"))

    @property
    def may_shrink(self) -> bool:
        """Whether the group stays at its minimum or above without the units of the instance."""
        return self.desired - self.units >= self.minimum


def in_service(rules: GroupRules) -> GroupFacts:
    """Return facts about an instance of which only the rules of its group are known."""
    shared = {one.name: getattr(rules, one.name) for one in fields(GroupRules)}
    return GroupFacts(**shared, lifecycle_state="InService", from_cache=True)
