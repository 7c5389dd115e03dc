"""Renders a rehearsal as JSON, for a terminal and as a page with pictures."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leeway.policy.rules import SPOT_WARNING
from leeway.reasons import counted, some
from rich.console import Console
from rich.text import Text

from leeway_cli.output import as_json, picked, stdout_console, table
from leeway_cli.rehearse.cluster import Cluster, Pace
from leeway_cli.rehearse.findings import Finding, find
from leeway_cli.rehearse.rounds import (
    SHOWN_SECONDS,
    Result,
    Spread,
    WorkloadResult,
    combine,
    counts,
)
from leeway_cli.rehearse.storm import Fate, Storm
from leeway_cli.report import chart
from leeway_cli.report.chart import GUTTER, TOP, WIDTH, Figure, Shape, TimeAxis
from leeway_cli.report.page import Cell, Column, Page, Row, Table, Tile, Tiles
from leeway_cli.terminal import ProgressBars


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
        planned: Mapping[str, str],
    ) -> "Rehearsal":
        """Combine the rounds, and find what to change. `planned`: see `find`."""
        result = combine(cluster, storms)
        findings = find(cluster, storms, pace, planned)
        return cls(result, findings, pace, tuple(lose), seed, source, priced)

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
        "assumptions": as_json(found.pace),
        "counts": {name: as_json(result.spread(name)) for name in COUNTS},
        "pricePerHour": as_json(found.price),
        "workloads": [_workload(one) for one in result.workloads],
        "findings": [
            picked(one, "code", "message", "pods", "rounds") | as_json(one.change)
            for one in found.findings
        ],
        "worstRound": {
            "lost": sorted(worst.lost),
            "onExistingNodes": worst.placements.on_existing,
            "launches": as_json(worst.placements.launches),
            "withoutPlace": as_json(dict(sorted(worst.placements.without.items()))),
            "pods": [as_json(one) for one in worst.fates if not one.left],
        },
    }


def _workload(one: WorkloadResult) -> dict[str, Any]:
    return {
        **as_json(one),
        "workload": one.workload.key,
        "replicas": one.workload.replicas,
        "manager": one.workload.manager or None,
    }


_MOST_WORKLOADS = 40


def print_rehearsal(found: Rehearsal) -> None:
    """Print the counts, the workloads, and the findings with the lines that change them."""
    console = stdout_console()
    _print_counts(found, console)
    _print_workloads(found, console)
    _print_findings(found, console)


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, markup=False)


def _print_counts(found: Rehearsal, console: Console) -> None:
    result = found.result
    lost = result.spread("pods")
    nodes = len(result.worst.lost)
    _say(
        console,
        f"Lost: {', '.join(found.lose)}, which is {nodes} of {len(result.cluster.nodes)} nodes"
        + (
            f", in {counted(found.rounds, 'round')} with seed {found.seed}"
            if found.rounds > 1
            else ""
        ),
    )
    if found.rounds > 1:
        _say(console, "Two numbers are those of the median and of the worst round.")
    _say(console, f"Pods that have to move: {spread(lost, found.rounds)}. Of these:")
    for name, what in COUNTS.items():
        if name not in {"pods", "launched"}:
            _say(console, f"  {spread(result.spread(name), found.rounds):>10} {what}")
    launched = spread(result.spread("launched"), found.rounds)
    on_existing = result.worst.placements.on_existing
    _say(console, f"Pods for which the nodes that stay have room: {on_existing}.")
    _say(console, f"Launched nodes: {launched}, {price(found.price, found.rounds)}.")


def _print_workloads(found: Rehearsal, console: Console) -> None:
    figures = ("READY", "LEAST", "LOST", "LOWEST", "BELOW BUDGET", "NONE READY", "BACK")
    rows = table("WORKLOAD", *figures, right=figures)
    for one in found.result.workloads[:_MOST_WORKLOADS]:
        rows.add_row(Text(one.workload.key), *_cells(found, one))
    console.print()
    console.print(rows)
    more = len(found.result.workloads) - _MOST_WORKLOADS
    if more > 0:
        _say(console, f"and {counted(more, 'more workload')}; -o json lists all")


def _cells(found: Rehearsal, one: WorkloadResult) -> tuple[str, ...]:
    """Render the numbers of a workload."""
    rounds = found.rounds
    return (
        str(one.before),
        "-" if one.least is None else str(one.least),
        spread(one.lost, rounds),
        spread(one.lowest, rounds),
        "-" if one.least is None else spread(one.below_budget, rounds, " s"),
        spread(one.none_ready, rounds, " s"),
        spread(one.back, rounds, " s"),
    )


def _print_findings(found: Rehearsal, console: Console) -> None:
    console.print()
    if not found.findings:
        _say(console, "Nothing to change: every pod ends in time and is Ready again elsewhere.")
    for one in found.findings:
        often = f" (in {one.rounds} of {found.rounds} rounds)" if found.rounds > 1 else ""
        _say(console, f"{one.code}: {one.message}{often}")
        manager = f", written by {one.change.manager}" if one.change.manager else ""
        _say(console, f"  {one.change.line}  ({one.change.object}{manager})")
        if one.change.command:
            _say(console, f"  {one.change.command}")


_RIGHT = 178.0  # room for the numbers of a row
_ROW, _CHART = 52.0, 32.0
_LONGEST_NAME = 34
_AXIS = TimeAxis(first=0, last=SHOWN_SECONDS, left=GUTTER, right=WIDTH - _RIGHT, zero=0)
_MOST_PODS = 400
"""Rows of the table of pods: a page of more is slow to open, and -o json lists all."""


def rehearsal_page(found: Rehearsal) -> Page:
    """Return the sections of the page of a rehearsal."""
    result, rounds, pace = found.result, found.rounds, found.pace
    nodes = f"{len(result.worst.lost)} of the {len(result.cluster.nodes)} nodes"
    drawn = (
        f" The nodes were drawn {rounds} times; two numbers are those of the median and of the "
        "worst round."
    )
    stop = "at the end of its grace period"
    if pace.pod_stop is not None:
        stop = f"{seconds(pace.pod_stop)} after its SIGTERM"
    return Page(
        headline=headline(found),
        lede=f"A rehearsal: nothing was changed. EC2 interrupts {nodes} at the same moment, with "
        f"two minutes of warning, and Leeway drains them.{drawn if rounds > 1 else ''}",
        sections=[
            _tiles(found),
            _picture(found),
            _changes(found),
            _workloads(found),
            _launches(found),
            _pods(found),
        ],
        source=f"Assumed: a pod ends {stop}; a new pod is Ready as fast as the fastest pod of its "
        f"workload was, or after {seconds(pace.pod_start)}; a node that is launched is Ready "
        f"{seconds(pace.node_start)} after the warning.",
        run=f"{_command(found)} · {found.source} · {result.cluster.read_at:%Y-%m-%d %H:%M} UTC",
    )


def _tiles(found: Rehearsal) -> Tiles:
    result, worst = found.result, found.result.worst
    moving, without = result.spread("pods"), result.spread("withoutPlace")
    launched = spread(result.spread("launched"), found.rounds)
    below = sum(one.below_budget.worst >= 1 for one in result.workloads)
    stopped = sum(one.none_ready.worst >= 1 for one in result.workloads)
    deleted = f"{counts(worst)['deleted']} in spite of a budget, in the worst round"
    fit = f"{worst.placements.on_existing} fit on the nodes that stay"
    workloads, long = len(result.workloads), "for a second or more, in the worst round"
    no_room = "pods that no node has room for"
    return Tiles(
        [
            Tile(spread(moving, found.rounds), None, "pods have to move", deleted),
            Tile(below, workloads, "workloads below their budget", long, not below),
            Tile(stopped, workloads, "workloads without a Ready pod", long, not stopped),
            Tile(spread(without, found.rounds), None, no_room, fit, without.worst == 0),
            Tile(launched, None, "nodes launched", price(found.price, found.rounds)),
        ]
    )


def _picture(found: Rehearsal) -> Figure:
    """Draw a row for each workload with its Ready pods over time, the worst first."""
    workloads = found.result.workloads[:_MOST_WORKLOADS]
    height = TOP + len(workloads) * _ROW + 12
    several = found.rounds > 1
    legend: list[tuple[str | Shape, str]] = [
        ("r fewest", "Ready in every round" if several else "Ready"),
        *([("r median", "Ready in half of the rounds")] if several else []),
        ("r before", "missing"),
        (chart.path("least", "M0 6h12"), "least that the budget asks for"),
        ("r short", "fewer than that, or none"),
    ]
    reclaim, ends = _AXIS.x(SPOT_WARNING.total_seconds()), "EC2 ends the nodes"
    shapes = [
        *chart.ticks(_AXIS.ticks, height - 12, "zero"),
        *(
            chart.group("lane", _row(one, TOP + place * _ROW, found.rounds), one.workload.key)
            for place, one in enumerate(workloads)
        ),
        chart.line("limit", reclaim, 20, reclaim, height - 12, ends),
        chart.label("limit-label", reclaim - 6, height - 2, ends, "end"),
    ]
    more = len(found.result.workloads) - len(workloads)
    return Figure(
        "Ready pods of each workload, second by second",
        "How many pods of each workload are Ready in the two minutes after the warning and after "
        "them",
        legend,
        shapes,
        height,
        [f"and {counted(more, 'more workload')} in the table below"] if more else [],
    )


def _row(one: WorkloadResult, y: float, rounds: int) -> Iterator[Shape]:
    base = y + _CHART
    unit = _CHART / max(one.before, *one.ready, *one.fewest, one.least or 0, 1)
    name = f"{one.workload.namespace}/{one.workload.name}"
    name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    lost = f"{one.workload.kind} · {spread(one.lost, rounds)} of {one.before} lost"
    yield chart.label("name", 0, y + 14, name)
    yield chart.label("quiet", 0, y + 29, lost)
    yield chart.area("r before", _area([one.before] * (SHOWN_SECONDS + 1), base, unit))
    yield chart.area("r median", _area(one.ready, base, unit))
    yield chart.area("r fewest", _area(one.fewest, base, unit))
    if one.least is not None:
        least = round(base - one.least * unit, 1)
        yield chart.path("least", f"M{_AXIS.left} {least}H{_AXIS.right}")
    short = [*_short(one, base)]
    yield from short
    ready = f"{number(one.lowest.worst)} of {one.before} Ready"
    yield chart.label("bad" if short else "", _AXIS.right + 12, y + 14, ready)
    yield chart.label("quiet", _AXIS.right + 12, y + 29, _detail(one))


def _detail(one: WorkloadResult) -> str:
    if one.back is None:
        return "not Ready again"
    if one.none_ready.worst >= 1:
        return f"none Ready for {number(one.none_ready.worst)} s"
    if one.below_budget.worst >= 1:
        return f"below its budget for {number(one.below_budget.worst)} s"
    return f"complete after {number(one.back.worst)} s"


def _area(numbers: Sequence[int], base: float, unit: float) -> list[tuple[float, float]]:
    """Return the points of a polygon that has steps, one for each change."""
    points = [(_AXIS.left, base)]
    for second, count in enumerate(numbers):
        height = round(base - count * unit, 1)
        if points[-1][1] != height or second == 0:
            points += [(_AXIS.x(second), points[-1][1]), (_AXIS.x(second), height)]
    end = _AXIS.x(len(numbers) - 1)
    return [*points, (end, points[-1][1]), (end, base)]


def _short(one: WorkloadResult, base: float) -> Iterator[Shape]:
    """Draw the times at which the worst round has too few Ready pods."""
    least = max(one.least or 0, 1 if one.before else 0)
    begin: int | None = None
    for second, count in enumerate([*one.fewest, least]):
        if count < least and begin is None:
            begin = second
        elif count >= least and begin is not None:
            end = min(second, SHOWN_SECONDS)
            x, width = _AXIS.span(begin, end)
            title = f"fewer than {least} Ready from {begin} s to {end} s"
            yield chart.rect("r short", x, base + 2, width, 4, title)
            begin = None


def _changes(found: Rehearsal) -> Table:
    several = found.rounds > 1
    rows: list[Row] = []
    for one in found.findings:
        manager = f", written by {one.change.manager}" if one.change.manager else ""
        change = Cell(one.change.line, f"{one.change.object}{manager}", "code", one.change.command)
        often = [f"{one.rounds} of {found.rounds}"] if several else []
        rows.append((Cell(one.code, one.message), change, *often))
    nothing = "Nothing: every pod ends in time and is Ready again elsewhere."
    columns = [Column("Finding", "half"), Column("The line that changes it", "half")]
    return Table(
        [*columns, *(["Rounds>"] if several else [])],
        rows,
        "What to change",
        [] if rows else [nothing],
    )


def _workloads(found: Rehearsal) -> Table:
    figures = ("Ready before>", "Least by budget>", "Pods lost>", "Lowest Ready>")
    times = ("Below budget>", "None Ready>", "Complete after>")
    rows: list[Row] = []
    for one in found.result.workloads:
        name = f"{one.workload.namespace}/{one.workload.name}"
        rows.append((Cell(name, one.workload.kind), *_cells(found, one)))
    return Table((Column("Workload", ""), *figures, *times), rows, "Workload by workload")


def _launches(found: Rehearsal) -> Table:
    figures = ("In place of", "Group or pool", "Types", "Zones", "Capacity", "USD per hour>")
    rows = [
        (
            one.instead_of or "pods without room",
            one.pool or "–",
            some(one.instance_types) or "–",
            ", ".join(one.zones) or "–",
            one.capacity_type or "–",
            "unknown" if one.price_per_hour is None else f"{one.price_per_hour:.4f}",
        )
        for one in found.result.worst.placements.launches
    ]
    title = "The worst round: what is launched" if found.rounds > 1 else "What is launched"
    return Table(figures, rows, title)


def _pods(found: Rehearsal) -> Table:
    worst = found.result.worst
    moving = [fate for fate in worst.fates if not fate.left]
    lines = [f"Lost nodes: {', '.join(sorted(worst.lost))}"]
    if (more := len(moving) - _MOST_PODS) > 0:
        lines.append(f"and {counted(more, 'more pod')}: -o json lists all")
    figures = ("Outcome", "Ended after>", "Grace period>", "Successor Ready after>")
    return Table(
        (Column("Pod", ""), "Node", *figures, Column("Reason", "")),
        [_pod(one) for one in moving[:_MOST_PODS]],
        "The worst round: pod by pod" if found.rounds > 1 else "Pod by pod",
        lines,
    )


def _pod(one: Fate) -> Row:
    kind, outcome = "moved", "moved in time"
    if one.died:
        kind, outcome = "fault", "runs until the end"
    elif one.returned:
        kind, outcome = "moved", "came back"
    elif one.ready_at is None:
        kind, outcome = "fault", "not Ready again"
    elif one.cut:
        kind, outcome = "cut", "cut short"
    reason = "The pod appeared after the drain."
    if one.progress:
        loss = f" Loss: {one.progress.warning}." if one.progress.warning else ""
        reason = f"{one.progress.reason.message}{loss}"
    return (
        one.pod,
        one.node,
        Cell(outcome, kind=kind),
        seconds(one.ended_at),
        "–" if one.granted is None else seconds(one.granted),
        "–" if one.returned else seconds(one.ready_at),
        reason,
    )


def headline(found: Rehearsal) -> str:
    """Return the result of a rehearsal in one sentence."""
    workloads = found.result.workloads
    hurt = sum(
        one.back is None or one.none_ready.worst >= 1 or one.below_budget.worst >= 1
        for one in workloads
    )
    what = f"{', '.join(found.lose)} lost"
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
