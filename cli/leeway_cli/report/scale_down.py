"""The report of a simulated day: what giving nodes back saves, and what it moves.

Three days have the same pods: one in which Leeway gives nodes back, one in which it gives back only
empty nodes, and one in which no node is given back. Rendered as JSON, text and a page.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leeway.disruption.rules import Cause
from rich.console import Console
from rich.table import Table

from leeway_cli.report.output import Run, columns, page_environment, print_parts
from leeway_cli.report.scale_up import Area, Level
from leeway_cli.report.timeline import Tick
from leeway_cli.simulated_day.record import GivenBack, Moment, Record

CAUSES = {
    "empty": "no pods are left",
    "not-needed": "pods fit on other nodes",
    "replaced": "a cheaper node holds the pods",
}
"""Why nodes are given back in a simulated day: nothing drifts or expires in it."""


@dataclass(frozen=True)
class CauseSum:
    """All nodes that were given back for one cause. `saving` is what the decisions promised, in USD
    per hour."""

    cause: str
    nodes: int
    pods: int
    saving: float
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
    def good(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

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
        return tuple(self._causes())

    def _causes(self) -> Iterator[CauseSum]:
        for cause in CAUSES:
            own = [one for one in self.leeway.given_back if cause_of(one) == cause]
            if own:
                best = max(own, key=lambda one: one.saving)
                pods, saving = sum(one.pods for one in own), sum(one.saving for one in own)
                yield CauseSum(cause, len(own), pods, saving, best.reason)


def cause_of(one: GivenBack) -> str:
    """Return the cause of a return, as a key of CAUSES."""
    if one.cause is Cause.EMPTY:
        return "empty"
    return "replaced" if one.replaced else "not-needed"


def scale_down_as_data(report: ScaleDownReport, run: Run) -> dict[str, Any]:
    """Render the report. Times are minutes of the day, prices USD per hour, costs USD."""
    return {
        "good": report.good,
        "faults": list(report.faults),
        "simulated": True,
        "run": run.as_data(),
        "days": {
            "leeway": _day(report.leeway),
            "onlyEmpty": _day(report.only_empty),
            "never": _day(report.never),
        },
        "givenBack": [
            {
                "minute": one.minute,
                "node": one.node,
                "instanceType": one.kind[0],
                "capacityType": one.kind[1],
                "cause": cause_of(one),
                "pods": one.pods,
                "savingPerHour": round(one.saving, 6),
                "reason": one.reason,
            }
            for one in report.leeway.given_back
        ],
        "minutes": [
            {
                "minute": one.minute,
                "pricePerHour": round(one.price, 6),
                "lowerBoundPerHour": round(one.bound, 6),
                "nodes": one.nodes,
                "pods": one.pods,
                "podsPending": one.pending,
            }
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


SIMULATED = (
    "This day is simulated: no sandbox and no AWS. The decisions are those of the deployed"
    " functions; pods, scheduler and prices are a model."
)


def headline(report: ScaleDownReport) -> str:
    """Return the result of the day in one sentence."""
    leeway, never = report.leeway.dollars, report.never.dollars
    result = f"A day for {leeway:.2f} instead of {never:.2f} USD"
    return f"{result}, with faults." if report.faults else f"{result}: {report.saved:.0%} less."


def print_scale_down(report: ScaleDownReport, run: Run, console: Console) -> None:
    """Print the headline, the days side by side, the causes and the faults."""
    took = f"[dim]{run.duration:.0f} s in total.[/]"
    tables: list[Table | str] = [_days(report), "", _causes(report), took]
    print_parts(console, headline(report), SIMULATED, tables, report.faults)


def _days(report: ScaleDownReport) -> Table:
    figures = ("USD>", "Over bound>", "Node-hours>", "Given back>", "Pods moved>", "Launched>")
    table = columns("Day", *figures)
    for name, record in report.days:
        over = f"{record.dollars / record.bound - 1:.0%}" if record.bound else "–"
        counts = (len(record.given_back), record.moved, len(record.launched))
        money = (f"{record.dollars:.2f}", over, f"{record.node_hours:,.0f}")
        table.add_row(name, *money, *(f"{count:,}" for count in counts))
    table.add_row("lower bound of any nodes", f"{report.leeway.bound:.2f}", style="dim")
    return table


def _causes(report: ScaleDownReport) -> Table:
    table = columns("Given back, because", "Nodes>", "Pods moved>")
    for one in report.causes:
        table.add_row(CAUSES[one.cause], str(one.nodes), str(one.pods))
    return table


LEFT, RIGHT, TOP = 48.0, 1096.0, 24.0
EVERY = 3  # minutes between two points of a chart
BIN = 30  # minutes of a bar
MOST_KINDS = 9
MOST_REASONS = 12
OTHERS = "others"


@dataclass(frozen=True)
class Line:
    """A line of a chart. `kind` is its CSS class, `points` its points in SVG."""

    kind: str
    points: str


@dataclass(frozen=True)
class Bar:
    """A bar. `kind` is its CSS class, `title` its tooltip."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


@dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    kind: str
    label: str


@dataclass(frozen=True)
class Chart:
    """One chart of the day, `bottom` pixels high."""

    bottom: float
    levels: tuple[Level, ...]
    areas: tuple[Area, ...] = ()
    lines: tuple[Line, ...] = ()
    bars: tuple[Bar, ...] = ()
    keys: tuple[Key, ...] = ()


