"""The report of a scale-up: pods that wait over time, what Leeway launched, and its price.

Built from the sandbox's journals. Times are epoch seconds (floats), prices USD per hour. Rendered
as JSON, text and a page.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from leeway_cli.report.evaluation import evaluate_launches, shortage_text
from leeway_cli.report.model import Launch, Shortage
from leeway_cli.report.output import (
    Run,
    columns,
    launch_as_data,
    page_environment,
    print_parts,
    rounded,
    shortage_as_data,
)
from leeway_cli.report.pool_launches import launches, shortages
from leeway_cli.report.timeline import Tick, TimeAxis

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


def scale_up_as_data(report: ScaleUpReport, run: Run) -> dict[str, Any]:
    """Render the report. Times are RFC 3339, durations seconds, prices USD per hour; a missing
    observation is null."""
    plan = report.plan
    zero = report.first_pod_at or plan.scaled_at
    return {
        "good": report.good,
        "faults": list(report.faults),
        "run": run.as_data(nodes=plan.nodes, replicasBefore=plan.before, replicas=plan.after),
        "summary": {
            "podsPendingAtMost": report.most_pending,
            "podsRunning": report.last.running,
            "launchedAfterSeconds": rounded(report.seconds_to_launch),
            "allRunningAfterSeconds": rounded(report.seconds_to_run),
            "nodesLaunched": len(report.launches),
            "fleets": report.fleets,
            "pricePerHour": round(report.price, 6),
            "lowerBoundPerHour": round(report.bound, 6),
            "priceToBound": rounded(report.over_bound),
        },
        "nodes": [
            {
                "instanceType": group.offering.instance_type,
                "zone": group.offering.zone,
                "capacityType": group.offering.capacity_type,
                "count": group.count,
                "pricePerHour": group.price,
            }
            for group in report.nodes
        ],
        "launches": [launch_as_data(launch) for launch in report.launches],
        "shortages": [shortage_as_data(shortage) for shortage in report.shortages],
        "pods": [
            {
                "afterSeconds": rounded(point.at - zero),
                "pending": point.pending,
                "starting": point.starting,
                "running": point.running,
            }
            for point in report.curve
        ],
    }


MOST_POINTS = 12
BAR = 40  # characters of the bar of all pods


def headline(report: ScaleUpReport) -> str:
    """Return the result of the scale-up in one sentence."""
    plan = report.plan
    scaled = f"From {plan.before} to {plan.after} pods"
    if report.seconds_to_run is None or not report.good:
        running = report.last.running
        return f"{scaled}: {running} run, with faults."
    nodes = len(report.launches)
    new = f"{nodes} new node{'' if nodes == 1 else 's'}"
    return f"{scaled} on {new} in {report.seconds_to_run:.0f} seconds."


def price_text(report: ScaleUpReport) -> str:
    """Return the price of the launched nodes beside its bound in one sentence."""
    cost = f"The new nodes cost {report.price:.2f} USD per hour"
    if report.over_bound is None:
        return f"{cost}."
    over = (report.over_bound - 1) * 100
    return (
        f"{cost}, {over:.0f} % more than the lower bound of any nodes for their pods"
        f" ({report.bound:.2f} USD)."
    )


def points_shown(curve: Sequence[Point]) -> list[Point]:
    """Return the points of a curve at which the pods change, evenly thinned, and the last one."""
    changed = [
        point
        for before, point in zip([None, *curve], curve, strict=False)
        if before is None
        or (before.pending, before.starting, before.running)
        != (point.pending, point.starting, point.running)
    ]
    step = -(-len(changed) // MOST_POINTS)
    return [*changed[:-1:step], changed[-1]]


def print_scale_up(report: ScaleUpReport, run: Run, console: Console) -> None:
    """Print the headline, the pods over time, the nodes, the price and the faults."""
    plan, launched = report.plan, report.seconds_to_launch
    first = [f"First launch after {launched:.1f} s, {report.fleets} fleets."] if launched else []
    print_parts(
        console,
        headline(report),
        f"{plan.owner} was scaled on a cluster of {plan.nodes} nodes. Instances join within"
        " seconds here:\nEC2 takes one to two minutes. All times start at the first new pod.",
        [
            _pods(report),
            "",
            _nodes(report),
            *first,
            *map(shortage_text, report.shortages),
            price_text(report),
            f"[dim]{run.duration:.0f} s in total.[/]",
        ],
        report.faults,
    )


def _pods(report: ScaleUpReport) -> Table:
    table = columns("After>", "Pending>", "Starting>", "Running>", "")
    zero = report.first_pod_at or report.plan.scaled_at
    for point in points_shown(report.curve):
        counts = (point.pending, point.starting, point.running)
        after = f"{max(point.at - zero, 0):.1f} s"
        table.add_row(after, *map(str, counts), _bar(counts, report.plan.after))
    return table


def _bar(counts: tuple[int, int, int], total: int) -> str:
    pending, starting, running = (round(count / max(total, 1) * BAR) for count in counts)
    return f"[green]{'█' * running}[/][blue]{'▒' * starting}[/][yellow]{'░' * pending}[/]"


def _nodes(report: ScaleUpReport) -> Table:
    table = columns("Nodes>", "Type", "Zone", "Capacity", "USD per hour>")
    for group in report.nodes:
        offering = group.offering
        price = "unknown" if group.price is None else f"{group.count * group.price:.4f}"
        where = (offering.instance_type, offering.zone, offering.capacity_type)
        table.add_row(str(group.count), *where, price)
    return table


WIDTH, HEIGHT = 1120.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 1108.0, 24.0, 288.0


@dataclass(frozen=True)
class Area:
    """One area of the chart. `kind` is its CSS class, `points` its outline in SVG."""

    kind: str
    points: str


@dataclass(frozen=True)
class Level:
    """A labelled number of pods on the vertical axis."""

    y: float
    label: str


@dataclass(frozen=True)
class Chart:
    """The pods over time, and when nodes were launched and became Ready (`launched`, `ready`:
    horizontal coordinates)."""

    areas: tuple[Area, ...]
    ticks: tuple[Tick, ...]
    levels: tuple[Level, ...]
    launched: tuple[float, ...]
    ready: tuple[float, ...]


def render_scale_up(report: ScaleUpReport, run: Run) -> str:
    """Render the report of a run as a self-contained HTML document."""
    return (
        page_environment()
        .get_template("scale_up.html.j2")
        .render(
            report=report,
            run=run,
            chart=lay_out_chart(report),
            headline=headline(report),
            faults=report.faults,
            price_text=price_text(report),
            shortage_text=shortage_text,
            zero=report.first_pod_at or report.plan.scaled_at,
        )
    )


def lay_out_chart(report: ScaleUpReport) -> Chart:
    """Lay out the pods over time: running at the bottom, then starting, then pending ones."""
    curve = report.curve
    zero, last = report.first_pod_at or curve[0].at, curve[-1].at
    start = min(zero, curve[0].at)
    axis = TimeAxis(start, max(last, start + 1.0), LEFT, RIGHT, zero)
    most = max([report.plan.after, *map(_total, curve)])

    def y(count: int) -> float:
        return round(BOTTOM - count / most * (BOTTOM - TOP), 1)

    def area(kind: str, lower: Sequence[int], upper: Sequence[int]) -> Area:
        moments = [axis.x(point.at) for point in curve]
        there = zip(moments, map(y, upper), strict=True)
        back = reversed(list(zip(moments, map(y, lower), strict=True)))
        return Area(kind, " ".join(f"{at},{level}" for at, level in (*there, *back)))

    running = [point.running for point in curve]
    bound = [point.running + point.starting for point in curve]
    return Chart(
        areas=(
            area("running", [0] * len(curve), running),
            area("starting", running, bound),
            area("pending", bound, [_total(point) for point in curve]),
        ),
        ticks=axis.ticks,
        levels=tuple(Level(y(count), str(count)) for count in (0, most // 2, most)),
        launched=_distinct(axis.x(one.at) for one in report.launches),
        ready=_distinct(axis.x(one.ready_at) for one in report.launches if one.ready_at),
    )


def _total(point: Point) -> int:
    return point.pending + point.starting + point.running


def _distinct(places: Iterable[float]) -> tuple[float, ...]:
    return tuple(sorted(set(places)))
