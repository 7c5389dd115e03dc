"""Auto Scaling groups and their lifecycle actions that wait for completion, by boto3."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of, message_of
from leeway.instances.facts import GroupFacts, GroupRules, ObservedHook, stays_in_group
from leeway.notices import LifecycleHook
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    HookResult,
    HookSettings,
    Launched,
    LaunchedInstance,
    LaunchError,
    LifecycleActionOver,
    Waiting,
)
from leeway.retirement.hooks import EKS_HOOKS

TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
NOT_FOUND = "ValidationError"
"""The error code of Auto Scaling for a group, a hook or an action that does not exist."""

INSTANCES_PER_CALL = 50
"""Source: Auto Scaling API reference, DescribeAutoScalingInstances, InstanceIds."""

_REFRESHING = frozenset({"Pending", "InProgress", "Baking", "RollbackInProgress"})


class AutoScalingMembers:
    """The instances of any groups; `client` returns boto3's Auto Scaling client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def lifecycle_states(self, instances: Collection[str]) -> dict[str, str]:
        """Read the lifecycle states of instances, as `InService` or `Warmed:Running`, by a call for
        each 50. Those that Auto Scaling does not list are left out."""
        found: dict[str, str] = {}
        for some in batched(sorted(instances), INSTANCES_PER_CALL, strict=False):
            with aws_errors():
                pages = self._client().get_paginator("describe_auto_scaling_instances")
                for page in pages.paginate(InstanceIds=list(some)):
                    for one in page["AutoScalingInstances"]:
                        found[one["InstanceId"]] = one["LifecycleState"]
        return found