def render_scale_down(report: ScaleDownReport, run: Run) -> str:
    """Render the report of a run as a self-contained HTML document."""
    return (
        page_environment()
        .get_template("scale_down.html.j2")
        .render(
            report=report,
            run=run,
            headline=headline(report),
            faults=report.faults,
            causes=CAUSES,
            ticks=_ticks(report),
            price=price_chart(report),
            kinds=kinds_chart(report),
            moves=moves_chart(report),
            moved=moves_chart(report, of_pods=True),
            reasons=sorted(report.leeway.given_back, key=lambda one: -one.saving)[:MOST_REASONS],
            clock=_clock,
        )
    )


def price_chart(report: ScaleDownReport, bottom: float = 300.0) -> Chart:
    """Lay out the price per hour of Leeway's day, of the day without give-back, and the bound."""
    never, own = _thinned(report.never.moments), _thinned(report.leeway.moments)
    most = max((one.price for one in never + own), default=0.0) or 1.0
    x, y = _axis(report), _scale(most, bottom)
    leeway = [(x(one.minute), y(one.price)) for one in own]
    base = [(leeway[-1][0], bottom), (leeway[0][0], bottom)]
    return Chart(
        bottom,
        _levels(most, bottom, "{:.1f}"),
        areas=(Area("price", _points([*leeway, *base])),),
        lines=(
            Line("never", _points([(x(one.minute), y(one.price)) for one in never])),
            Line("bound", _points([(x(one.minute), y(one.bound)) for one in own])),
            Line("price", _points(leeway)),
        ),
    )


def kinds_chart(report: ScaleDownReport, bottom: float = 260.0) -> Chart:
    """Lay out the nodes by instance type and capacity type; the rarest are `others`."""
    moments = _thinned(report.leeway.moments)
    hours: Counter[tuple[str, str]] = Counter()
    for one in moments:
        hours.update(one.kinds)
    named = [kind for kind, _ in hours.most_common(MOST_KINDS)]
    most = _even(max((one.nodes for one in moments), default=0))
    x, y = _axis(report), _scale(most, bottom)
    areas, keys, lower = [], [], [0] * len(moments)
    for number, kind in enumerate([*named, None]):
        counts = [_count(one, kind, named) for one in moments]
        upper = [low + count for low, count in zip(lower, counts, strict=True)]
        there = [(x(one.minute), y(level)) for one, level in zip(moments, upper, strict=True)]
        back = [(x(one.minute), y(level)) for one, level in zip(moments, lower, strict=True)]
        areas.append(Area(f"k{number}", _points([*there, *reversed(back)])))
        label = OTHERS if kind is None else f"{kind[0]}, {kind[1]}"
        keys.append(Key(f"k{number}", label))
        lower = upper
    return Chart(bottom, _levels(most, bottom, "{:.0f}"), tuple(areas), keys=tuple(keys))


def moves_chart(report: ScaleDownReport, of_pods: bool = False, bottom: float = 190.0) -> Chart:
    """Lay out the nodes that were given back in each half hour, or the pods that moved, by
    cause."""
    nodes: dict[int, Counter[str]] = {}
    pods: dict[int, Counter[str]] = {}
    for one in report.leeway.given_back:
        at, cause = one.minute // BIN, cause_of(one)
        nodes.setdefault(at, Counter())[cause] += 1
        pods.setdefault(at, Counter())[cause] += one.pods
    counts = pods if of_pods else nodes
    most = _even(max((each.total() for each in counts.values()), default=0))
    x, y = _axis(report), _scale(most, bottom)
    bars: list[Bar] = []
    for at, by_cause in sorted(counts.items()):
        sums = f"{nodes[at].total()} nodes, {pods[at].total()} pods moved"
        title = f"{_clock(at * BIN)}: {sums}"
        bars += _stack(by_cause, x(at * BIN) + 2, x((at + 1) * BIN) - 2, y, title)
    return Chart(bottom, _levels(most, bottom, "{:.0f}"), bars=tuple(bars))


def _stack(
    by_cause: Counter[str], left: float, right: float, y: Callable[[float], float], title: str
) -> Iterator[Bar]:
    lower = 0
    for cause in CAUSES:
        if count := by_cause[cause]:
            top, low = y(lower + count), y(lower)
            width, height = round(right - left, 1), round(low - top, 1)
            yield Bar(round(left, 1), top, width, height, f"why-{cause}", title)
            lower += count


def _count(moment: Moment, kind: tuple[str, str] | None, named: Sequence[tuple[str, str]]) -> int:
    if kind is not None:
        return moment.kinds.get(kind, 0)
    return moment.nodes - sum(moment.kinds.get(each, 0) for each in named)


def _thinned(moments: Sequence[Moment]) -> list[Moment]:
    return [*moments[::EVERY], moments[-1]]


def _axis(report: ScaleDownReport) -> Callable[[int], float]:
    first, last = report.leeway.moments[0].minute, report.leeway.moments[-1].minute
    span = max(last + 1 - first, 1)
    return lambda minute: round(LEFT + (minute - first) / span * (RIGHT - LEFT), 1)


def _scale(most: float, bottom: float) -> Callable[[float], float]:
    return lambda value: round(bottom - value / most * (bottom - TOP), 1)


def _levels(most: float, bottom: float, label: str) -> tuple[Level, ...]:
    y = _scale(most, bottom)
    return tuple(Level(y(most * part), label.format(most * part)) for part in (0, 0.5, 1))


def _even(most: int) -> int:
    """The even number from `most` on, so that the level in the middle is a whole number."""
    return max(most + most % 2, 2)


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def _ticks(report: ScaleDownReport) -> tuple[Tick, ...]:
    x = _axis(report)
    first, last = report.leeway.moments[0].minute, report.leeway.moments[-1].minute
    step = 120 if last - first > 12 * 60 else 30
    return tuple(
        Tick(x(minute), _clock(minute))
        for minute in range(-(-first // step) * step, last + 2, step)
    )


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
