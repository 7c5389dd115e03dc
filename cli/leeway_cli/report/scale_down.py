"""The report of a simulated day: what giving nodes back saves, and what it moves.

Three days have the same pods: one in which Leeway gives nodes back, one in which it gives back only
empty nodes, and one in which no node is given back.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leeway.disruption.rules import Cause
from leeway.reasons import counted

from leeway_cli.output import as_json
from leeway_cli.report import chart
from leeway_cli.report.chart import Figure, Plot, Shape, TimeAxis
from leeway_cli.report.page import Cell, Column, Lines, Page, Row, Run, Table, Tile, Tiles
from leeway_cli.simulated_day.record import GivenBack, Moment, Record

CAUSES = {
    "empty": "no pods are left",
    "not-needed": "pods fit on other nodes",
    "replaced": "a cheaper node holds the pods",
}
"""Why nodes are given back in a simulated day: nothing drifts or expires in it."""


@dataclass(frozen=True)
class CauseSum:
    """All nodes that were given back for one cause, and the decision that saved the most."""

    cause: str
    nodes: int
    pods: int
    example: str


@dataclass(frozen=True)
class ScaleDownReport:
    """The three days, and the rules that the day of Leeway broke."""

    leeway: Record
    only_empty: Record
    never: Record

    @property
    def faults(self) -> tuple[str, ...]:
        """The broken rules, each in one sentence."""
        return tuple(self.leeway.faults)

    @property
    def saved(self) -> float:
        """The part of the price of the day without give-back that Leeway saves."""
        return 1 - self.leeway.dollars / self.never.dollars if self.never.dollars else 0.0

    @property
    def days(self) -> tuple[tuple[str, Record], ...]:
        """The days with their names, the most expensive first."""
        return (
            ("no node is given back", self.never),
            ("only empty nodes are given back", self.only_empty),
            ("Leeway", self.leeway),
        )

    @property
    def peak(self) -> Moment:
        """The minute of Leeway's day with the most nodes."""
        return max(self.leeway.moments, key=lambda one: one.nodes)

    @property
    def least(self) -> Moment:
        """The minute with the fewest nodes after the peak."""
        after = [one for one in self.leeway.moments if one.minute >= self.peak.minute]
        return min(after, key=lambda one: one.nodes)

    @property
    def causes(self) -> tuple[CauseSum, ...]:
        """What was given back, by cause; causes without a node are left out."""
        found = []
        for cause in CAUSES:
            if own := [one for one in self.leeway.given_back if cause_of(one) == cause]:
                best = max(own, key=lambda one: one.saving)
                found.append(CauseSum(cause, len(own), sum(one.pods for one in own), best.reason))
        return tuple(found)


def cause_of(one: GivenBack) -> str:
    """Return the cause of a return, as a key of CAUSES."""
    if one.cause is Cause.EMPTY:
        return "empty"
    return "replaced" if one.replaced else "not-needed"


def scale_down_as_data(report: ScaleDownReport, run: Run) -> dict[str, Any]:
    """Render the report. Times are minutes of the day, prices USD per hour, costs USD."""
    days = {"leeway": report.leeway, "onlyEmpty": report.only_empty, "never": report.never}
    return {
        "good": not report.faults,
        "faults": list(report.faults),
        "simulated": True,
        "run": run.as_data(),
        "days": {name: _day(record) for name, record in days.items()},
        "givenBack": as_json(report.leeway.given_back),
        "minutes": [
            {**as_json(one), "kinds": [[*kind, count] for kind, count in one.kinds.items()]}
            for one in report.leeway.moments
        ],
    }


def _day(record: Record) -> dict[str, Any]:
    return {
        "cost": round(record.dollars, 4),
        "lowerBound": round(record.bound, 4),
        "nodeHours": round(record.node_hours, 2),
        "nodesGivenBack": len(record.given_back),
        "nodesLaunched": len(record.launched),
        "podsMoved": record.moved,
        "podMinutesPending": record.pending_minutes,
    }


EVERY = 3  # minutes between two points of a chart
BIN = 30  # minutes of a bar
MOST_KINDS = 9
MOST_REASONS = 12
CAUSES_LEGEND = [(f"why-{cause}", why) for cause, why in CAUSES.items()]


