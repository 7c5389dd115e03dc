"""Shows a story on the terminal."""

from collections import Counter

from rich.console import Console
from rich.table import Table

from cli.report.figures import drained_in_time, figures, to_cordon, to_ready
from cli.report.page import headline
from cli.report.run import Run
from cli.report.story import NodeStory, Outcome, Story
from cli.report.timeline import short


def show(story: Story, run: Run, console: Console) -> None:
    """Print headline, the table of nodes and, where there are any, the faults."""
    count = figures(story)
    colour = "green" if story.good else "red"
    left = story.plan.warning - story.plan.late
    console.print(f"\n[bold {colour}]{headline(story)}[/]")
    console.print(
        f"[dim]{run.nodes} nodes, {run.pods} pods, {count.pods} of them to move. The warnings came"
        f" {story.plan.late:.0f} s late on purpose:\n{left:.0f} s were left until EC2 takes the"
        " instances. All times below are from the notice on.[/]\n"
    )
    console.print(_table(story))
    for stranger in story.strangers:
        if not stranger.faults:
            console.print(f"[dim]{stranger.instance} of another cluster: left alone.[/]")
    console.print(
        f"[dim]{count.refusals} evictions refused by budgets, {count.duplicates} duplicate"
        f" notices, {run.wall:.0f} s in all.[/]"
    )
    said = Counter(claim.result for node in story.nodes for claim in node.trace.claims)
    told = ", ".join(f"{result} {number} times" for result, number in said.items())
    console.print(f"[dim]Leeway itself says: {told or 'nothing'}.[/]")
    for fault in story.all_faults:
        console.print(f"[red]✗[/] {fault}", highlight=False)


def _table(story: Story) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column("")
    table.add_column("Node", no_wrap=True)
    table.add_column("Group", no_wrap=True)
    for name in ("Told", "Cordon", "Out", "Drained", "Spare", "New"):
        table.add_column(name, justify="right", no_wrap=True)
    for node in story.nodes:
        table.add_row(*_row(node))
    return table


def _row(node: NodeStory) -> list[str]:
    trace = node.trace
    fine = not node.faults and not any(pod.verdict.fault for pod in node.pods)
    out = sum(1 for pod in node.moving if pod.verdict.outcome in {Outcome.MOVED, Outcome.ENDED})
    drained = node.drained_at if drained_in_time(node) else None
    since = trace.noticed_at
    return [
        "[green]✓[/]" if fine else "[red]✗[/]",
        short(trace.target.node),
        trace.target.group,
        str(len(trace.notices)),
        _seconds(to_cordon(node)),
        f"{out}/{len(node.moving)}",
        _seconds(None if drained is None or since is None else drained - since),
        _seconds(None if drained is None else trace.takes_at - drained),
        _seconds(to_ready(node)),
    ]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"
