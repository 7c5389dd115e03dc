"""`leeway demo`: a storm of Spot interruptions on a living cluster, and what became of it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import BadInputError, CannotBeDoneError
from cli.output import Format, FormatOption, messages, print_json, results

if TYPE_CHECKING:
    from cli.progress import Progress
    from cli.report.run import Run
    from cli.report.story import Plan, Story
    from sandbox.sandbox import Sandbox
    from sandbox.scenario import Scenario

LATE = 80.0  # seconds that the warnings arrive late, so that the demo fits into a minute
FEWEST_NODES, MOST_NODES = 3, 200


def demo(
    nodes: Annotated[int, typer.Option(help="How many nodes the cluster has.")] = 20,
    interruptions: Annotated[
        int, typer.Option(help="How many of them EC2 takes back at the same time.")
    ] = 5,
    seed: Annotated[int, typer.Option(help="Chooses workloads and nodes.")] = 0,
    report: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the HTML report is written.")
    ] = Path("leeway-demo.html"),
    output: FormatOption = Format.TABLE,
) -> None:
    """Rehearse a storm of Spot interruptions on a sandbox, and report what became of every pod.

    Needs neither AWS nor a cluster. Exits with 1 when a pod was lost that a right drain would have
    saved, or anything else went wrong that should not.
    """
    from cli.report.data import as_data
    from cli.report.page import render_page
    from cli.report.terminal import show

    _check(nodes, interruptions, report)
    story, run = _rehearse(nodes, interruptions, seed)
    try:
        report.write_text(render_page(story, run), encoding="utf-8")
    except OSError as error:
        raise CannotBeDoneError(f"--report: {report}: {error.strerror}") from error
    if output is Format.JSON:
        print_json(as_data(story, run))
    else:
        show(story, run, results())
    messages().print(f"\nThe whole story, second by second: [bold]{report}[/]")
    if not story.good:
        raise typer.Exit(1)


def _check(nodes: int, interruptions: int, report: Path) -> None:
    if not FEWEST_NODES <= nodes <= MOST_NODES:
        raise BadInputError(f"--nodes: expected {FEWEST_NODES} to {MOST_NODES}, got {nodes}")
    if not 1 <= interruptions < nodes:
        raise BadInputError(
            f"--interruptions: expected 1 to {nodes - 1} (fewer than --nodes), got {interruptions}"
        )
    if report.is_dir():
        raise BadInputError(f"--report: expected a file, {report} is a folder")
    if not report.absolute().parent.is_dir():
        raise BadInputError(f"--report: {report.absolute().parent} is no folder")


def _rehearse(nodes: int, interruptions: int, seed: int) -> "tuple[Story, Run]":
    from cli.report.run import Run
    from cli.storm import let_loose, watch
    from sandbox.scenario import demo_scenario

    began, started = datetime.now(UTC), time.monotonic()
    world = demo_scenario(seed, nodes)
    with _sandbox(world) as (sandbox, progress):
        plan = _plan(sandbox, world, interruptions)
        progress.storm(plan)
        let_loose(sandbox, plan)
        story = watch(sandbox, plan, progress.tell_story)
    wall = time.monotonic() - started
    return story, Run(seed, world.nodes, world.pods, interruptions, began, wall)


@contextmanager
def _sandbox(world: "Scenario") -> "Iterator[tuple[Sandbox, Progress]]":
    from cli.progress import Progress
    from cli.sandbox import sandbox_errors
    from sandbox.sandbox import Sandbox

    with (
        sandbox_errors(),
        Progress(messages()) as progress,
        TemporaryDirectory(prefix="leeway-demo-") as folder,
        Sandbox.start(
            world, state_dir=Path(folder), report_progress=progress.tell_start
        ) as sandbox,
    ):
        yield sandbox, progress


def _plan(sandbox: "Sandbox", world: "Scenario", interruptions: int) -> "Plan":
    from cli.report.story import Plan
    from cli.storm import WARNING, choose_targets, places, workloads_of

    workloads = workloads_of(world)
    candidates = places(sandbox.journal())
    return Plan(
        cluster=world.cluster,
        targets=choose_targets(candidates, interruptions, workloads, world.seed),
        strangers=sandbox.endpoints.foreign_instances,
        workloads=workloads,
        warning=WARNING,
        late=LATE,
    )
