"""Sentences about a simulated day, and its report on the terminal."""

from rich.console import Console
from rich.table import Table

from leeway_cli.report.run import ScaleDownRun
from leeway_cli.report.scale_down import CAUSES, ScaleDownReport

SIMULATED = (
    "This day is simulated: no sandbox and no AWS. The decisions are those of the deployed"
    " functions; pods, scheduler and prices are a model."
)


def headline(report: ScaleDownReport) -> str:
    """Return the result of the day in one sentence."""
    leeway, never = report.leeway.dollars, report.never.dollars
    result = f"A day for {leeway:.2f} instead of {never:.2f} USD"
    return f"{result}, with faults." if report.faults else f"{result}: {report.saved:.0%} less."


def print_scale_down(report: ScaleDownReport, run: ScaleDownRun, console: Console) -> None:
    """Print the headline, the days side by side, the causes and the faults."""
    colour = "green" if report.good else "red"
    console.print(f"\n[bold {colour}]{headline(report)}[/]")
    console.print(f"[dim]{SIMULATED}[/]\n")
    console.print(_days(report))
    console.print()
    console.print(_causes(report))
    console.print(f"[dim]{run.duration:.0f} s in total.[/]")
    for fault in report.faults:
        console.print(f"[red]✗[/] {fault}", highlight=False)


def _days(report: ScaleDownReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column("Day", no_wrap=True)
    for name in ("USD", "Over bound", "Node-hours", "Given back", "Pods moved", "Launched"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, record in report.days:
        over = f"{record.dollars / record.bound - 1:.0%}" if record.bound else "–"
        counts = (len(record.given_back), record.moved, len(record.launched))
        money = (f"{record.dollars:.2f}", over, f"{record.node_hours:,.0f}")
        table.add_row(name, *money, *(f"{count:,}" for count in counts))
    table.add_row("lower bound of any nodes", f"{report.leeway.bound:.2f}", style="dim")
    return table


def _causes(report: ScaleDownReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column("Given back, because", no_wrap=True)
    for name in ("Nodes", "Pods moved"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in report.causes:
        table.add_row(CAUSES[one.cause], str(one.nodes), str(one.pods))
    return table
