"""Auto Scaling groups, with their tag and lifecycle hooks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import batched
from typing import TYPE_CHECKING, Any, Literal, Self

from botocore.exceptions import ClientError
from leeway.aws.ec2 import STARTS_OR_RUNS, described_instances
from leeway.aws.errors import code_of
from leeway.instances.facts import (
    CLUSTER_TAGS,
    EKS_CLUSTER_TAG,
    GROUP_TAG,
    NODE_GROUP_TAG,
    OWNED_PREFIX,
    OwnerKind,
    owner_of,
)

from leeway_cli.adopt.settings.setting import AwsCall, Kind, listed
from leeway_cli.errors import CannotBeDoneError

if TYPE_CHECKING:
    from leeway_cli.adopt.services import Services

CLUSTER_TAG = "eks:cluster-name"
"""The tag of a group on which the conditions of Leeway's roles depend (template.yaml)."""
_AUTOSCALER_TAG = "k8s.io/cluster-autoscaler/"
"""The prefix of a tag key that ends with the name of the cluster. Source: Cluster Autoscaler,
'Auto-Discovery Setup'."""

HOOK_TIMEOUT = 300
"""Seconds. Leeway sends heartbeats while a drain takes longer; if Leeway does not run, an instance
waits for this time."""


class OfGroup(Kind):
    """A setting of an Auto Scaling group, which may be deleted meanwhile."""

    __slots__ = ()
    group: str

    def write(self, services: "Services", now: Self | None) -> None:
        with _missing(self.group):
            super().write(services, now)

    def remove(self, services: "Services") -> None:
        with _missing(self.group):
            super().remove(services)


@dataclass(frozen=True, slots=True)
class GroupTag(OfGroup):
    """A tag of an Auto Scaling group."""

    group: str
    value: str
    propagated: bool = True
    tag: str = CLUSTER_TAG
    setting: Literal["tag"] = "tag"

    @property
    def key(self) -> str:
        return f"{self.setting}/{self.group}/{self.tag}"

    @property
    def title(self) -> str:
        return f"tag {self.tag} of group {self.group}"

    @property
    def is_of_adopt(self) -> bool:
        return self.tag == CLUSTER_TAG

    def reason(self, cluster: str, now: Self | None) -> str:
        if now is None:
            return (
                f"Group {self.group} has no tag {self.tag}, so that Leeway may not replace its "
                "instances."
            )
        return (
            f"The tag {self.tag} of group {self.group} is {now.value!r} (propagated: "
            f"{now.propagated})."
        )

    def consent(self, cluster: str, now: Self | None, current: Mapping[str, Any]) -> str | None:
        if now is None:
            return None
        return (
            f"The tag {now.tag} of group {now.group} is {now.value!r} (propagated: "
            f"{now.propagated}); it becomes {self.value!r}."
        )

    def call(self, cluster: str, now: Self | None) -> AwsCall:
        return self._tags("CreateOrUpdateTags")

    def removal(self, cluster: str) -> AwsCall:
        return self._tags("DeleteTags")

    def _tags(self, operation: str) -> AwsCall:
        tag = {
            "ResourceId": self.group,
            "ResourceType": "auto-scaling-group",
            "Key": self.tag,
            "Value": self.value,
            "PropagateAtLaunch": self.propagated,
        }
        return AwsCall("autoscaling", operation, {"Tags": [tag]})


class Transition(StrEnum):
    """The transitions of an instance at which a hook waits. Source: Auto Scaling API."""

    LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
    TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"


HOOKS = {"leeway-drain": Transition.TERMINATING, "leeway-admit": Transition.LAUNCHING}


