"""Lays out the picture of a rehearsal: a row for each workload, its Ready pods over time.

Coordinates are in the pixels of the SVG.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from leeway.policy.rules import SPOT_WARNING

from leeway_cli.rehearse.rounds import SHOWN_SECONDS, WorkloadResult
from leeway_cli.rehearse.words import number, spread
from leeway_cli.report.time_axis import GUTTER, TOP, WIDTH, Segment, Tick, TimeAxis

_RIGHT = 178.0  # room for the numbers of a row
_ROW, _CHART = 52.0, 32.0
_LONGEST_NAME = 34
MOST_ROWS = 40
_AXIS = TimeAxis(first=0, last=SHOWN_SECONDS, left=GUTTER, right=WIDTH - _RIGHT, zero=0)


@dataclass(frozen=True)
class Row:
    """One workload. `before`, `ready` and `fewest` are the points of areas: before the warning, in
    half of the rounds and in every round; `least` is the height of its budget, None without one.
    `short` are the times at which it is below its budget, or has no Ready pod."""

    y: float
    base: float
    name: str
    about: str
    full: str
    before: str
    ready: str
    fewest: str
    least: float | None
    short: tuple[Segment, ...]
    numbers: str
    detail: str


@dataclass(frozen=True)
class Chart:
    """The whole picture. `reclaim` is where EC2 ends the nodes."""

    width: float
    height: float
    left: float
    right: float
    reclaim: float
    ticks: tuple[Tick, ...]
    rows: tuple[Row, ...]
    more: int


def lay_out(workloads: Sequence[WorkloadResult], rounds: int) -> Chart:
    """Lay out the workloads, the worst first."""
    rows = tuple(
        _row(one, TOP + place * _ROW, rounds) for place, one in enumerate(workloads[:MOST_ROWS])
    )
    return Chart(
        width=WIDTH,
        height=TOP + len(rows) * _ROW + 12,
        left=_AXIS.left,
        right=_AXIS.right,
        reclaim=_AXIS.x(SPOT_WARNING.total_seconds()),
        ticks=_AXIS.ticks,
        rows=rows,
        more=max(0, len(workloads) - MOST_ROWS),
    )


def _row(one: WorkloadResult, y: float, rounds: int) -> Row:
    base = y + _CHART
    most = max(one.before, *one.ready, *one.fewest, one.least or 0, 1)
    unit = _CHART / most
    full = f"{one.workload.namespace}/{one.workload.name}"
    lost = spread(one.lost, rounds)
    return Row(
        y=y,
        base=base,
        name=full if len(full) <= _LONGEST_NAME else f"{full[: _LONGEST_NAME - 1]}…",
        about=f"{one.workload.kind} · {lost} of {one.before} lost",
        full=one.workload.key,
        before=_area([one.before] * (SHOWN_SECONDS + 1), base, unit),
        ready=_area(one.ready, base, unit),
        fewest=_area(one.fewest, base, unit),
        least=None if one.least is None else round(base - one.least * unit, 1),
        short=tuple(_short(one, base)),
        numbers=f"{number(one.lowest.worst)} of {one.before} Ready",
        detail=_detail(one),
    )


def _detail(one: WorkloadResult) -> str:
    if one.back is None:
        return "not Ready again"
    if one.none_ready.worst >= 1:
        return f"none Ready for {number(one.none_ready.worst)} s"
    if one.below_budget.worst >= 1:
        return f"below its budget for {number(one.below_budget.worst)} s"
    return f"complete after {number(one.back.worst)} s"


def _area(numbers: Sequence[int], base: float, unit: float) -> str:
    """Return the points of a polygon that has steps, one for each change."""
    points = [(_AXIS.left, base)]
    for second, count in enumerate(numbers):
        height = round(base - count * unit, 1)
        if points[-1][1] != height or second == 0:
            points += [(_AXIS.x(second), points[-1][1]), (_AXIS.x(second), height)]
    end = _AXIS.x(len(numbers) - 1)
    points += [(end, points[-1][1]), (end, base)]
    return " ".join(f"{x},{y}" for x, y in points)


def _short(one: WorkloadResult, base: float) -> list[Segment]:
    """Return the times at which the worst round has too few Ready pods."""
    least = max(one.least or 0, 1 if one.before else 0)
    found: list[Segment] = []
    begin: int | None = None
    for second, count in enumerate([*one.fewest, least]):
        if count < least and begin is None:
            begin = second
        elif count >= least and begin is not None:
            end = min(second, SHOWN_SECONDS)
            title = f"fewer than {least} Ready from {begin} s to {end} s"
            found.append(_AXIS.segment(begin, end, "short", title))
            begin = None
    return found
