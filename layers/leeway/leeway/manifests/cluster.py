"""The Cluster manifest of `leeway.sh/v1`: what Leeway may do in a cluster, and by when."""

from datetime import timedelta
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from leeway.manifests.base import Duration, Manifest, Metadata, Strict, up_to
from leeway.manifests.selectors import SecurityGroupTerms, SubnetTerms, Tags
from leeway.notices import NoticeKind
from leeway.policy.rules import SAFETY_MARGIN, SPOT_WARNING, OnBlocked, Replacement, StatusCheck

NAME = r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$"
"""A cluster's name, as EKS takes it."""


class NoticePolicy(Strict):
    """What to do about one kind of notice. What is left out is as by default."""

    action: Literal["ignore", "cordon", "retire"] | None = None
    """`ignore` leaves the node alone; `cordon` only keeps new pods away from it; `retire` cordons,
    replaces and drains it."""
    deadline: Annotated[Duration, AfterValidator(up_to(timedelta(days=7)))] | None = None
    """How long a retirement may take, from the notice on. Where the notice says itself when the
    instance goes, the earlier of the two holds."""
    replacement: Replacement | None = None
    """When a successor is asked for: `none`, `with` the drain's begin, or `before` it, which then
    waits until the successor is Ready."""
    on_blocked: OnBlocked | None = None
    """What becomes of a pod that a PodDisruptionBudget still blocks when it would have to go:
    `delete` it all the same, `wait` for the budget, or `fail` the retirement."""


class SpotInterruptionPolicy(NoticePolicy):
    """What to do about a Spot interruption."""

    deadline: Annotated[Duration, AfterValidator(up_to(SPOT_WARNING - SAFETY_MARGIN))] | None = None
    """How long a retirement may take, from the warning on: less than EC2's two minutes."""


class ScheduledChangePolicy(NoticePolicy):
    """What to do about a change that AWS Health announces."""

    lead: Annotated[Duration, AfterValidator(up_to(timedelta(days=2)))] | None = None
    """How long before the announced time a retirement begins; two days at most, since whoever waits
    for its turn must end before the stack's RetirementTimeout."""


class ImpairedStatusPolicy(NoticePolicy):
    """What to do about an instance whose EC2 status checks fail."""

    tolerates: Annotated[Duration, AfterValidator(up_to(timedelta(days=1)))] | None = None
    """How long the checks may fail before anything is done."""
    checks: Annotated[tuple[StatusCheck, ...], Field(min_length=1)] | None = None
    """Which of EC2's checks count: `instance`, `system`, `attached-ebs`. The last one fails for any
    attached volume, that of a single pod too."""


class LaunchPolicy(Strict):
    """What to do about an instance that its group holds back while it launches."""

    action: Literal["ignore", "admit"] | None = None
    """`ignore` leaves the hook alone; `admit` completes it when the node is ready."""
    deadline: Annotated[Duration, AfterValidator(up_to(timedelta(hours=48)))] | None = None
    """How long a node has to become ready."""


class Notices(Strict):
    """A policy for each kind of notice."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))

    spot_interruption: SpotInterruptionPolicy = SpotInterruptionPolicy()
    """EC2 takes a Spot instance back in two minutes."""
    rebalance: NoticePolicy = NoticePolicy()
    """EC2 expects to take a Spot instance back."""
    terminate_hook: NoticePolicy = NoticePolicy()
    """An Auto Scaling group terminates an instance, and its lifecycle hook waits."""
    launch_hook: LaunchPolicy = LaunchPolicy()
    """An Auto Scaling group launched an instance, and its lifecycle hook waits."""
    state_change: NoticePolicy = NoticePolicy()
    """An instance stops or terminates."""
    scheduled_change: ScheduledChangePolicy = ScheduledChangePolicy()
    """AWS Health announces maintenance or retirement of an instance."""
    capacity_reservation: NoticePolicy = NoticePolicy()
    """EC2 takes an instance in a capacity reservation back."""
    impaired_status: ImpairedStatusPolicy = ImpairedStatusPolicy()
    """EC2's status checks of an instance fail."""

    def of(self, kind: NoticeKind) -> NoticePolicy | LaunchPolicy | None:
        """Return what is written about a kind of notice; None for test notifications."""
        written: NoticePolicy | LaunchPolicy | None = getattr(self, kind.name.lower(), None)
        return written


class Churn(Strict):
    """How many nodes may leave voluntarily at a time; interruptions do not count."""

    percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Share of the nodes, in percent, rounded down."""
    at_least: Annotated[int, Field(ge=0)] | None = None
    """So many nodes may leave whatever the share comes to."""
    within: Annotated[Duration, AfterValidator(up_to(timedelta(days=7)))] | None = None
    """The time that departures are counted over."""


class Defaults(Strict):
    """What serves a node pool that names no node class, or one that is not there."""

    node_role: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+=,.@_-]{1,64}$")] | None = (
        None
    )
    """Name of the IAM role of the nodes."""
    ami_family: Literal[
        "AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025"
    ] = "AL2023"
    """Operating system of the nodes."""
    subnet_selector_terms: SubnetTerms | None = None
    """Which subnets nodes are launched into: those that match any of the terms."""
    security_group_selector_terms: SecurityGroupTerms | None = None
    """Which security groups nodes get: those that match any of the terms."""
    tags: Tags = Field(default_factory=dict)
    """Tags on the instances and volumes that are launched."""
    prefix_delegation: bool = False
    """Whether the CNI gives network interfaces prefixes of 16 addresses, in all nodes: more pods
    fit on one."""
    vm_memory_overhead_percent: Annotated[float, Field(ge=0, le=50)] = 7.5
    """Share of an instance's memory that its nodes never see. Real ones are 1.7 to 5.3 percent: a
    share that is too large wastes memory, one that is too small launches nodes that pods do not
    fit on."""


class ClusterSpec(Strict):
    """What Leeway does in the cluster."""

    paused: bool = False
    """Stops all that is voluntary; interruptions are still drained. `leeway pause` sets it."""
    dry_run: bool = False
    """Decides and reports, and acts on nothing."""
    takes: tuple[Literal["managed-node-group", "auto-mode", "karpenter"], ...] = ()
    """Owners that would drain and replace their own nodes, whose nodes Leeway retires instead."""
    churn: Churn = Churn()
    """How many nodes may leave voluntarily at a time."""
    notices: Notices = Notices()
    """A policy for each kind of notice."""
    defaults: Defaults = Defaults()
    """What serves a node pool without a node class of its own."""


class ClusterMetadata(Metadata):
    """Who the manifest is."""

    name: Annotated[str, StringConstraints(pattern=NAME)]
    """The cluster's name."""


class Cluster(Manifest):
    """What Leeway may do in a cluster, and by when."""

    api_version: Literal["leeway.sh/v1"]
    kind: Literal["Cluster"]
    metadata: ClusterMetadata
    spec: ClusterSpec = ClusterSpec()
    """What Leeway does in the cluster."""

    summary_columns: ClassVar[tuple[str, ...]] = ("PAUSED", "DRY-RUN")

    def summary(self) -> tuple[str, ...]:
        """Return what `leeway get` shows in a table."""
        return (str(self.spec.paused).lower(), str(self.spec.dry_run).lower())

    @model_validator(mode="after")
    def _no_namespace(self) -> Self:
        if self.metadata.namespace is not None:
            raise ValueError("metadata.namespace: a Cluster has no namespace")
        return self
