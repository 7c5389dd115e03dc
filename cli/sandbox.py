"""`leeway sandbox`: keeps a sandbox running, and does things to it."""

import json
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from cli.errors import BadInputError, CannotBeDoneError, unreadable
from cli.faults import FORMS, Wanted, read_faults
from cli.output import Format, FormatOption, messages, print_json, results

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox

LOOPBACK = "127.0.0.1"
END_PATIENCE = 15.0  # seconds that `down` waits for `up` to end
REACH_PATIENCE = 2.0  # seconds that the advertised address has to accept a connection
FEWEST_NODES, MOST_NODES = 3, 1000  # on fewer the workloads find no room


class InterruptionAction(StrEnum):
    """What EC2 does to an instance that it takes back."""

    TERMINATE = "terminate"
    STOP = "stop"
    HIBERNATE = "hibernate"


app = typer.Typer(
    help="An embedded AWS and an embedded Kubernetes that stay up until they are told to go.",
    no_args_is_help=True,
    add_completion=False,
)


def default_state_dir() -> Path:
    """Where a sandbox's state is kept, by the XDG base directory specification."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "leeway" / "sandbox"


StateDirOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The sandbox's folder (default: one for each user)."),
]

FaultsOption = Annotated[
    list[str],
    typer.Option("--fault", metavar="FAULT", help="Let it fail so; see `sandbox faults --help`."),
]


@contextmanager
def sandbox_errors() -> Iterator[None]:
    """Turn what the sandbox complains of into a command's error."""
    from sandbox.children import RefusedError, SandboxError

    try:
        yield
    except RefusedError as error:
        raise BadInputError(str(error)) from error
    except SandboxError as error:
        first, _, details = str(error).partition("\n")
        raise CannotBeDoneError(first, details) from error


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="How many nodes its cluster has.")] = 5,
    seed: Annotated[int, typer.Option(help="Chooses the sizes and times of its workloads.")] = 0,
    state_dir: StateDirOption = None,
    for_containers: Annotated[
        bool,
        typer.Option(
            "--for-containers", help="Answer containers too, at this machine's Docker bridge."
        ),
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(help="Another address that it answers at, besides 127.0.0.1."),
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(help="The name or IP address that functions reach it by.")
    ] = None,
    env_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what sam local invoke --env-vars takes."),
    ] = None,
    grow: Annotated[
        bool, typer.Option("--grow", help="Raise groups for pods that find no room.")
    ] = False,
    join: Annotated[
        float, typer.Option(min=0, help="Seconds from an instance that runs to its node.")
    ] = 4.0,
    pod_end: Annotated[
        float, typer.Option(min=0, help="Seconds that a pod takes to end, unless it says.")
    ] = 0.5,
    schedule_speed: Annotated[
        float, typer.Option(min=0, help="How fast schedules tick; 0: only on `fire`.")
    ] = 1.0,
    fault: FaultsOption = [],  # noqa: B006 - typer's own idiom
    output: FormatOption = Format.TABLE,
) -> None:
    """Run a sandbox until Ctrl-C, SIGTERM or `leeway sandbox down`."""
    if not FEWEST_NODES <= nodes <= MOST_NODES:
        raise BadInputError(f"--nodes: expected {FEWEST_NODES} to {MOST_NODES}, got {nodes}")
    if env_file is not None and not env_file.absolute().parent.is_dir():
        raise BadInputError(f"--env-file: {env_file.absolute().parent} is no folder")

    faults_wanted = read_faults(fault)

    from cli.progress import Progress
    from sandbox.sandbox import Sandbox
    from sandbox.scenario import demo_scenario

    signal.signal(signal.SIGTERM, _end)
    with sandbox_errors():
        reached = _addresses(for_containers, host, advertise)
    folder = state_dir or default_state_dir()
    with sandbox_errors(), ExitStack() as stack:
        with Progress(messages()) as progress:
            starting = Sandbox.start(
                demo_scenario(seed, nodes),
                state_dir=folder.absolute(),
                host=reached[0],
                advertise=reached[1],
                options={
                    "kubernetes": ["--node-join", str(join), "--pod-end", str(pod_end)],
                    "aws": ["--schedule-speed", str(schedule_speed)],
                },
                grow=grow,
                report_progress=progress.tell_start,
            )
            sandbox = stack.enter_context(starting)
        if fault:
            _break(sandbox, faults_wanted)
        # From here on Ctrl-C is the way to end it, not a way to break it off.
        signal.signal(signal.SIGINT, _end)
        if env_file is not None:
            env_file.write_text(json.dumps(sandbox.sam_environment(), indent=2) + "\n")
        _introduce(sandbox, output, env_file)
        _warn_if_unreached(sandbox)
        while True:
            signal.pause()


