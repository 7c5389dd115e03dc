"""Renders the report of a scale-up as one self-contained HTML file."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leeway_cli.report.html_page import page_environment
from leeway_cli.report.run import ScaleUpRun
from leeway_cli.report.scale_up import Point, ScaleUpReport
from leeway_cli.report.scale_up_text import headline, price_text
from leeway_cli.report.summary import shortage_text
from leeway_cli.report.time_axis import Tick, TimeAxis

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


def render_scale_up(report: ScaleUpReport, run: ScaleUpRun) -> str:
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
