"""Answers the Auto Scaling actions whose rules moto lacks or is too kind about.

Stands in for CompleteLifecycleAction, RecordLifecycleActionHeartbeat, hooks given at creation,
TerminateInstanceInAutoScalingGroup, DetachInstances, forced deletion, activities and limits.
LaunchInstances is in `synchronous`.
"""

from typing import Any, ClassVar

import moto.autoscaling.models as moto_autoscaling
from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.models import (
    Activity,
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
    LifecycleHook,
    autoscaling_backends,
)
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.common_types import TYPE_RESPONSE
from moto.core.responses import ActionResult, EmptyResult

from sandbox.aws import groups
from sandbox.aws.cloud import Cloud
from sandbox.aws.eventbridge import EventBus
from sandbox.aws.groups import KeepingGroup
from sandbox.aws.launch_instances import Launch, Launches
from sandbox.aws.lifecycle_hooks import LifecycleActions, WaitingHook, check

DETACHABLE = {"InService", "Standby"}


class Scaling(AutoScalingBackend):
    """moto's Auto Scaling with AWS's rules for what leaves a group, and how."""

    cloud: ClassVar[Cloud]
    actions: ClassVar[LifecycleActions]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.launches = Launches()

    def group(self, name: str | None) -> KeepingGroup:
        """The group of this name; raises ValidationError."""
        group = self.autoscaling_groups.get(name or "")
        if not isinstance(group, KeepingGroup):
            raise ValidationError("AutoScalingGroup name not found - null")
        return group

    def member(self, instance_id: str) -> tuple[KeepingGroup, InstanceState]:
        """An instance's group and membership; raises ValidationError."""
        for group in self.autoscaling_groups.values():
            assert isinstance(group, KeepingGroup)
            if state := group.state_of(instance_id):
                return group, state
        raise ValidationError(
            f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
        )

    def describe_auto_scaling_instances(self, instance_ids: list[str]) -> list[InstanceState]:
        """As moto does; of some instances, without a look at all others."""
        if not instance_ids:
            return super().describe_auto_scaling_instances(instance_ids)
        groups = [g for g in self.autoscaling_groups.values() if isinstance(g, KeepingGroup)]
        found = (group.state_of(one) for one in instance_ids for group in groups)
        return [state for state in found if state]

    def create_auto_scaling_group(
        self, name: str, *args: Any, **kwargs: Any
    ) -> FakeAutoScalingGroup:
        """As moto does, but never over an existing group nor outside the group's own limits."""
        if name in self.autoscaling_groups:
            raise AutoscalingClientError(
                "AlreadyExists",
                "AutoScalingGroup by this name already exists - "
                f"A group with the name {name} already exists",
            )
        _check_sizes(kwargs["desired_capacity"], kwargs["min_size"], kwargs["max_size"])
        return super().create_auto_scaling_group(name, *args, **kwargs)

    def update_auto_scaling_group(  # type: ignore[override]
        self, name: str, **kwargs: Any
    ) -> FakeAutoScalingGroup:
        """As moto does, within limits, and without forgetting the policy that isn't named."""
        group = self.group(name)
        for limit in ("min_size", "max_size"):
            if kwargs[limit] is None:
                kwargs[limit] = getattr(group, limit)
        least, most = kwargs["min_size"], kwargs["max_size"]
        if kwargs["desired_capacity"] is None:
            kwargs["desired_capacity"] = max(least, min(most, group.desired_capacity or 0))
        _check_sizes(kwargs["desired_capacity"], least, most)
        if not (kwargs["mixed_instances_policy"] or kwargs["launch_template"]):
            kwargs["mixed_instances_policy"] = _given_again(group.mixed_instances_policy)
        return super().update_auto_scaling_group(name, **kwargs)

    def set_desired_capacity(self, group_name: str, desired_capacity: int | None) -> None:
        """As moto does, between minimum and maximum."""
        group = self.group(group_name)
        wanted = desired_capacity or 0
        if wanted > (group.max_size or 0):
            raise ValidationError(
                f"New SetDesiredCapacity value {wanted} is above max value {group.max_size} "
                "for the AutoScalingGroup."
            )
        if wanted < (group.min_size or 0):
            raise ValidationError(
                f"New SetDesiredCapacity value {wanted} is below min value {group.min_size} "
                "for the AutoScalingGroup."
            )
        super().set_desired_capacity(group_name, wanted)

    def end_group(self, name: str | None, *, force: bool) -> None:
        """Delete a group; raises ResourceInUse while it has members, unless forced."""
        group = self.group(name)
        if group.instance_states and not force:
            raise AutoscalingClientError(
                "ResourceInUse",
                "You cannot delete an AutoScalingGroup while there are instances or pending Spot "
                "instance request(s) still in the group.",
            )
        group.end()
        del self.autoscaling_groups[group.name]
        for key in [key for key, hook in self.lifecycle_hooks.items() if _is_of(hook, group)]:
            del self.lifecycle_hooks[key]

    def terminate_instance(self, instance_id: str, should_decrement: bool) -> Any:
        """Take an instance out by its hooks; without decrementing, the group replaces it."""
        group, state = self.member(instance_id)
        if state.lifecycle_state.startswith("Terminating"):
            return next(a for a in group.activities if instance_id in a.description)
        desired, least = group.desired_capacity or 0, group.min_size or 0
        if should_decrement:
            units = group.units_of(state)
            if desired - units < least:
                raise ValidationError(
                    f"Currently, desiredSize equals minSize ({least}). Terminating instance "
                    "without replacement will violate group's min size constraint. Either set "
                    "shouldDecrementDesiredCapacity flag to false or lower group's min size."
                )
            group.desired_capacity = desired - units
        group.retire(state, "a user request")
        return group.activities[0]

    def detach_instances(
        self, group_name: str, instance_ids: list[str], should_decrement: bool
    ) -> Any:
        """Let members go, all of them or, with a ValidationError, none."""
        group = self.group(group_name)
        states = []
        for instance_id in instance_ids:
            state = group.state_of(instance_id)
            if state is None:
                raise ValidationError(
                    f"The instance {instance_id} is not part of Auto Scaling group {group_name}."
                )
            if state.lifecycle_state not in DETACHABLE:
                raise ValidationError(f"The instance {instance_id} is not in InService or Standby.")
            states.append(state)
        desired, least, number = group.desired_capacity or 0, group.min_size or 0, len(states)
        if should_decrement:
            units = sum(map(group.units_of, states))
            if desired - units < least:
                raise ValidationError(
                    f"AutoScalingGroup {group_name} has min-size={least}, "
                    f"max-size={group.max_size}, and desired-size={desired}. To detach {number} "
                    f"instance{'s' if number > 1 else ''}, please update the AutoScalingGroup "
                    "sizes appropriately."
                )
            group.desired_capacity = desired - units
        return [group.detach(state) for state in states]

    def resume_processes(self, group_name: str, scaling_processes: list[str]) -> None:
        """As moto does; the group then catches up."""
        super().resume_processes(group_name, scaling_processes)
        self.group(group_name).settle_soon()

    def notify_terminate_instances(self, instance_ids: list[str]) -> None:
        """Nothing: a group learns of a death by its health check, not from the EC2 call."""

    def put_hook(self, group: str, specification: dict[str, Any]) -> None:
        """Store a hook, or change it; raises ValidationError."""
        transition = specification.get("LifecycleTransition")
        heartbeat = specification.get("HeartbeatTimeout")
        result = specification.get("DefaultResult")
        name = specification["LifecycleHookName"]
        check(transition, heartbeat, result, self.cloud.pace.minimum_heartbeat)
        self.lifecycle_hooks[f"{group}_{name}"] = WaitingHook(
            name,
            group,
            str(transition),
            heartbeat,
            result,
            specification.get("NotificationMetadata"),
        )

    def delete_lifecycle_hook(self, as_name: str, name: str) -> None:
        """As moto does; what waits for the hook goes on."""
        super().delete_lifecycle_hook(as_name, name)
        self.actions.drop_hook(as_name, name)


