"""Auto Scaling groups that keep their desired size; the lifecycle states of their instances.

In moto's groups instances start and end at once, wait for no hooks and are not replaced. The states
are those of "Amazon EC2 Auto Scaling instance lifecycle" in the user guide.
"""

from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

from moto.autoscaling.models import Activity, FakeAutoScalingGroup, InstanceState
from moto.core.exceptions import ServiceException
from moto.ec2.models.instances import Instance

from leeway_sandbox.aws import spot
from leeway_sandbox.aws.cloud import Cloud
from leeway_sandbox.aws.eventbridge import EventBus
from leeway_sandbox.aws.fleet_launch import Market, Pool, launch
from leeway_sandbox.aws.lifecycle_hooks import ABANDON, LifecycleActions, WaitingHook
from leeway_sandbox.aws.notices import LAUNCHING, TERMINATING, scaling_outcome

COUNTED = {"Pending", "Pending:Wait", "Pending:Proceed", "InService"}  # towards desired capacity
GONE = {"shutting-down", "terminated", "stopping", "stopped"}
LAUNCH_RETRY = 2.0  # seconds after a failed launch
GROUP_TAG = "aws:autoscaling:groupName"


@dataclass(frozen=True)
class LaunchError:
    """The error of a launch of one type in one zone; `market` is "spot" or None."""

    instance_type: str
    market: str | None
    zone: str
    subnet: str | None
    code: str
    message: str


class Member(InstanceState):
    """A member of a group, with the version of the launch template that it was launched from. moto
    answers the default version of the group's template for every member."""

    launched_from: dict[str, str] | None = None

    @property
    def launch_template(self) -> dict[str, str] | None:
        """The launch template and the number of the version."""
        return self.launched_from


