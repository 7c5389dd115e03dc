"""Facts about an instance: whose it is, its Auto Scaling group, and what was seen of it before."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from leeway.notices import InterruptionAction, LifecycleHook
from leeway.selection.offers.reservations import ReservedCapacity
from leeway.table import BY_CLUSTER, Record, Table

EKS_CLUSTER_TAG = "aws:eks:cluster-name"
"""The tag with the name of the cluster that an instance has joined. Only EKS can write it."""

CLUSTER_TAGS = (EKS_CLUSTER_TAG, "eks:cluster-name", "eks:eks-cluster-name")
"""The tags whose value is the name of the cluster."""

FLEET_TAG = "aws:ec2:fleet-id"
"""The tag with the id of the EC2 fleet that launched an instance. Only EC2 can write it. Source:
AWS managed policy AWSEC2FleetServiceRolePolicy, which terminates only instances that have it."""

OWNED_PREFIX = "kubernetes.io/cluster/"
"""The prefix of a tag key that ends with the name of the cluster, if the value is `owned`."""

GROUP_TAG = "aws:autoscaling:groupName"
"""The tag with the name of the Auto Scaling group. Only EC2 Auto Scaling can write it."""

NODE_GROUP_TAG = "eks:nodegroup-name"
"""The tag with the name of the EKS managed node group."""

AUTO_MODE_TAG = "eks:kubernetes-node-pool-name"
"""The tag with the name of the node pool of EKS Auto Mode. Source: AWS managed policy
AmazonEKSComputePolicy, which requires this tag for every launch. `eks:eks-cluster-name` does not
identify Auto Mode, because Karpenter writes it too, since 1.0. Source: Karpenter, "v1
migration"."""

OWNER_TAG = "leeway.sh/owner"
"""Its value is `leeway` on what Leeway has launched."""

POOL_TAG = "leeway.sh/nodepool"
"""The tag with the name of the node pool from which Leeway launched an instance."""

INTENT_TAG = "leeway.sh/intent"
"""The tag with the id of the launch intent that an instance belongs to."""

SETTINGS_TAG = "leeway.sh/launch-settings"
"""The tag with the hashes of the settings that an instance was launched with."""

