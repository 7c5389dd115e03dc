"""The report of a scale-up: pods that wait over time, what Leeway launched, and its price.

Built from the sandbox's journals. Times are epoch seconds (floats), prices USD per hour.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leeway_cli.report.evaluation import evaluate_launches
from leeway_cli.report.model import Launch, Shortage
from leeway_cli.report.pool_launches import launches, shortages

Entry = Mapping[str, Any]

STEP = 0.5  # seconds between two points of the curve


@dataclass(frozen=True)
class Offering:
    """An instance type in a zone and of a capacity type."""

    instance_type: str
    zone: str
    capacity_type: str


@dataclass(frozen=True)
class ScaleUpPlan:
    """The planned scale-up: the owner of the pods (as journals name it), their number before and
    after, when it was scaled, the nodes before, and the prices of offerings."""

    cluster: str
    owner: str
    before: int
    after: int
    nodes: int
    scaled_at: float
    prices: Mapping[Offering, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """The pods of the Deployment at a time: without a node, with one, and running."""

    at: float
    pending: int
    starting: int
    running: int


@dataclass(frozen=True)
class NodeGroup:
    """Equal nodes that Leeway launched. `price` is that of one node, None if unknown."""

    offering: Offering
    count: int
    price: float | None


@dataclass(frozen=True)
class ScaleUpReport:
    """The report of a scale-up. `on_new_nodes` counts the pods of the Deployment on launched nodes,
    and `bound` is a lower bound of the price of any nodes for them, 0 until it is computed."""

    plan: ScaleUpPlan
    curve: tuple[Point, ...]
    launches: tuple[Launch, ...]
    shortages: tuple[Shortage, ...]
    fleets: int
    on_new_nodes: int
    faults: tuple[str, ...]
    first_pod_at: float | None = None
    settled_at: float | None = None
    bound: float = 0.0

    @property
    def good(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

    @property
    def last(self) -> Point:
        """The last point of the curve."""
        return self.curve[-1]

    @property
    def nodes(self) -> tuple[NodeGroup, ...]:
        """The launched nodes by type, zone and capacity type, the largest group first."""
        counts = Counter(_offering(one) for one in self.launches)
        ordered = sorted(
            counts.items(),
            key=lambda item: (-item[1], item[0].instance_type, item[0].zone),
        )
        return tuple(
            NodeGroup(offering, count, self.plan.prices.get(offering))
            for offering, count in ordered
        )

    @property
    def price(self) -> float:
        """The price of the launched nodes; those without a known price count as free."""
        return sum(group.count * (group.price or 0.0) for group in self.nodes)

    @property
    def over_bound(self) -> float | None:
        """The price divided by the bound; None without a bound."""
        return self.price / self.bound if self.bound else None

    @property
    def seconds_to_launch(self) -> float | None:
        """From the first new pod to the first launch."""
        first = min((one.at for one in self.launches), default=None)
        if first is None or self.first_pod_at is None:
            return None
        return first - self.first_pod_at

    @property
    def seconds_to_run(self) -> float | None:
        """From the first new pod until all pods ran; None if they do not."""
        if self.settled_at is None or self.first_pod_at is None:
            return None
        return self.settled_at - self.first_pod_at

    @property
    def most_pending(self) -> int:
        """The largest number of pods without a node."""
        return max(point.pending for point in self.curve)


def scale_up_from_journal(entries: Iterable[Entry], plan: ScaleUpPlan) -> ScaleUpReport:
    """Build the report from journal entries (shape: `{"at", "kind", …}`)."""
    known = sorted(entries, key=lambda entry: entry["at"])
    joined: dict[str, tuple[str, float]] = {}
    ready: dict[str, float] = {}
    for entry in known:
        if entry["kind"] == "node-joined":
            joined[entry["instance"]] = (entry["node"], entry["at"])
        elif entry["kind"] == "node-ready":
            ready.setdefault(entry["node"], entry["at"])
    fleets = [e for e in known if e["kind"] == "fleet" and e["at"] >= plan.scaled_at]
    launched = launches(fleets, joined, ready)
    pods = _pods_of(known, plan.owner)
    end = max(known[-1]["at"] if known else plan.scaled_at, plan.scaled_at)
    curve = _curve(pods.values(), plan.scaled_at, end)
    new_nodes = {one.node for one in launched}
    created = [pod.created_at for pod in pods.values() if pod.created_at >= plan.scaled_at]
    return ScaleUpReport(
        plan=plan,
        curve=curve,
        launches=launched,
        shortages=shortages(fleets),
        fleets=sum(1 for fleet in fleets if fleet["launched"]),
        on_new_nodes=sum(1 for pod in pods.values() if pod.node in new_nodes),
        faults=(
            *_faults_of_pods(curve[-1], plan, pods.values()),
            *evaluate_launches(launched, {pod.node for pod in pods.values() if pod.node}),
        ),
        first_pod_at=min(created, default=None),
        settled_at=_settled_at(pods.values(), plan),
    )


@dataclass
class _Pod:
    """When a pod was created, bound to a node, ran, and ended."""

    created_at: float
    node: str = ""
    bound_at: float = float("inf")
    running_at: float = float("inf")
    ended_at: float = float("inf")


def _pods_of(entries: Sequence[Entry], owner: str) -> dict[str, _Pod]:
    found: dict[str, _Pod] = {}
    for entry in entries:
        if entry["kind"] == "pod-created" and entry.get("owner") == owner:
            found[entry["uid"]] = _Pod(entry["at"])
        pod = found.get(entry.get("uid", ""))
        if pod is None:
            continue
        match entry["kind"]:
            case "pod-bound":
                pod.bound_at, pod.node = entry["at"], entry["node"]
            case "pod-running":
                pod.running_at = entry["at"]
            case "pod-ended":
                pod.ended_at = entry["at"]
    return found


def _curve(pods: Iterable[_Pod], start: float, end: float) -> tuple[Point, ...]:
    every = list(pods)
    moments = [start + STEP * step for step in range(int((end - start) / STEP) + 1)]
    return tuple(_point(every, moment) for moment in (*moments, end))


def _point(pods: Iterable[_Pod], at: float) -> Point:
    alive = [pod for pod in pods if pod.created_at <= at < pod.ended_at]
    bound = sum(1 for pod in alive if pod.bound_at <= at)
    running = sum(1 for pod in alive if pod.running_at <= at)
    return Point(at, len(alive) - bound, bound - running, running)


def _settled_at(pods: Iterable[_Pod], plan: ScaleUpPlan) -> float | None:
    """Return when all pods ran; None if they do not."""
    running = sorted(pod.running_at for pod in pods if pod.ended_at == float("inf"))
    if len(running) < plan.after or running[-1] == float("inf"):
        return None
    return running[-1]


def _faults_of_pods(last: Point, plan: ScaleUpPlan, pods: Iterable[_Pod]) -> list[str]:
    faults = []
    if last.pending:
        faults.append(f"Pods of {plan.owner} without a node: {last.pending}.")
    if last.starting:
        faults.append(f"Pods of {plan.owner} with a node that do not run: {last.starting}.")
    total = last.pending + last.starting + last.running
    if total < plan.after:
        faults.append(f"{plan.owner} has {total} of {plan.after} pods.")
    if ended := sum(1 for pod in pods if pod.ended_at != float("inf")):
        faults.append(f"Pods of {plan.owner} that ended during the scale-up: {ended}.")
    return faults


def _offering(launch: Launch) -> Offering:
    return Offering(launch.instance_type, launch.zone, launch.capacity_type)
