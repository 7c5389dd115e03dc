"""Auto Scaling actions that moto lacks, or whose rules moto does not enforce.

CompleteLifecycleAction, RecordLifecycleActionHeartbeat, hooks of CreateAutoScalingGroup,
TerminateInstanceInAutoScalingGroup, DetachInstances, and the limits of the desired capacity.
LaunchInstances is in `launch_instances`.
"""

from typing import Any, ClassVar

import moto.autoscaling.models as moto_autoscaling
from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.models import (
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
    autoscaling_backends,
)
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.common_types import TYPE_RESPONSE
from moto.core.responses import ActionResult, EmptyResult

from leeway_sandbox.aws import groups
from leeway_sandbox.aws.cloud import Cloud
from leeway_sandbox.aws.eventbridge import EventBus
from leeway_sandbox.aws.groups import ReconcilingGroup
from leeway_sandbox.aws.launch_instances import Launch, Launches
from leeway_sandbox.aws.lifecycle_hooks import LifecycleActions, WaitingHook, check

DETACHABLE = {"InService", "Standby"}


class Scaling(AutoScalingBackend):
    """moto's Auto Scaling, with AWS's rules about instances that leave a group."""

    cloud: ClassVar[Cloud]
    actions: ClassVar[LifecycleActions]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.launches = Launches()

    def group(self, name: str | None) -> ReconcilingGroup:
        """Return the group of this name; raises ValidationError."""
        group = self.autoscaling_groups.get(name or "")
        if not isinstance(group, ReconcilingGroup):
            raise ValidationError("AutoScalingGroup name not found - null")
        return group

    def member(self, instance_id: str) -> tuple[ReconcilingGroup, InstanceState]:
        """Return the group and the membership of an instance; raises ValidationError."""
        for group in self.autoscaling_groups.values():
            assert isinstance(group, ReconcilingGroup)
            if state := group.state_of(instance_id):
                return group, state
        raise ValidationError(
            f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
        )

    def describe_auto_scaling_instances(self, instance_ids: list[str]) -> list[InstanceState]:
        """Describe members; with ids, without a walk through all members."""
        if not instance_ids:
            return super().describe_auto_scaling_instances(instance_ids)
        groups = [g for g in self.autoscaling_groups.values() if isinstance(g, ReconcilingGroup)]
        found = (group.state_of(one) for one in instance_ids for group in groups)
        return [state for state in found if state]

    def create_auto_scaling_group(
        self, name: str, *args: Any, **kwargs: Any
    ) -> FakeAutoScalingGroup:
        """Create a group; refuse an existing name, and a size outside of the limits."""
        if name in self.autoscaling_groups:
            raise AutoscalingClientError(
                "AlreadyExists",
                "AutoScalingGroup by this name already exists - "
                f"A group with the name {name} already exists",
            )
        _check_sizes(kwargs["desired_capacity"], kwargs["min_size"], kwargs["max_size"])
        self._name_templates(kwargs["mixed_instances_policy"])
        return super().create_auto_scaling_group(name, *args, **kwargs)

    def update_auto_scaling_group(
        self, name: str, *args: Any, **kwargs: Any
    ) -> FakeAutoScalingGroup:
        """Update a group; refuse an override whose launch template has an id and a name. A policy
        that the call does not name stays, as in AWS."""
        others = kwargs["launch_template"] or kwargs["launch_config_name"]
        if kwargs["mixed_instances_policy"] is None and not others:
            kwargs["mixed_instances_policy"] = self.group(name).mixed_instances_policy
        self._name_templates(kwargs["mixed_instances_policy"])
        return super().update_auto_scaling_group(name, *args, **kwargs)

    def _name_templates(self, policy: dict[str, Any] | None) -> None:
        """Write the id and the name of each override's launch template, of which the request has
        one. moto does it for the policy's own."""
        for override in ((policy or {}).get("LaunchTemplate") or {}).get("Overrides") or []:
            written = override.get("LaunchTemplateSpecification")
            if written is None:
                continue
            by_id, by_name = (written.get(f"LaunchTemplate{key}") for key in ("Id", "Name"))
            if bool(by_id) == bool(by_name):
                raise ValidationError(
                    "Valid requests must contain either launchTemplateId or LaunchTemplateName"
                )
            found = (
                self.ec2_backend.get_launch_template(by_id)
                if by_id
                else self.ec2_backend.get_launch_template_by_name(by_name)
            )
            written |= {"LaunchTemplateId": found.id, "LaunchTemplateName": found.name}

    def delete_auto_scaling_group(self, group_name: str) -> None:
        """Delete a group with its hooks, which moto keeps."""
        super().delete_auto_scaling_group(group_name)
        for key, one in [*self.lifecycle_hooks.items()]:
            if one.auto_scaling_group_name == group_name:
                del self.lifecycle_hooks[key]

    def set_desired_capacity(self, group_name: str, desired_capacity: int | None) -> None:
        """Set the desired capacity; refuse a value outside of minimum and maximum."""
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

    def terminate_instance(self, instance_id: str, should_decrement: bool) -> Any:
        """Terminate an instance after its hooks; the group replaces it unless it decrements."""
        group, state = self.member(instance_id)
        if state.lifecycle_state.startswith("Terminating"):
            return group.activity("Terminating", instance_id)
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
        group.retire(state)
        return group.activity("Terminating", instance_id)

    def detach_instances(
        self, group_name: str, instance_ids: list[str], should_decrement: bool
    ) -> Any:
        """Detach all of these members, or none and raise ValidationError."""
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
        """Resume processes; the group then reconciles its size."""
        super().resume_processes(group_name, scaling_processes)
        self.group(group_name).reconcile_soon()

    def notify_terminate_instances(self, instance_ids: list[str]) -> None:
        """Do nothing: a group notices a terminated instance by its health check."""

    def put_hook(self, group: str, specification: dict[str, Any]) -> None:
        """Create or replace a hook; raises ValidationError."""
        transition = specification.get("LifecycleTransition")
        heartbeat = specification.get("HeartbeatTimeout")
        result = specification.get("DefaultResult")
        name = specification["LifecycleHookName"]
        check(transition, heartbeat, result, self.cloud.delays.minimum_heartbeat)
        self.lifecycle_hooks[f"{group}_{name}"] = WaitingHook(
            name,
            group,
            str(transition),
            heartbeat,
            result,
            specification.get("NotificationMetadata"),
            specification.get("NotificationTargetARN"),
            specification.get("RoleARN"),
        )

    def create_or_update_tags(self, tags: list[dict[str, str]]) -> None:
        """Write tags of groups; raises ValidationError for a group that does not exist."""
        for tag in tags:
            self._tagged(tag)
        super().create_or_update_tags(tags)

    def delete_tags(self, tags: list[dict[str, str]]) -> None:
        """Delete tags of groups; raises ValidationError for a group that does not exist."""
        for tag in tags:
            self._tagged(tag)
        super().delete_tags(tags)

    def _tagged(self, tag: dict[str, str]) -> None:
        if tag["ResourceId"] not in self.autoscaling_groups:
            raise ValidationError(f"AutoScalingGroup name not found - {tag['ResourceId']}")

    def delete_lifecycle_hook(self, as_name: str, name: str) -> None:
        """Delete a hook; instances that wait for it continue. Raises ValidationError."""
        if f"{as_name}_{name}" not in self.lifecycle_hooks:
            raise ValidationError(f"No Lifecycle Hook found with name: {name}")
        super().delete_lifecycle_hook(as_name, name)
        self.actions.drop_hook(as_name, name)


