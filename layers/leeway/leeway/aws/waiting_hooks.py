"""Lifecycle actions of Auto Scaling groups that wait for completion, by boto3."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.autoscaling import NOT_FOUND, notifies_leeway
from leeway.aws.errors import aws_errors, code_of
from leeway.instances.observed import ObservedHook
from leeway.notices import LifecycleHook
from leeway.ports.aws import CloudRefused, CloudUnavailable, Waiting

GROUPS_PER_CALL = 100
"""Source: Auto Scaling API reference, DescribeAutoScalingGroups, MaxRecords."""

_TRANSITIONS = {
    "Pending:Wait": "autoscaling:EC2_INSTANCE_LAUNCHING",
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