class AutoScalingGroups(AutoScalingMembers):
    """The Groups Protocol; `client` returns boto3's Auto Scaling client."""

    def facts(self, instance: str) -> GroupFacts | None:
        """Read an instance's group. Four calls: DescribeAutoScalingInstances, and the three calls
        of `rules`."""
        with aws_errors():
            described = self._client().describe_auto_scaling_instances(InstanceIds=[instance])
            found = described["AutoScalingInstances"]
            if not found:
                return None
            member = found[0]
            name = member["AutoScalingGroupName"]
            group = self._described(name)
            rules = self._rules(group)
        return GroupFacts(
            **{field.name: getattr(rules, field.name) for field in fields(rules)},
            desired=group["DesiredCapacity"],
            minimum=group["MinSize"],
            maximum=group["MaxSize"],
            units=_units_of(member),
            protected=member["ProtectedFromScaleIn"],
            lifecycle_state=member["LifecycleState"],
        )

    def rules(self, group: str) -> GroupRules:
        """Read the rules of a group. Three calls: DescribeAutoScalingGroups,
        DescribeLifecycleHooks, DescribeInstanceRefreshes.

        Raises:
            CloudRefused: there is no such group.
        """
        with aws_errors():
            return self._rules(self._described(group))

    def _described(self, name: str) -> dict[str, Any]:
        # Without the instances: the answer for a group of hundreds would list them all, for each
        # instance that retires.
        described = self._client().describe_auto_scaling_groups(
            AutoScalingGroupNames=[name], IncludeInstances=False
        )
        return _only_group(described, name)

    def _rules(self, group: dict[str, Any]) -> GroupRules:
        name = group["AutoScalingGroupName"]
        hooks = self._client().describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        refreshes = self._client().describe_instance_refreshes(
            AutoScalingGroupName=name, MaxRecords=1
        )
        return GroupRules(
            name=name,
            zones=tuple(group["AvailabilityZones"]),
            types=_types_of(group),
            launch_unsupported=_launch_unsupported(group),
            capacity_rebalance=group.get("CapacityRebalance", False),
            refreshing=any(r["Status"] in _REFRESHING for r in refreshes["InstanceRefreshes"]),
            suspended=frozenset(p["ProcessName"] for p in group.get("SuspendedProcesses", [])),
            terminate_hooks=_terminating(hook for hook in hooks if notifies_leeway(hook)),
            foreign_terminate_hooks=_terminating(
                hook for hook in hooks if not notifies_leeway(hook)
            ),
            timeouts={hook["LifecycleHookName"]: int(hook["HeartbeatTimeout"]) for hook in hooks},
            with_target=frozenset(hook["LifecycleHookName"] for hook in hooks if _has_target(hook)),
        )

    def missing(self, group: str) -> int:
        """Return the desired capacity that is neither `InService` nor `Pending`, in the group's
        units. The answer lists all instances of the group."""
        with aws_errors():
            answer = self._client().describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        found = _only_group(answer, group)
        present = sum(
            _units_of(member)
            for member in found["Instances"]
            if stays_in_group(member["LifecycleState"])
        )
        return max(0, int(found["DesiredCapacity"]) - present)

    def launch(self, group: str, zone: str, units: int, token: str) -> Launched:
        """Call LaunchInstances, which also raises the desired capacity by `units`. A repeated token
        returns the first result for eight hours."""
        with aws_errors():
            answer = self._client().launch_instances(
                AutoScalingGroupName=group,
                RequestedCapacity=units,
                AvailabilityZones=[zone],
                ClientToken=token,
                RetryStrategy="none",
            )
        return Launched(
            tuple(
                LaunchedInstance(instance, launched["InstanceType"], launched["AvailabilityZone"])
                for launched in answer.get("Instances", [])
                for instance in launched["InstanceIds"]
            ),
            tuple(
                LaunchError(
                    error.get("InstanceType", ""),
                    error.get("AvailabilityZone", zone),
                    error.get("ErrorCode", ""),
                    error.get("ErrorMessage", ""),
                )
                for error in answer.get("Errors", [])
            ),
        )

    def terminate_in_group(self, instance: str, decrement: bool = False) -> None:
        """Call TerminateInstanceInAutoScalingGroup. Without `decrement` the group launches a
        replacement immediately."""
        with aws_errors():
            self._client().terminate_instance_in_auto_scaling_group(
                InstanceId=instance, ShouldDecrementDesiredCapacity=decrement
            )

    def detach(self, instance: str, group: str) -> None:
        """Call DetachInstances without a decrement: the group launches a replacement."""
        with aws_errors():
            self._client().detach_instances(
                AutoScalingGroupName=group,
                InstanceIds=[instance],
                ShouldDecrementDesiredCapacity=False,
            )

    def hook_settings(self, hook: LifecycleHook) -> HookSettings | None:
        """Read a hook's settings; None if the group or the hook does not exist."""
        with aws_errors():
            try:
                described = self._client().describe_lifecycle_hooks(
                    AutoScalingGroupName=hook.group, LifecycleHookNames=[hook.name]
                )
            except ClientError as error:
                if code_of(error) == NOT_FOUND:
                    return None
                raise
        found = described["LifecycleHooks"]
        if not found:
            return None
        return HookSettings(int(found[0]["HeartbeatTimeout"]), _has_target(found[0]))

    def heartbeat(self, instance: str, hook: LifecycleHook) -> None:
        """Call RecordLifecycleActionHeartbeat.

        Raises:
            LifecycleActionOver: the action no longer waits.
        """
        with aws_errors(), _lifecycle_action_errors():
            self._client().record_lifecycle_action_heartbeat(
                AutoScalingGroupName=hook.group, LifecycleHookName=hook.name, InstanceId=instance
            )

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        """Call CompleteLifecycleAction.

        Raises:
            LifecycleActionOver: the action no longer waits.
        """
        with aws_errors(), _lifecycle_action_errors():
            self._client().complete_lifecycle_action(
                AutoScalingGroupName=hook.group,
                LifecycleHookName=hook.name,
                InstanceId=instance,
                LifecycleActionResult=result.value,
            )


def notifies_leeway(hook: dict[str, Any]) -> bool:
    """Whether Leeway receives a hook's actions: the hook has no notification target of its own, or
    is one of the hooks of EKS. The owner of a target answers the hook's actions."""
    return not _has_target(hook) or hook["LifecycleHookName"] in EKS_HOOKS


def _has_target(hook: dict[str, Any]) -> bool:
    """Whether a hook notifies a target of its own. AWS does not document whether EventBridge
    receives the actions of such a hook, too."""
    return bool(hook.get("NotificationTargetARN"))


def _only_group(answer: dict[str, Any], name: str) -> dict[str, Any]:
    groups: list[dict[str, Any]] = answer["AutoScalingGroups"]
    if not groups:
        raise CloudRefused(f"there is no group {name}")
    return groups[0]


def _units_of(member: dict[str, Any]) -> int:
    """Return the capacity units of an instance: its weight, its vCPUs or its memory, by the unit of
    the group; else 1."""
    return int(member.get("WeightedCapacity") or 1)