def _addresses(for_containers: bool, host: str | None, advertise: str | None) -> tuple[str, str]:
    """Return the address to listen at, and the one that is advertised."""
    from sandbox.containers import addresses_for_containers

    if for_containers and (host or advertise):
        raise BadInputError("--for-containers finds the address: give no --host or --advertise")
    if for_containers:
        return addresses_for_containers()
    return host or LOOPBACK, advertise or host or LOOPBACK


def _warn_if_unreached(sandbox: "Sandbox") -> None:
    """Say so when functions that run in the sandbox itself do not reach the advertised address."""
    advertise, port = sandbox.endpoints.advertise, urlsplit(sandbox.kubernetes_url).port
    try:
        socket.create_connection((advertise, port), timeout=REACH_PATIENCE).close()
    except OSError as error:
        messages().print(
            f"From here the cluster is not reached at {advertise} ({error.strerror or error}): only"
            " functions that run where it is, such as in sam local's containers, can drain nodes."
        )


def _end(*_: object) -> None:
    raise typer.Exit


def _introduce(sandbox: "Sandbox", output: Format, env_file: Path | None) -> None:
    environment = {
        **sandbox.environment(),
        "KUBECONFIG": str(sandbox.kubeconfig),
        "LEEWAY_CLUSTER": sandbox.endpoints.cluster,
    }
    if output is Format.JSON:
        print_json({**_ends(sandbox), "environment": environment})
        sys.stdout.flush()
        return
    console = results()
    console.print(f"AWS         {sandbox.aws_url}\nLambda      {sandbox.lambda_url}")
    console.print(f"Kubernetes  {sandbox.kubernetes_url}  (cluster {sandbox.endpoints.cluster})\n")
    for name, value in environment.items():
        console.print(f"export {name}={shlex.quote(value)}", soft_wrap=True)
    if env_file is not None:
        console.print(f"\nsam local invoke … --env-vars {env_file}", soft_wrap=True)
    messages().print("\nUntil Ctrl-C, or [bold]leeway sandbox down[/] from elsewhere.")


def _ends(sandbox: "Sandbox") -> dict[str, Any]:
    return {
        "cluster": sandbox.endpoints.cluster,
        "aws": sandbox.aws_url,
        "lambda": sandbox.lambda_url,
        "kubernetes": sandbox.kubernetes_url,
        "kubeconfig": str(sandbox.kubeconfig),
        "pid": sandbox.endpoints.pid,
    }


@app.command()
def down(state_dir: StateDirOption = None) -> None:
    """End the sandbox that `up` runs."""
    from sandbox.sandbox import is_running

    folder = state_dir or default_state_dir()
    with _attached(folder) as sandbox:
        os.kill(sandbox.endpoints.pid, signal.SIGTERM)
    patience = time.monotonic() + END_PATIENCE
    while is_running(folder):
        if time.monotonic() > patience:
            raise CannotBeDoneError(f"process {sandbox.endpoints.pid} has not ended yet")
        time.sleep(0.1)
    messages().print("The sandbox has ended.")


@app.command()
def status(state_dir: StateDirOption = None, output: FormatOption = Format.TABLE) -> None:
    """Show where the sandbox answers, and its nodes and pods."""
    with _attached(state_dir) as sandbox:
        parts = sandbox.status()
    nodes, pods = parts["kubernetes"]["nodes"], parts["kubernetes"]["running"]
    if output is Format.JSON:
        print_json({**_ends(sandbox), "nodes": nodes, "pods": pods, "parts": parts})
        return
    console = results()
    for name, value in _ends(sandbox).items():
        console.print(f"{name:<12}{value}", soft_wrap=True)
    console.print(f"{'nodes':<12}{nodes}\n{'pods':<12}{pods} running")


