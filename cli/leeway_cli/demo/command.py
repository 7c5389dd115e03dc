"""`leeway demo`: runs a scenario, in a sandbox or simulated, and reports the result."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer
from leeway.reasons import counted

from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.output import (
    Format,
    FormatOption,
    check_page_path,
    print_json,
    stderr_console,
    stdout_console,
    write_page,
    write_stderr,
)

if TYPE_CHECKING:
    from leeway_sandbox.sandbox import Sandbox
    from leeway_sandbox.scenario import Scenario

    from leeway_cli.demo.storm import Progress
    from leeway_cli.report.model import StormPlan, StormReport
    from leeway_cli.report.page import Page, Run
    from leeway_cli.report.scale_up import ScaleUpReport
    from leeway_cli.report.switched import SwitchReport

LATE = 80.0  # seconds between a warning's time and its arrival, so that the demo takes a minute
NODES, FEWEST_NODES, MOST_NODES = 20, 3, 200
INTERRUPTIONS = 5
REPLICAS, REPLICAS_BEFORE, MOST_REPLICAS = 500, 10, 2000
NODES_FOR_ONE_OF_A_POOL = 5  # of so many nodes, Leeway launches one for a pool


class DemoScenario(StrEnum):
    """What happens in the demo."""

    STORM = "storm"
    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"
    SWITCH = "switch"


def demo(
    scenario: Annotated[
        DemoScenario,
        typer.Option(
            help="Choose what happens: EC2 interrupts nodes (storm), a Deployment is scaled"
            " (scale-up), a day passes in which nodes are given back (scale-down), or a cluster"
            " goes from Karpenter to Leeway and back (switch)."
        ),
    ] = DemoScenario.STORM,
    nodes: Annotated[
        int | None, typer.Option(help="storm: set the number of nodes (default: 20).")
    ] = None,
    interruptions: Annotated[
        int | None,
        typer.Option(
            help="storm: set the number of nodes that EC2 interrupts at the same time (default: 5)."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            help="scale-up: set the number of pods that the Deployment gets (default: 500)."
        ),
    ] = None,
    view: Annotated[
        bool,
        typer.Option(
            "--view",
            help="Show storm, scale-up or switch in a browser as it happens: see leeway view.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Set the seed of the choice of workloads and nodes.")
    ] = 0,
    report: Annotated[
        Path, typer.Option(metavar="FILE", help="Write the HTML report to this file.")
    ] = Path("leeway-demo.html"),
    output: FormatOption = Format.TABLE,
) -> None:
    """Run a scenario with Leeway's functions in a sandbox, or a simulated day, and report it.

    storm: EC2 interrupts Spot nodes at once; the report has the outcome of every pod. scale-up: a
    Deployment is scaled from 10 to 500 pods; the report has the pending pods over time, the nodes
    that Leeway launched, and their price beside its lower bound. scale-down: a simulated day of a
    changing workload, without a sandbox; the report has the price beside its lower bound, the nodes
    by type, the pods that were moved, and why nodes were given back. switch: Karpenter's nodes go
    to Leeway and back, which takes four minutes; the report has a line for each pod.

    Needs no AWS account and no cluster. Exits with 1 if the report has a fault that correct work
    would have prevented.
    """
    from leeway_cli.report.page import print_page, render_page

    page, data = _reported(scenario, nodes, interruptions, replicas, seed, report, view)
    write_page(report, render_page(page), data)
    if output is Format.TABLE:
        print_page(page, stdout_console())
    stderr_console().print(f"\nThe HTML report: [bold]{report}[/]")
    if page.faults:
        raise CannotBeDoneError(
            f"The report lists {counted(len(page.faults), 'fault')} that correct work of Leeway "
            "would have prevented.",
            result=data,
        )
    if output is Format.JSON:
        print_json(data)


def _reported(
    scenario: DemoScenario,
    nodes: int | None,
    interruptions: int | None,
    replicas: int | None,
    seed: int,
    report: Path,
    view: bool,
) -> "tuple[Page, dict[str, Any]]":
    """Check the options, run the scenario, and return its report."""
    of_storm = {"--nodes": nodes, "--interruptions": interruptions}
    if scenario is not DemoScenario.STORM:
        _refuse(of_storm, DemoScenario.STORM)
    if scenario is not DemoScenario.SCALE_UP:
        _refuse({"--replicas": replicas}, DemoScenario.SCALE_UP)
    if view and scenario is DemoScenario.SCALE_DOWN:
        raise BadInputError("--view: expected --scenario storm, scale-up or switch with it.")
    size = NODES if nodes is None else nodes
    count = INTERRUPTIONS if interruptions is None else interruptions
    wanted = REPLICAS if replicas is None else replicas
    _check(size, count, wanted)
    check_page_path("--report", report)
    match scenario:
        case DemoScenario.STORM:
            from leeway_cli.report.storm_page import storm_as_data, storm_page

            storm, run = _run_storm(size, count, seed, view)
            return storm_page(storm, run), storm_as_data(storm, run)
        case DemoScenario.SCALE_UP:
            from leeway_cli.report.scale_up import scale_up_as_data, scale_up_page

            scaled, run = _run_scale_up(wanted, seed, view)
            return scale_up_page(scaled, run), scale_up_as_data(scaled, run)
        case DemoScenario.SCALE_DOWN:
            from leeway_cli.demo.pools import simulate_days
            from leeway_cli.report.page import Run
            from leeway_cli.report.scale_down import scale_down_as_data, scale_down_page

            began, started = datetime.now(UTC), time.monotonic()
            days = simulate_days(seed, stderr_console())
            run = Run(seed, began, time.monotonic() - started, {"scenario": "scale-down"})
            return scale_down_page(days, run), scale_down_as_data(days, run)
        case DemoScenario.SWITCH:
            from leeway_cli.report.switched import switch_as_data, switch_page

            switched, run = _run_switch(seed, view)
            return switch_page(switched, run), switch_as_data(switched, run)


def _refuse(options: Mapping[str, int | None], scenario: DemoScenario) -> None:
    """Refuse options of another scenario."""
    for option, value in options.items():
        if value is not None:
            raise BadInputError(f"{option}: expected --scenario {scenario} with it.")


def _check(nodes: int, interruptions: int, replicas: int) -> None:
    if not FEWEST_NODES <= nodes <= MOST_NODES:
        raise BadInputError(f"--nodes: expected {FEWEST_NODES} to {MOST_NODES}, got {nodes}.")
    if not 1 <= interruptions < nodes:
        raise BadInputError(
            f"--interruptions: expected 1 to {nodes - 1} (fewer than --nodes), got {interruptions}."
        )
    if not REPLICAS_BEFORE < replicas <= MOST_REPLICAS:
        raise BadInputError(
            f"--replicas: expected {REPLICAS_BEFORE + 1} to {MOST_REPLICAS}, got {replicas}."
        )


def _run_scale_up(replicas: int, seed: int, view: bool) -> "tuple[ScaleUpReport, Run]":
    from leeway_sandbox.scenario import scale_up_scenario

    from leeway_cli.demo.pools import follow_scale_up, scale, start_pools, with_bound
    from leeway_cli.report.page import Run

    began, started = datetime.now(UTC), time.monotonic()
    scenario = scale_up_scenario(seed, REPLICAS_BEFORE)
    with _sandbox(scenario) as (sandbox, progress):
        start_pools(sandbox, scenario, progress.show_start)
        with shown(sandbox) if view else nullcontext():
            plan = scale(sandbox, scenario, replicas)
            progress.scale_up(plan)
            report = follow_scale_up(sandbox, plan, progress.show_scale_up)
    report = with_bound(report, scenario)
    options = {"scenario": "scale-up", "replicas": str(replicas)}
    return report, Run(seed, began, time.monotonic() - started, options)


def _run_switch(seed: int, view: bool) -> "tuple[SwitchReport, Run]":
    from leeway_sandbox.scenario import switch_scenario

    from leeway_cli.demo.switch import run_switch
    from leeway_cli.report.page import Run

    began, started = datetime.now(UTC), time.monotonic()
    scenario = switch_scenario(seed)
    with _sandbox(scenario) as (sandbox, progress), shown(sandbox) if view else nullcontext():
        report = run_switch(sandbox, scenario, progress.show_start)
    return report, Run(seed, began, time.monotonic() - started, {"scenario": "switch"})


def _run_storm(nodes: int, interruptions: int, seed: int, view: bool) -> "tuple[StormReport, Run]":
    from leeway_sandbox.scenario import demo_scenario

    from leeway_cli.demo.pools import start_pools
    from leeway_cli.demo.storm import SPOT_SHORTAGE, follow_storm, send_warnings
    from leeway_cli.report.page import Run

    began, started = datetime.now(UTC), time.monotonic()
    scenario = demo_scenario(seed, nodes, of_pools=nodes // NODES_FOR_ONE_OF_A_POOL)
    with _sandbox(scenario) as (sandbox, progress):
        start_pools(sandbox, scenario, progress.show_start)
        with shown(sandbox) if view else nullcontext():
            plan = _plan(sandbox, scenario, interruptions)
            progress.storm(plan)
            sandbox.faults("aws", [SPOT_SHORTAGE])
            send_warnings(sandbox, plan)
            storm = follow_storm(sandbox, plan, progress.show_storm)
    duration = time.monotonic() - started
    pods = scenario.pods + sum(pool.pods for pool in scenario.pools)
    options = {"nodes": nodes, "interruptions": interruptions}
    return storm, Run(seed, began, duration, options, pods)


@contextmanager
def _sandbox(scenario: "Scenario") -> "Iterator[tuple[Sandbox, Progress]]":
    from leeway_sandbox.sandbox import Sandbox

    from leeway_cli.demo.pools import SCHEDULES_WAIT
    from leeway_cli.demo.storm import Progress
    from leeway_cli.sandbox.up import sandbox_errors

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
    from leeway_cli.demo.storm import WARNING, candidate_nodes, choose_targets, workloads_of
    from leeway_cli.report.model import StormPlan

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


OPENED_WITHIN = 60.0
"""Seconds that a demo waits for a browser."""


@contextmanager
def shown(sandbox: "Sandbox") -> Iterator[None]:
    """Serve the page of a sandbox. What happens in the context begins when a browser has opened the
    page, or after a minute.

    Raises:
        CannotBeDoneError: the page could not be served.
    """
    # A process of its own: it has the environment variables of the sandbox, and reads at its pace.
    command = [sys.executable, "-m", "leeway_cli", "view", "--every", "1s"]
    command += ["--cluster", sandbox.endpoints.cluster, "--kubeconfig", str(sandbox.kubeconfig)]
    environment = {**os.environ, **sandbox.environment()}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as page:
        lines = cast("IO[bytes]", page.stdout)
        try:
            address = lines.readline().decode().strip()
            if not address:
                raise CannotBeDoneError("The page could not be served.")
            write_stderr(f"{address}\nThe demo goes on then, or in {OPENED_WITHIN:.0f} s.")
            select.select([lines], [], [], OPENED_WITHIN)
            yield
        finally:
            page.terminate()
