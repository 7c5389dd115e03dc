"""Sentences about a scale-up, and its report on the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from leeway_cli.report.run import ScaleUpRun
from leeway_cli.report.scale_up import Point, ScaleUpReport
from leeway_cli.report.summary import shortage_text

MOST_POINTS = 12
BAR = 40  # characters of the bar of all pods


def headline(report: ScaleUpReport) -> str:
    """Return the result of the scale-up in one sentence."""
    plan = report.plan
    scaled = f"From {plan.before} to {plan.after} pods"
    if report.seconds_to_run is None or not report.good:
        running = report.last.running
        return f"{scaled}: {running} run, with faults."
    nodes = len(report.launches)
    new = f"{nodes} new node{'' if nodes == 1 else 's'}"
    return f"{scaled} on {new} in {report.seconds_to_run:.0f} seconds."


def price_text(report: ScaleUpReport) -> str:
    """Return the price of the launched nodes beside its bound in one sentence."""
    cost = f"The new nodes cost {report.price:.2f} USD per hour"
    if report.over_bound is None:
        return f"{cost}."
    over = (report.over_bound - 1) * 100
    return (
        f"{cost}, {over:.0f} % more than the lower bound of any nodes for their pods"
        f" ({report.bound:.2f} USD)."
    )


def points_shown(curve: Sequence[Point]) -> list[Point]:
    """Return the points of a curve at which the pods change, evenly thinned, and the last one."""
    changed = [
        point
        for before, point in zip([None, *curve], curve, strict=False)
        if before is None
        or (before.pending, before.starting, before.running)
        != (point.pending, point.starting, point.running)
    ]
    step = -(-len(changed) // MOST_POINTS)
    return [*changed[:-1:step], changed[-1]]


def print_scale_up(report: ScaleUpReport, run: ScaleUpRun, console: Console) -> None:
    """Print the headline, the pods over time, the nodes, the price and the faults."""
    plan = report.plan
    colour = "green" if report.good else "red"
    console.print(f"\n[bold {colour}]{headline(report)}[/]")
    console.print(
        f"[dim]{plan.owner} was scaled on a cluster of {plan.nodes} nodes. Instances join within"
        " seconds here:\nEC2 takes one to two minutes. All times start at the first new pod.[/]\n"
    )
    console.print(_pods(report))
    console.print()
    console.print(_nodes(report))
    launched = report.seconds_to_launch
    if launched is not None:
        console.print(
            f"First launch after {launched:.1f} s, {report.fleets} fleets.", highlight=False
        )
    for shortage in report.shortages:
        console.print(shortage_text(shortage), highlight=False)
    console.print(price_text(report), highlight=False)
    console.print(f"[dim]{run.duration:.0f} s in total.[/]")
    for fault in report.faults:
        console.print(f"[red]✗[/] {fault}", highlight=False)


def _pods(report: ScaleUpReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    for name in ("After", "Pending", "Starting", "Running"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    zero = report.first_pod_at or report.plan.scaled_at
    for point in points_shown(report.curve):
        counts = (point.pending, point.starting, point.running)
        after = f"{max(point.at - zero, 0):.1f} s"
        table.add_row(after, *map(str, counts), _bar(counts, report.plan.after))
    return table


def _bar(counts: tuple[int, int, int], total: int) -> str:
    pending, starting, running = (round(count / max(total, 1) * BAR) for count in counts)
    return f"[green]{'█' * running}[/][blue]{'▒' * starting}[/][yellow]{'░' * pending}[/]"


def _nodes(report: ScaleUpReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column("Nodes", justify="right", no_wrap=True)
    for name in ("Type", "Zone", "Capacity"):
        table.add_column(name, no_wrap=True)
    table.add_column("USD per hour", justify="right", no_wrap=True)
    for group in report.nodes:
        offering = group.offering
        price = "unknown" if group.price is None else f"{group.count * group.price:.4f}"
        where = (offering.instance_type, offering.zone, offering.capacity_type)
        table.add_row(str(group.count), *where, price)
    return table