class ReconcilingGroup(FakeAutoScalingGroup):
    """moto's group, which launches missing instances and terminates surplus ones."""

    cloud: ClassVar[Cloud]
    bus: ClassVar[EventBus]
    actions: ClassVar[LifecycleActions]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._members: dict[str, InstanceState] = {}  # instance_states by instance id
        self._reconcile_pending = False
        self.outgoing: set[str] = set()  # instances that Capacity Rebalancing will replace
        self.status: str | None = None  # of a group that is being deleted
        super().__init__(*args, **kwargs)

    def set_desired_capacity(self, new_capacity: int | None) -> None:
        """Set the desired capacity (the minimum if None), and reconcile."""
        self.desired_capacity = self.min_size if new_capacity is None else new_capacity
        self.reconcile()

    def suspends(self, *processes: str) -> bool:
        """Whether one of these processes is suspended."""
        return any(process["ProcessName"] in processes for process in self.suspended_processes)

    def state_of(self, instance_id: str) -> InstanceState | None:
        """Return the membership of an instance, or None."""
        return self._members.get(instance_id)

    def reconcile(self) -> None:
        """Launch missing instances, or terminate surplus ones."""
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
                # An instance of several units stays if the group would become too small.
                missing += self.units_of(state)
                if missing > 0:
                    break
                self.retire(state)

    def weight_of(self, instance_type: str) -> int:
        """Return the units of capacity of an instance type."""
        template = (self.mixed_instances_policy or {}).get("LaunchTemplate", {})
        for override in template.get("Overrides") or []:
            if override.get("InstanceType") == instance_type:
                return int(override.get("WeightedCapacity") or 1)
        return 1

    def units_of(self, state: InstanceState) -> int:
        """Return the units of capacity of a member."""
        return self.weight_of(state.instance.instance_type)

    def reconcile_soon(self) -> None:
        """Reconcile after the reaction time, once for all changes until then."""
        if not self._reconcile_pending:
            self._reconcile_pending = True
            self.cloud.timers.after(self.cloud.delays.reaction, self._notice)

    def _notice(self) -> None:
        self._reconcile_pending = False
        self.reconcile()

    def subnets(self) -> dict[str, str]:
        """Return the subnets by zone; empty for a group that names only zones."""
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
                self.cloud.timers.after(LAUNCH_RETRY, self.reconcile)
                return

    def _launch_somewhere(self, zone: str, units: int) -> bool:
        """Launch in this zone, and the rest in other zones; False if no zone has capacity."""
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
        """Launch units in a zone, of the types that have capacity.

        Returns the instances, and an error for each type without capacity.
        """
        launched: list[Instance] = []
        errors: list[LaunchError] = []
        while units > 0:
            plan = spot.plan(self, zone, units, {error.instance_type for error in errors})
            for instance_type, market, number in plan:
                fault = self.cloud.faults.take_launch(
                    "autoscaling", instance_type, zone, market or "on-demand"
                )
                if fault and fault.error:
                    problem = fault.error, fault.message
                    errors.append(LaunchError(instance_type, market, zone, subnet, *problem))
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
        tags = {"instance": self._tags_at_launch()}
        if self.ec2_launch_template:
            version = self.ec2_launch_template.get_version(self.launch_template_version)
            pool = Pool(version, {}, instance_type, zone, subnet or "", 0.0, tags)
            kind: Market = "spot" if market else "on-demand"
            launched = launch(self.ec2_backend, None, kind, pool, count)
        else:
            launched = self._run_configuration(instance_type, market, count, zone, subnet, tags)
        for instance in launched:
            self._admit(instance)
        return launched

    def _run_configuration(
        self,
        instance_type: str,
        market: str | None,
        count: int,
        zone: str,
        subnet: str | None,
        tags: dict[str, dict[str, str]],
    ) -> list[Instance]:
        reservation = self.ec2_backend.run_instances(
            self.image_id,
            count,
            self.user_data,
            self.security_groups,
            instance_type=instance_type,
            # moto searches its whole catalog for a type that is not the one of the template
            is_instance_type_default=instance_type == self.instance_type,
            region_name=self.region,
            placement=None if subnet else zone,
            subnet_id=subnet,
            launch_config=self.launch_config,
            instance_market_options=market,
            tags=tags,
        )
        return list(reservation.instances)

    def _tags_at_launch(self) -> dict[str, str]:
        return {**self.instance_tags, **self.get_propagated_tags(), GROUP_TAG: self.name}

    def _admit(self, instance: Instance) -> None:
        instance.autoscaling_group = self  # type: ignore[attr-defined]
        protected = self.new_instances_protected_from_scale_in
        state = Member(instance, "Pending", protected_from_scale_in=protected)
        state.launched_from = self._launched_from()
        if self.mixed_instances_policy:
            state.weighted_capacity = str(self.weight_of(instance.instance_type))  # type: ignore[attr-defined]
        self.instance_states.append(state)
        self._members[instance.id] = state
        self._move(state, "Pending")

    def _launched_from(self) -> dict[str, str] | None:
        template = self.ec2_launch_template
        if template is None:
            return None
        number = template.get_version(self.launch_template_version).number
        names = {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name}
        return {**names, "Version": str(number)}

    def _launch_failed(self, message: str) -> None:
        cause = "an instance was needed"
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
        self._replace_outgoing()

    def retire(self, state: InstanceState) -> None:
        """Terminate a member after its hooks, and replace it if needed."""
        if state.lifecycle_state.startswith("Terminating"):
            return
        self.actions.drop(state)
        self.outgoing.discard(state.instance_id)
        self._move(state, "Terminating")
        if hooks := self._hooks(TERMINATING):
            self._move(state, "Terminating:Wait")
            self.actions.begin(self, state, hooks, self._hook_finished)
        else:
            self._proceed(state)
        self.reconcile_soon()

    def _hook_finished(self, state: InstanceState, transition: str, result: str) -> None:
        if transition == TERMINATING:
            self._proceed(state)
        elif result == ABANDON:
            cause = "a launch hook was abandoned"
            self.bus.emit(
                scaling_outcome(self, state.instance, "Launch", successful=False, cause=cause)
            )
            self._proceed(state)  # without its terminate hooks
            self.reconcile_soon()
        else:
            self._move(state, "Pending:Proceed")
            self._into_service(state)

    def _proceed(self, state: InstanceState) -> None:
        self._move(state, "Terminating:Proceed")
        if state.instance.state == "terminated":
            self._leave(state)
        else:
            self.ec2_backend.terminate_instances([state.instance_id])

    def delete_by_force(self) -> None:
        """Terminate all members without their hooks. The group is gone with the last of them."""
        self.status = "Delete in progress"
        self.min_size = self.desired_capacity = 0
        for state in [*self.instance_states]:
            self.actions.drop(state)
            if state.lifecycle_state != "Terminating:Proceed":
                self._proceed(state)

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
        if self.status and not self.instance_states:
            self.autoscaling_backend.delete_auto_scaling_group(self.name)

    def instance_changed(self, instance: Instance, now: str) -> None:
        """Handle the new EC2 state of a member."""
        state = self.state_of(instance.id)
        if state is None:
            return
        lifecycle = state.lifecycle_state
        if now == "running" and lifecycle == "Pending":
            self._launched(state)
        elif now == "terminated" and lifecycle == "Terminating:Proceed":
            self._leave(state)
        elif now in GONE and not lifecycle.startswith("Terminating"):
            self.cloud.timers.after(self.cloud.delays.health_check, self._found_dead, state)

    def _found_dead(self, state: InstanceState) -> None:
        if state.instance_id not in self._members:
            return
        if self.suspends("HealthCheck", "ReplaceUnhealthy", "Terminate"):
            self.cloud.timers.after(self.cloud.delays.health_check, self._found_dead, state)
        elif state.lifecycle_state in COUNTED:
            self.replace_unhealthy(state)

    def replace_unhealthy(self, state: InstanceState) -> None:
        """Replace a member after a failed health check."""
        state.health_status = "Unhealthy"
        self.retire(state)

    def rebalance(self, instance_id: str) -> None:
        """Handle a rebalance recommendation: Capacity Rebalancing launches a replacement first."""
        state = self.state_of(instance_id)
        if self.capacity_rebalance and state and state.lifecycle_state == "InService":
            self.outgoing.add(instance_id)
            self.reconcile_soon()

    def _replace_outgoing(self) -> None:
        if not self.outgoing:
            return
        serving = [s for s in self.instance_states if s.lifecycle_state == "InService"]
        staying = [state for state in serving if state.instance_id not in self.outgoing]
        if sum(map(self.units_of, staying)) >= (self.desired_capacity or 0):
            for state in serving:
                if state.instance_id in self.outgoing:
                    self.retire(state)

    def detach(self, state: InstanceState) -> Activity:
        """Detach a member; it leaves the group and loses its tag after the detach time."""
        self._move(state, "Detaching")

        def leave() -> None:
            self._drop(state)
            self.ec2_backend.delete_tags([state.instance_id], {GROUP_TAG: self.name})
            del state.instance.autoscaling_group  # type: ignore[attr-defined]
            self.cloud.journal.add(
                "lifecycle", instance=state.instance_id, group=self.name, state="Detached"
            )

        self.cloud.timers.after(self.cloud.delays.detach, leave)
        self.reconcile_soon()
        return self.activity("Detaching", state.instance_id)

    def activity(self, verb: str, instance: str) -> Activity:
        """Return the activity that the caller of an action gets."""
        return Activity(f"{verb} EC2 instance: {instance}", "a user request", self)

    def _move(self, state: InstanceState, lifecycle_state: str) -> None:
        state.lifecycle_state = lifecycle_state
        self.cloud.journal.add(
            "lifecycle", instance=state.instance_id, group=self.name, state=lifecycle_state
        )


def _scale_in_order(states: list[InstanceState]) -> list[InstanceState]:
    """Sort by the default termination policy, simplified: fullest zone first, then oldest."""
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
    """Connect the groups to the cloud and the event bus; return the lifecycle actions."""
    ReconcilingGroup.cloud, ReconcilingGroup.bus = cloud, bus
    ReconcilingGroup.actions = LifecycleActions(cloud, bus)

    def changed(instance: Instance, state: str) -> None:
        group = getattr(instance, "autoscaling_group", None)
        if isinstance(group, ReconcilingGroup):
            group.instance_changed(instance, state)

    cloud.watch_instances(changed)
    return ReconcilingGroup.actions


def group_of(instance: Instance) -> ReconcilingGroup | None:
    """Return the group of an instance, or None."""
    group = getattr(instance, "autoscaling_group", None)
    return group if isinstance(group, ReconcilingGroup) else None