@app.command()
def send(
    event: Annotated[Path, typer.Argument(metavar="EVENT.json", help="An EventBridge event.")],
    copies: Annotated[int, typer.Option(min=1, help="How often it is delivered.")] = 1,
    state_dir: StateDirOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Deliver an event to the rules that match it, as EventBridge would."""
    content = _read_event(event)
    with _attached(state_dir) as sandbox:
        functions = sandbox.send(content, copies)
    if output is Format.JSON:
        print_json({"functions": functions})
    else:
        reached = ", ".join(functions) or "no function: no rule matches it"
        results().print(f"delivered to {reached}")


@app.command()
def interrupt(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node's name, or an instance id.")],
    late: Annotated[
        float, typer.Option(min=0, max=120, help="Seconds of the two minutes that are gone.")
    ] = 0.0,
    copies: Annotated[int, typer.Option(min=0, help="How often the warning is delivered.")] = 1,
    action: Annotated[
        InterruptionAction, typer.Option(help="What EC2 does to the instance.")
    ] = InterruptionAction.TERMINATE,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Recommend to rebalance, before the warning.")
    ] = False,
    warning: Annotated[
        bool, typer.Option(help="Whether the warning and the end follow at all.")
    ] = True,
    reservation: Annotated[
        bool, typer.Option("--reservation", help="Warn as of a capacity reservation's instance.")
    ] = False,
    state_dir: StateDirOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Let EC2 take an instance back, with its two-minute warning."""
    with _attached(state_dir) as sandbox:
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
        results().print(f"{instance} has its recommendation")
    else:
        left = max(begun["reclaim_at"] - time.time(), 0.0)
        results().print(f"{instance} has its warning; EC2 takes it in {left:.0f} s")


@app.command()
def schedules(
    speed: Annotated[
        float | None,
        typer.Option(min=0, help="Tick so many times as fast as life; 0: only on `fire`."),
    ] = None,
    state_dir: StateDirOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what is scheduled and when it is due, or change how fast that comes."""
    with _attached(state_dir) as sandbox:
        if speed is not None:
            sandbox.set_schedule_speed(speed)
        found = sandbox.schedules()
    if output is Format.JSON:
        print_json({"schedules": found})
        return
    for entry in found:
        line = f"{entry['name']:<40}{entry['expression']:<24}due {entry['due']}"
        results().print(line, soft_wrap=True)


@app.command()
def fire(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name or ARN.")],
    state_dir: StateDirOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Let a schedule invoke its target now."""
    with _attached(state_dir) as sandbox:
        functions = sandbox.fire(schedule)
    if output is Format.JSON:
        print_json({"functions": functions})
    else:
        results().print(f"invoked {', '.join(functions) or 'no function'}")


@app.command(
    help="Let the sandbox fail so, instead of as it did before; without any FAULT, heal all.\n\n"
    f"\b\n{FORMS}"
)
def faults(
    words: Annotated[list[str] | None, typer.Argument(metavar="FAULT")] = None,
    state_dir: StateDirOption = None,
) -> None:
    """Replace all faults by these."""
    wanted = read_faults(words or ())
    with _attached(state_dir) as sandbox:
        _break(sandbox, wanted)
    counts = ", ".join(f"{part} {len(found)}" for part, found in wanted.parts.items() if found)
    throttled = " EC2 and Auto Scaling limit rates." if wanted.throttle else ""
    messages().print(f"Faults: {counts or 'none'}.{throttled}")


def _break(sandbox: "Sandbox", wanted: Wanted) -> None:
    for part, found in wanted.parts.items():
        sandbox.faults(part, found)
    sandbox.throttle(enabled=wanted.throttle)


@contextmanager
def _attached(state_dir: Path | None) -> "Iterator[Sandbox]":
    from sandbox.sandbox import Sandbox

    with sandbox_errors():
        sandbox = Sandbox.attach(state_dir or default_state_dir())
        with closing(sandbox):
            yield sandbox


def _instance_of(sandbox: "Sandbox", node: str) -> str:
    instance = node if node.startswith("i-") else sandbox.instance_of(node)
    if instance is None:
        raise BadInputError(f"NODE: the sandbox has no node {node!r}")
    return instance


def _read_event(path: Path) -> Mapping[str, Any]:
    event = _read_json(path)
    if not isinstance(event, dict):
        raise BadInputError(f"{path}: expected a JSON object, an EventBridge event")
    for field in ("source", "detail-type", "detail"):
        if field not in event:
            raise BadInputError(f"{path}: {field}: missing; every EventBridge event has it")
    return event


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise BadInputError(f"{path}: expected JSON: {error}") from error
