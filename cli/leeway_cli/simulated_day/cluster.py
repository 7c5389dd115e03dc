"""The state of a simulated cluster, its controllers and its scheduler, and the options of its day.

Times are minutes from midnight. Pods are bound as kube-scheduler does: by its filters, then to the
least allocated node. This shares no code with the decisions of packing. Filters: resources, taints,
node affinity, spreads by DoNotSchedule and anti-affinity, which are the constraints that the
workload has. Pods of one owner have one spec, so a term is compared with each owner once for each
node.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from leeway.disruption.rules import Budget, Cause, ReturnRules
from leeway.policy.rules import USUAL, ChurnCap, Worth
from leeway.reasons import Reason
from leeway.selection.labels import HOSTNAME
from leeway.selection.offers.catalog import Unavailable
from leeway.selection.packing.supply import Candidate
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec, PodTerm, Spread
from leeway.selection.resources import Resources

from leeway_cli.simulated_day.record import Record
from leeway_cli.simulated_day.workload import DAY, Job, Service, Workload, pools, prices


@dataclass
class SimulatedPod:
    """A pod. `node` is empty while it is pending; `ends_at` is when a job ends.

    `lost` says that it was created in place of a pod of an interrupted node, `moved` in place of a
    pod of a node that was given back.
    """

    pod: Pod
    owner: str
    created_at: int
    protected: bool = False
    node: str = ""
    bound_at: int = 0
    lasts: int | None = None
    job: Job | None = None
    lost: bool = False
    moved: bool = False

    def ends_at(self) -> int | None:
        """When a job that runs ends."""
        return self.bound_at + self.lasts if self.node and self.lasts is not None else None


@dataclass
class Retirement:
    """A voluntary retirement since the minute `began`. `draining`: its pods are being evicted."""

    cause: Cause
    reason: Reason
    replaced: bool
    began: int
    draining: bool


@dataclass
class Machine:
    """A node of a pool. `reclaimed_at` is when EC2 ends it, after an interruption."""

    name: str
    offering: Candidate
    labels: dict[str, str]
    launched_at: int
    ready_at: int
    quiet_since: int
    free: Resources
    pods: dict[str, SimulatedPod] = field(default_factory=dict)
    retirement: Retirement | None = None
    reclaimed_at: int | None = None

    @property
    def kind(self) -> tuple[str, str]:
        """Its instance type and its capacity type."""
        return self.offering.type.name, self.offering.offering.capacity_type

    @property
    def going(self) -> bool:
        """Whether it is being retired or interrupted."""
        return self.retirement is not None or self.reclaimed_at is not None

    def is_ready(self, minute: int) -> bool:
        """Whether it has joined."""
        return minute >= self.ready_at

    def is_open(self, minute: int) -> bool:
        """Whether the scheduler may bind pods to it."""
        return self.is_ready(minute) and not self.going

    def bind(self, pod: SimulatedPod, minute: int) -> None:
        """Bind a pod."""
        pod.node, pod.bound_at, self.quiet_since = self.name, minute, minute
        self.pods[pod.pod.name] = pod
        self.free = self.free - pod.pod.spec.requests

    def remove(self, pod: SimulatedPod, minute: int) -> None:
        """Remove a pod that has ended."""
        del self.pods[pod.pod.name]
        self.free, self.quiet_since = self.free + pod.pod.spec.requests, minute

    def node(self) -> ExistingNode:
        """Return it as selection sees it."""
        made = self.offering.type
        return ExistingNode(
            self.name,
            {**self.labels, HOSTNAME: self.name},
            made.allocatable,
            made.capacity,
            self.offering.pool.taints,
            tuple(one.pod.spec for one in self.pods.values()),
            pool=self.offering.pool.name,
        )


def bind_pending(
    pending: Iterable[SimulatedPod], machines: Sequence[Machine], minute: int
) -> list[SimulatedPod]:
    """Bind pods in the given order to Ready nodes; return those that stay pending."""
    ready = [one for one in machines if one.is_ready(minute)]
    left = []
    for pod in pending:
        spec = pod.pod.spec
        able = [one for one in ready if not one.going and _fits(spec, one)]
        if able:
            able = _filtered(spec, able, ready)
        if able:
            min(able, key=lambda one: (_load(one), one.name)).bind(pod, minute)
        else:
            left.append(pod)
    return left


def _fits(spec: PodSpec, machine: Machine) -> bool:
    return (
        spec.requests.fits(machine.free)
        and spec.untolerated(machine.offering.pool.taints) is None
        and (not spec.terms or any(term.admits(machine.labels) for term in spec.terms))
    )


def _filtered(spec: PodSpec, able: list[Machine], ready: Sequence[Machine]) -> list[Machine]:
    for spread in spec.spreads:
        able = _even(spread, spec, able, ready)
    for term in spec.pod_anti_affinity:
        able = [one for one in able if not _selected(term, one)]
    return able


def _even(
    spread: Spread, spec: PodSpec, able: list[Machine], ready: Sequence[Machine]
) -> list[Machine]:
    key = spread.pods.topology
    counts: Counter[str] = Counter()
    for one in ready:
        if not spec.terms or any(term.admits(one.labels) for term in spec.terms):
            counts[one.labels[key]] += _selected(spread.pods, one)
    most = min(counts.values()) + spread.max_skew - spread.pods.selects(spec)
    return [one for one in able if counts[one.labels[key]] <= most]


def _selected(term: PodTerm, machine: Machine) -> int:
    """How many pods of a node a term selects."""
    owners = Counter(pod.owner for pod in machine.pods.values())
    specs = {pod.owner: pod.pod.spec for pod in machine.pods.values()}
    return sum(count for owner, count in owners.items() if term.selects(specs[owner]))


def _load(machine: Machine) -> float:
    """The requested share of CPU and memory, as in NodeResourcesFit's LeastAllocated."""
    whole = machine.offering.type.allocatable
    return sum(1 - machine.free.of(name) / whole.of(name) for name in ("cpu", "memory")) / 2


