"""`leeway sandbox`: the commands that run a sandbox and change its state."""

import json
import os
import signal
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError, as_clause, unreadable
from leeway_cli.output import Format, FormatOption, print_json, stderr_console, stdout_console
from leeway_cli.sandbox.faults import FORMS, read_faults
from leeway_cli.sandbox.up import (
    StateDirOption,
    default_state_dir,
    endpoints_as_data,
    running_sandbox,
    up,
)

if TYPE_CHECKING:
    from leeway_sandbox.sandbox import Sandbox

STOP_TIMEOUT = 15.0  # seconds that `down` waits for the end of `up`


class InterruptionAction(StrEnum):
    """The actions of EC2 on an interrupted instance."""

    TERMINATE = "terminate"
    STOP = "stop"
    HIBERNATE = "hibernate"


ReservationOption = Annotated[
    bool,
    typer.Option(
        "--reservation", help="Send the warning for an instance of a capacity reservation."
    ),
]

app = typer.Typer(
    help="Run an embedded AWS and an embedded Kubernetes on this machine.",
    no_args_is_help=True,
    add_completion=False,
)
app.command()(up)


@app.command()
def down(state_dir: StateDirOption = None) -> None:
    """Stop the sandbox."""
    from leeway_sandbox.startup import is_running

    folder = state_dir or default_state_dir()
    with running_sandbox(folder) as sandbox:
        os.kill(sandbox.endpoints.pid, signal.SIGTERM)
    pid, stop_by = sandbox.endpoints.pid, time.monotonic() + STOP_TIMEOUT
    while is_running(folder):
        if time.monotonic() > stop_by:
            raise CannotBeDoneError(
                f"The sandbox process {pid} did not end within {STOP_TIMEOUT:.0f} s. Stop it with "
                f"`kill {pid}`."
            )
        time.sleep(0.1)
    stderr_console().print("The sandbox has ended.")


@app.command()
def status(state_dir: StateDirOption = None, output: FormatOption = Format.TABLE) -> None:
    """Show the endpoints of the sandbox, its nodes and its pods."""
    with running_sandbox(state_dir) as sandbox:
        parts = sandbox.status()
    nodes, pods = parts["kubernetes"]["nodes"], parts["kubernetes"]["running"]
    if output is Format.JSON:
        print_json({**endpoints_as_data(sandbox), "nodes": nodes, "pods": pods, "parts": parts})
        return
    console = stdout_console()
    for name, value in endpoints_as_data(sandbox).items():
        console.print(f"{name:<12}{value}", soft_wrap=True)
    console.print(f"{'nodes':<12}{nodes}\n{'pods':<12}{pods} running")


@app.command()
def send(
    event: Annotated[
        Path, typer.Argument(metavar="EVENT.json", help="Send this EventBridge event.")
    ],
    copies: Annotated[int, typer.Option(min=1, help="Deliver the event this number of times.")] = 1,
    state_dir: StateDirOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Deliver an event to the rules that match it, as EventBridge does."""
    content = _read_event(event)
    with running_sandbox(state_dir) as sandbox:
        functions = sandbox.send(content, copies)
    if output is Format.JSON:
        print_json({"functions": functions})
    else:
        targets = ", ".join(functions) or "no function: no rule matches it"
        stdout_console().print(f"delivered to {targets}")


@app.command()
def interrupt(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Select a node by its name or its instance ID.")
    ],
    late: Annotated[
        float,
        typer.Option(
            min=0, max=120, help="Deliver the warning this number of seconds after its own time."
        ),
    ] = 0.0,
    copies: Annotated[
        int, typer.Option(min=0, help="Deliver the warning this number of times.")
    ] = 1,
    action: Annotated[
        InterruptionAction, typer.Option(help="Select the action of EC2 on the instance.")
    ] = InterruptionAction.TERMINATE,
    rebalance: Annotated[
        bool,
        typer.Option("--rebalance", help="Send a rebalance recommendation before the warning."),
    ] = False,
    warning: Annotated[bool, typer.Option(help="Send the warning and end the instance.")] = True,
    reservation: ReservationOption = False,
    state_dir: StateDirOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Interrupt an instance, with a two-minute warning."""
    with running_sandbox(state_dir) as sandbox:
        instance = _instance_of(sandbox, node)
        (begun,) = sandbox.interrupt(
            [instance],
            late=late,
            copies=copies,
            action=action.value,
            rebalance=rebalance,
            warning=warning,
            reservation=reservation,
        )
    if output is Format.JSON:
        print_json(begun)
    elif begun["reclaim_at"] is None:
        stdout_console().print(f"{instance} got a rebalance recommendation")
    else:
        left = max(begun["reclaim_at"] - time.time(), 0.0)
        stdout_console().print(
            f"{instance} got an interruption warning; EC2 reclaims it in {left:.0f} s"
        )


@app.command()
def schedules(
    speed: Annotated[
        float | None,
        typer.Option(min=0, help="Set the speed of schedules (1: real time; 0: only on `fire`)."),
    ] = None,
    state_dir: StateDirOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the schedules and their next times, or change their speed."""
    with running_sandbox(state_dir) as sandbox:
        if speed is not None:
            sandbox.set_schedule_speed(speed)
        found = sandbox.schedules()
    if output is Format.JSON:
        print_json({"schedules": found})
        return
    for entry in found:
        line = f"{entry['name']:<40}{entry['expression']:<24}due {entry['due']}"
        stdout_console().print(line, soft_wrap=True)


@app.command()
def fire(
    schedule: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="Select a schedule by its name or ARN.")
    ],
    state_dir: StateDirOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Invoke the target of a schedule now."""
    with running_sandbox(state_dir) as sandbox:
        functions = sandbox.fire(schedule)
    if output is Format.JSON:
        print_json({"functions": functions})
    else:
        stdout_console().print(f"invoked {', '.join(functions) or 'no function'}")


@app.command(help=f"Replace the faults of the sandbox, or remove all.\n\n\b\n{FORMS}")
def faults(
    words: Annotated[list[str] | None, typer.Argument(metavar="FAULT")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all faults.")] = False,
    state_dir: StateDirOption = None,
) -> None:
    """Replace the faults of the sandbox, or remove all."""
    if clear is bool(words):
        raise BadInputError("FAULT: expected at least one fault, or --clear to remove all.")
    settings = read_faults(words or ())
    with running_sandbox(state_dir) as sandbox:
        settings.apply(sandbox)
    counts = ", ".join(f"{part} {len(found)}" for part, found in settings.parts.items() if found)
    throttled = " EC2 and Auto Scaling limit rates." if settings.throttle else ""
    stderr_console().print(f"Faults: {counts or 'none'}.{throttled}")


def _instance_of(sandbox: "Sandbox", node: str) -> str:
    instance = node if node.startswith("i-") else sandbox.instance_of(node)
    if instance is None:
        raise BadInputError(f"NODE: expected a node of the sandbox; it has no node {node!r}.")
    return instance


def _read_event(path: Path) -> Mapping[str, Any]:
    event = _read_json(path)
    if not isinstance(event, dict):
        raise BadInputError(f"{path}: expected a JSON object, an EventBridge event.")
    for field in ("source", "detail-type", "detail"):
        if field not in event:
            raise BadInputError(f"{path}: {field}: missing; every EventBridge event has it.")
    return event


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise BadInputError(f"{path}: expected JSON: {as_clause(error)}.") from error
