"""The Cluster manifest of `leeway.sh/v1`: the policy of Leeway in one cluster."""

from base64 import b64decode
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from leeway.instances.facts import OwnerKind
from leeway.manifests.base import (
    Duration,
    IpAddress,
    LabelKey,
    Manifest,
    Metadata,
    SecurityGroupTerms,
    Strict,
    SubnetTerms,
    Tags,
    TimeWindow,
    Wrong,
    up_to,
)
from leeway.notices import NoticeKind
from leeway.policy.rules import (
    COST_LABELS,
    DEFAULTS,
    MOST_LAUNCHES,
    SAFETY_MARGIN,
    SPOT_WARNING,
    USD_PER_HOUR,
    USUAL,
    Action,
    ChurnCap,
    ClusterPolicy,
    GroupDrift,
    OnBlocked,
    Policy,
    Replacement,
    StatusCheck,
    Worth,
)

NAME = r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$"
"""The cluster names that EKS accepts."""
ENDPOINT = r"^https://([0-9A-Za-z]([0-9A-Za-z.-]*[0-9A-Za-z])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$"
"""The URL of an API server."""


def _is_base64(text: str) -> str:
    try:
        b64decode(text, validate=True)
    except ValueError:
        raise ValueError("expected text in base64") from None
    return text


def _as_text(number: Any) -> Any:
    return str(number) if isinstance(number, int) and not isinstance(number, bool) else number


def _is_network(text: str) -> str:
    try:
        network = ip_network(text)
    except ValueError:
        raise ValueError("expected a range of addresses such as 172.20.0.0/16") from None
    # Python takes any text as an IPv6 scope.
    if "%" in text or network.num_addresses < 16:
        raise ValueError("expected a range of at least 16 addresses, without a scope")
    return str(network)


# Defaults are `model_construct`ed: they need no check, and the import builds no validator for them.


class NoticePolicy(Strict):
    """The policy for one kind of notice. Fields that are not set keep their defaults."""

    action: Literal["ignore", "cordon", "retire"] | None = None
    """`ignore`: do nothing. `cordon`: only keep new pods off the node. `retire`: cordon, replace
    and drain the node."""
    deadline: Annotated[Duration, AfterValidator(up_to(timedelta(days=7)))] | None = None
    """How long a retirement may take. The time counts from the notice; for `rebalance`,
    `impaired-status` and `unhealthy-node` it counts from the first eviction. If the notice names
    the time at which AWS acts, the earlier of the two applies."""
    replacement: Replacement | None = None
    """When to request a replacement: `none` requests no replacement, `with` requests one as the
    drain begins, `before` waits until the replacement is ready for pods and then drains."""
    on_blocked: OnBlocked | None = None
    """What to do with a pod that a PodDisruptionBudget still blocks at its latest moment (the
    deadline minus its grace period): `delete` the pod, `wait` for the budget until the deadline,
    or `fail` the retirement."""


class SpotInterruptionPolicy(NoticePolicy):
    """The policy for Spot interruptions."""

    deadline: Annotated[Duration, AfterValidator(up_to(SPOT_WARNING - SAFETY_MARGIN))] | None = None
    """How long a retirement may take, counted from the warning: at most 1m55s, since EC2 reclaims
    the instance after two minutes."""


class ScheduledChangePolicy(NoticePolicy):
    """The policy for changes that AWS Health announces."""

    lead: Annotated[Duration, AfterValidator(up_to(timedelta(days=2)))] | None = None
    """How long before the announced time the retirement begins. At most two days, so that the
    retirement can end within the seven days of its execution."""


class ImpairedStatusPolicy(NoticePolicy):
    """The policy for instances whose EC2 status checks fail."""

    tolerates: Annotated[Duration, AfterValidator(up_to(timedelta(days=1)))] | None = None
    """How long the checks have to fail before the retirement begins."""
    checks: Annotated[tuple[StatusCheck, ...], Field(min_length=1)] | None = None
    """Which EC2 checks count: `instance`, `system`, `attached-ebs`. `attached-ebs` fails if any
    attached volume is impaired, even if only one pod uses that volume."""


class UnhealthyNodePolicy(NoticePolicy):
    """The policy for nodes that are unhealthy by their conditions."""

    groups: bool | None = None
    """Whether nodes of Auto Scaling groups, and of the owners that `takes` names, are repaired too.
    Nodes that Leeway launched always are, unless the action is `ignore`."""