def _types_of(group: dict[str, Any]) -> tuple[str, ...]:
    """Return the instance types of the group's overrides, without the launch template's type."""
    template = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    overrides = template.get("Overrides", [])
    return tuple(entry["InstanceType"] for entry in overrides if "InstanceType" in entry)


def _launch_unsupported(group: dict[str, Any]) -> str:
    """Return why LaunchInstances does not support a group; empty if it does.

    Source: EC2 Auto Scaling user guide, "Launch instances synchronously".
    """
    if "LaunchConfigurationName" in group:
        return "uses a launch configuration"
    if "WarmPoolConfiguration" in group:
        return "has a warm pool"
    distribution = group.get("MixedInstancesPolicy", {}).get("InstancesDistribution", {})
    share = distribution.get("OnDemandPercentageAboveBaseCapacity", 100)
    all_spot = share == 0 and not distribution.get("OnDemandBaseCapacity", 0)
    return "" if share == 100 or all_spot else "mixes On-Demand and Spot Instances"


def _terminating(hooks: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(h["LifecycleHookName"] for h in hooks if h["LifecycleTransition"] == TERMINATING)


@contextmanager
def _lifecycle_action_errors() -> Iterator[None]:
    """Raise the error for an action that does not exist as LifecycleActionOver."""
    try:
        yield
    except ClientError as error:
        if code_of(error) == NOT_FOUND:
            raise LifecycleActionOver(message_of(error)) from error
        raise


GROUPS_PER_CALL = 100
"""Source: Auto Scaling API reference, DescribeAutoScalingGroups, MaxRecords."""

_TRANSITIONS = {
    "Pending:Wait": "autoscaling:EC2_INSTANCE_LAUNCHING",
    "ReplacingRootVolume:Wait": "autoscaling:EC2_INSTANCE_TERMINATING",
    "Terminating:Wait": "autoscaling:EC2_INSTANCE_TERMINATING",
}


class AutoScalingWaitingActions:
    """The WaitingActions Protocol; `client` returns boto3's Auto Scaling client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def of_groups(self, groups: Collection[str]) -> Waiting:
        """List the waiting instances of these groups: one call for each 100 groups, and one for
        each group with a waiting instance.

        Auto Scaling reports neither the hook that an instance waits for nor the start of the wait:
        the result names the instance once for each hook that may apply. Hooks with a notification
        target of their own are left out, except the hooks of EKS: they show that an instance of a
        managed node group terminates.
        """
        seen: list[ObservedHook] = []
        unread: list[str] = []
        for names in batched(sorted(groups), GROUPS_PER_CALL, strict=False):
            try:
                described = self._described(names)
            except (CloudUnavailable, CloudRefused) as error:
                unread.append(f"groups {names[0]} to {names[-1]}: {error}")
                continue
            for group in described:
                try:
                    seen += self._in_group(group)
                except (CloudUnavailable, CloudRefused) as error:
                    unread.append(f"{group['AutoScalingGroupName']}: {error}")
        return Waiting(tuple(seen), tuple(unread))

    def _described(self, names: Sequence[str]) -> list[dict[str, Any]]:
        with aws_errors():
            pages = (
                self._client()
                .get_paginator("describe_auto_scaling_groups")
                .paginate(AutoScalingGroupNames=list(names), MaxRecords=GROUPS_PER_CALL)
            )
            return [group for page in pages for group in page["AutoScalingGroups"]]

    def _in_group(self, group: dict[str, Any]) -> Iterator[ObservedHook]:
        waiting = [i for i in group["Instances"] if i["LifecycleState"] in _TRANSITIONS]
        if not waiting:
            return
        name = group["AutoScalingGroupName"]
        hooks = self._hooks_of(name)
        for member in waiting:
            state = member["LifecycleState"]
            for hook in hooks:
                if hook["LifecycleTransition"] == _TRANSITIONS[state]:
                    waits_for = LifecycleHook(name, hook["LifecycleHookName"])
                    launching, timeout = state == "Pending:Wait", int(hook["HeartbeatTimeout"])
                    yield ObservedHook(member["InstanceId"], waits_for, launching, timeout)

    def _hooks_of(self, group: str) -> list[dict[str, Any]]:
        with aws_errors():
            try:
                answer = self._client().describe_lifecycle_hooks(AutoScalingGroupName=group)
            except ClientError as error:
                if code_of(error) == NOT_FOUND:
                    return []  # the group was deleted since
                raise
        return [hook for hook in answer["LifecycleHooks"] if notifies_leeway(hook)]
