"""`leeway sandbox up`: runs a sandbox until it is stopped. Other commands open it."""

import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.output import Format, FormatOption, print_json, stderr_console, stdout_console
from leeway_cli.sandbox.faults import read_faults
from leeway_cli.stack import CLUSTERS

if TYPE_CHECKING:
    from leeway_sandbox.real_cluster.target import RealCluster
    from leeway_sandbox.sandbox import Sandbox

StateDirOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Set the folder of the sandbox (default: one for each user)."),
]

LOOPBACK = "127.0.0.1"
USUAL_NODES = 5
CONNECT_TIMEOUT = 2.0  # seconds within which the advertised address must accept a connection
FEWEST_NODES, MOST_NODES = 3, 1000  # the workloads do not fit on fewer nodes

FaultsOption = Annotated[
    list[str],
    typer.Option("--fault", metavar="FAULT", help="Add a fault (see `sandbox faults --help`)."),
]
NodesOption = Annotated[
    int | None, typer.Option(help="Set the number of nodes.", show_default=str(USUAL_NODES))
]
SeedOption = Annotated[
    int, typer.Option(help="Set the seed of the sizes and times of the workloads.")
]
ForContainersOption = Annotated[
    bool,
    typer.Option(
        "--for-containers", help="Listen on the Docker bridge too, for functions in containers."
    ),
]
HostOption = Annotated[
    str | None, typer.Option(help="Listen on this address too, besides 127.0.0.1.")
]
AdvertiseOption = Annotated[
    str | None, typer.Option(help="Set the name or IP address that functions connect to.")
]
EnvFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a file for sam local invoke --env-vars.")
]
GrowOption = Annotated[
    bool, typer.Option("--grow", help="Scale groups out for pods that fit on no node.")
]
JoinOption = Annotated[
    float, typer.Option(min=0, help="Set the seconds between a running instance and its node.")
]
PodEndOption = Annotated[
    float, typer.Option(min=0, help="Set the seconds that a pod takes to end by default.")
]
ScheduleSpeedOption = Annotated[
    float, typer.Option(min=0, help="Set the speed of schedules; 0: they run only on `fire`.")
]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Use a test cluster (kind, k3d …) instead of an own Kubernetes."
    ),
]
ContextOption = Annotated[
    str | None, typer.Option(help="Set the context of --kubeconfig (default: its current one).")
]
YesThisClusterOption = Annotated[
    str | None,
    typer.Option(metavar="CONTEXT", help="Allow a cluster that is not on this machine, by name."),
]
JoinCommandOption = Annotated[
    str,
    typer.Option(
        metavar="COMMAND", help="Run this shell command for a launched instance: it adds a node."
    ),
]
LeaveCommandOption = Annotated[
    str,
    typer.Option(
        metavar="COMMAND", help="Run this shell command for an ended instance: it stops a node."
    ),
]


def up(
    nodes: NodesOption = None,
    seed: SeedOption = 0,
    state_dir: StateDirOption = None,
    for_containers: ForContainersOption = False,
    host: HostOption = None,
    advertise: AdvertiseOption = None,
    env_file: EnvFileOption = None,
    grow: GrowOption = False,
    join: JoinOption = 4.0,
    pod_end: PodEndOption = 0.5,
    schedule_speed: ScheduleSpeedOption = 1.0,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    yes_this_cluster: YesThisClusterOption = None,
    join_command: JoinCommandOption = "",
    leave_command: LeaveCommandOption = "",
    fault: FaultsOption = [],  # noqa: B006 - typer's own idiom
    output: FormatOption = Format.TABLE,
) -> None:
    """Run a sandbox until Ctrl-C, SIGTERM or `leeway sandbox down`."""
    _check(USUAL_NODES if nodes is None else nodes, env_file)
    if kubeconfig is None:
        _check_without_kubeconfig(context, yes_this_cluster, join_command, leave_command)
    elif nodes is not None or grow:
        raise BadInputError(
            "--kubeconfig: expected no --nodes or --grow with it: the cluster has the nodes that "
            "it has."
        )
    faults = read_faults(fault)
    signal.signal(signal.SIGTERM, _end)
    with sandbox_errors():
        addresses = _addresses(for_containers, host, advertise)
        real = None
        if kubeconfig is not None:
            from leeway_sandbox.real_cluster.target import find_cluster

            file = kubeconfig.absolute()
            real = find_cluster(file, context, yes_this_cluster, join_command, leave_command)
    options = {"aws": ["--schedule-speed", str(schedule_speed)]}
    if real is None:
        options["kubernetes"] = ["--node-join", str(join), "--pod-end", str(pod_end)]
    folder = (state_dir or default_state_dir()).absolute()
    with (
        sandbox_errors(),
        _started(nodes or USUAL_NODES, seed, folder, addresses, options, grow, real) as sandbox,
    ):
        if fault:
            faults.apply(sandbox)
        # From here on Ctrl-C is the usual way to stop the sandbox, and not an interrupt.
        signal.signal(signal.SIGINT, _end)
        if env_file is not None:
            env_file.write_text(json.dumps(sandbox.sam_environment(), indent=2) + "\n")
        _print_endpoints(sandbox, output, env_file)
        _warn_if_unreachable(sandbox)
        while True:
            signal.pause()


