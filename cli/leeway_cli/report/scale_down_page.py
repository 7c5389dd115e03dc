"""Renders the report of a simulated day as one self-contained HTML file."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from leeway_cli.report.html_page import page_environment
from leeway_cli.report.run import ScaleDownRun
from leeway_cli.report.scale_down import CAUSES, ScaleDownReport, cause_of
from leeway_cli.report.scale_down_text import headline
from leeway_cli.report.scale_up_page import Area, Level
from leeway_cli.report.time_axis import Tick
from leeway_cli.simulated_day.record import Moment

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


def render_scale_down(report: ScaleDownReport, run: ScaleDownRun) -> str:
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