ROLLED = 4
"""The part of a service that a deploy replaces in a minute is one of so many."""

STARTS = 1
"""Minutes from the binding of a pod until it is Ready."""


class Controllers:
    """Creates and ends pods. `pods` are all of them by name, `pending` those without a node."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.pods: dict[str, SimulatedPod] = {}
        self.pending: list[SimulatedPod] = []
        self._created = 0
        self._deployed: dict[str, int] = {}
        self._unready: Counter[str] = Counter()

    def run(self, minute: int, machines: Mapping[str, Machine]) -> None:
        """End jobs, start new ones, deploy, and scale services."""
        for pod in [*self.pods.values()]:
            ends = pod.ends_at()
            if ends is not None and ends <= minute:
                self._end(pod, machines, minute)
        for job in self._workload.jobs_at(minute):
            self._create(job.name, job, minute)
        if deployed := self._workload.deploys.get(minute):
            self._deployed[deployed] = minute
        for service in self._workload.services.values():
            own = [one for one in self.pods.values() if one.owner == service.name]
            own = self._roll(own, service, machines, minute)
            self._scale(own, service, machines, minute)
            ready = sum(bool(one.node) and one.bound_at + STARTS <= minute for one in own)
            self._unready[service.name] = len(own) - ready

    def _roll(
        self,
        own: list[SimulatedPod],
        service: Service,
        machines: Mapping[str, Machine],
        minute: int,
    ) -> list[SimulatedPod]:
        """End some of the pods that are older than the last deploy; they are created anew."""
        since = self._deployed.get(service.name, -1)
        old = [one for one in own if one.created_at < since][: -(-len(own) // ROLLED)]
        for pod in old:
            self._end(pod, machines, minute)
        return [one for one in own if one not in old]

    def _scale(
        self,
        own: list[SimulatedPod],
        service: Service,
        machines: Mapping[str, Machine],
        minute: int,
    ) -> None:
        """Create what is missing; end what is too much as a ReplicaSet does: pending pods first,
        then those on nodes with the most replicas, then the newest."""
        wanted = self._workload.replicas(service, minute)
        own += [self._create(service.name, service, minute) for _ in range(wanted - len(own))]
        together = Counter(one.node for one in own)
        own.sort(key=lambda one: (bool(one.node), -together[one.node], -one.created_at))
        for pod in own[: max(len(own) - wanted, 0)]:
            self._end(pod, machines, minute)
            own.remove(pod)

    def _create(self, owner: str, of: Service | Job, minute: int) -> SimulatedPod:
        self._created += 1
        pod = SimulatedPod(Pod(f"default/{owner}-{self._created}", of.spec), owner, minute)
        if isinstance(of, Job):
            pod.job, pod.lasts, pod.protected = of, of.lasts, of.protected
        self.pods[pod.pod.name] = pod
        self.pending.append(pod)
        return pod

    def _end(self, pod: SimulatedPod, machines: Mapping[str, Machine], minute: int) -> None:
        del self.pods[pod.pod.name]
        if pod.node:
            machines[pod.node].remove(pod, minute)
        else:
            self.pending.remove(pod)

    def evict(self, pod: SimulatedPod, machine: Machine, minute: int, lost: bool) -> None:
        """End a pod of a node that goes; its controller creates it anew. A job begins again."""
        del self.pods[pod.pod.name]
        machine.remove(pod, minute)
        of = pod.job or self._workload.services[pod.owner]
        created = self._create(pod.owner, of, minute)
        created.lost, created.moved = lost, not lost
        self._unready[pod.owner] += 1

    def allows_eviction(self, pod: SimulatedPod) -> bool:
        """Whether the PodDisruptionBudget of a service allows to evict one more of its pods."""
        service = self._workload.services.get(pod.owner)
        if service is None:
            return True
        wanted = service.least
        return self._unready[pod.owner] < max(wanted // 5, 1)


MIDNIGHT = datetime(2026, 11, 23, tzinfo=UTC)


@dataclass(frozen=True)
class Options:
    """A simulated day: `minutes` from the minute `start`. `scale` multiplies the pods.

    `gives_back` False: no node is given back. `bounds` False: the bound is not computed. EC2
    launches one of the `choices` cheapest Spot types of a request (price-capacity-optimized).
    """

    seed: int = 0
    minutes: int = DAY
    start: int = 0
    scale: float = 1.0
    gives_back: bool = True
    only_empty: bool = False
    interruptions: bool = False
    after: timedelta = timedelta(minutes=5)
    budgets: tuple[Budget, ...] = (Budget("10%"),)
    churn: ChurnCap = field(default_factory=ChurnCap)
    worth: Worth = USUAL
    choices: int = 5
    bounds: bool = True

    @property
    def rules(self) -> ReturnRules:
        """The rules of both pools."""
        return ReturnRules(self.after, self.only_empty, budgets=self.budgets)


class Cluster:
    """A cluster in a minute of its day.

    `unavailable` maps offerings to the minute until which they are not launched.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.minute = options.start
        self.dice = random.Random(options.seed)  # noqa: S311
        self.pools: tuple[NodePool, ...] = pools()
        self.machines: dict[str, Machine] = {}
        self.controllers = Controllers(Workload(options.seed, options.scale))
        self.unavailable: dict[Unavailable, int] = {}
        self.record = Record()

    @property
    def hour(self) -> int:
        """The hour whose prices apply."""
        return self.minute // 60

    @property
    def closed(self) -> frozenset[Unavailable]:
        """The offerings that are not launched now."""
        return frozenset(key for key, until in self.unavailable.items() if until > self.minute)

    @property
    def nodes(self) -> Iterator[ExistingNode]:
        """All nodes as provisioning sees them: those that go take no pods."""
        for one in self.machines.values():
            yield one.node().closed() if one.going else one.node()

    def requested(self, pool: NodePool) -> tuple[int, int]:
        """Return the requests of the pods that use a pool, in millicores and bytes."""
        pods = (one.pod.spec for one in self.controllers.pods.values())
        specs = [one.requests for one in pods if bool(one.tolerations) is bool(pool.taints)]
        return sum(one.of("cpu") for one in specs), sum(one.of("memory") for one in specs)

    def price(self, machine: Machine) -> float:
        """Return what a node costs now, in USD per hour: Spot prices change."""
        offering = machine.offering.offering
        key = (machine.kind[0], offering.zone, offering.capacity_type)
        return prices(self.options.seed, self.hour)[key]