def scale_down_page(report: ScaleDownReport, run: Run) -> Page:
    """Return the sections of the report of a run."""
    return Page(
        headline=headline(report),
        lede="Web services follow the hours of the day, batch jobs run at night, and other jobs "
        "start every hour and every quarter of an hour. Leeway gives nodes back when they are not "
        "needed any more. This day is simulated: the decisions are those of the deployed "
        "functions, made every minute; pods, scheduler and prices are a model, and nothing ran in "
        "a sandbox or in AWS.",
        about="This day is simulated: no sandbox and no AWS. The decisions are those of the "
        "deployed functions; pods, scheduler and prices are a model.",
        sections=[
            _tiles(report),
            price_chart(report),
            kinds_chart(report),
            moves_chart(report),
            moves_chart(report, of_pods=True),
            _days(report),
            _causes(report),
            _reasons(report),
            Lines([f"[dim]{run.duration:.0f} s in total.[/]"]),
        ],
        faults=report.faults,
        faults_title="Rules that the day broke",
        source="All values come from a simulation with the seed below. The lower bound is a linear "
        'program: parts of nodes, bought anew every minute. A pod "waited for a node" if no node '
        "had room for it.",
        run=run.about,
    )


def headline(report: ScaleDownReport) -> str:
    """Return the result of the day in one sentence."""
    leeway, never = report.leeway.dollars, report.never.dollars
    result = f"A day for {leeway:.2f} instead of {never:.2f} USD"
    return f"{result}, with faults." if report.faults else f"{result}: {report.saved:.0%} less."


def _tiles(report: ScaleDownReport) -> Tiles:
    leeway, never = report.leeway, report.never
    given, launched = len(leeway.given_back), len(leeway.launched)
    bound = f"{leeway.bound:.2f} USD: new nodes every minute"
    launches = f"{launched} launched, {len(never.launched)} if none is given back"
    each = f"{leeway.moved / max(given, 1):.1f} for each node given back"
    peak, least = report.peak, report.least
    times = f"from the peak at {_clock(peak.minute)} to {_clock(least.minute)}"
    cost = f"{never.dollars:.2f} if no node is given back"
    return Tiles(
        [
            Tile(f"{leeway.dollars:.2f}", None, "USD for the day", cost),
            Tile(_over_bound(leeway), None, "above the lower bound", bound),
            Tile(given, None, "nodes given back", launches),
            Tile(leeway.moved, None, "pods moved", each),
            Tile(f"{peak.nodes} → {least.nodes}", None, "nodes", times),
        ]
    )


def _over_bound(record: Record) -> str:
    return f"{record.dollars / record.bound - 1:.0%}" if record.bound else "–"


def _days(report: ScaleDownReport) -> Table:
    figures = ("USD>", "Over bound>", "Node-hours>", "Given back>", "Pods moved>", "Launched>")
    waited = Column("Minutes that pods waited for a node", "n", "page")
    rows: list[Row] = [
        (
            Cell(name),
            f"{record.dollars:.2f}",
            _over_bound(record),
            f"{record.node_hours:,.0f}",
            f"{len(record.given_back):,}",
            f"{record.moved:,}",
            f"{len(record.launched):,}",
            f"{record.pending_minutes:,}",
        )
        for name, record in report.days
    ]
    rows.append(("lower bound of any nodes", f"{report.leeway.bound:.2f}", *[""] * 6))
    return Table(("Day", *figures, waited), rows, title="The same pods, with other rules")


def _causes(report: ScaleDownReport) -> Table:
    words = Column("The decision that saved the most, in Leeway's words", "", "page")
    return Table(
        ("Given back, because", "Nodes>", "Pods moved>", words),
        [
            (Cell(CAUSES[one.cause]), str(one.nodes), str(one.pods), one.example)
            for one in report.causes
        ],
        title="Why nodes were given back",
    )


def _reasons(report: ScaleDownReport) -> Table:
    best = sorted(report.leeway.given_back, key=lambda one: -one.saving)[:MOST_REASONS]
    return Table(
        ("At", "Node", "Type", "Pods>", "Saves per hour>", Column("Reason", "")),
        [
            (
                _clock(one.minute),
                Cell(one.node),
                ", ".join(one.kind),
                str(one.pods),
                f"{one.saving:.4f} USD",
                one.reason,
            )
            for one in best
        ],
        title=f"The {counted(len(best), 'decision')} that saved the most",
        where="page",
    )


def price_chart(report: ScaleDownReport) -> Figure:
    """Draw the price per hour of Leeway's day, of the day without give-back, and the bound."""
    never, own = _thinned(report.never.moments), _thinned(report.leeway.moments)
    most = max((one.price for one in never + own), default=0.0) or 1.0
    plot = Plot(_axis(report), most, 300.0)
    minutes, prices = [one.minute for one in own], [one.price for one in own]
    shapes = [
        *_ticks(report, plot.bottom),
        plot.stack("area price", minutes, [0] * len(own), prices),
        *plot.levels("{:.1f}", most / 2),
        plot.curve("line never", [o.minute for o in never], [o.price for o in never]),
        plot.curve("line bound", minutes, [one.bound for one in own]),
        plot.curve("line price", minutes, prices),
    ]
    legend = [
        ("l never", "if no node is given back"),
        ("l price", "Leeway"),
        ("l bound", "lower bound of any nodes for the pods of that minute"),
    ]
    about = "The price per hour of the nodes, beside its lower bound"
    return Figure("USD per hour", about, legend, shapes, 308)


