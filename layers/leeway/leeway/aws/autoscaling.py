"""EC2 Auto Scaling groups, by boto3."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.instances.groups import GroupFacts, GroupRules
from leeway.lifecycle_hooks.held_hooks import EKS_HOOKS
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

TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
_GONE = "ValidationError"
"""What Auto Scaling calls it when a group, a hook or an action does not exist any more."""

_REFRESHING = frozenset({"Pending", "InProgress", "Baking", "RollbackInProgress"})


class AutoScalingGroups:
    """The Groups Protocol; `client` makes boto3's Auto Scaling client when first asked."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def facts(self, instance: str) -> GroupFacts | None:
        """Read the instance's group as it is now; None where the instance is in no group."""
        with aws_errors():
            described = self._client().describe_auto_scaling_instances(InstanceIds=[instance])
            found = described["AutoScalingInstances"]
            if not found:
                return None
            member = found[0]
            name = member["AutoScalingGroupName"]
            group = self._described(name)
            rules = self._rules(group)
        known = {one.name: getattr(rules, one.name) for one in fields(rules)}
        return GroupFacts(
            **known,
            desired=group["DesiredCapacity"],
            minimum=group["MinSize"],
            maximum=group["MaxSize"],
            units=_units_of(member),
            protected=member["ProtectedFromScaleIn"],
            lifecycle_state=member["LifecycleState"],
        )

    def rules(self, group: str) -> GroupRules:
        """Read what holds for every instance of a group.

        Raises:
            CloudRefused: there is no such group.
        """
        with aws_errors():
            return self._rules(self._described(group))

    def _described(self, name: str) -> dict[str, Any]:
        # A group of hundreds would list all of its instances, for each one that retires.
        described = self._client().describe_auto_scaling_groups(
            AutoScalingGroupNames=[name], IncludeInstances=False
        )
        if not described["AutoScalingGroups"]:
            raise CloudRefused(f"there is no group {name}")
        group: dict[str, Any] = described["AutoScalingGroups"][0]
        return group

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
            launch_unsupported=_why_not_by_name(group),
            capacity_rebalance=group.get("CapacityRebalance", False),
            refreshing=any(r["Status"] in _REFRESHING for r in refreshes["InstanceRefreshes"]),
            suspended=frozenset(p["ProcessName"] for p in group.get("SuspendedProcesses", [])),
            terminate_hooks=_terminating(hook for hook in hooks if calls_us(hook)),
            foreign_terminate_hooks=_terminating(hook for hook in hooks if not calls_us(hook)),
            timeouts={hook["LifecycleHookName"]: int(hook["HeartbeatTimeout"]) for hook in hooks},
            with_target=frozenset(hook["LifecycleHookName"] for hook in hooks if _has_target(hook)),
        )

    def missing(self, group: str) -> int:
        """Read how much of its desired capacity a group has still to start, in its own units."""
        with aws_errors():
            answer = self._client().describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        if not answer["AutoScalingGroups"]:
            raise CloudRefused(f"there is no group {group}")
        [found] = answer["AutoScalingGroups"]
        there = sum(
            _units_of(member)
            for member in found["Instances"]
            if member["LifecycleState"].startswith(("Pending", "InService"))
        )
        return max(0, int(found["DesiredCapacity"]) - there)

    def launch(self, group: str, zone: str, units: int, token: str) -> Launched:
        """Have the group launch so much of its capacity in one of its zones, at once, and want that
        much more; once for each token, for eight hours."""
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
                LaunchedInstance(instance, one["InstanceType"], one["AvailabilityZone"])
                for one in answer.get("Instances", [])
                for instance in one["InstanceIds"]
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
        """Terminate by the group's hooks: without a decrement it launches a successor at once."""
        with aws_errors():
            self._client().terminate_instance_in_auto_scaling_group(
                InstanceId=instance, ShouldDecrementDesiredCapacity=decrement
            )

    def detach(self, instance: str, group: str) -> None:
        """Take the instance out without decrementing, so that the group launches a successor."""
        with aws_errors():
            self._client().detach_instances(
                AutoScalingGroupName=group,
                InstanceIds=[instance],
                ShouldDecrementDesiredCapacity=False,
            )

    def hook_settings(self, hook: LifecycleHook) -> HookSettings | None:
        """Read a hook's settings; None where the group has no such hook."""
        with aws_errors():
            try:
                described = self._client().describe_lifecycle_hooks(
                    AutoScalingGroupName=hook.group, LifecycleHookNames=[hook.name]
                )
            except ClientError as error:
                if code_of(error) == _GONE:
                    return None
                raise
        found = described["LifecycleHooks"]
        if not found:
            return None
        return HookSettings(int(found[0]["HeartbeatTimeout"]), _has_target(found[0]))

    def heartbeat(self, instance: str, hook: LifecycleHook) -> None:
        """Keep a lifecycle action waiting for another HeartbeatTimeout.

        Raises:
            LifecycleActionOver: it waits no more.
        """
        with aws_errors(), _while_it_waits():
            self._client().record_lifecycle_action_heartbeat(
                AutoScalingGroupName=hook.group, LifecycleHookName=hook.name, InstanceId=instance
            )

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        """Answer a lifecycle action that waits.

        Raises:
            LifecycleActionOver: it waits no more.
        """
        with aws_errors(), _while_it_waits():
            self._client().complete_lifecycle_action(
                AutoScalingGroupName=hook.group,
                LifecycleHookName=hook.name,
                InstanceId=instance,
                LifecycleActionResult=result.value,
            )


def calls_us(hook: dict[str, Any]) -> bool:
    """Whether EventBridge tells of a hook's actions, or EKS answers them: a hook that has a target
    of its own to notify is that one's business."""
    return not _has_target(hook) or hook["LifecycleHookName"] in EKS_HOOKS


def _has_target(hook: dict[str, Any]) -> bool:
    """Whether a hook notifies a target of its own. AWS documents nowhere whether EventBridge tells
    of its actions as well."""
    return bool(hook.get("NotificationTargetARN"))


def _units_of(member: dict[str, Any]) -> int:
    """Return how much of its group's capacity a member is: a group whose types weigh, or that wants
    vCPUs or memory, counts in units of that."""
    return int(member.get("WeightedCapacity") or 1)


def _types_of(group: dict[str, Any]) -> tuple[str, ...]:
    """Return the instance types that a group names, besides the one of its launch template."""
    template = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    overrides = template.get("Overrides", [])
    return tuple(one["InstanceType"] for one in overrides if "InstanceType" in one)


def _why_not_by_name(group: dict[str, Any]) -> str:
    """Say why LaunchInstances does not work on a group; empty where it does.

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
def _while_it_waits() -> Iterator[None]:
    """Raise as LifecycleActionOver what Auto Scaling says of an action that waits no more."""
    try:
        yield
    except ClientError as error:
        if code_of(error) == _GONE:
            raise LifecycleActionOver(str(error)) from error
        raise
