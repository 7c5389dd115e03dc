"""Keeps Auto Scaling groups at their desired size, and takes every instance through its states.

Stands in for what moto's groups lack: instances that take time, die, wait for hooks, are replaced.
The states are those of "Amazon EC2 Auto Scaling instance lifecycle" in the user guide.
"""

from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

from moto.autoscaling.models import Activity, FakeAutoScalingGroup, InstanceState
from moto.core.exceptions import ServiceException
from moto.ec2.models.instances import Instance
from moto.elbv2.models import FakeTargetGroup

from sandbox.aws import spot
from sandbox.aws.cloud import Cloud
from sandbox.aws.eventbridge import EventBus
from sandbox.aws.lifecycle_hooks import ABANDON, LifecycleActions, WaitingHook
from sandbox.aws.notices import LAUNCHING, TERMINATING, scaling_outcome

COUNTED = {"Pending", "Pending:Wait", "Pending:Proceed", "InService"}  # towards desired capacity
GONE = {"shutting-down", "terminated", "stopping", "stopped"}
LAUNCH_RETRY = 2.0  # seconds after a launch that failed
REMEMBERED = 1000  # activities a group
GROUP_TAG = "aws:autoscaling:groupName"


@dataclass(frozen=True)
class LaunchError:
    """Why EC2 launched nothing of a type in a zone; `market` is "spot" or None."""

    instance_type: str
    market: str | None
    zone: str
    subnet: str | None
    code: str
    message: str


