"""`leeway demo`: sends a storm of Spot interruptions to a sandbox and reports the result."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import BadInputError, CannotBeDoneError
from cli.output import Format, FormatOption, print_json, stderr_console, stdout_console
from cli.reasons import DEMO_FOUND_FAULTS, INVALID_OPTION, REPORT_NOT_WRITTEN

if TYPE_CHECKING:
    from cli.demo.progress import Progress
    from cli.report.model import StormPlan, StormReport
    from cli.report.run import Run
    from sandbox.sandbox import Sandbox
    from sandbox.scenario import Scenario

LATE = 80.0  # seconds between a warning's time and its arrival, so that the demo takes a minute
FEWEST_NODES, MOST_NODES = 3, 200
NODES_FOR_ONE_OF_A_POOL = 5  # of so many nodes, Leeway launches one for a pool


def demo(
    nodes: Annotated[int, typer.Option(help="Set the number of nodes.")] = 20,
    interruptions: Annotated[
        int, typer.Option(help="Set the number of nodes that EC2 interrupts at the same time.")
    ] = 5,
    seed: Annotated[
        int, typer.Option(help="Set the seed of the choice of workloads and nodes.")
    ] = 0,
    report: Annotated[
        Path, typer.Option(metavar="FILE", help="Write the HTML report to this file.")
    ] = Path("leeway-demo.html"),
    output: FormatOption = Format.TABLE,
) -> None:
    """Send a storm of Spot interruptions to a sandbox, and report the outcome of every pod.

    Needs no AWS account and no cluster. Exits with 1 if the report has a fault that a correct drain
    would have prevented.
    """
    from cli.report.html_page import render_page
    from cli.report.json_output import as_data
    from cli.report.terminal_output import print_report

    _check(nodes, interruptions, report)
    storm, run = _run_storm(nodes, interruptions, seed)
    result = as_data(storm, run)
    try:
        report.write_text(render_page(storm, run), encoding="utf-8")
    except OSError as error:
        reason = REPORT_NOT_WRITTEN(path=report, error=error.strerror)
        raise CannotBeDoneError(reason, result=result) from error
    if output is Format.TABLE:
        print_report(storm, run, stdout_console())
    stderr_console().print(f"\nThe report with a timeline: [bold]{report}[/]")
    if not storm.good:
        raise CannotBeDoneError(DEMO_FOUND_FAULTS(count=len(storm.all_faults)), result=result)
    if output is Format.JSON:
        print_json(result)


def _check(nodes: int, interruptions: int, report: Path) -> None:
    if not FEWEST_NODES <= nodes <= MOST_NODES:
        expected = f"{FEWEST_NODES} to {MOST_NODES}, got {nodes}"
        raise BadInputError(INVALID_OPTION(option="--nodes", expected=expected))
    if not 1 <= interruptions < nodes:
        expected = f"1 to {nodes - 1} (fewer than --nodes), got {interruptions}"
        raise BadInputError(INVALID_OPTION(option="--interruptions", expected=expected))
    if report.is_dir():
        expected = f"a file, but {report} is a folder"
        raise BadInputError(INVALID_OPTION(option="--report", expected=expected))
    if not report.absolute().parent.is_dir():
        expected = f"a file in a folder, but {report.absolute().parent} is no folder"
        raise BadInputError(INVALID_OPTION(option="--report", expected=expected))


def _run_storm(nodes: int, interruptions: int, seed: int) -> "tuple[StormReport, Run]":
    from cli.demo.pools import start_pools
    from cli.demo.storm import SPOT_SHORTAGE, follow_storm, send_warnings
    from cli.report.run import Run
    from sandbox.scenario import demo_scenario

    began, started = datetime.now(UTC), time.monotonic()
    scenario = demo_scenario(seed, nodes, of_pools=nodes // NODES_FOR_ONE_OF_A_POOL)
    with _sandbox(scenario) as (sandbox, progress):
        start_pools(sandbox, scenario, progress.show_start)
        plan = _plan(sandbox, scenario, interruptions)
        progress.storm(plan)
        sandbox.faults("aws", [SPOT_SHORTAGE])
        send_warnings(sandbox, plan)
        storm = follow_storm(sandbox, plan, progress.show_storm)
    duration = time.monotonic() - started
    pods = scenario.pods + sum(pool.pods for pool in scenario.pools)
    return storm, Run(seed, nodes, pods, interruptions, began, duration)


@contextmanager
def _sandbox(scenario: "Scenario") -> "Iterator[tuple[Sandbox, Progress]]":
    from cli.demo.pools import SCHEDULES_WAIT
    from cli.demo.progress import Progress
    from cli.sandbox.state import sandbox_errors
    from sandbox.sandbox import Sandbox

    with (
        sandbox_errors(),
        Progress(stderr_console()) as progress,
        TemporaryDirectory(prefix="leeway-demo-") as folder,
        Sandbox.start(
            scenario,
            state_dir=Path(folder),
            options=SCHEDULES_WAIT,
            report_progress=progress.show_start,
        ) as sandbox,
    ):
        yield sandbox, progress


def _plan(sandbox: "Sandbox", scenario: "Scenario", interruptions: int) -> "StormPlan":
    from cli.demo.storm import WARNING, candidate_nodes, choose_targets, workloads_of
    from cli.report.model import StormPlan

    workloads = workloads_of(scenario)
    candidates = candidate_nodes(sandbox.journal())
    return StormPlan(
        cluster=scenario.cluster,
        targets=choose_targets(candidates, interruptions, workloads, scenario.seed),
        unmanaged=sandbox.endpoints.foreign_instances,
        workloads=workloads,
        warning=WARNING,
        late=LATE,
    )