# EKS manages only Auto Scaling groups whose names begin with `eks-`, and ends each name with a
# UUID. Source: AWS managed policy AWSServiceRoleForAmazonEKSNodegroup.
_EKS_GROUP = re.compile(r"eks-(?:.+-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class OwnerKind(StrEnum):
    """The controller that launched the instance and would launch its replacement."""

    AUTO_SCALING_GROUP = "auto-scaling-group"
    MANAGED_NODE_GROUP = "managed-node-group"
    AUTO_MODE = "auto-mode"
    KARPENTER = "karpenter"
    LEEWAY = "leeway"
    FARGATE = "fargate"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of an instance. `name` is the name of the group or pool, empty if it has none."""

    kind: OwnerKind
    name: str = ""

    @property
    def retires_itself(self) -> bool:
        """Whether this owner drains and replaces its own nodes, so that Leeway does not."""
        return self.kind in {
            OwnerKind.MANAGED_NODE_GROUP,
            OwnerKind.AUTO_MODE,
            OwnerKind.KARPENTER,
            OwnerKind.FARGATE,
        }


def owner_of(tags: Mapping[str, str], labels: Mapping[str, str] | None = None) -> Owner:
    """Return the owner of an instance with these EC2 tags. `labels` are those of its node, None if
    they are not known.

    The tag of EC2 Auto Scaling takes precedence, because nobody else can write it. Everybody who
    has the right to tag instances can write the other tags. Leeway's take precedence over those of
    Karpenter, which stay on an instance that `leeway switch` has taken over.
    """
    labels = labels or {}
    if labels.get("eks.amazonaws.com/compute-type") == "fargate":
        return Owner(OwnerKind.FARGATE)
    managed = tags.get(NODE_GROUP_TAG)
    if group := tags.get(GROUP_TAG):
        if managed and _EKS_GROUP.fullmatch(group):
            return Owner(OwnerKind.MANAGED_NODE_GROUP, managed)
        return Owner(OwnerKind.AUTO_SCALING_GROUP, group)
    if managed:
        return Owner(OwnerKind.MANAGED_NODE_GROUP, managed)
    own = tags.get(POOL_TAG) if tags.get(OWNER_TAG) == "leeway" else None
    karpenters = tags.get("karpenter.sh/nodepool") or tags.get("karpenter.sh/provisioner-name")
    if karpenters and not own:
        return Owner(OwnerKind.KARPENTER, karpenters)
    if pool := tags.get(AUTO_MODE_TAG):
        return Owner(OwnerKind.AUTO_MODE, pool)
    if labels.get("eks.amazonaws.com/compute-type") == "auto":
        return Owner(OwnerKind.AUTO_MODE)
    if own:
        return Owner(OwnerKind.LEEWAY, own)
    return Owner(OwnerKind.NONE)


def cluster_of(tags: Mapping[str, str]) -> str | None:
    """Return the cluster that the tags of an instance name, or None if they name none.

    The tags that EKS writes take precedence. None also if plain tags name several clusters: only
    one of them has the node, and a wrong guess could terminate an instance with pods of another
    one.
    """
    for key in CLUSTER_TAGS:
        if name := tags.get(key):
            return name
    owned = [
        key for key, value in tags.items() if key.startswith(OWNED_PREFIX) and value == "owned"
    ]
    return owned[0].removeprefix(OWNED_PREFIX) if len(owned) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """What is the same for all instances of an Auto Scaling group and seldom changes.

    - `capacity_rebalance`: Capacity Rebalancing is on. `refreshing`: an instance refresh runs.
    - `suspended`: the names of the suspended processes.
    - `terminate_hooks`: the names of the hooks on `autoscaling:EC2_INSTANCE_TERMINATING` that
      notify Leeway. `foreign_terminate_hooks`: those that notify another client, which answers
      them itself.
    - `timeouts`: hook name → HeartbeatTimeout in seconds. `with_target`: the names of the hooks
      that notify a target of their own (SNS, SQS, Lambda).
    - `types`: the instance types that the group may launch, empty if it does not list them.
    - `launch_unsupported`: why LaunchInstances cannot be called for the group, empty if it can.
    """

    name: str
    capacity_rebalance: bool
    refreshing: bool
    suspended: frozenset[str]
    terminate_hooks: tuple[str, ...]
    foreign_terminate_hooks: tuple[str, ...] = ()
    timeouts: Mapping[str, int] = field(default_factory=dict)
    with_target: frozenset[str] = frozenset()
    zones: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    launch_unsupported: str = ""

    @property
    def terminate_hook_waits(self) -> bool:
        """Whether a terminate hook holds an instance that the group terminates until Leeway answers
        the hook."""
        return bool(self.terminate_hooks) and "Terminate" not in self.suspended


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts(GroupRules):
    """An Auto Scaling group as it is now, and one of its instances.

    - `lifecycle_state`: the lifecycle state of the instance, for example `InService`.
    - `desired`, `minimum`, `maximum`: the capacity of the group, in its own units.
    - `units`: how much of that capacity the instance is: 1, the weight of its type, or the unit
      that the group counts in.
    - `protected`: the instance is protected from scale-in.
    - `from_cache`: only the rules of the group were read, some seconds ago; the instance is assumed
      to be in service.
    """

    lifecycle_state: str
    desired: int = 0
    minimum: int = 0
    maximum: int = 0
    units: int = 1
    protected: bool = False
    from_cache: bool = False

    @property
    def stays_in_group(self) -> bool:
        """Whether the group keeps the instance: it is pending or in service."""
        return stays_in_group(self.lifecycle_state)

    @property
    def may_shrink(self) -> bool:
        """Whether the group stays at its minimum or above without the units of the instance."""
        return self.desired - self.units >= self.minimum


def stays_in_group(lifecycle_state: str) -> bool:
    """Return whether a group keeps an instance in this lifecycle state in service, or takes it into
    service next. It does neither with an instance of its warm pool (`Warmed:Running`)."""
    return lifecycle_state.startswith(("Pending", "InService", "ReplacingRoot", "RootVolume"))


def in_service(rules: GroupRules) -> GroupFacts:
    """Return facts about an instance of which only the rules of its group are known."""
    shared = {one.name: getattr(rules, one.name) for one in fields(GroupRules)}
    return GroupFacts(**shared, lifecycle_state="InService", from_cache=True)


class InstanceFacts(BaseModel):
    """Facts about an instance, from EC2, that seldom change.

    `capacity_type` is `spot`, `on-demand`, or `reserved`: then `reservation` is the one that the
    instance was launched into. `joined` says that the instance has the tag that EKS,
    and nobody else, writes when an instance joins the cluster. `from_fleet` says that it has the
    tag that EC2, and nobody else, writes on the instances of a fleet.

    `image`, `subnet` and `security_groups` are ids; `launch_settings` is the value of the tag with
    the hashes of the settings that it was launched with. They are empty if they are not known.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    instance: str
    cluster: str
    private_dns_name: str
    zone: str
    instance_type: str
    capacity_type: str
    owner: Owner
    joined: bool = False
    from_fleet: bool = False
    image: str = ""
    subnet: str = ""
    security_groups: tuple[str, ...] = ()
    launch_settings: str = ""
    reservation: ReservedCapacity | None = None


FACTS = Record(
    InstanceFacts,
    "INSTANCE#{instance}",
    "FACTS",
    indexes={BY_CLUSTER: lambda facts: facts.cluster},
)


def facts_in(table: Table, cluster: str) -> dict[str, InstanceFacts]:
    """Read the facts of a cluster's instances, by id; they may be a second old. An unreadable item
    counts as missing: reconcile writes it again."""
    found = table.find(BY_CLUSTER, cluster, FACTS, unreadable=lambda _: None)
    return {one.instance: one for one in found}


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    """An instance as EC2 describes it now. `state` is EC2's state name; `group` is the name of its
    Auto Scaling group, also of a group that EKS created, and empty if it is in none. `intent` is
    the id of the launch intent that its tag names, empty if it has no such tag."""

    facts: InstanceFacts
    state: str
    launched_at: datetime
    group: str = ""
    intent: str = ""


@dataclass(frozen=True, slots=True)
class CurrentInstance:
    """An instance as EC2 describes it now. `launched_at` is its latest start; `interrupted` says
    that the status of its Spot request announces an interruption."""

    state: str
    launched_at: datetime
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class ObservedHook:
    """An instance that waits for the answer to a lifecycle hook. `timeout` is the HeartbeatTimeout
    of the hook in seconds; the default of Auto Scaling is an hour."""

    instance: str
    hook: LifecycleHook
    launching: bool
    timeout: int = 3600


@dataclass(frozen=True, slots=True)
class ObservedInterruption:
    """A Spot instance that EC2 interrupts two minutes after `marked_at`."""

    instance: str
    action: InterruptionAction
    marked_at: datetime


@dataclass(frozen=True, slots=True)
class ObservedImpairment:
    """A running instance with failing status checks. `since` maps each failing check (`instance`,
    `system`, `attached-ebs`) to the time since when it fails."""

    instance: str
    since: Mapping[str, datetime]

    def failing_since(self, checks: Collection[str]) -> datetime | None:
        """Return since when the first of these checks fails; None if none of them fails."""
        return min((at for check, at in self.since.items() if check in checks), default=None)


CHANGE_PREFIX = "instance-event-"
"""The prefix of EC2's ids of scheduled changes. AWS Health has other ids for the same changes."""


@dataclass(frozen=True, slots=True)
class ObservedChange:
    """A change that EC2 has scheduled for an instance. `event` is EC2's id of the change, `code`
    its kind, as `instance-retirement`; it begins at `starts_at`. `over` says that it is completed
    or cancelled: EC2 lists such changes for about a week."""

    instance: str
    event: str
    code: str
    starts_at: datetime
    over: bool = False


SAME_MOMENT = timedelta(minutes=5)
"""How far the times that AWS Health and EC2 give for one change can differ."""


def is_over(changes: Iterable[ObservedChange], instance: str, starts_at: datetime) -> bool:
    """Return whether EC2 lists a change of an instance at this time, and lists it as completed or
    cancelled. A change that EC2 does not list may still happen: AWS Health announces more
    changes."""
    at_that_time = [
        one.over
        for one in changes
        if one.instance == instance and abs(one.starts_at - starts_at) <= SAME_MOMENT
    ]
    return bool(at_that_time) and all(at_that_time)


def is_scheduled(changes: Iterable[ObservedChange], instance: str, starts_at: datetime) -> bool:
    """Return whether EC2 still has a change scheduled for an instance at this time."""
    return any(
        not one.over and one.instance == instance and abs(one.starts_at - starts_at) <= SAME_MOMENT
        for one in changes
    )
