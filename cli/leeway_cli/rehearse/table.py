"""Prints a rehearsal on a terminal."""

from typing import TYPE_CHECKING

from leeway_cli.output import stdout_console
from leeway_cli.rehearse.report import COUNTS, Rehearsal
from leeway_cli.rehearse.words import losses, price, spread

if TYPE_CHECKING:
    from rich.console import Console

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
