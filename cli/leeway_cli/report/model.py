"""The records of a storm's report: the plan, the observations of nodes and pods, the evaluation.

Times are epoch seconds (floats). Durations are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from leeway_cli.output import FLAT


@dataclass(frozen=True)
class Workload:
    """The pods of one owner, from the manifests of the demo cluster.

    `owner` has the form of the journals: `Deployment/shop/web`, or `Pod/shop/web` for a pod without
    an owner. `grace` is terminationGracePeriodSeconds.
    """

    owner: str
    grace: float = 30.0
    critical: bool = False
    daemon: bool = False


@dataclass(frozen=True)
class Target:
    """An instance that EC2 interrupts. `copies` is how often its warning is delivered.

    A group or a pool launched it: the other name is empty. The nodes of a pool are Leeway's own.
    """

    instance: str
    node: str
    group: str
    copies: int = 1
    pool: str = ""

    @property
    def owner(self) -> str:
        """The name of the group or pool."""
        return self.group or self.pool


@dataclass(frozen=True)
class StormPlan:
    """The planned storm. A warning arrives `late` seconds after its own time, and EC2 reclaims the
    instance `warning` seconds after that time. `unmanaged` are instances of another cluster."""

    cluster: str
    targets: tuple[Target, ...]
    unmanaged: tuple[str, ...] = ()
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    warning: float = 120.0
    late: float = 0.0


class Outcome(StrEnum):
    """The outcome of a pod."""

    MOVED = "moved"  # ended in time; its replacement runs on another node
    ENDED = "ended"  # ended in time; it has no owner that replaces it
    STAYED = "stayed"  # a DaemonSet pod, which is not evicted
    CUT = "cut"  # killed when its grace period ended
    NOT_RESCHEDULED = "not-rescheduled"  # ended in time, but no replacement runs
    DIED = "died"  # still running when its instance ended, or killed without a grace period


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a pod. `fault` is true if a correct drain would have avoided it."""

    outcome: Outcome
    fault: bool
    reason: str


@dataclass(frozen=True)
class Attempt:
    """One eviction request and the HTTP status of its answer."""

    at: float
    status: int


@dataclass(frozen=True)
class Successor:
    """The pod that replaced an evicted pod."""

    pod: str
    uid: str
    created_at: float
    node: str | None = None
    running_at: float | None = None


@dataclass(frozen=True)
class PodTrace:
    """The observations of one pod on an interrupted node."""

    pod: str
    uid: str
    node: str
    workload: Workload
    owned: bool
    attempts: tuple[Attempt, ...] = ()
    requested_at: float | None = None
    requested_by: str | None = None
    grace_given: float | None = None
    ended_at: float | None = None
    how: str | None = None
    successor: Successor | None = None

    @property
    def refusals(self) -> int:
        """How many evictions were answered with 429: a budget allowed none."""
        return sum(1 for attempt in self.attempts if attempt.status == 429)

    @property
    def evicted(self) -> int:
        """How many evictions were granted."""
        return sum(1 for attempt in self.attempts if attempt.status in {200, 201})


@dataclass(frozen=True)
class Notice:
    """One delivery of a notice. `sent_at` is the time field of the event."""

    id: str
    at: float
    sent_at: float


@dataclass(frozen=True)
class Replacement:
    """The instance that the group or pool launched as the replacement of an interrupted one."""

    instance: str
    launched_at: float
    node: str | None = None
    ready_at: float | None = None


@dataclass(frozen=True)
class Launch:
    """An instance that Leeway launched for a pool during the storm.

    `fallback`: it is on-demand, because the pool found too little Spot capacity before.
    """

    at: float
    instance: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    fallback: bool = False
    node: str | None = None
    ready_at: float | None = None


@dataclass(frozen=True)
class Shortage:
    """Offerings that EC2 refused to launch for a pool during the storm, with one error code."""

    at: float
    pool: str
    code: str
    capacity_type: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]


@dataclass(frozen=True)
class LeewayEvent:
    """The result that Leeway published for an instance on the event bus.

    `kind` is the kind of the notice. `evicted`, `deleted` and `failed` count pods.
    """

    at: float
    kind: str
    result: str
    evicted: int = 0
    deleted: int = 0
    failed: int = 0

    @property
    def text(self) -> str:
        """The event in a few words."""
        numbers = ((self.evicted, "evicted"), (self.deleted, "deleted"), (self.failed, "failed"))
        counts = ", ".join(f"{number} {what}" for number, what in numbers if number)
        return f"{self.result}: {counts}" if counts else self.result


@dataclass(frozen=True)
class NodeTrace:
    """The observations of one interrupted node."""

    target: Target = field(metadata=FLAT)
    notices: tuple[Notice, ...]
    reclaim_at: float
    cordoned_at: tuple[float, ...] = ()
    instance_gone_at: float | None = None
    reclaimed_by_ec2: bool = False
    replacement: Replacement | None = None
    leeway_events: tuple[LeewayEvent, ...] = ()

    @property
    def noticed_at(self) -> float | None:
        """When the first notice was delivered."""
        return self.notices[0].at if self.notices else None


@dataclass(frozen=True)
class PodReport:
    """The observations and the evaluation of a pod."""

    trace: PodTrace = field(metadata=FLAT)
    evaluation: Evaluation = field(metadata=FLAT)


@dataclass(frozen=True)
class NodeReport:
    """The observations of a node, its pods, and its faults (one sentence each)."""

    trace: NodeTrace = field(metadata=FLAT)
    pods: tuple[PodReport, ...]
    faults: tuple[str, ...]

    @property
    def moving(self) -> tuple[PodReport, ...]:
        """The pods that had to move: all except DaemonSet pods."""
        return tuple(pod for pod in self.pods if pod.evaluation.outcome is not Outcome.STAYED)

    @property
    def drained_at(self) -> float | None:
        """When the last pod that had to move ended; None if one still runs."""
        ends = [pod.trace.ended_at for pod in self.moving]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) == len(ends) else None


@dataclass(frozen=True)
class UnmanagedReport:
    """An instance of another cluster that got a notice, and the faults."""

    instance: str
    notices: tuple[Notice, ...]
    reclaimed_at: float | None
    faults: tuple[str, ...]


@dataclass(frozen=True)
class StormReport:
    """The report of a storm. `faults` are those that belong to no single node."""

    plan: StormPlan
    began_at: float
    ended_at: float
    nodes: tuple[NodeReport, ...]
    unmanaged: tuple[UnmanagedReport, ...]
    faults: tuple[str, ...]
    launches: tuple[Launch, ...] = ()
    shortages: tuple[Shortage, ...] = ()

    @property
    def all_faults(self) -> tuple[str, ...]:
        """Every fault, with its node, pod or instance."""
        found = list(self.faults)
        for node in self.nodes:
            found += [f"{node.trace.target.node}: {fault}" for fault in node.faults]
            found += [
                f"{pod.trace.pod}: {pod.evaluation.reason}"
                for pod in node.pods
                if pod.evaluation.fault
            ]
        for other in self.unmanaged:
            found += [f"{other.instance}: {fault}" for fault in other.faults]
        return tuple(found)

    @property
    def good(self) -> bool:
        """Whether there is no fault."""
        return not self.all_faults

    @property
    def moving(self) -> tuple[PodReport, ...]:
        """Every pod that had to move."""
        return tuple(pod for node in self.nodes for pod in node.moving)