def _check_sizes(desired: int | None, least: int | None, most: int | None) -> None:
    wanted = least if desired is None else desired
    if wanted is None or least is None or most is None or least <= wanted <= most:
        return
    raise ValidationError(
        f"Desired capacity:{wanted} must be between the specified min size:{least} "
        f"and max size:{most}"
    )


class ScalingResponse(AutoScalingResponse):
    """The actions that differ from moto's."""

    @property
    def scaling(self) -> Scaling:
        """The backend of the caller's account and region."""
        backend = self.autoscaling_backend
        assert isinstance(backend, Scaling)
        return backend

    def call_action(self) -> TYPE_RESPONSE:
        """Call an action; an unknown group is a client error, where moto answers a server error."""
        name = self._get_param("AutoScalingGroupName")
        known = name is None or name in self.scaling.autoscaling_groups
        if not known and self._get_action() != "CreateAutoScalingGroup":
            error = ValidationError("AutoScalingGroup name not found - null")
            return self.serialized(ActionResult(error))
        answer: TYPE_RESPONSE = super().call_action()
        return answer

    def create_auto_scaling_group(self) -> ActionResult:
        """Create a group; its hooks exist before the first instance is launched."""
        name = self._get_param("AutoScalingGroupName")
        known = name in self.scaling.autoscaling_groups
        hooks = self._get_param("LifecycleHookSpecificationList", [])
        for hook in [] if known else hooks:
            self.scaling.put_hook(name, hook)
        return super().create_auto_scaling_group()

    def launch_instances(self) -> ActionResult:
        """Launch at once in one zone; a known client token gets the same answer again."""
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
        """Delete a group. One with instances is refused, or ends them if the caller forces it."""
        group = self.scaling.group(self._get_param("AutoScalingGroupName"))
        if not group.instance_states:
            return super().delete_auto_scaling_group()
        if not self._get_bool_param("ForceDelete", False):
            raise AutoscalingClientError(
                "ResourceInUse",
                "You cannot delete an AutoScalingGroup while there are instances or pending Spot "
                "instance request(s) still in the group.",
            )
        group.delete_by_force()
        return EmptyResult()

    def describe_auto_scaling_groups(self) -> ActionResult:
        """Describe groups, without instances if the caller asks for that."""
        found = super().describe_auto_scaling_groups()
        if self._get_bool_param("IncludeInstances", True):
            return found
        page: Any = found.result
        groups = [_WithoutInstances(group) for group in page["AutoScalingGroups"]]
        return ActionResult({**page, "AutoScalingGroups": groups})

    def describe_instance_refreshes(self) -> ActionResult:
        """Return no refresh: the sandbox does not support instance refreshes."""
        self.scaling.group(self._get_param("AutoScalingGroupName"))
        return ActionResult({"InstanceRefreshes": []})

    def put_lifecycle_hook(self) -> ActionResult:
        """Create or replace a hook with its metadata; refuse as AWS does."""
        group = self.scaling.group(self._get_param("AutoScalingGroupName"))
        self.scaling.put_hook(group.name, self._get_params())
        return EmptyResult()

    def complete_lifecycle_action(self) -> ActionResult:
        """Find the action by its token, or by the instance without a token."""
        self.scaling.actions.complete(*self._action(), self._get_param("LifecycleActionResult"))
        return EmptyResult()

    def record_lifecycle_action_heartbeat(self) -> ActionResult:
        """Find the action by its token, or by the instance without a token."""
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
    """A group, described without its instances."""

    instances: tuple[()] = ()

    def __init__(self, group: Any) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


def install(cloud: Cloud, bus: EventBus) -> None:
    """Let moto use these classes for groups and actions."""
    Scaling.cloud, Scaling.actions = cloud, groups.install(cloud, bus)
    autoscaling_backends.backend = Scaling
    moto_autoscaling.FakeAutoScalingGroup = ReconcilingGroup  # type: ignore[misc]