class KeepingGroup(FakeAutoScalingGroup):
    """moto's group, which launches what it misses and ends what it has too many of."""

    cloud: ClassVar[Cloud]
    bus: ClassVar[EventBus]
    actions: ClassVar[LifecycleActions]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.activities: list[Activity] = []
        self.deleted = False
        self._members: dict[str, InstanceState] = {}  # the instance_states by instance
        self._is_to_settle = False
        self.outgoing: set[str] = set()  # instances that Capacity Rebalancing will replace
        self.instance_lifecycle_policy: dict[str, Any] | None = None
        super().__init__(*args, **kwargs)

    def set_desired_capacity(self, new_capacity: int | None) -> None:
        """Want this many (the minimum when None), and set to it."""
        self.desired_capacity = self.min_size if new_capacity is None else new_capacity
        self.settle()

    def suspends(self, *processes: str) -> bool:
        """Whether one of these processes is suspended."""
        return bool(set(processes) & set(self._suspended_processes))

    def state_of(self, instance_id: str) -> InstanceState | None:
        """The membership of an instance in this group, if it is a member."""
        return self._members.get(instance_id)

    def settle(self) -> None:
        """Launch what is missing or end what is too much."""
        if self.deleted:
            return
        present = [
            state
            for state in self.instance_states
            if state.lifecycle_state in COUNTED and state.instance_id not in self.outgoing
        ]
        missing = (self.desired_capacity or 0) - sum(map(self.units_of, present))
        if missing > 0 and not self.suspends("Launch"):
            self._launch(missing, present)
        elif missing < 0 and not self.suspends("Terminate"):
            for state in _scale_in_order(present):
                # Of several units, none goes that takes the group below what it wants.
                missing += self.units_of(state)
                if missing > 0:
                    break
                self.retire(state, "a difference between desired and actual capacity")

    def weight_of(self, instance_type: str) -> int:
        """How many units of the group's capacity an instance of this type is."""
        template = (self.mixed_instances_policy or {}).get("LaunchTemplate", {})
        for override in template.get("Overrides") or []:
            if override.get("InstanceType") == instance_type:
                return int(override.get("WeightedCapacity") or 1)
        return 1

    def units_of(self, state: InstanceState) -> int:
        """How many units of the group's capacity a member is."""
        return self.weight_of(state.instance.instance_type)

    def settle_soon(self) -> None:
        """Settle when the group would notice: once for all that happens until then."""
        if not self._is_to_settle:
            self._is_to_settle = True
            self.cloud.timers.after(self.cloud.pace.reaction, self._notice)

    def _notice(self) -> None:
        self._is_to_settle = False
        self.settle()

    def subnets(self) -> dict[str, str]:
        """The group's subnets by their zones; none where it names zones only."""
        named = [name for name in (self.vpc_zone_identifier or "").split(",") if name]
        return {self.ec2_backend.get_subnet(name).availability_zone: name for name in named}

    def _launch(self, units: int, present: list[InstanceState]) -> None:
        in_zone = Counter(state.availability_zone for state in present)
        [first, *_] = spot.plan(self, self.availability_zones[0], 1)
        unit = self.weight_of(first[0])
        wanted: Counter[str] = Counter()
        for _ in range(ceil(units / unit)):
            zone = min(self.availability_zones, key=lambda zone: in_zone[zone])
            in_zone[zone] += 1
            wanted[zone] += unit
        for zone, number in wanted.items():
            if not self._launch_somewhere(zone, number):
                self.cloud.timers.after(LAUNCH_RETRY, self.settle)
                return

    def _launch_somewhere(self, zone: str, units: int) -> bool:
        """Launch in this zone, or what it has no room for in the others; False where none has."""
        subnets = self.subnets()
        for other in sorted(self.availability_zones, key=lambda other: other != zone):
            try:
                launched, errors = self.launch_in(other, subnets.get(other), units)
            except ServiceException as error:
                self._launch_failed(str(error.message))
                return False
            units -= sum(self.weight_of(instance.instance_type) for instance in launched)
            if units <= 0:
                return True
            self._launch_failed(errors[-1].message)
        return False

    def launch_in(
        self, zone: str, subnet: str | None, units: int
    ) -> tuple[list[Instance], list[LaunchError]]:
        """Launch so many units in a zone, of the types that it has room for; returns what was
        launched, and an error for each type that was not."""
        launched: list[Instance] = []
        errors: list[LaunchError] = []
        while units > 0:
            plan = spot.plan(self, zone, units, {error.instance_type for error in errors})
            for instance_type, market, number in plan:
                fault = self.cloud.faults.strike_launch(
                    "autoscaling", instance_type, zone, market or "on-demand"
                )
                if fault and fault.error:
                    told = fault.error, fault.message
                    errors.append(LaunchError(instance_type, market, zone, subnet, *told))
                    continue
                count = ceil(number / self.weight_of(instance_type))
                launched += self._run(instance_type, market, count, zone, subnet)
                units -= number
            if not plan:
                break
        return launched, errors

    def _run(
        self, instance_type: str, market: str | None, count: int, zone: str, subnet: str | None
    ) -> list[Instance]:
        template = None
        if self.ec2_launch_template:
            template = {
                "LaunchTemplateId": self.ec2_launch_template.id,
                "Version": self.launch_template_version,
            }
        reservation = self.ec2_backend.run_instances(
            self.image_id,
            count,
            self.user_data,
            self.security_groups,
            instance_type=instance_type,
            # moto searches its whole catalog for a type that isn't the template's
            is_instance_type_default=instance_type == self.instance_type,
            region_name=self.region,
            placement=None if subnet else zone,
            subnet_id=subnet,
            launch_config=self.launch_config,
            launch_template=template,
            instance_market_options=market,
            tags={"instance": self._tags_at_launch()},
        )
        for instance in reservation.instances:
            self._admit(instance)
        return list(reservation.instances)

    def _tags_at_launch(self) -> dict[str, str]:
        return {**self.instance_tags, **self.get_propagated_tags(), GROUP_TAG: self.name}

    def _admit(self, instance: Instance) -> None:
        instance.autoscaling_group = self  # type: ignore[attr-defined]
        protected = self.new_instances_protected_from_scale_in
        state = InstanceState(instance, "Pending", protected_from_scale_in=protected)
        if self.mixed_instances_policy:
            state.weighted_capacity = str(self.weight_of(instance.instance_type))  # type: ignore[attr-defined]
        self.instance_states.append(state)
        self._members[instance.id] = state
        self._move(state, "Pending")
        self._note(f"Launching a new EC2 instance: {instance.id}", "an instance was needed")

    def _launch_failed(self, message: str) -> None:
        cause = "an instance was needed"
        self._note("Launching a new EC2 instance.", cause, "Failed")
        self.bus.emit(
            scaling_outcome(self, None, "Launch", successful=False, cause=cause, message=message)
        )

    def _hooks(self, transition: str) -> list[WaitingHook]:
        hooks = self.autoscaling_backend.describe_lifecycle_hooks(self.name)
        return [
            hook
            for hook in hooks
            if isinstance(hook, WaitingHook) and hook.lifecycle_transition == transition
        ]

    def _launched(self, state: InstanceState) -> None:
        if hooks := self._hooks(LAUNCHING):
            self._move(state, "Pending:Wait")
            self.actions.begin(self, state, hooks, self._hook_finished)
        else:
            self._into_service(state)

    def _into_service(self, state: InstanceState) -> None:
        self._move(state, "InService")
        self.bus.emit(
            scaling_outcome(
                self, state.instance, "Launch", successful=True, cause="an instance was needed"
            )
        )
        self.register(state)
        self._replace_outgoing()

    def retire(self, state: InstanceState, cause: str) -> None:
        """Take an instance out: deregister it, wait for the hooks, end it, replace it if needed."""
        if state.lifecycle_state.startswith("Terminating"):
            return
        self.actions.drop(state)
        self.outgoing.discard(state.instance_id)
        self._move(state, "Terminating")
        self._note(f"Terminating EC2 instance: {state.instance_id}", cause)
        self.deregister(state)
        if hooks := self._hooks(TERMINATING):
            self._move(state, "Terminating:Wait")
            self.actions.begin(self, state, hooks, self._hook_finished)
        else:
            self._proceed(state)
        self.settle_soon()

    def register(self, state: InstanceState) -> None:
        """Put an instance into the group's target groups."""
        for target_group in self._target_groups():
            target_group.register([{"Id": state.instance_id, "Port": target_group.port}])

    def deregister(self, state: InstanceState) -> None:
        """Take an instance out of the group's target groups."""
        for target_group in self._target_groups():
            if state.instance_id in target_group.targets:
                target_group.deregister([{"Id": state.instance_id}])

    def _target_groups(self) -> list[FakeTargetGroup]:
        if not self.target_group_arns:
            return []
        balancing = self.autoscaling_backend.elbv2_backend
        return list(balancing.describe_target_groups(None, self.target_group_arns, None))

    def _hook_finished(self, state: InstanceState, transition: str, result: str) -> None:
        if transition == TERMINATING:
            if result == ABANDON and self._retains():
                self._move(state, "Terminating:Retained")
            else:
                self._proceed(state)
        elif result == ABANDON:
            cause = "a launch hook was abandoned"
            self.bus.emit(
                scaling_outcome(self, state.instance, "Launch", successful=False, cause=cause)
            )
            self._proceed(state)  # its terminate hooks are not asked
            self.settle_soon()
        else:
            self._move(state, "Pending:Proceed")
            self._into_service(state)

    def _retains(self) -> bool:
        policy = self.instance_lifecycle_policy or {}
        triggers = policy.get("RetentionTriggers", {})
        return bool(triggers.get("TerminateHookAbandon") == "retain")

    def _proceed(self, state: InstanceState) -> None:
        self._move(state, "Terminating:Proceed")
        if state.instance.state == "terminated":
            self._leave(state)
        else:
            self.ec2_backend.terminate_instances([state.instance_id])

    def _drop(self, state: InstanceState) -> None:
        self.instance_states.remove(state)
        del self._members[state.instance_id]

    def _leave(self, state: InstanceState) -> None:
        self._drop(state)
        self.cloud.journal.add(
            "lifecycle", instance=state.instance_id, group=self.name, state="Terminated"
        )
        self.bus.emit(
            scaling_outcome(
                self, state.instance, "Terminate", successful=True, cause="it was taken out"
            )
        )

    def instance_changed(self, instance: Instance, now: str) -> None:
        """EC2 says that a member is in another state."""
        state = self.state_of(instance.id)
        if state is None:
            return
        lifecycle = state.lifecycle_state
        if now == "running" and lifecycle == "Pending":
            self._launched(state)
        elif now == "terminated" and lifecycle in {"Terminating:Proceed", "Terminating:Retained"}:
            self._leave(state)
        elif now in GONE and not lifecycle.startswith("Terminating"):
            self.cloud.timers.after(self.cloud.pace.health_check, self._found_dead, state)

    def _found_dead(self, state: InstanceState) -> None:
        if state.instance_id not in self._members or self.deleted:
            return
        if self.suspends("HealthCheck", "ReplaceUnhealthy", "Terminate"):
            self.cloud.timers.after(self.cloud.pace.health_check, self._found_dead, state)
        elif state.lifecycle_state in COUNTED:
            self.replace_unhealthy(state)

    def replace_unhealthy(self, state: InstanceState) -> None:
        """What a failed health check does."""
        state.health_status = "Unhealthy"
        self.retire(state, "an instance was found unhealthy")

    def rebalance(self, instance_id: str) -> None:
        """A Spot instance is at risk: with Capacity Rebalancing, launch its replacement first."""
        state = self.state_of(instance_id)
        if self.capacity_rebalance and state and state.lifecycle_state == "InService":
            self.outgoing.add(instance_id)
            self.settle_soon()

    def _replace_outgoing(self) -> None:
        if not self.outgoing:
            return
        serving = [s for s in self.instance_states if s.lifecycle_state == "InService"]
        staying = [state for state in serving if state.instance_id not in self.outgoing]
        if sum(map(self.units_of, staying)) >= (self.desired_capacity or 0):
            for state in serving:
                if state.instance_id in self.outgoing:
                    self.retire(state, "a replacement for a rebalanced instance is in service")

    def detach(self, state: InstanceState) -> Activity:
        """Let a member go; it leaves the group, and loses its tag, a moment later."""
        self._move(state, "Detaching")
        self.deregister(state)

        def leave() -> None:
            self._drop(state)
            self.ec2_backend.delete_tags([state.instance_id], {GROUP_TAG: self.name})
            del state.instance.autoscaling_group  # type: ignore[attr-defined]
            self.cloud.journal.add(
                "lifecycle", instance=state.instance_id, group=self.name, state="Detached"
            )

        self.cloud.timers.after(self.cloud.pace.detach, leave)
        self.settle_soon()
        return self._note(f"Detaching EC2 instance: {state.instance_id}", "a user request")

    def end(self) -> None:
        """Delete the group by force: every member is terminated, and no hook is waited for."""
        self.deleted = True
        for state in list(self.instance_states):
            self.actions.drop(state)
            self._proceed(state)

    def _move(self, state: InstanceState, lifecycle_state: str) -> None:
        state.lifecycle_state = lifecycle_state
        self.cloud.journal.add(
            "lifecycle", instance=state.instance_id, group=self.name, state=lifecycle_state
        )

    def _note(self, description: str, cause: str, status: str = "Successful") -> Activity:
        activity = Activity(description, cause, self, status_code=status)
        self.activities.insert(0, activity)
        del self.activities[REMEMBERED:]
        return activity