def _check(nodes: int, env_file: Path | None) -> None:
    if not FEWEST_NODES <= nodes <= MOST_NODES:
        raise BadInputError(f"--nodes: expected {FEWEST_NODES} to {MOST_NODES}, got {nodes}.")
    if env_file is not None and not env_file.absolute().parent.is_dir():
        raise BadInputError(
            f"--env-file: expected a file in a folder, but {env_file.absolute().parent} is no "
            "folder."
        )


def _check_without_kubeconfig(
    context: str | None, allowed: str | None, join: str, leave: str
) -> None:
    """Refuse the options that say something about a cluster of --kubeconfig."""
    given = {
        "--context": context,
        "--yes-this-cluster": allowed,
        "--join-command": join,
        "--leave-command": leave,
    }
    for option, value in given.items():
        if value:
            raise BadInputError(f"{option}: expected --kubeconfig with it.")


@contextmanager
def _started(
    nodes: int,
    seed: int,
    folder: Path,
    addresses: tuple[str, str],
    options: dict[str, list[str]],
    grow: bool,
    real: "RealCluster | None",
) -> "Iterator[Sandbox]":
    """Start a sandbox that listens on the first address and advertises the second."""
    from leeway_sandbox.sandbox import Sandbox
    from leeway_sandbox.scenario import demo_scenario, real_scenario

    from leeway_cli.demo.storm import Progress

    scenario = demo_scenario(seed, nodes)
    if real is not None:
        scenario = real_scenario(real.name, len(real.nodes))
    with ExitStack() as stack:
        with Progress(stderr_console()) as progress:
            starting = Sandbox.start(
                scenario,
                state_dir=folder,
                host=addresses[0],
                advertise=addresses[1],
                options=options,
                grow=grow,
                real=real,
                report_progress=progress.show_start,
            )
            sandbox = stack.enter_context(starting)
        yield sandbox


def _addresses(for_containers: bool, host: str | None, advertise: str | None) -> tuple[str, str]:
    """Return the address to listen on and the address to advertise."""
    from leeway_sandbox.containers import addresses_for_containers

    if for_containers and (host or advertise):
        raise BadInputError(
            "--for-containers: expected no --host or --advertise with it, because it finds the "
            "address itself."
        )
    if for_containers:
        return addresses_for_containers()
    return host or LOOPBACK, advertise or host or LOOPBACK


def _warn_if_unreachable(sandbox: "Sandbox") -> None:
    """Warn if functions on this machine cannot connect to the advertised address."""
    advertise, port = sandbox.endpoints.advertise, urlsplit(sandbox.kubernetes_url).port
    try:
        socket.create_connection((advertise, port), timeout=CONNECT_TIMEOUT).close()
    except OSError as error:
        stderr_console().print(
            f"This machine cannot connect to the cluster at {advertise} "
            f"({error.strerror or error}). Only functions in the network of this address, such as "
            "those in containers of sam local, can drain nodes."
        )


def _end(*_: object) -> None:
    raise typer.Exit


def _print_endpoints(sandbox: "Sandbox", output: Format, env_file: Path | None) -> None:
    environment: dict[str, Any] = {
        **sandbox.environment(),
        "KUBECONFIG": str(sandbox.kubeconfig),
        CLUSTERS: sandbox.endpoints.cluster,
        "LEEWAY_CLUSTER": sandbox.endpoints.cluster,
    }
    if output is Format.JSON:
        print_json({**endpoints_as_data(sandbox), "environment": environment})
        sys.stdout.flush()
        return
    console = stdout_console()
    console.print(f"AWS         {sandbox.aws_url}\nLambda      {sandbox.lambda_url}")
    console.print(f"Kubernetes  {sandbox.kubernetes_url}  (cluster {sandbox.endpoints.cluster})\n")
    for name, value in environment.items():
        console.print(f"export {name}={shlex.quote(value)}", soft_wrap=True)
    if env_file is not None:
        console.print(f"\nsam local invoke … --env-vars {env_file}", soft_wrap=True)
    stderr_console().print("\nStop it with Ctrl-C, or with [bold]leeway sandbox down[/].")


def default_state_dir() -> Path:
    """Return the folder of a sandbox's state, as the XDG base directory specification defines."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "leeway" / "sandbox"


@contextmanager
def sandbox_errors() -> Iterator[None]:
    """Turn errors of the sandbox into errors of the command."""
    from leeway_sandbox.errors import RefusedError, SandboxError

    try:
        yield
    except RefusedError as error:
        raise BadInputError(" ".join(str(error).split())) from error
    except SandboxError as error:
        first, _, details = str(error).partition("\n")
        raise CannotBeDoneError(first, details) from error


@contextmanager
def running_sandbox(state_dir: Path | None) -> "Iterator[Sandbox]":
    """Open the sandbox that runs with this state folder.

    Raises:
        CannotBeDoneError: none runs, or it does not answer.
    """
    from leeway_sandbox.sandbox import Sandbox

    with sandbox_errors():
        sandbox = Sandbox.attach(state_dir or default_state_dir())
        with closing(sandbox):
            yield sandbox


def endpoints_as_data(sandbox: "Sandbox") -> dict[str, Any]:
    """Render the endpoints of a sandbox as JSON."""
    return {
        "cluster": sandbox.endpoints.cluster,
        "aws": sandbox.aws_url,
        "lambda": sandbox.lambda_url,
        "kubernetes": sandbox.kubernetes_url,
        "kubeconfig": str(sandbox.kubeconfig),
        "pid": sandbox.endpoints.pid,
    }
