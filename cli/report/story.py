"""The words a report is told in: what was planned, what each node and each pod went through.

All moments are epoch seconds (floats), all durations seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True)
class Workload:
    """What the world's manifests say about the pods of one owner.

    `owner` is written as the journals do: `Deployment/shop/web`, or `Pod/shop/web` for a pod that
    nothing owns. `grace` is its own terminationGracePeriodSeconds.
    """

    owner: str
    grace: float = 30.0
    critical: bool = False
    daemon: bool = False


@dataclass(frozen=True)
class Target:
    """An instance of the cluster that EC2 was told to interrupt, and how often it says so."""

    instance: str
    node: str
    group: str
    copies: int = 1


@dataclass(frozen=True)
class Plan:
    """What the storm was to be: whom it hits, and how much of the warning is left on arrival."""

    cluster: str
    targets: tuple[Target, ...]
    strangers: tuple[str, ...] = ()
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    warning: float = 120.0
    late: float = 0.0


class Outcome(StrEnum):
    """What became of a pod."""

    MOVED = "moved"  # ended in time, and its successor runs elsewhere
    ENDED = "ended"  # ended in time, and nothing was to come after it
    STAYED = "stayed"  # belongs to its node: DaemonSet pods
    CUT = "cut"  # killed when its grace ran out
    UNPLACED = "unplaced"  # ended in time, but no successor runs
    DIED = "died"  # still there when its instance went, or killed outright


@dataclass(frozen=True)
class Verdict:
    """What is to be said of a pod; `fault` when a right drain would have done better."""

    outcome: Outcome
    fault: bool
    reason: str


@dataclass(frozen=True)
class Attempt:
    """One request to evict a pod, with the API server's answer."""

    at: float
    status: int


@dataclass(frozen=True)
class Successor:
    """The pod that came in another's place."""

    pod: str
    uid: str
    created_at: float
    node: str | None = None
    running_at: float | None = None


@dataclass(frozen=True)
class PodTrace:
    """What was seen of one pod on a node that had to go."""

    pod: str
    uid: str
    node: str
    workload: Workload
    owned: bool
    attempts: tuple[Attempt, ...] = ()
    asked_at: float | None = None
    asked_by: str | None = None
    grace_given: float | None = None
    ended_at: float | None = None
    how: str | None = None
    successor: Successor | None = None

    @property
    def refusals(self) -> int:
        """How often an eviction was answered 429: a budget had nothing left."""
        return sum(1 for attempt in self.attempts if attempt.status == 429)

    @property
    def evicted(self) -> int:
        """How often an eviction was granted."""
        return sum(1 for attempt in self.attempts if attempt.status in {200, 201})


@dataclass(frozen=True)
class Notice:
    """One delivery of a notice; `said_at` is the time EC2 wrote into it."""

    id: str
    at: float
    said_at: float


@dataclass(frozen=True)
class Replacement:
    """The instance that the group launched in a retired one's place."""

    instance: str
    launched_at: float
    node: str | None = None
    joined_at: float | None = None
    ready_at: float | None = None


@dataclass(frozen=True)
class Claim:
    """What Leeway itself said of an instance, as an event on the bus.

    `kind` is the notice's, `result` the retirement's; the numbers are of pods.
    """

    at: float
    kind: str
    result: str
    evicted: int = 0
    deleted: int = 0
    failed: int = 0

    @property
    def words(self) -> str:
        """The claim in a few words."""
        numbers = ((self.evicted, "evicted"), (self.deleted, "deleted"), (self.failed, "left"))
        told = ", ".join(f"{number} {what}" for number, what in numbers if number)
        return f"{self.result}: {told}" if told else self.result


@dataclass(frozen=True)
class NodeTrace:
    """What was seen of one node that EC2 took back."""

    target: Target
    notices: tuple[Notice, ...]
    takes_at: float
    cordons: tuple[float, ...] = ()
    dead_at: float | None = None
    taken_by_ec2: bool = False
    gone_at: float | None = None
    replacement: Replacement | None = None
    claims: tuple[Claim, ...] = ()

    @property
    def noticed_at(self) -> float | None:
        """When the first notice was delivered."""
        return self.notices[0].at if self.notices else None


@dataclass(frozen=True)
class PodStory:
    """A pod's trace with its verdict."""

    trace: PodTrace
    verdict: Verdict


@dataclass(frozen=True)
class NodeStory:
    """A node's trace, its pods' stories and what went wrong on it, one sentence each."""

    trace: NodeTrace
    pods: tuple[PodStory, ...]
    faults: tuple[str, ...]

    @property
    def moving(self) -> tuple[PodStory, ...]:
        """The pods that had to leave: all but those that belong to the node."""
        return tuple(pod for pod in self.pods if pod.verdict.outcome is not Outcome.STAYED)

    @property
    def drained_at(self) -> float | None:
        """When the last of them had ended; None while one is left."""
        ends = [pod.trace.ended_at for pod in self.moving]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) == len(ends) else None


@dataclass(frozen=True)
class StrangerStory:
    """An instance of somebody else's cluster that got a notice, and what was done to it."""

    instance: str
    notices: tuple[Notice, ...]
    taken_at: float | None
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Story:
    """The whole storm. `faults` are those of no node in particular."""

    plan: Plan
    began_at: float
    ended_at: float
    nodes: tuple[NodeStory, ...]
    strangers: tuple[StrangerStory, ...]
    faults: tuple[str, ...]

    @property
    def all_faults(self) -> tuple[str, ...]:
        """Every fault, each with whom it concerns."""
        found = list(self.faults)
        for node in self.nodes:
            found += [f"{node.trace.target.node}: {fault}" for fault in node.faults]
            found += [
                f"{pod.trace.pod}: {pod.verdict.reason}" for pod in node.pods if pod.verdict.fault
            ]
        for stranger in self.strangers:
            found += [f"{stranger.instance}: {fault}" for fault in stranger.faults]
        return tuple(found)

    @property
    def good(self) -> bool:
        """Whether nothing happened that a right drain would have prevented."""
        return not self.all_faults

    @property
    def moving(self) -> tuple[PodStory, ...]:
        """Every pod that had to leave a node."""
        return tuple(pod for node in self.nodes for pod in node.moving)