def _scale_in_order(states: list[InstanceState]) -> list[InstanceState]:
    """The default termination policy, in short: out of the fullest zone, the oldest first."""
    candidates = [state for state in states if not state.protected_from_scale_in]
    candidates.sort(key=lambda state: state.instance.launch_time)
    in_zone = Counter(state.availability_zone for state in candidates)
    order = []
    while candidates:
        fullest = max(in_zone, key=lambda zone: in_zone[zone])
        chosen = next(state for state in candidates if state.availability_zone == fullest)
        candidates.remove(chosen)
        in_zone[fullest] -= 1
        order.append(chosen)
    return order


def install(cloud: Cloud, bus: EventBus) -> LifecycleActions:
    """Wire the groups to their surroundings; returns the hooks' actions."""
    KeepingGroup.cloud, KeepingGroup.bus = cloud, bus
    KeepingGroup.actions = LifecycleActions(cloud, bus)

    def changed(instance: Instance, state: str) -> None:
        group = getattr(instance, "autoscaling_group", None)
        if isinstance(group, KeepingGroup):
            group.instance_changed(instance, state)

    cloud.watch_instances(changed)
    return KeepingGroup.actions


def group_of(instance: Instance) -> KeepingGroup | None:
    """The group that an instance is a member of."""
    group = getattr(instance, "autoscaling_group", None)
    return group if isinstance(group, KeepingGroup) else None