class LaunchPolicy(Strict):
    """The policy for instances that wait for a launch lifecycle hook."""

    action: Literal["ignore", "admit"] | None = None
    """`ignore`: do not answer the hook. `admit`: complete the hook when the node is Ready."""
    deadline: Annotated[Duration, AfterValidator(up_to(timedelta(hours=48)))] | None = None
    """How long the node may take to become Ready; after that Leeway abandons the instance."""


class Notices(Strict):
    """The policies of the kinds of notices."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))

    spot_interruption: SpotInterruptionPolicy = SpotInterruptionPolicy.model_construct()
    """Spot interruption: EC2 reclaims the instance in two minutes."""
    rebalance: NoticePolicy = NoticePolicy.model_construct()
    """Rebalance recommendation: the Spot instance has a higher risk of interruption."""
    terminate_hook: NoticePolicy = NoticePolicy.model_construct()
    """Terminate hook: an Auto Scaling group terminates the instance and waits for its lifecycle
    hook."""
    launch_hook: LaunchPolicy = LaunchPolicy.model_construct()
    """Launch hook: an Auto Scaling group launched the instance and waits for its lifecycle hook."""
    state_change: NoticePolicy = NoticePolicy.model_construct()
    """State change: the instance stops or terminates."""
    scheduled_change: ScheduledChangePolicy = ScheduledChangePolicy.model_construct()
    """Scheduled change: AWS Health announces maintenance or retirement of the instance."""
    capacity_reservation: NoticePolicy = NoticePolicy.model_construct()
    """Capacity reservation: EC2 reclaims an instance that runs in a capacity reservation."""
    impaired_status: ImpairedStatusPolicy = ImpairedStatusPolicy.model_construct()
    """Impaired status: EC2 status checks of the instance fail."""
    unhealthy_node: UnhealthyNodePolicy = UnhealthyNodePolicy.model_construct()
    """Unhealthy node: a condition of the Node says for ten or thirty minutes that it does not
    work."""

    def of(self, kind: NoticeKind) -> NoticePolicy | LaunchPolicy | None:
        """Return the policy for a kind of notice; None for test notifications."""
        written: NoticePolicy | LaunchPolicy | None = getattr(self, kind.name.lower(), None)
        return written


class Churn(Strict):
    """The disruption budget: how many nodes may retire voluntarily in a period. Interruptions do
    not count."""

    percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Percentage of the Ready nodes, rounded down."""
    at_least: Annotated[int, Field(ge=0)] | None = None
    """Number of nodes that may always retire, even if the percentage gives fewer."""
    within: Annotated[Duration, AfterValidator(up_to(timedelta(days=7)))] | None = None
    """The period in which retirements are counted."""


class Launches(Strict):
    """The brake on launches of nodes for pods."""

    at_most: Annotated[int, Field(ge=0, le=10_000)] = MOST_LAUNCHES
    """Number of instances that Leeway launches in ten minutes at most; 0 launches none. At the
    maximum, Leeway waits until the oldest launches are ten minutes old."""
    usd_per_hour: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] = USD_PER_HOUR
    """USD per hour that the nodes of Leeway's pools in the cluster cost together at most, at the
    prices of now; 0 launches only replacements. At the maximum, pods wait, with the reason
    PriceCeilingReached. A node that retires does not count, and a node of at most its price may
    always replace it. Nodes that run are never ended because of it."""


class GiveBack(Strict):
    """What a move of pods is worth: USD saved per hour x horizon >= usdPerPodMoved x pods moved.
    This applies to nodes with pods that are not needed or that a cheaper node replaces."""

    horizon: Annotated[Duration, AfterValidator(up_to(timedelta(days=30)))] = USUAL.horizon
    """How long a saving is expected to last until the pods change so much that they would be moved
    again. A longer horizon moves more pods for less."""
    usd_per_pod_moved: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = USUAL.per_pod
    """The price of moving one pod, in USD."""
    usd_per_preference_broken: Annotated[
        float | None, Field(ge=0, le=1000, allow_inf_nan=False)
    ] = None
    """The price, in USD, of moving one pod to where preferences that it has now do not hold: soft
    affinity, anti-affinity and topology spread. Without it, no move breaks them."""
    least_saving_percent: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = (
        USUAL.share * 100
    )
    """Percentage of the price of nodes that one new node in their place must save at least."""
    least_age: Annotated[Duration, AfterValidator(up_to(timedelta(days=30)))] = USUAL.least_age
    """Age until which nodes with pods are kept. A new node that replaces others pays for the moves
    within this time, so that the next plan does not undo it."""


