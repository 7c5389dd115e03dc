"""The report of a scale-up: pods that wait over time, what Leeway launched, and its price.

Built from the sandbox's journals. Times are epoch seconds (floats), prices USD per hour.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leeway.reasons import counted

from leeway_cli.output import FLAT, as_json
from leeway_cli.report import chart
from leeway_cli.report.chart import Figure, Plot, TimeAxis
from leeway_cli.report.evaluation import evaluate_launches, shortage_text
from leeway_cli.report.from_journal import launches, shortages
from leeway_cli.report.model import Launch, Shortage
from leeway_cli.report.page import (
    Cell,
    Column,
    Lines,
    Page,
    Row,
    Run,
    Table,
    Tile,
    Tiles,
    after,
    seconds,
)

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

    @property
    def counts(self) -> tuple[int, int, int]:
        """The three numbers."""
        return self.pending, self.starting, self.running


@dataclass(frozen=True)
class NodeGroup:
    """Equal nodes that Leeway launched. `price_per_hour` is that of one node, None if unknown."""

    offering: Offering = field(metadata=FLAT)
    count: int
    price_per_hour: float | None


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
    def zero(self) -> float:
        """The time from which its times count: the first new pod."""
        return self.first_pod_at or self.plan.scaled_at

    @property
    def last(self) -> Point:
        """The last point of the curve."""
        return self.curve[-1]

    @property
    def nodes(self) -> tuple[NodeGroup, ...]:
        """The launched nodes by type, zone and capacity type, the largest group first."""
        counts = Counter(
            Offering(one.instance_type, one.zone, one.capacity_type) for one in self.launches
        )
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
        return sum(group.count * (group.price_per_hour or 0.0) for group in self.nodes)

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
    joined: dict[str, str] = {}
    ready: dict[str, float] = {}
    for entry in known:
        if entry["kind"] == "node-joined":
            joined[entry["instance"]] = entry["node"]
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
    total = sum(last.counts)
    if total < plan.after:
        faults.append(f"{plan.owner} has {total} of {plan.after} pods.")
    if ended := sum(1 for pod in pods if pod.ended_at != float("inf")):
        faults.append(f"Pods of {plan.owner} that ended during the scale-up: {ended}.")
    return faults


def scale_up_as_data(report: ScaleUpReport, run: Run) -> dict[str, Any]:
    """Render the report. Times are RFC 3339, durations seconds, prices USD per hour; a missing
    observation is null."""
    plan = report.plan
    summary = {
        "podsPendingAtMost": report.most_pending,
        "podsRunning": report.last.running,
        "launchedAfterSeconds": report.seconds_to_launch,
        "allRunningAfterSeconds": report.seconds_to_run,
        "nodesLaunched": len(report.launches),
        "fleets": report.fleets,
        "pricePerHour": report.price,
        "lowerBoundPerHour": report.bound,
        "priceToBound": report.over_bound,
    }
    return {
        "good": not report.faults,
        "faults": list(report.faults),
        "run": run.as_data(nodes=plan.nodes, replicasBefore=plan.before, replicas=plan.after),
        "summary": as_json(summary),
        "nodes": as_json(report.nodes),
        "launches": as_json(report.launches, epoch=True),
        "shortages": as_json(report.shortages, epoch=True),
        "pods": as_json(report.curve, epoch=True),
    }


MOST_POINTS = 12
BAR = 40  # characters of the bar of all pods


def scale_up_page(report: ScaleUpReport, run: Run) -> Page:
    """Return the sections of the report of a run."""
    plan = report.plan
    first = []
    if report.seconds_to_launch is not None:
        began = seconds(report.seconds_to_launch)
        first = [f"First launch after {began}, {counted(report.fleets, 'fleet')}."]
    return Page(
        headline=headline(report),
        lede=f"{plan.owner} of cluster {plan.cluster} was scaled from {plan.before} to "
        f"{counted(plan.after, 'pod')} on {counted(plan.nodes, 'node')}. Leeway saw the "
        "pending pods and launched nodes for them. An instance joins within seconds here; "
        "EC2 takes one to two minutes.",
        about=f"{plan.owner} was scaled on a cluster of {counted(plan.nodes, 'node')}. Instances "
        "join within seconds here:\nEC2 takes one to two minutes. All times start at the "
        "first new pod.",
        sections=[
            _tiles(report),
            lay_out_chart(report),
            _pods(report),
            _nodes(report),
            Lines(
                [
                    *first,
                    *map(shortage_text, report.shortages),
                    price_text(report),
                    f"[dim]{run.duration:.0f} s in total.[/]",
                ]
            ),
        ],
        faults=report.faults,
        source="All values come from the journals of the sandbox's API server, kubelets and EC2, "
        "and from its prices. The lower bound is computed by Leeway's selection for the pods on "
        "new nodes.",
        run=run.about,
    )


def headline(report: ScaleUpReport) -> str:
    """Return the result of the scale-up in one sentence."""
    scaled = f"From {report.plan.before} to {counted(report.plan.after, 'pod')}"
    if report.seconds_to_run is None or report.faults:
        return f"{scaled}: {report.last.running} run, with faults."
    new, took = counted(len(report.launches), "new node"), round(report.seconds_to_run)
    return f"{scaled} on {new} in {counted(took, 'second')}."


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
    pairs = zip([None, *curve], curve, strict=False)
    changed = [one for before, one in pairs if before is None or before.counts != one.counts]
    step = -(-len(changed) // MOST_POINTS)
    return [*changed[:-1:step], changed[-1]]


def _tiles(report: ScaleUpReport) -> Tiles:
    running, wanted = report.last.running, report.plan.after
    fleets = f"{counted(report.fleets, 'fleet')}, {counted(len(report.nodes), 'offering')}"
    boot = "with the short boot of the sandbox"
    to_run, to_launch = report.seconds_to_run, report.seconds_to_launch
    most = f"{report.most_pending} were pending at most"
    bound = f"{report.bound:.2f} is the lower bound"
    return Tiles(
        [
            Tile(running, wanted, "pods running", most, running >= wanted),
            Tile(seconds(to_launch), None, "to the first launch", "from the first new pod"),
            Tile(seconds(to_run), None, "until all pods ran", boot, to_run is not None),
            Tile(len(report.launches), None, "nodes launched", fleets),
            Tile(f"{report.price:.2f}", None, "USD per hour", bound),
        ]
    )


def _pods(report: ScaleUpReport) -> Table:
    rows: list[Row] = [
        (
            f"{max(point.at - report.zero, 0):.1f} s",
            *map(str, point.counts),
            Cell(_bar(point.counts, report.plan.after), kind="bar"),
        )
        for point in points_shown(report.curve)
    ]
    columns = ("After>", "Pending>", "Starting>", "Running>", "")
    return Table(columns, rows, where="terminal")


def _bar(counts: tuple[int, int, int], total: int) -> str:
    pending, starting, running = (round(count / max(total, 1) * BAR) for count in counts)
    return f"[green]{'█' * running}[/][blue]{'▒' * starting}[/][yellow]{'░' * pending}[/]"


def _nodes(report: ScaleUpReport) -> Table:
    rows: list[Row] = []
    for group in report.nodes:
        one, price = group.offering, group.price_per_hour
        each, total = "unknown", "unknown"
        if price is not None:
            each, total = f"{price:.4f}", f"{group.count * price:.4f}"
        type_ = Cell(one.instance_type)
        rows.append((str(group.count), type_, one.zone, one.capacity_type, each, total))
    each_price = Column("USD per hour each", "n", "page")
    return Table(
        ("Nodes>", "Type", "Zone", "Capacity", each_price, "USD per hour>"),
        rows,
        title="What Leeway launched",
        lines=[
            price_text(report),
            *(
                f"{after(one.at, report.zero)} after the first new pod: {shortage_text(one)}"
                for one in report.shortages
            ),
        ],
    )


def lay_out_chart(report: ScaleUpReport) -> Figure:
    """Draw the pods over time: running at the bottom, then starting, then pending ones; and when
    nodes were launched and became Ready."""
    curve = report.curve
    zero, last = report.first_pod_at or curve[0].at, curve[-1].at
    start = min(zero, curve[0].at)
    most = max([report.plan.after, *(sum(one.counts) for one in curve)])
    plot = Plot(TimeAxis(start, max(last, start + 1.0), 48.0, 1108.0, zero), most, 288.0)
    moments = [point.at for point in curve]
    lower = [0] * len(curve)
    shapes = chart.ticks(plot.axis.ticks, plot.bottom)
    for place, kind in ((2, "running"), (1, "starting"), (0, "pending")):
        upper = [low + one.counts[place] for low, one in zip(lower, curve, strict=True)]
        shapes.append(plot.stack(f"c {kind}", moments, lower, upper))
        lower = upper
    shapes += plot.levels("{}", most // 2)
    ready = [one.ready_at for one in report.launches if one.ready_at]
    for kind, times in (("launched", [one.at for one in report.launches]), ("ready", ready)):
        for x in sorted(set(map(plot.axis.x, times))):
            shapes.append(chart.line(f"mark {kind}", x, 24, x, plot.bottom))
    legend = [(f"c {kind}", kind) for kind in ("pending", "starting", "running")]
    marks = [
        (chart.path(f"mark {kind}", "M6 0v12"), f"nodes {what}")
        for kind, what in (("launched", "launched"), ("ready", "Ready"))
    ]
    about = "The number of pending, starting and running pods over time"
    return Figure("Pods over time", about, [*legend, *marks], shapes, 300)
