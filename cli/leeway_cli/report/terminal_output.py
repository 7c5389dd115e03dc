"""Prints a report on the terminal."""

from collections import Counter

from rich.console import Console
from rich.table import Table

from leeway_cli.report.html_page import headline
from leeway_cli.report.model import NodeReport, Outcome, StormReport
from leeway_cli.report.run import Run
from leeway_cli.report.summary import (
    drained_in_time,
    launch_lines,
    owner_of,
    summarize,
    to_cordon,
    to_ready,
)
from leeway_cli.report.timeline import short


def print_report(report: StormReport, run: Run, console: Console) -> None:
    """Print the headline, the table of nodes and the faults."""
    count = summarize(report)
    colour = "green" if report.good else "red"
    left = report.plan.warning - report.plan.late
    console.print(f"\n[bold {colour}]{headline(report)}[/]")
    console.print(
        f"[dim]{run.nodes} nodes, {run.pods} pods, {count.pods} of them to move. Each"
        f" warning arrived {report.plan.late:.0f} s late on purpose:\n{left:.0f} s were left until"
        " EC2 reclaims the instances. All times below start at the notice.[/]\n"
    )
    console.print(_table(report))
    for line in launch_lines(report):
        console.print(line, highlight=False)
    for unmanaged in report.unmanaged:
        if not unmanaged.faults:
            console.print(f"[dim]{unmanaged.instance} of another cluster: not changed.[/]")
    console.print(
        f"[dim]{count.refusals} evictions refused by budgets, {count.duplicates} duplicate"
        f" notices, {run.duration:.0f} s in total.[/]"
    )
    results = Counter(event.result for node in report.nodes for event in node.trace.leeway_events)
    reported = ", ".join(f"{result} {number} times" for result, number in results.items())
    console.print(f"[dim]Leeway reported: {reported or 'nothing'}.[/]")
    for fault in report.all_faults:
        console.print(f"[red]✗[/] {fault}", highlight=False)


def _table(report: StormReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column("")
    table.add_column("Node", no_wrap=True)
    table.add_column("Owner", no_wrap=True)
    for name in ("Notices", "Cordoned", "Moved", "Drained", "Spare", "Replaced"):
        table.add_column(name, justify="right", no_wrap=True)
    for node in report.nodes:
        table.add_row(*_row(node))
    return table


def _row(node: NodeReport) -> list[str]:
    trace = node.trace
    fine = not node.faults and not any(pod.evaluation.fault for pod in node.pods)
    moved = sum(
        1 for pod in node.moving if pod.evaluation.outcome in {Outcome.MOVED, Outcome.ENDED}
    )
    drained = node.drained_at if drained_in_time(node) else None
    since = trace.noticed_at
    return [
        "[green]✓[/]" if fine else "[red]✗[/]",
        short(trace.target.node),
        owner_of(trace.target),
        str(len(trace.notices)),
        _seconds(to_cordon(node)),
        f"{moved}/{len(node.moving)}",
        _seconds(None if drained is None or since is None else drained - since),
        _seconds(None if drained is None else trace.reclaim_at - drained),
        _seconds(to_ready(node)),
    ]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"