@dataclass(frozen=True, slots=True)
class GroupHook(OfGroup):
    """A lifecycle hook of an Auto Scaling group. `timeout` is its heartbeat timeout in seconds,
    `target` the ARN of its own notification target, `role` and `metadata` go with the target."""

    group: str
    name: str
    transition: Transition
    timeout: int
    default: str = "CONTINUE"
    target: str = ""
    role: str = ""
    metadata: str = ""
    setting: Literal["hook"] = "hook"

    @property
    def key(self) -> str:
        return f"{self.setting}/{self.group}/{self.name}"

    @property
    def title(self) -> str:
        return f"lifecycle hook {self.name} of group {self.group}"

    @property
    def is_of_adopt(self) -> bool:
        return self.name in HOOKS

    @property
    def fields(self) -> str:
        """The fields of this hook, as messages name them."""
        target = f", target {self.target}" if self.target else ""
        return f"{self.transition}, timeout {self.timeout} s, default {self.default}{target}"

    def reason(self, cluster: str, now: Self | None) -> str:
        if now is None:
            return f"Group {self.group} has no lifecycle hook {self.name}."
        return f"The lifecycle hook {self.name} of group {self.group} has {now.fields}."

    def consent(self, cluster: str, now: Self | None, current: Mapping[str, Any]) -> str | None:
        if now is not None:
            return (
                f"Group {now.group} already has a lifecycle hook {now.name}, with {now.fields}; it "
                "is replaced."
            )
        others = [
            one.name
            for one in current.values()
            if isinstance(one, GroupHook)
            and (one.group, one.transition) == (self.group, self.transition)
            and one.name != self.name
        ]
        if not others:
            return None
        return (
            f"Group {self.group} already has the lifecycle hook {listed(others)} on "
            f"{self.transition}; instances will wait for it and for {self.name}."
        )

    def call(self, cluster: str, now: Self | None) -> AwsCall:
        own = {"RoleARN": self.role, "NotificationMetadata": self.metadata}
        own["NotificationTargetARN"] = self.target
        given = {key: value for key, value in own.items() if value}
        if now is not None and now.target:
            # An empty target removes the present one. Source: Auto Scaling API, PutLifecycleHook.
            given.setdefault("NotificationTargetARN", "")
        fields = {
            **self._name,
            "LifecycleTransition": self.transition.value,
            "HeartbeatTimeout": self.timeout,
            "DefaultResult": self.default,
            **given,
        }
        return AwsCall("autoscaling", "PutLifecycleHook", fields)

    def removal(self, cluster: str) -> AwsCall:
        return AwsCall("autoscaling", "DeleteLifecycleHook", self._name)

    @property
    def _name(self) -> dict[str, str]:
        return {"AutoScalingGroupName": self.group, "LifecycleHookName": self.name}

    def later(self, services: "Services") -> str | None:
        """DeleteLifecycleHook ends outstanding actions with ABANDON for launching instances.
        Source: Auto Scaling API reference."""
        if self.transition is not Transition.LAUNCHING:
            return None
        waiting = [one for each in services.scaling.read([self.group]) for one in each.waiting]
        if not waiting:
            return None
        return (
            f"The {self.title} stays: {', '.join(waiting)} wait for it, and Auto Scaling would "
            "terminate them. Run the command again when they are in service."
        )

    def remove(self, services: "Services") -> None:
        try:
            self.removal(services.cluster).make()
        except ClientError as error:  # there is no such hook, or no such group
            if code_of(error) != "ValidationError":
                raise


def desired_hooks(group: str) -> tuple[GroupHook, ...]:
    """Return Leeway's hooks of a group."""
    return tuple(GroupHook(group, name, when, HOOK_TIMEOUT) for name, when in HOOKS.items())


def read_groups(services: "Services", asked: Iterable[Kind]) -> Iterator[Kind]:
    """Read the tags that are asked for, and all hooks of their groups."""
    asked = [*asked]
    keys = {one.key for one in asked}
    names = {one.group for one in asked if isinstance(one, GroupTag | GroupHook)}
    for group in services.scaling.read(sorted(names)) if names else ():
        yield from (tag for tag in group.tags.values() if tag.key in keys)
        yield from group.hooks


@contextmanager
def _missing(group: str) -> Iterator[None]:
    """Name a group that was deleted meanwhile."""
    try:
        yield
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "")
        if code_of(error) == "ValidationError" and "not found" in message:
            raise CannotBeDoneError(
                f"Auto Scaling deleted group {group} meanwhile. Run the command again without it."
            ) from error
        raise


@dataclass(frozen=True, slots=True)
class ScalingGroup:
    """An Auto Scaling group. `tags` are all of its tags by key; `node_group` is the name of its EKS
    managed node group, empty if it has none. `waiting` are instances that wait for a launch
    hook. `joined` are the clusters that its instances have joined, if they were read. `types` are
    the instance types that it lists: none if it has only the type of its launch template, or if it
    selects types by `attributes`."""

    name: str
    tags: Mapping[str, GroupTag]
    hooks: tuple[GroupHook, ...] = ()
    node_group: str = ""
    waiting: tuple[str, ...] = ()
    joined: frozenset[str] = frozenset()
    desired: int = 0
    maximum: int = 0
    zones: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    attributes: bool = False
    launch_configuration: str = ""
    suspended: frozenset[str] = frozenset()
    capacity_rebalance: bool = False
    target_groups: tuple[str, ...] = ()

    @property
    def clusters(self) -> frozenset[str]:
        """The clusters whose group it is by its tags, and those that its instances have joined. A
        tag with the value `shared` names one of several clusters that may use a resource."""
        values = {tag.value for key, tag in self.tags.items() if key in CLUSTER_TAGS}
        ends = {
            key.removeprefix(prefix)
            for key, tag in self.tags.items()
            for prefix in (OWNED_PREFIX, _AUTOSCALER_TAG)
            if key.startswith(prefix) and tag.value != "shared"
        }
        # Cluster Autoscaler also has the tags `enabled` and `node-template/…`.
        return self.joined | values | {end for end in ends - {"enabled"} if "/" not in end}