class Defaults(Strict):
    """The node class of pools whose node class has no manifest."""

    node_role: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+=,.@_-]{1,64}$")] | None = (
        None
    )
    """Name of the nodes' IAM role."""
    ami_family: Literal[
        "AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025"
    ] = "AL2023"
    """AMI family of the nodes."""
    subnet_selector_terms: SubnetTerms | None = None
    """Subnets of the nodes: those that match at least one term."""
    security_group_selector_terms: SecurityGroupTerms | None = None
    """Security groups of the nodes: those that match at least one term."""
    tags: Tags = Field(default_factory=dict)
    """Tags of instances and volumes."""
    prefix_delegation: bool = False
    """Whether the VPC CNI assigns prefixes of 16 addresses to network interfaces, on all nodes:
    more pods fit on a node."""
    vm_memory_overhead_percent: Annotated[float, Field(ge=0, le=50)] = 7.5
    """Percentage of an instance type's memory that is not available to the node. Measured values
    are 1.7 to 5.3. A value that is too large wastes memory; with a value that is too small, pods
    do not fit on the nodes that were chosen for them."""


class ControlPlane(Strict):
    """The connection details that a node needs in order to join the cluster."""

    endpoint: Annotated[str, StringConstraints(pattern=ENDPOINT, max_length=300)]
    """URL of the API server, such as https://ABC.gr7.us-east-1.eks.amazonaws.com."""
    certificate_authority: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9+/]+={0,2}$"), AfterValidator(_is_base64)
    ]
    """The cluster's certificate authority in base64, as EKS and kubeconfigs have it."""
    service_cidr: Annotated[str, Field(alias="serviceCIDR"), AfterValidator(_is_network)]
    """The range of the cluster's service addresses, such as 172.20.0.0/16. The cluster has the IP
    family of this range."""
    cluster_dns: Annotated[tuple[IpAddress, ...], Field(alias="clusterDNS")] = ()
    """Addresses of the cluster's DNS server. Default: the tenth address of serviceCIDR."""


class Provisioning(Strict):
    """How nodes are launched for pending pods. It applies if the cluster has pools."""

    watch: bool = True
    """Watch the pods, and launch nodes within seconds. `false` leaves it to the schedule of each
    minute."""


class GroupWindow(TimeWindow):
    """A maintenance window of the nodes of groups."""


MAX_UNAVAILABLE = r"^(([1-9][0-9]?|100)%|[1-9][0-9]{0,3})$"


class Groups(Strict):
    """How nodes of Auto Scaling groups are replaced when their group launches others now. Groups of
    EKS managed node groups are left to EKS."""

    drift: bool = False
    """Replace the nodes whose launch template version, AMI or instance type is no longer their
    group's."""
    max_unavailable: Annotated[
        str,
        StringConstraints(pattern=MAX_UNAVAILABLE),
        BeforeValidator(_as_text),
        WithJsonSchema({"type": ["string", "integer"], "pattern": MAX_UNAVAILABLE}),
    ] = "1"
    """Number or percentage of the nodes of a group that may be unavailable at once; a percentage is
    rounded up. The disruption budget of the cluster applies as well."""
    node_timeout: Annotated[Duration, AfterValidator(up_to(timedelta(days=1)))] = timedelta(
        minutes=15
    )
    """How long the drain of a node may take. After that, Leeway tries on, and begins with no other
    node of the group as long as the node counts as unavailable."""
    force: bool = False
    """Delete pods that a PodDisruptionBudget or an annotation protects, each at its latest moment
    before the end of `nodeTimeout`."""
    windows: Annotated[tuple[GroupWindow, ...], Field(max_length=20)] = ()
    """Maintenance windows in which Leeway begins with nodes; without any, at all times."""


class Costs(Strict):
    """How `leeway cost` splits what the nodes cost."""

    labels: Annotated[tuple[LabelKey, ...], Field(max_length=5)] = COST_LABELS
    """Keys of labels of pods, at most five. The costs of the past are not split by new keys."""


