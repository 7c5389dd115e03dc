"""The facts that checks decide by. A part that could not be read is an `Unread` in its place."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from leeway.launch.reservations import CapacityReservation
from leeway.reasons import Reason
from leeway.retirement.targets import name_of

from leeway_cli.adopt.reachability import FunctionsNetwork
from leeway_cli.adopt.settings.access import AccessEntry, EksCluster
from leeway_cli.adopt.settings.groups import ScalingGroup
from leeway_cli.adopt.settings.leeway_stack import LeewayStack
from leeway_cli.adopt.settings.objects import ClusterObject, is_limited
from leeway_cli.doctor.finding import Severity
from leeway_cli.doctor.rights import Right


@dataclass(frozen=True, slots=True)
class Unread:
    """A part that could not be read, and why. `severity` is that of the worst finding that the part
    could hide."""

    part: str
    problem: str
    severity: Severity


type Read[T] = T | Unread


def known[T](part: T | Unread) -> T | None:
    """Return a part if it was read."""
    return None if isinstance(part, Unread) else part


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """A function of the stack; `state` is empty if there is no such function. `reserved` is its
    reserved concurrency, None if it has none."""

    name: str
    state: str = ""
    update: str = ""
    problem: str = ""
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class AliasFacts:
    """The alias of a durable function; `version` is empty if there is no such alias."""

    function: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    """An event source mapping of provision_nodes."""

    id: str
    state: str


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """A rule of EventBridge's default bus. `pattern` is empty if it has none or is not JSON."""

    name: str
    enabled: bool
    pattern: Mapping[str, Any]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """A schedule of EventBridge Scheduler, of the default group."""

    name: str
    enabled: bool
    target: str


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue with its number of messages, of which a consumer has received some."""

    name: str
    url: str
    messages: int


@dataclass(frozen=True, slots=True)
class AlarmFacts:
    """A metric alarm; `notifies` says that it has an action that is enabled."""

    name: str
    state: str
    reason: str
    notifies: bool


@dataclass(frozen=True, slots=True)
class InstanceUse:
    """A running instance of the account, of any cluster or none. `market` is `spot` or `on-demand`;
    `group` and `cluster` are empty if it has none; `pool` is the pool of Leeway's that launched
    it."""

    instance_type: str
    market: str
    vcpus: int
    group: str = ""
    cluster: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """A DaemonSet or a Deployment that acts on notices of nodes. `queue` is the queue of notices
    that it reads, empty if it reads none."""

    kind: str
    namespace: str
    name: str
    program: str
    queue: str = ""


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """A node pool. `role` is the name of its nodes' IAM role, empty if only a profile is known.
    `unlaunchable` is why nothing can be launched from it; None if something can. `launched` says
    that a record of it exists, or an instance. `paused` is why Leeway paused it. `reservations` are
    those that its node class selects and the cluster may use; `not_reserved` says that the pool
    does not allow reserved capacity, `not_used` why others are not used."""

    name: str
    role: str = ""
    unlaunchable: str | None = None
    launched: bool = False
    paused: str | None = None
    reservations: tuple[CapacityReservation, ...] = ()
    not_reserved: bool = False
    not_used: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """An IAM role of nodes; `policies` are the names of its managed policies. `exists` is False if
    IAM has no such role."""

    name: str
    exists: bool = True
    arn: str = ""
    policies: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ConfigurationFacts:
    """What users wrote for a cluster. `problems` are those of its manifests; `bindings` are the
    roles that headroom needs, each with a namespace. `unlimited` are the pools without limits;
    `usd_per_hour` is what all nodes of pools may cost, None if the manifest does not say it;
    `pool_limits` is what the nodes of pools may cost that have such a limit. `surges`: workloads
    get one more pod before an eviction that their budgets refuse. `waits_for_targets`: an instance
    ends after load balancers have drained it."""

    paused: bool = False
    dry_run: bool = False
    takes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    bindings: tuple[tuple[str, str], ...] = ()
    unlimited: tuple[str, ...] = ()
    usd_per_hour: float | None = None
    pool_limits: tuple[tuple[str, float], ...] = ()
    surges: bool = False
    waits_for_targets: bool = False


@dataclass(frozen=True, slots=True)
class NodeTargets:
    """A target group by its ARN, with its deregistration delay in seconds."""

    group: str
    delay: int

    @property
    def name(self) -> str:
        """The name of the target group."""
        return name_of(self.group)


@dataclass(frozen=True, slots=True)
class PodTargets(NodeTargets):
    """A target group that has the pods of a workload, `deployment/web`, as IP targets.

    `grace` is their grace period, and `sleeps` the longest sleep of their preStop hooks, both in
    seconds; 0 without a hook, None if a hook does something else. `container` is the name of their
    only container, empty if they have several. `gated`: a readiness gate waits for the target.
    """

    namespace: str
    workload: str
    grace: int = 30
    sleeps: int | None = 0
    container: str = ""
    gated: bool = False


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The target groups of a cluster that have `pods` or `nodes` as targets, which the AWS Load
    Balancer Controller registers, and those that Auto Scaling groups are `attached` to."""

    pods: tuple[PodTargets, ...] = ()
    nodes: tuple[NodeTargets, ...] = ()
    attached: tuple[NodeTargets, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What was read of one cluster. `entries` are the access entries of the roles that need one,
    `objects` are those of rbac/ that exist, `rights` are those that a group does not have,
    `policies` says whether the API server has admission policies, `launch_block` why nothing is
    launched from the manifests of the API server. `context` are the options of kubectl
    that select the cluster; empty if no kubeconfig has it."""

    name: str
    eks: Read[EksCluster]
    entries: Read[tuple[AccessEntry, ...]]
    objects: Read[tuple[ClusterObject, ...]]
    configuration: Read[ConfigurationFacts]
    groups: Read[tuple[ScalingGroup, ...]]
    pools: Read[tuple[PoolFacts, ...]]
    roles: Read[tuple[RoleFacts, ...]]
    workloads: Read[tuple[WorkloadFacts, ...]]
    rights: Read[tuple[Right, ...]]
    policies: Read[bool] = True
    launch_block: Read[Reason | None] = None
    targets: Read[TargetFacts] = TargetFacts()
    context: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What AWS says about one call of a function, as `wiring/probes.py` of the layer has it."""

    call: str
    about: str
    statement: str
    answer: str
    problem: str

    @property
    def shown(self) -> str:
        """The call, and what it was about."""
        return f"{self.call} ({self.about})" if self.about else self.call


@dataclass(frozen=True, slots=True)
class FunctionAnswers:
    """What a function found about its rights; `problem` says why it found nothing. `cluster` is
    empty if the stack has none. `rules` are those of its token in the cluster, None if it needs no
    token; `cluster_problem` says why there are none."""

    name: str
    function: str
    cluster: str
    problem: str = ""
    answers: tuple[Answer, ...] = ()
    cluster_problem: str = ""
    rules: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was read. `ahead` is how far AWS's clock is ahead of this machine's.
    `concurrency` is how many invocations functions without reserved concurrency share.
    `spot_role`: the account has EC2's service-linked role for Spot instances. `wanted_objects` are
    the objects that a cluster needs, by the files in rbac/."""

    now: datetime
    region: str
    version: str
    ahead: timedelta
    stack: Read[LeewayStack]
    functions: Read[tuple[FunctionFacts, ...]]
    aliases: Read[tuple[AliasFacts, ...]]
    consumers: Read[tuple[ConsumerFacts, ...]]
    concurrency: Read[int]
    rules: Read[tuple[RuleFacts, ...]]
    schedules: Read[tuple[ScheduleFacts, ...]]
    queues: Read[tuple[QueueFacts, ...]]
    alarms: Read[tuple[AlarmFacts, ...]]
    instances: Read[tuple[InstanceUse, ...]]
    quotas: Read[Mapping[str, float]]
    spot_role: Read[bool]
    catalog: Read[Mapping[str, datetime]]  # when each part was read; empty without a readable one
    network: Read[FunctionsNetwork]
    wanted_objects: tuple[ClusterObject, ...] = ()
    clusters: tuple[ClusterFacts, ...] = ()
    answers: Read[tuple[FunctionAnswers, ...]] = ()

    def wanted_in(self, cluster: ClusterFacts) -> tuple[ClusterObject, ...]:
        """Return the objects that a cluster needs, as `leeway adopt` writes them."""
        limited = known(cluster.policies) is False
        return tuple(one for one in self.wanted_objects if not (limited and is_limited(one)))


def unread_parts(facts: object, cluster: str = "") -> Iterator[tuple[str, Unread]]:
    """Find every part that could not be read, with the name of its cluster."""
    if isinstance(facts, Unread):
        yield cluster, facts
    elif isinstance(facts, tuple):
        for one in facts:
            yield from unread_parts(one, cluster)
    elif isinstance(facts, (Facts, ClusterFacts)):
        name = facts.name if isinstance(facts, ClusterFacts) else cluster
        for one in fields(facts):
            yield from unread_parts(getattr(facts, one.name), name)


def spot_of_clusters(facts: Facts) -> tuple[InstanceUse, ...]:
    """Return the Spot instances of the clusters that were read."""
    names = {one.name for one in facts.clusters}
    return tuple(
        one for one in known(facts.instances) or () if one.market == "spot" and one.cluster in names
    )
