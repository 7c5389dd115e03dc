"""Auto Scaling groups with their tags and lifecycle hooks, by boto3."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError
from leeway.aws.errors import code_of
from leeway.instances.owners import (
    CLUSTER_TAGS,
    GROUP_TAG,
    NODE_GROUP_TAG,
    OWNED_PREFIX,
    OwnerKind,
    owner_of,
)

from leeway_cli.cluster_setup.ports import ScalingGroup
from leeway_cli.cluster_setup.settings import GroupHook, GroupTag, Transition

_NAMES = 100
"""Groups of one DescribeAutoScalingGroups. Source: Auto Scaling API, `AutoScalingGroupNames`."""
_KIND = "auto-scaling-group"
_AUTOSCALER_TAG = "k8s.io/cluster-autoscaler/"


class AutoScaling:
    """The Groups Protocol, and changes; `scaling` and `ec2` make boto3's clients. Every method
    raises botocore's errors."""

    def __init__(self, scaling: Callable[[], Any], ec2: Callable[[], Any]) -> None:
        self._scaling = scaling
        self._ec2 = ec2

    def groups_of(self, cluster: str) -> list[ScalingGroup]:
        """Find the groups of a cluster by their tags and by the tags of their instances, with those
        of managed node groups, by name."""
        names = {*self._names_by_tag(cluster), *self._names_by_instance(cluster)}
        return self.read(sorted(names))

    def _names_by_tag(self, cluster: str) -> Iterator[str]:
        keys = [f"{OWNED_PREFIX}{cluster}", f"{_AUTOSCALER_TAG}{cluster}"]
        filters = [
            [{"Name": "tag-key", "Values": keys}],
            *([{"Name": f"tag:{key}", "Values": [cluster]}] for key in CLUSTER_TAGS),
        ]
        pages = self._scaling().get_paginator("describe_auto_scaling_groups")
        for one in filters:
            for page in pages.paginate(Filters=one, IncludeInstances=False):
                for group in page["AutoScalingGroups"]:
                    yield group["AutoScalingGroupName"]

    def _names_by_instance(self, cluster: str) -> Iterator[str]:
        """Find groups without a tag by their instances: EKS tags each one that joins a cluster."""
        filters = [
            {"Name": f"tag:{CLUSTER_TAGS[0]}", "Values": [cluster]},
            {"Name": "tag-key", "Values": [GROUP_TAG]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
        for page in self._ec2().get_paginator("describe_instances").paginate(Filters=filters):
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
                    if GROUP_TAG in tags:
                        yield tags[GROUP_TAG]

    def read(self, names: Iterable[str]) -> list[ScalingGroup]:
        """Read groups with their hooks; a group that does not exist is left out."""
        pages = self._scaling().get_paginator("describe_auto_scaling_groups")
        return [
            group
            for some in batched(dict.fromkeys(names), _NAMES, strict=False)
            for page in pages.paginate(AutoScalingGroupNames=list(some))
            for described in page["AutoScalingGroups"]
            if (group := self._group(described)) is not None
        ]

    def _group(self, described: Mapping[str, Any]) -> ScalingGroup | None:
        name = described["AutoScalingGroupName"]
        try:
            hooks = self._scaling().describe_lifecycle_hooks(AutoScalingGroupName=name)
        except ClientError as error:
            if code_of(error) == "ValidationError":  # the group was deleted meanwhile
                return None
            raise
        tags = {
            tag["Key"]: GroupTag(name, tag["Value"], bool(tag["PropagateAtLaunch"]), tag["Key"])
            for tag in described.get("Tags", ())
        }
        waiting = [
            member["InstanceId"]
            for member in described.get("Instances", ())
            if member["LifecycleState"] == "Pending:Wait"
        ]
        found = tuple(_hook(one) for one in hooks["LifecycleHooks"])
        return ScalingGroup(name, tags, found, _node_group(name, tags), tuple(waiting))

    def put_tag(self, tag: GroupTag) -> None:
        """Write a tag of a group."""
        self._scaling().create_or_update_tags(Tags=[_as_tag(tag)])

    def delete_tag(self, tag: GroupTag) -> None:
        """Delete a tag of a group."""
        self._scaling().delete_tags(Tags=[_as_tag(tag)])

    def put_hook(self, hook: GroupHook, replaces: GroupHook | None) -> None:
        """Create or replace a lifecycle hook."""
        own = {
            "NotificationTargetARN": hook.target,
            "RoleARN": hook.role,
            "NotificationMetadata": hook.metadata,
        }
        own = {key: value for key, value in own.items() if value}
        if replaces is not None and replaces.target:
            # An empty target removes the present one. Source: Auto Scaling API, PutLifecycleHook.
            own.setdefault("NotificationTargetARN", "")
        self._scaling().put_lifecycle_hook(
            AutoScalingGroupName=hook.group,
            LifecycleHookName=hook.name,
            LifecycleTransition=hook.transition.value,
            HeartbeatTimeout=hook.timeout,
            DefaultResult=hook.default,
            **own,
        )

    def delete_hook(self, hook: GroupHook) -> None:
        """Delete a lifecycle hook; a missing one is not an error."""
        try:
            self._scaling().delete_lifecycle_hook(
                AutoScalingGroupName=hook.group, LifecycleHookName=hook.name
            )
        except ClientError as error:
            if code_of(error) != "ValidationError":
                raise


def _as_tag(tag: GroupTag) -> dict[str, Any]:
    return {
        "ResourceId": tag.group,
        "ResourceType": _KIND,
        "Key": tag.tag,
        "Value": tag.value,
        "PropagateAtLaunch": tag.propagated,
    }


def _hook(one: Mapping[str, Any]) -> GroupHook:
    return GroupHook(
        group=one["AutoScalingGroupName"],
        name=one["LifecycleHookName"],
        transition=Transition(one["LifecycleTransition"]),
        timeout=int(one["HeartbeatTimeout"]),
        default=one.get("DefaultResult") or "ABANDON",
        target=one.get("NotificationTargetARN") or "",
        role=one.get("RoleARN") or "",
        metadata=one.get("NotificationMetadata") or "",
    )


def _node_group(name: str, tags: Mapping[str, GroupTag]) -> str:
    """Return the managed node group of a group; empty if it has none. Everybody may write the tag,
    but only EKS creates groups with such names."""
    values = {key: tag.value for key, tag in tags.items()}
    owner = owner_of({**values, GROUP_TAG: name})
    managed = owner.kind is OwnerKind.MANAGED_NODE_GROUP
    return values.get(NODE_GROUP_TAG, name) if managed else ""
