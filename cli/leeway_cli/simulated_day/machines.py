"""The pods and the nodes of a simulated cluster. Times are minutes from midnight."""

from dataclasses import dataclass, field

from leeway.disruption.rules import Cause
from leeway.reasons import Reason
from leeway.selection.labels import HOSTNAME
from leeway.selection.packing.supply import Candidate
from leeway.selection.pods import ExistingNode, Pod
from leeway.selection.resources import Resources

from leeway_cli.simulated_day.workload import Job


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
