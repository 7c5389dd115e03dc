"""Lifecycle actions of Auto Scaling groups that wait for an answer, by boto3."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.autoscaling import calls_us
from leeway.aws.errors import aws_errors, code_of
from leeway.instances.observed import ObservedHook
from leeway.notices import LifecycleHook
from leeway.ports.aws import CloudRefused, CloudUnavailable, Waiting

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

    def of_groups(self, groups: Collection[str]) -> Waiting:
        """Look for the instances of these groups that wait, once for each hook that may be meant:
        Auto Scaling tells neither which hook an instance waits for, nor since when. A hook that has
        a target of its own to notify is that one's business; but EKS's own, which notify EKS, tell
        that a managed node group's instance is terminated.
        """
        seen: list[ObservedHook] = []
        unread: list[str] = []
        for names in batched(sorted(groups), NAMES, strict=False):
            try:
                described = self._described(names)
            except (CloudUnavailable, CloudRefused) as error:
                unread.append(f"{len(names)} groups from {names[0]} on: {error}")
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
                .paginate(AutoScalingGroupNames=list(names), MaxRecords=NAMES)
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
                if code_of(error) == "ValidationError":
                    return []  # the group is gone since
                raise
        return [hook for hook in answer["LifecycleHooks"] if calls_us(hook)]