def kinds_chart(report: ScaleDownReport) -> Figure:
    """Draw the nodes by instance type and capacity type; the rarest are `others`."""
    moments = _thinned(report.leeway.moments)
    hours: Counter[tuple[str, str]] = Counter()
    for one in moments:
        hours.update(one.kinds)
    named = [kind for kind, _ in hours.most_common(MOST_KINDS)]
    most = _even(one.nodes for one in moments)
    plot = Plot(_axis(report), most, 260.0)
    shapes, legend = _ticks(report, plot.bottom), []
    lower = [0] * len(moments)
    for number, kind in enumerate([*named, None]):
        counts = [_count(one, kind, named) for one in moments]
        upper = [low + count for low, count in zip(lower, counts, strict=True)]
        shapes.append(plot.stack(f"area k{number}", [o.minute for o in moments], lower, upper))
        legend.append((f"k{number}", "others" if kind is None else f"{kind[0]}, {kind[1]}"))
        lower = upper
    shapes += plot.levels("{:.0f}", most // 2)
    about = "The number of nodes by instance type over the day"
    return Figure("Nodes by instance type", about, legend, shapes, 268)


def moves_chart(report: ScaleDownReport, of_pods: bool = False) -> Figure:
    """Draw the nodes that were given back in each half hour, or the pods that moved, by cause."""
    nodes: dict[int, Counter[str]] = {}
    pods: dict[int, Counter[str]] = {}
    for one in report.leeway.given_back:
        at, cause = one.minute // BIN, cause_of(one)
        nodes.setdefault(at, Counter())[cause] += 1
        pods.setdefault(at, Counter())[cause] += one.pods
    counts = pods if of_pods else nodes
    most = _even(each.total() for each in counts.values())
    plot = Plot(_axis(report), most, 190.0)
    shapes = [*_ticks(report, plot.bottom), *plot.levels("{:.0f}", most // 2)]
    for at, by_cause in sorted(counts.items()):
        sums = f"{counted(nodes[at].total(), 'node')}, {counted(pods[at].total(), 'pod')} moved"
        shapes += _stack(plot, by_cause, at * BIN, f"{_clock(at * BIN)}: {sums}")
    what = "Pods moved" if of_pods else "Nodes given back"
    title = f"{what} in each half hour"
    return Figure(title, f"{title}, by cause", CAUSES_LEGEND, shapes, 198)


def _stack(plot: Plot, by_cause: Counter[str], minute: int, title: str) -> Iterator[Shape]:
    left, right = plot.axis.x(minute) + 2, plot.axis.x(minute + BIN) - 2
    lower = 0
    for cause in CAUSES:
        if count := by_cause[cause]:
            top, low = plot.y(lower + count), plot.y(lower)
            width, height = round(right - left, 1), round(low - top, 1)
            yield chart.rect(f"why-{cause}", round(left, 1), top, width, height, title, rx=0)
            lower += count


def _count(moment: Moment, kind: tuple[str, str] | None, named: Sequence[tuple[str, str]]) -> int:
    if kind is not None:
        return moment.kinds.get(kind, 0)
    return moment.nodes - sum(moment.kinds.get(each, 0) for each in named)


def _thinned(moments: Sequence[Moment]) -> list[Moment]:
    return [*moments[::EVERY], moments[-1]]


def _axis(report: ScaleDownReport) -> TimeAxis:
    first, last = report.leeway.moments[0].minute, report.leeway.moments[-1].minute
    return TimeAxis(first, last + 1, 48.0, 1096.0, first)


def _even(numbers: Iterable[int]) -> int:
    """The even number from the largest one on, so that the level in the middle is a whole one."""
    most = max(numbers, default=0)
    return max(most + most % 2, 2)


def _ticks(report: ScaleDownReport, bottom: float) -> list[Shape]:
    axis = _axis(report)
    first, last = int(axis.first), int(axis.last)
    step = 120 if last - first > 12 * 60 else 30
    minutes = range(-(-first // step) * step, last + 1, step)
    return chart.ticks(((axis.x(minute), _clock(minute)) for minute in minutes), bottom)


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
