"""Renders a rehearsal as JSON, for a terminal and as a page with pictures.

The picture has a row for each workload, with its Ready pods over time. Coordinates are in the
pixels of the SVG.
"""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from leeway.policy.rules import SPOT_WARNING
from rich.console import Console

from leeway_cli.html_templates import environment
from leeway_cli.output import stdout_console
from leeway_cli.rehearse.cluster import Cluster, Pace
from leeway_cli.rehearse.findings import Finding, find
from leeway_cli.rehearse.room import Launch
from leeway_cli.rehearse.rounds import (
    SHOWN_SECONDS,
    Result,
    Spread,
    WorkloadResult,
    combine,
    counts,
)
from leeway_cli.rehearse.storm import Fate, Storm
from leeway_cli.report.timeline import GUTTER, TOP, WIDTH, Segment, Tick, TimeAxis
from leeway_cli.terminal import ProgressBars


def losses(lose: Sequence[str]) -> str:
    """Render the options --lose."""
    return ", ".join(lose)


def number(value: float) -> str:
    """Render a number without needless decimals."""
    return f"{value:.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def price(found: Spread | None, rounds: int) -> str:
    """Render the price of launched nodes."""
    if found is None:
        return "price unknown"
    worst = f"{found.worst:.4f} USD per hour"
    if rounds == 1 or found.median == found.worst:
        return worst
    return f"{found.median:.4f} – {worst}"


def seconds(value: float | None) -> str:
    """Render a duration; None: never."""
    return "never" if value is None else f"{number(value)} s"


def spread(found: Spread | None, rounds: int, unit: str = "") -> str:
    """Render the median and the worst, as one number if they are equal or if there is one round."""
    if found is None:
        return "never"
    worst = f"{number(found.worst)}{unit}"
    if rounds == 1 or number(found.median) == number(found.worst):
        return worst
    return f"{number(found.median)} – {worst}"