class ClusterSpec(Strict):
    """The policy of Leeway in the cluster."""

    paused: bool = False
    """Begin no voluntary retirement; drain interrupted nodes as usual. `leeway pause` sets it."""
    dry_run: bool = False
    """Decide and report, and change nothing."""
    takes: tuple[Literal["managed-node-group", "auto-mode", "karpenter"], ...] = ()
    """Owners that drain and replace their own nodes, and whose nodes Leeway retires as well."""
    groups_may_use_pools: bool = False
    """Whether Leeway's node pools launch the successor of a group's node if EC2 has no capacity for
    the group in any of its zones. The group then gets smaller by the old node."""
    groups: Groups = Groups.model_construct()
    """How nodes of Auto Scaling groups are replaced when their group launches others now."""
    churn: Churn = Churn.model_construct()
    """The disruption budget: how many nodes may retire voluntarily in a period."""
    surge: bool = False
    """Before a voluntary retirement evicts a pod that a PodDisruptionBudget keeps, scale its
    Deployment, StatefulSet or Rollout of Argo up by one, wait until the new pod serves, and scale
    back afterwards. The annotation `leeway.sh/surge` of a workload overrides this."""
    wait_for_targets: bool = False
    """After the drain of a node that has time to spare, end its instance only when Network and
    Application Load Balancers have drained its targets, and at the deadline at the latest."""
    notices: Notices = Notices.model_construct()
    """The policy for each kind of notice."""
    provisioning: Provisioning = Provisioning.model_construct()
    """How nodes are launched for pending pods."""
    launches: Launches = Launches.model_construct()
    """The brake on launches of nodes for pods."""
    give_back: GiveBack = GiveBack.model_construct()
    """What it must save to move pods to fewer or cheaper nodes."""
    costs: Costs = Costs.model_construct()
    """How `leeway cost` splits what the nodes cost."""
    defaults: Defaults = Defaults.model_construct()
    """The node class of pools whose node class has no manifest. Launches also use its node role,
    subnets, security groups and tags if a node class does not set them."""
    control_plane: ControlPlane | None = None
    """The connection details that a node needs in order to join. `leeway userdata` reads them here,
    the functions read them from EKS."""


class ClusterMetadata(Metadata):
    """Name and other metadata of the manifest."""

    name: Annotated[str, StringConstraints(pattern=NAME)]
    """Name of the cluster in EKS."""


class Cluster(Manifest):
    """The policy of Leeway in one cluster: what it may do, and by when."""

    api_version: Literal["leeway.sh/v1"]
    kind: Literal["Cluster"]
    metadata: ClusterMetadata
    spec: ClusterSpec = ClusterSpec.model_construct()
    """The policy of Leeway in the cluster."""

    summary_columns: ClassVar[tuple[str, ...]] = ("PAUSED", "DRY-RUN")

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        return (str(self.spec.paused).lower(), str(self.spec.dry_run).lower())

    @model_validator(mode="after")
    def _no_namespace(self) -> Self:
        if self.metadata.namespace is not None:
            raise Wrong(("metadata", "namespace"), "a Cluster has no namespace")
        return self


def cluster_policy(cluster: Cluster) -> ClusterPolicy:
    """Return the default policy with the fields that the manifest sets."""
    spec = cluster.spec
    return ClusterPolicy(
        notices={
            kind: _policy(default, spec.notices.of(kind)) for kind, default in DEFAULTS.items()
        },
        paused=spec.paused,
        dry_run=spec.dry_run,
        churn=replace(ChurnCap(), **_written(spec.churn.model_dump())),
        retires_for=frozenset(OwnerKind(owner) for owner in spec.takes),
        groups_may_use_pools=spec.groups_may_use_pools,
        watches_pods=spec.provisioning.watch,
        most_launches=spec.launches.at_most,
        usd_per_hour=spec.launches.usd_per_hour,
        worth=_worth(spec.give_back),
        cost_labels=tuple(dict.fromkeys(spec.costs.labels)),
        group_drift=_group_drift(spec.groups),
        surges=spec.surge,
        waits_for_targets=spec.wait_for_targets,
    )


def _group_drift(written: Groups) -> GroupDrift:
    return GroupDrift(
        automatic=written.drift,
        max_unavailable=written.max_unavailable,
        node_timeout=written.node_timeout,
        force=written.force,
        windows=tuple(one.window() for one in written.windows),
    )


def _policy(default: Policy, written: NoticePolicy | LaunchPolicy | None) -> Policy:
    if written is None:
        return default
    said = _written(written.model_dump())
    if "action" in said:
        said["action"] = Action(said["action"])
    if "checks" in said:
        said["checks"] = frozenset(map(StatusCheck, said["checks"]))
    if "deadline" in said:
        said["within"] = said.pop("deadline")
    return replace(default, **said)


def _worth(written: GiveBack) -> Worth:
    return Worth(
        horizon=written.horizon,
        per_pod=written.usd_per_pod_moved,
        per_preference=written.usd_per_preference_broken,
        share=written.least_saving_percent / 100,
        least_age=written.least_age,
    )


def _written(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