def _given_again(policy: dict[str, Any] | None) -> dict[str, Any] | None:
    """A stored policy as a request would give it: its template by id, without the name as well."""
    if not policy:
        return None
    template = policy["LaunchTemplate"]
    specification = dict(template["LaunchTemplateSpecification"])
    specification.pop("LaunchTemplateName", None)
    return policy | {"LaunchTemplate": template | {"LaunchTemplateSpecification": specification}}


def _is_of(hook: LifecycleHook, group: KeepingGroup) -> bool:
    return hook.auto_scaling_group_name == group.name


def _check_sizes(desired: int | None, least: int | None, most: int | None) -> None:
    wanted = least if desired is None else desired
    if wanted is None or least is None or most is None or least <= wanted <= most:
        return
    raise ValidationError(
        f"Desired capacity:{wanted} must be between the specified min size:{least} "
        f"and max size:{most}"
    )


class ScalingResponse(AutoScalingResponse):
    """The actions themselves; what is not here is moto's."""

    @property
    def scaling(self) -> Scaling:
        """The models of the caller's account and region."""
        backend = self.autoscaling_backend
        assert isinstance(backend, Scaling)
        return backend

    def call_action(self) -> TYPE_RESPONSE:
        """As moto does; an unknown group is an error of the caller, not of the server."""
        name = self._get_param("AutoScalingGroupName")
        known = name is None or name in self.scaling.autoscaling_groups
        if not known and self._get_action() != "CreateAutoScalingGroup":
            error = ValidationError("AutoScalingGroup name not found - null")
            return self.serialized(ActionResult(error))
        answer: TYPE_RESPONSE = super().call_action()
        return answer

    def create_auto_scaling_group(self) -> ActionResult:
        """Hooks of the request are there before the first instance is launched."""
        name = self._get_param("AutoScalingGroupName")
        known = name in self.scaling.autoscaling_groups
        hooks = self._get_param("LifecycleHookSpecificationList", [])
        for hook in [] if known else hooks:
            self.scaling.put_hook(name, hook)
        return super().create_auto_scaling_group()

    def update_auto_scaling_group(self) -> ActionResult:
        """moto's, with the flags that it leaves out."""
        result = super().update_auto_scaling_group()
        group = self.scaling.group(self._get_param("AutoScalingGroupName"))
        group.capacity_rebalance = self._get_bool_param(
            "CapacityRebalance", group.capacity_rebalance
        )
        return result

    def launch_instances(self) -> ActionResult:
        """At once, in one zone; the answer is the same for as long as its token is known."""
        wanted = Launch(
            self._get_param("AutoScalingGroupName"),
            self._get_int_param("RequestedCapacity"),
            tuple(self._get_param("AvailabilityZones", [])),
            tuple(self._get_param("AvailabilityZoneIds", [])),
            tuple(self._get_param("SubnetIds", [])),
            self._get_param("RetryStrategy", "none"),
        )
        group, token = self.scaling.group(wanted.group), self._get_param("ClientToken")
        return ActionResult(self.scaling.launches.answer(group, wanted, token))

    def delete_auto_scaling_group(self) -> ActionResult:
        """Refused while there are members, unless ForceDelete."""
        force = self._get_bool_param("ForceDelete", False)
        self.scaling.end_group(self._get_param("AutoScalingGroupName"), force=force)
        return EmptyResult()

    def describe_auto_scaling_groups(self) -> ActionResult:
        """moto's, without the instances where the caller does not want them."""
        found = super().describe_auto_scaling_groups()
        if self._get_bool_param("IncludeInstances", True):
            return found
        page: Any = found.result
        groups = [_WithoutInstances(group) for group in page["AutoScalingGroups"]]
        return ActionResult({**page, "AutoScalingGroups": groups})

    def describe_scaling_activities(self) -> ActionResult:
        """Newest first; of one group, or of all."""
        name = self._get_param("AutoScalingGroupName")
        chosen = [self.scaling.group(name)] if name else self.scaling.autoscaling_groups.values()
        activities: list[Activity] = []
        for group in chosen:
            assert isinstance(group, KeepingGroup)
            activities.extend(group.activities)
        limit = self._get_int_param("MaxRecords", 100)
        return ActionResult({"Activities": activities[:limit]})

    def describe_instance_refreshes(self) -> ActionResult:
        """None: the sandbox does not start any."""
        self.scaling.group(self._get_param("AutoScalingGroupName"))
        return ActionResult({"InstanceRefreshes": []})

    def put_lifecycle_hook(self) -> ActionResult:
        """With its metadata, and refused where AWS would."""
        group = self.scaling.group(self._get_param("AutoScalingGroupName"))
        self.scaling.put_hook(group.name, self._get_params())
        return EmptyResult()

    def complete_lifecycle_action(self) -> ActionResult:
        """By token, else by instance."""
        self.scaling.actions.complete(*self._action(), self._get_param("LifecycleActionResult"))
        return EmptyResult()

    def record_lifecycle_action_heartbeat(self) -> ActionResult:
        """By token, else by instance."""
        self.scaling.actions.heartbeat(*self._action())
        return EmptyResult()

    def _action(self) -> tuple[str, str, str | None, str | None]:
        group = self.scaling.group(self._get_param("AutoScalingGroupName"))
        return (
            group.name,
            self._get_param("LifecycleHookName"),
            self._get_param("LifecycleActionToken"),
            self._get_param("InstanceId"),
        )


class _WithoutInstances:
    """A group as it is described to those who do not ask for its instances."""

    instances: tuple[()] = ()

    def __init__(self, group: Any) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


def install(cloud: Cloud, bus: EventBus) -> None:
    """Put these groups and actions in moto's place."""
    Scaling.cloud, Scaling.actions = cloud, groups.install(cloud, bus)
    autoscaling_backends.backend = Scaling
    moto_autoscaling.FakeAutoScalingGroup = KeepingGroup  # type: ignore[misc]
