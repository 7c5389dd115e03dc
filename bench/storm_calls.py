"""Counts the AWS calls of a storm of twenty Spot interruptions, by function.

`storms` measures the time until the evictions. This measurement waits until the instances have
ended and reconcile has run twice, because the later calls are paid for too.
"""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from leeway_sandbox.access_entries import access_key
from leeway_sandbox.sandbox import Sandbox
from rich.console import Console
from rich.table import Table

from bench.storms import instances_of, run_reconcile, storm, world

SIZE = 20
WARM_UP = 20
SPARE = 20
SETTLE_TIMEOUT = 180.0
"""Seconds within which the last instance must end and the calls must stop."""

CHECKPOINTS = {"lambda:CheckpointDurableExecution", "lambda:GetDurableExecutionState"}
READS = {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:BatchGetItem"}
WRITES = {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"}

type Calls = dict[str, Counter[str]]


def calls(sandbox: Sandbox) -> Calls:
    """Return how often each function has made each call."""
    assert sandbox.deployed is not None
    counted = sandbox.status()["aws"]["calls_by_access_key"]
    return {
        function.name.removeprefix("leeway-"): Counter(counted.get(access_key(function.name), {}))
        for function in sandbox.deployed.functions
    }


def since(before: Calls, after: Calls) -> Calls:
    """Return the calls between two counts."""
    return {name: counted - before[name] for name, counted in after.items()}


def of_a_storm(sandbox: Sandbox, size: int) -> tuple[Calls, Calls]:
    """Interrupt a number of instances. Returns the calls until all is finished, and those of the
    next two runs of reconcile."""
    gone = ended(sandbox)
    chosen = [instance for instance in instances_of(sandbox) if instance not in gone][:size]
    before = calls(sandbox)
    storm(sandbox, chosen)
    _until(lambda: ended(sandbox) >= set(chosen))
    _until_quiet(sandbox)
    over = calls(sandbox)
    for _ in range(2):
        run_reconcile(sandbox)
    _until_quiet(sandbox)
    return since(before, over), since(over, calls(sandbox))


def ended(sandbox: Sandbox) -> set[str]:
    """Return the terminated instances."""
    return {
        entry["instance"]
        for entry in sandbox.journal()
        if entry["kind"] == "instance-state" and entry["state"] == "terminated"
    }


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SETTLE_TIMEOUT
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.5)


def _until_quiet(sandbox: Sandbox) -> None:
    """Wait until no function has made a call for some seconds."""
    last, unchanged = calls(sandbox), 0
    end = time.monotonic() + SETTLE_TIMEOUT
    while unchanged < 5 and time.monotonic() < end:
        time.sleep(1)
        now = calls(sandbox)
        last, unchanged = now, unchanged + 1 if now == last else 0


def main() -> None:
    """Run a warm-up storm and a measured one, and print the calls for each instance."""
    options = {"aws": ["--schedule-speed", "0"]}
    with TemporaryDirectory() as folder:
        needed = world(WARM_UP + SIZE + SPARE)
        with Sandbox.start(needed, state_dir=Path(folder), options=options) as sandbox:
            run_reconcile(sandbox)
            of_a_storm(sandbox, WARM_UP)
            table = _table(*of_a_storm(sandbox, SIZE))
    Console().print(table)


def _table(storm_: Calls, ticks: Calls) -> Table:
    table = Table(title=f"AWS calls for each of {SIZE} simultaneous Spot interruptions")
    table.add_column("function")
    table.add_column("call")
    table.add_column("each", justify="right")
    for name, counted in [*storm_.items(), ("reconcile, two minutes", ticks["reconcile"])]:
        for call, times in counted.most_common():
            if call not in CHECKPOINTS:
                table.add_row(name, call, f"{times / SIZE:.2f}")
    for what, wanted in (("reads of the table", READS), ("writes of the table", WRITES)):
        total = sum(n for c in storm_.values() for call, n in c.items() if call in wanted)
        table.add_row("all", what, f"{total / SIZE:.2f}")
    every = sum(n for c in storm_.values() for call, n in c.items() if call not in CHECKPOINTS)
    table.add_row("all", "calls", f"{every / SIZE:.2f}")
    return table