COUNTS = {
    "pods": "pods to move",
    "evicted": "evicted",
    "deleted": "deleted in spite of a budget",
    "cut": "with a shortened grace period",
    "died": "still running when EC2 ends the node",
    "notReadyAgain": "without a successor that is Ready",
    "withoutPlace": "for which no node has room",
    "launched": "nodes launched",
}
"""What is counted in a round, in the order of the report."""


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal with its options. `priced`: the prices of launches are known."""

    result: Result
    findings: tuple[Finding, ...]
    pace: Pace
    lose: tuple[str, ...]
    seed: int
    source: str
    priced: bool

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        storms: Sequence[Storm],
        pace: Pace,
        lose: Sequence[str],
        seed: int,
        source: str,
        priced: bool,
    ) -> "Rehearsal":
        """Combine the rounds, and find what to change."""
        result = combine(cluster, storms)
        return cls(result, find(cluster, storms, pace), pace, tuple(lose), seed, source, priced)

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.result.storms)

    @property
    def price(self) -> Spread | None:
        """The price of launched nodes in USD per hour; None if it is not known."""
        prices = [storm.placements.price for storm in self.result.storms]
        known = [price for price in prices if price is not None]
        return Spread.of(known) if self.priced and len(known) == len(prices) else None


def as_data(found: Rehearsal) -> dict[str, Any]:
    """Render a rehearsal as JSON. Durations are seconds from the warning, null for never."""
    result, worst = found.result, found.result.worst
    return {
        "source": found.source,
        "nodes": len(result.cluster.nodes),
        "pods": len(result.cluster.pods),
        "lose": list(found.lose),
        "rounds": found.rounds,
        "seed": found.seed,
        "assumptions": asdict(found.pace),
        "counts": {name: asdict(result.spread(name)) for name in COUNTS},
        "pricePerHour": asdict(found.price) if found.price else None,
        "workloads": [_workload(one) for one in result.workloads],
        "findings": [_finding(one) for one in found.findings],
        "worstRound": {
            "lost": sorted(worst.lost),
            "onExistingNodes": worst.placements.on_existing,
            "launches": [_launch(one) for one in worst.placements.launches],
            "withoutPlace": {
                pod: asdict(reason) for pod, reason in sorted(worst.placements.without.items())
            },
            "pods": [_fate(one) for one in worst.fates if not one.left],
        },
    }


def _workload(one: WorkloadResult) -> dict[str, Any]:
    return {
        "workload": one.workload.key,
        "replicas": one.workload.replicas,
        "ready": one.before,
        "mustBeHealthy": one.least,
        "managedBy": one.workload.manager or None,
        "lost": asdict(one.lost),
        "lowestReady": asdict(one.lowest),
        "belowBudget": asdict(one.below_budget),
        "noneReady": asdict(one.none_ready),
        "readyAgain": asdict(one.back) if one.back else None,
        "readyBySecond": {"median": list(one.ready), "worst": list(one.fewest)},
    }


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "code": one.reason.code,
        "message": one.reason.message,
        "object": one.change.object,
        "field": one.change.field,
        "value": one.change.value or None,
        "managedBy": one.change.manager or None,
        "command": one.change.command or None,
        "pods": list(one.pods),
        "rounds": one.rounds,
    }


def _launch(one: Launch) -> dict[str, Any]:
    return {
        "pool": one.pool or None,
        "insteadOf": one.instead_of or None,
        "instanceTypes": list(one.instance_types),
        "zones": list(one.zones),
        "capacityType": one.capacity_type or None,
        "pricePerHour": one.price,
        "pods": list(one.pods),
    }


def _fate(one: Fate) -> dict[str, Any]:
    progress = one.progress
    return {
        "pod": one.pod,
        "node": one.node,
        "workload": one.workload,
        "stage": progress.stage.value if progress else None,
        "method": progress.method.value if progress and progress.method else None,
        "reason": asdict(progress.reason) if progress else None,
        "warning": progress.warning if progress else "",
        "gracePeriodSeconds": one.granted,
        "endedAt": one.ended_at,
        "readyAgainAt": one.ready_at,
        "shortened": one.cut,
        "diedWithNode": one.died,
        "returned": one.returned,
    }


_MOST_WORKLOADS = 40


def print_rehearsal(found: Rehearsal) -> None:
    """Print the counts, the workloads, and the findings with the lines that change them."""
    console = stdout_console()
    _print_counts(found, console)
    _print_workloads(found, console)
    _print_findings(found, console)


def _say(console: "Console", text: str) -> None:
    console.print(text, soft_wrap=True, markup=False)


def _print_counts(found: Rehearsal, console: "Console") -> None:
    result = found.result
    lost = result.spread("pods")
    nodes = len(result.worst.lost)
    _say(
        console,
        f"Lost: {losses(found.lose)}, which is {nodes} of {len(result.cluster.nodes)} nodes"
        + (f", in {found.rounds} rounds with seed {found.seed}" if found.rounds > 1 else ""),
    )
    if found.rounds > 1:
        _say(console, "Two numbers are those of the median and of the worst round.")
    _say(console, f"{spread(lost, found.rounds)} pods have to move. Of these:")
    for name, what in COUNTS.items():
        if name not in {"pods", "launched"}:
            _say(console, f"  {spread(result.spread(name), found.rounds):>10} {what}")
    launched = spread(result.spread("launched"), found.rounds)
    on_existing = result.worst.placements.on_existing
    _say(console, f"Room: {on_existing} pods fit on the nodes that stay.")
    _say(console, f"Launched: {launched} nodes, {price(found.price, found.rounds)}.")


def _print_workloads(found: Rehearsal, console: "Console") -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    titles = ("WORKLOAD", "READY", "LEAST", "LOST", "LOWEST", "BELOW BUDGET", "NONE READY", "BACK")
    for title in titles:
        justify = "left" if title == "WORKLOAD" else "right"
        table.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    rounds = found.rounds
    for one in found.result.workloads[:_MOST_WORKLOADS]:
        table.add_row(
            Text(one.workload.key),
            str(one.before),
            "-" if one.least is None else str(one.least),
            spread(one.lost, rounds),
            spread(one.lowest, rounds),
            "-" if one.least is None else spread(one.below_budget, rounds, " s"),
            spread(one.none_ready, rounds, " s"),
            spread(one.back, rounds, " s"),
        )
    console.print()
    console.print(table)
    more = len(found.result.workloads) - _MOST_WORKLOADS
    if more > 0:
        _say(console, f"and {more} more workloads; -o json lists all")


def _print_findings(found: Rehearsal, console: "Console") -> None:
    console.print()
    if not found.findings:
        _say(console, "Nothing to change: every pod ends in time and is Ready again elsewhere.")
    for one in found.findings:
        often = f" (in {one.rounds} of {found.rounds} rounds)" if found.rounds > 1 else ""
        _say(console, f"{one.reason.code}: {one.reason.message}{often}")
        manager = f", written by {one.change.manager}" if one.change.manager else ""
        _say(console, f"  {one.change.line}  ({one.change.object}{manager})")
        if one.change.command:
            _say(console, f"  {one.change.command}")


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


_MOST_PODS = 400
"""Rows of the table of pods: a page of more is slow to open, and -o json lists all."""


def render_rehearsal(found: Rehearsal) -> str:
    """Render the page of a rehearsal."""
    pages = environment()
    pages.filters["number"] = number
    pages.filters["seconds"] = seconds
    worst = found.result.worst
    moving = [fate for fate in worst.fates if not fate.left]
    return pages.get_template("rehearsal.html.j2").render(
        found=found,
        result=found.result,
        worst=worst,
        counts=counts(worst),
        names=COUNTS,
        chart=lay_out(found.result.workloads, found.rounds),
        headline=headline(found),
        faults=(),
        lost=losses(found.lose),
        command=_command(found),
        pods=moving[:_MOST_PODS],
        more_pods=max(0, len(moving) - _MOST_PODS),
        below=sum(one.below_budget.worst >= 1 for one in found.result.workloads),
        stopped=sum(one.none_ready.worst >= 1 for one in found.result.workloads),
        price=price(found.price, found.rounds),
        spread=lambda value, unit="": spread(value, found.rounds, unit),
    )


def headline(found: Rehearsal) -> str:
    """Return the result of a rehearsal in one sentence."""
    workloads = found.result.workloads
    hurt = sum(
        one.back is None or one.none_ready.worst >= 1 or one.below_budget.worst >= 1
        for one in workloads
    )
    what = f"{losses(found.lose)} lost"
    if not workloads:
        return f"{what}: no pod has to move."
    if not hurt:
        return f"{what}: every workload keeps running within its budget."
    return f"{what}: {hurt} of {len(workloads)} workloads stop or fall below their budgets."


def _command(found: Rehearsal) -> str:
    words = ["leeway", "rehearse"]
    for one in found.lose:
        words += ["--lose", one]
    if found.rounds > 1:
        words += ["--rounds", str(found.rounds), "--seed", str(found.seed)]
    return shlex.join(words)


class RoundProgress(ProgressBars):
    """A bar of the rounds; nothing elsewhere, because a rehearsal takes seconds."""

    def __init__(self, console: Console, rounds: int) -> None:
        super().__init__(console, "{task.completed} of {task.total} rounds")
        self._task = self._bars.add_task("rehearsing", total=rounds)

    def show(self, done: int) -> None:
        """Show how many rounds are done."""
        self._bars.update(self._task, completed=done)
