"""An Auto Scaling group of three instances, of which one retires, and its EC2 instances."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from leeway.instances.facts import GroupFacts, GroupRules, InstanceFacts, Owner
from leeway.notices import LifecycleHook
from leeway.ports.aws import (
    CloudRefused,
    HookResult,
    HookSettings,
    Launched,
    LaunchedInstance,
    LaunchError,
    LifecycleActionOver,
)

from tests.fakes.actions import ActionLog
from tests.retirement.retirements import FACTS, NOTICED

GROUP = "ng"
SUCCESSOR = "i-0successor00000000"
REPLACEMENT = "i-0replacement000000"
ZONES = (FACTS.zone, "us-east-1f")
OTHERS = ("i-0other000000000000", "i-0third000000000000")


@dataclass
class FakeGroups:
    """The Groups Protocol for one group.

    - `state`: the lifecycle state of the retiring instance, None if it is not in the group.
    - `overrides`: fields of the group's rules and facts that differ from the usual ones.
    - `full`: the zones without capacity. `launch_error`: the group's answer to LaunchInstances.
    - `detaches`: whether DetachInstances is allowed. `answers_refused`: how many hook answers are
      refused.
    - `successor_dies`: the successor leaves the group before it is Ready.
      `successor_may_have_pods`: without a hook, it must not be terminated then.
    - `replaces`: the group has launched REPLACEMENT by itself, which has no node.
    - `lifecycle_states_`: those of other instances that Auto Scaling lists.
    - `on_hooks`: called with the group's hooks when it terminates the retiring instance.
      `pods_left`: returns the pods on it; without a hook, a termination must find none.
    - `reads`: what was read. `heartbeats`: when a heartbeat arrived.
    """

    actions: ActionLog
    state: str | None = "InService"
    desired: int = 3
    maximum: int = 6
    hooks: tuple[str, ...] = ()
    with_target: tuple[str, ...] = ()
    timeout: int = 300
    overrides: dict[str, Any] = field(default_factory=dict)
    detaches: bool = True
    full: set[str] = field(default_factory=set)
    launch_error: str = ""
    successor_dies: bool = False
    successor_may_have_pods: Callable[[], bool] = lambda: False
    replaces: bool = False
    lifecycle_states_: dict[str, str] = field(default_factory=dict)
    answers_refused: int = 0
    on_hooks: Callable[[tuple[LifecycleHook, ...]], None] = lambda _: None
    pods_left: Callable[[], object] = lambda: ()
    launched_at: datetime | None = None
    launched: dict[str, Launched] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    detach_requests: int = 0
    answers: int = 0
    heartbeats: list[datetime] = field(default_factory=list)

    def rules(self, group: str) -> GroupRules:
        self.reads.append(f"rules of {group}")
        if group != GROUP:
            raise CloudRefused(f"there is no group {group}")
        rules: dict[str, Any] = {
            "name": group,
            "capacity_rebalance": False,
            "refreshing": False,
            "suspended": frozenset(),
            "terminate_hooks": self.hooks,
            "timeouts": dict.fromkeys(self.hooks, self.timeout),
            "zones": ZONES,
            "with_target": frozenset(self.with_target),
        }
        known = {name: value for name, value in self.overrides.items() if name in rules}
        return GroupRules(**rules | known)

    def facts(self, instance: str) -> GroupFacts | None:
        self.reads.append("facts")
        state = self.state if instance == FACTS.instance else None
        if instance == SUCCESSOR and self.launched_at and not self.successor_dies:
            state = "InService"
        if instance == REPLACEMENT and self.replaces:
            state = "Pending"
        if state is None:
            return None
        facts: dict[str, Any] = {
            "name": GROUP,
            "lifecycle_state": state,
            "capacity_rebalance": False,
            "refreshing": False,
            "suspended": frozenset(),
            "terminate_hooks": self.hooks,
            "desired": self.desired,
            "maximum": self.maximum,
            "zones": ZONES,
        }
        return GroupFacts(**facts | self.overrides)

    def lifecycle_states(self, instances: Collection[str]) -> dict[str, str]:
        return {one: state for one, state in self.lifecycle_states_.items() if one in instances}

    def missing(self, group: str) -> int:
        members = len(OTHERS) + (self.launched_at is not None) + (self.state == "InService")
        members += self.replaces
        return max(0, self.desired - members)

    def launch(self, group: str, zone: str, units: int, token: str) -> Launched:
        if self.launch_error:
            raise CloudRefused(self.launch_error)
        if token in self.launched:
            return self.launched[token]
        if self.desired + units > self.maximum:
            raise CloudRefused("ValidationError: the new desired capacity is above the maximum")
        if zone in self.full:
            code = "InsufficientInstanceCapacity"
            answer = Launched((), (LaunchError(FACTS.instance_type, zone, code, "none"),))
        else:
            self.actions.add("launch")
            self.desired += units
            self.launched_at = self.actions.clock.time
            answer = Launched((LaunchedInstance(SUCCESSOR, FACTS.instance_type, zone),))
        self.launched[token] = answer
        return answer

    def detach(self, instance: str, group: str) -> None:
        self.detach_requests += 1
        if not self.detaches:
            raise CloudRefused("AccessDenied: autoscaling:DetachInstances")
        self.actions.add("detach")
        self.state = None
        self.launched_at = self.actions.clock.time

    def terminate_in_group(self, instance: str, decrement: bool = False) -> None:
        if instance == REPLACEMENT:
            assert decrement, "the group would launch another one"
            self.actions.add("end replacement and decrement")
            self.desired -= 1
            self.replaces = False
            return
        if instance == SUCCESSOR:
            may_have_pods = self.successor_may_have_pods()
            assert self.hooks or not may_have_pods, "no hook keeps it for its pods"
            self.actions.add("end successor and decrement" if decrement else "end successor")
            self.desired -= decrement
            self.launched_at = None if decrement else self.actions.clock.time
            return
        assert self.hooks or not self.pods_left(), "no hook keeps the instance for its pods"
        self.actions.add("terminate and decrement" if decrement else "terminate")
        self.state = "Terminating:Wait"
        self.on_hooks(tuple(LifecycleHook(GROUP, name) for name in self.hooks))
        if decrement:
            self.desired -= 1
        else:
            self.launched_at = self.actions.clock.time

    def hook_settings(self, hook: LifecycleHook) -> HookSettings | None:
        if hook.name not in self.hooks + self.with_target:
            return None
        return HookSettings(self.timeout, has_target=hook.name in self.with_target)

    def heartbeat(self, instance: str, hook: LifecycleHook) -> None:
        self._check_that_it_waits(hook)
        self.heartbeats.append(self.actions.clock.time)

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        self.answers += 1
        if self.answers <= self.answers_refused:
            raise CloudRefused("AccessDenied: autoscaling:CompleteLifecycleAction")
        assert result is HookResult.CONTINUE
        self._check_that_it_waits(hook)
        self.actions.ended.append(hook.name)

    def _check_that_it_waits(self, hook: LifecycleHook) -> None:
        alive = (self.heartbeats or [NOTICED])[-1] + timedelta(seconds=self.timeout)
        end = NOTICED + min(timedelta(hours=48), 100 * timedelta(seconds=self.timeout))
        if self.actions.clock.time > min(alive, end) or hook.name in self.actions.ended:
            raise LifecycleActionOver("No active Lifecycle Action found")


@dataclass
class FakeInstances:
    """The GroupInstances Protocol: EC2 describes the successor and terminates the retiring
    instance, unless it is `protected`. `described` are the facts about the retiring instance;
    `launched_by` is the owner of the successor."""

    groups: FakeGroups
    protected: bool = False
    described: InstanceFacts | None = None
    launched_by: Owner = FACTS.owner

    def describe(self, instance: str) -> InstanceFacts | None:
        names = {SUCCESSOR: "new", REPLACEMENT: "booting"}
        if instance not in names:
            return self.described
        owner = self.launched_by if instance == SUCCESSOR else FACTS.owner
        facts = {"instance": instance, "private_dns_name": names[instance], "owner": owner}
        return FACTS.model_copy(update=facts)

    def terminate(self, instance: str) -> None:
        if self.protected:
            raise CloudRefused("OperationNotPermitted: disableApiTermination")
        self.groups.actions.ended.append("terminated")

    def launched_in(self, group: str, since: datetime) -> list[InstanceFacts]:
        launched_at = self.groups.launched_at
        early = launched_at is None or launched_at < since.replace(microsecond=0)
        names = [] if early else [SUCCESSOR]
        if self.groups.replaces:
            names.append(REPLACEMENT)
        return [found for name in names if (found := self.describe(name))]