def chosen_groups(
    asked: Sequence[str], found: Sequence[ScalingGroup], cluster: str, region: str
) -> tuple[str, ...]:
    """Return the names of the groups that adopt brings under care, sorted: those that a user asked
    for, or else all groups of the cluster except those of managed node groups. `found` are the
    groups that were asked for and exist, or all groups of the cluster.

    The nodes of a group of another cluster never join this one: Leeway would abandon each new one.

    Raises:
        CannotBeDoneError: a group cannot be chosen.
    """
    if not asked:
        return tuple(sorted(one.name for one in found if not one.node_group))
    by_name = {one.name: one for one in found}
    for name in asked:
        if name not in by_name:
            raise CannotBeDoneError(
                f"Auto Scaling has no group {name} in region {region}. Check --group and "
                "AWS_REGION."
            )
        if node_group := by_name[name].node_group:
            raise CannotBeDoneError(
                f"Group {name} belongs to the managed node group {node_group}, which EKS drains "
                f"and whose tags and hooks EKS owns. Leave out --group {name}."
            )
        others, own_tag = by_name[name].clusters, f"{OWNED_PREFIX}{cluster}"
        if others and cluster not in others and own_tag not in by_name[name].tags:
            raise CannotBeDoneError(
                f"The tags or the instances of group {name} name cluster {listed(others)}, "
                f"and not {cluster}. Leave out --group {name}, or add the tag "
                f"{own_tag} to the group if its nodes join {cluster}."
            )
    return tuple(sorted(set(asked)))


_NAMES = 100
"""Groups of one DescribeAutoScalingGroups. Source: Auto Scaling API, `AutoScalingGroupNames`."""


class AutoScaling:
    """The Auto Scaling groups of an account; `scaling` and `ec2` make boto3's clients. Every method
    raises botocore's errors."""

    def __init__(self, scaling: Callable[[], Any], ec2: Callable[[], Any]) -> None:
        self._scaling = scaling
        self._ec2 = ec2

    def groups_of(self, cluster: str) -> list[ScalingGroup]:
        """Find the groups of a cluster by their tags and by the tags of their instances, with those
        of managed node groups, by name."""
        by_instance = self._joined({f"tag:{EKS_CLUSTER_TAG}": [cluster], "tag-key": [GROUP_TAG]})
        names = {*self._names_by_tag(cluster), *(group for group, _ in by_instance)}
        return self.read(sorted(names))

    def named(self, names: Sequence[str]) -> list[ScalingGroup]:
        """Read the groups with these names, and which clusters their instances have joined."""
        joined: dict[str, set[str]] = {}
        for some in batched(dict.fromkeys(names), _NAMES, strict=False):
            filters = {f"tag:{GROUP_TAG}": some, "tag-key": [EKS_CLUSTER_TAG]}
            for group, cluster in self._joined(filters):
                joined.setdefault(group, set()).add(cluster)
        return [
            replace(one, joined=frozenset(joined.get(one.name, ()))) for one in self.read(names)
        ]

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

    def _joined(self, filters: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
        """Yield the group of each instance that these filters select, and the cluster that it has
        joined: EKS tags each instance that joins a cluster."""
        for instance in described_instances(self._ec2, {**filters, **STARTS_OR_RUNS}):
            tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
            if GROUP_TAG in tags and EKS_CLUSTER_TAG in tags:
                yield tags[GROUP_TAG], tags[EKS_CLUSTER_TAG]

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
        template = described.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
        overrides = template.get("Overrides", [])
        return ScalingGroup(
            name=name,
            tags=tags,
            hooks=tuple(_hook(one) for one in hooks["LifecycleHooks"]),
            node_group=_node_group(name, tags),
            waiting=tuple(waiting),
            desired=described["DesiredCapacity"],
            maximum=described["MaxSize"],
            zones=tuple(described["AvailabilityZones"]),
            types=tuple(one["InstanceType"] for one in overrides if "InstanceType" in one),
            attributes=any("InstanceRequirements" in one for one in overrides),
            launch_configuration=described.get("LaunchConfigurationName", ""),
            suspended=frozenset(p["ProcessName"] for p in described.get("SuspendedProcesses", [])),
            capacity_rebalance=bool(described.get("CapacityRebalance", False)),
            target_groups=tuple(described.get("TargetGroupARNs", ())),
        )


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
