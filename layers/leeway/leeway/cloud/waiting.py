"""Lifecycle actions of Auto Scaling groups that wait for an answer, by boto3."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from botocore.exceptions import ClientError

from leeway.cloud.errors import aws_errors, code_of
from leeway.hooks import EKS_HOOKS
from leeway.notices import LifecycleHook
from leeway.sightings import SeenHook

NAMES = 100
"""Groups that one DescribeAutoScalingGroups tells about. Source: its API reference, MaxRecords."""

_TRANSITIONS = {
    "Pending:Wait": "autoscaling:EC2_INSTANCE_LAUNCHING",
    "Terminating:Wait": "autoscaling:EC2_INSTANCE_TERMINATING",
}


class AutoScalingWaitingActions:
    """The WaitingActions Protocol; `client` makes boto3's Auto Scaling client when first asked."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def of_groups(self, groups: Collection[str]) -> list[SeenHook]:
        """List the instances of these groups that wait, once for each hook that may be meant:
        Auto Scaling tells neither which hook an instance waits for, nor since when. A hook that has
        a target of its own to notify is that one's business; but EKS's own, which notify EKS, tell
        that a managed node group's instance is terminated.
        """
        return list(self._waiting(sorted(groups)))

    def _waiting(self, groups: list[str]) -> Iterator[SeenHook]:
        for start in range(0, len(groups), NAMES):
            with aws_errors():
                pages = (
                    self._client()
                    .get_paginator("describe_auto_scaling_groups")
                    .paginate(AutoScalingGroupNames=groups[start : start + NAMES], MaxRecords=NAMES)
                )
                for page in pages:
                    for group in page["AutoScalingGroups"]:
                        yield from self._in_group(group)

    def _in_group(self, group: dict[str, Any]) -> Iterator[SeenHook]:
        waiting = [i for i in group["Instances"] if i["LifecycleState"] in _TRANSITIONS]
        if not waiting:
            return
        name = group["AutoScalingGroupName"]
        try:
            answer = self._client().describe_lifecycle_hooks(AutoScalingGroupName=name)
        except ClientError as error:
            if code_of(error) == "ValidationError":
                return  # the group is gone since, and the others are looked at all the same
            raise
        hooks = [hook for hook in answer["LifecycleHooks"] if _tells_us(hook)]
        for member in waiting:
            state = member["LifecycleState"]
            for hook in hooks:
                if hook["LifecycleTransition"] == _TRANSITIONS[state]:
                    waits_for = LifecycleHook(name, hook["LifecycleHookName"])
                    yield SeenHook(member["InstanceId"], waits_for, state == "Pending:Wait")


def _tells_us(hook: dict[str, Any]) -> bool:
    return not hook.get("NotificationTargetARN") or hook["LifecycleHookName"] in EKS_HOOKS
