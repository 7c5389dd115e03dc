"""`leeway view`: reads the cluster again and again, and shows it in a browser."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli import options
from leeway_cli.errors import BadInputError, CannotBeDoneError, CommandError, kubernetes_errors
from leeway_cli.explain.asked import ClusterName
from leeway_cli.manifests.files import FilesOption
from leeway_cli.output import kept_warnings, write_stderr, write_stdout
from leeway_cli.selection.sources import RegionOption, SandboxOption
from leeway_cli.stack import DEFAULT_STACK, StackOption, find_stack, has_account, open_cluster

if TYPE_CHECKING:
    from leeway.costs import CostHour
    from leeway.provisioning.cluster_state import ClusterStates

    from leeway_cli.explain.capacity import Source
    from leeway_cli.logs import Line, LogSearch
    from leeway_cli.view.picture import Picture
    from leeway_cli.view.server import Page

SHORTEST = timedelta(seconds=1)
"""The shortest time between two reads."""

LOG_KEPT = timedelta(hours=1)
"""How old the lines of the log are at first."""

LOG_EVERY = 2.0
"""Seconds between two searches of the log, as with `leeway logs --follow`."""

COSTS_SHOWN = timedelta(hours=23)
"""How far back the prices that the functions recorded are shown: a time of the day is one time."""

COSTS_EVERY = 300.0
"""Seconds between two reads of them: `reconcile` records each five minutes."""


def view(
    invocation: typer.Context,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the last hour of the page in this new file."),
    ] = None,
    play: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Play a file of --record instead of a cluster."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Set the port of the page; 0: one that is free.")
    ] = 0,
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="Set the time between two reads.")
    ] = "5s",
    files: FilesOption = None,
    cluster: ClusterName = "",
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
) -> None:
    """Show the cluster in a browser: nodes that fill with pods, deadlines, prices and the plan.

    Prints the address of a page on 127.0.0.1, which updates by itself until Ctrl-C. Nobody gets in
    without the token in the address. Reads what `leeway nodes` reads: a kubeconfig is enough, AWS
    adds prices, --cluster retirements, launches and the log of decisions. Changes nothing.

    \b
    leeway view --cluster prod
    leeway view --cluster prod --record incident.jsonl
    leeway view --play incident.jsonl
    """
    if play:
        _refuse_others(invocation)
    between = options.parse_duration("--every", every)
    if between < SHORTEST:
        raise BadInputError(f"--every: expected at least 1s, got {every}.")
    with suppress(KeyboardInterrupt):
        if play:
            _play(play, port)
            return
        from leeway.clock import SystemClock
        from leeway.kubernetes.cluster_states import KubernetesClusterStates

        from leeway_cli.explain.capacity import Source

        source = Source(
            *(files or (), (), cluster, kubeconfig, context, sandbox, region, stack), optional=True
        )
        with kubernetes_errors(), closing(open_cluster(cluster, kubeconfig, context)) as connection:
            states = KubernetesClusterStates(lambda _: connection, SystemClock())
            _show(_pictures(source, states), port, record, between)


def _refuse_others(invocation: typer.Context) -> None:
    """Refuse options that a recording does not use, unless the environment has them."""
    for one in invocation.command.params:
        source = invocation.get_parameter_source(one.name or "")
        given = source is not None and source.name == "COMMANDLINE"
        if given and one.name not in {"play", "port"}:
            raise BadInputError(f"--play: expected no other option than --port, got {one.opts[0]}.")


def _play(path: Path, port: int) -> None:
    from leeway_cli.view.recording import read_recording
    from leeway_cli.view.server import Page, serve

    async def run() -> None:
        await serve(Page(recording), port, _announce, _forever)

    recording = read_recording(path)
    asyncio.run(run())


async def _forever(_: "Page") -> None:
    await asyncio.Event().wait()


async def _say_when_opened(page: "Page") -> None:
    await page.opened.wait()
    _print("A browser has opened the page.")


def _announce(address: str) -> None:
    write_stderr("Open this address in a browser of this machine. Ctrl-C ends the page.")
    _print(address)


def _print(line: str) -> None:
    """Print a line at once, also into a pipe."""
    write_stdout(line)
    sys.stdout.flush()


def _pictures(source: "Source", states: "ClusterStates") -> "Iterator[Picture]":
    """Yield what the page shows, one picture for each read. The first read raises its errors; a
    later one that fails leaves the picture before, with the problem."""
    from leeway_cli.nodes.reading import NodeReading
    from leeway_cli.view.picture import failed, picture_of

    reading, log, costs = NodeReading(source), _Log(source), _Costs(source)
    picture: Picture | None = None
    while True:
        try:
            with kept_warnings() as warnings:
                seen = reading.read(states)
                lines, hours = log.new_lines(), costs.hours()
            picture = picture_of(seen, picture, lines, warnings, source.cluster, hours)
        except CommandError as error:
            if picture is None:
                raise
            picture = failed(picture, str(error), time.time())
        yield picture


class _Log:
    """The decisions of the functions, if a deployment of Leeway can be asked for them."""

    def __init__(self, source: "Source") -> None:
        self._search = _search(source) if source.cluster and has_account() else None
        self._searched_at = float("-inf")
        self._problem = ""

    def new_lines(self) -> "list[Line]":
        """Return the lines since the last call. What cannot be read is a warning, until it can."""
        lines: list[Line] = []
        if self._search is not None and time.monotonic() - self._searched_at >= LOG_EVERY:
            self._searched_at, self._problem = time.monotonic(), ""
            try:
                lines = self._search.new_lines()
            except CannotBeDoneError as error:
                self._problem = f"warning: the log of decisions is not known: {error}"
                lines = self._search.unreturned()
        if self._problem:
            write_stderr(self._problem)
        return lines


class _Costs:
    """What the functions recorded of the last day, if a deployment can be asked for it."""

    def __init__(self, source: "Source") -> None:
        self._source = source
        self._hours: list[CostHour] = []
        self._asks = bool(source.cluster) and has_account()
        self._read_at = float("-inf")
        self._problem = ""

    def hours(self) -> "list[CostHour]":
        """Return the hours, as read some minutes ago at most. What cannot be read is a warning,
        until it can."""
        if self._asks and time.monotonic() - self._read_at >= COSTS_EVERY:
            from leeway_cli.cost import read_hours

            self._read_at, self._problem, now = time.monotonic(), "", datetime.now(UTC)
            try:
                stack = find_stack(self._source.stack)
                self._hours = [*read_hours(stack, self._source.cluster, now - COSTS_SHOWN, now)]
            except CannotBeDoneError as error:
                self._problem = f"warning: the prices of before are not known: {error}"
        if self._problem:
            write_stderr(self._problem)
        return self._hours


def _search(source: "Source") -> "LogSearch":
    from leeway_cli.logs import FUNCTIONS, About, Level, LogSearch

    since = datetime.now(UTC) - LOG_KEPT
    about = About(cluster=source.cluster)
    return LogSearch(source.stack, FUNCTIONS, about, Level.INFO, since)


def _show(
    pictures: "Iterator[Picture]", port: int, record: Path | None, between: timedelta
) -> None:
    """Serve the pictures, which are read in a thread of their own, until Ctrl-C."""
    from leeway_cli.view.recording import Recording
    from leeway_cli.view.server import Page, serve

    first = next(pictures)
    recording: Recording | None = None
    with ExitStack() as open_files:

        async def run() -> None:
            await serve(Page(every=between), port, begin, follow)

        def begin(address: str) -> None:
            nonlocal recording
            if record:  # the port is ours: a command that fails before leaves no empty file
                recording = open_files.enter_context(Recording(record))
            _announce(address)

        async def follow(page: "Page") -> None:
            loop = asyncio.get_running_loop()
            ended: asyncio.Future[None] = loop.create_future()

            def show(picture: "Picture") -> None:
                if recording is not None:
                    recording.add(picture)
                loop.call_soon_threadsafe(page.publish, picture)

            def end(error: BaseException) -> None:
                if not ended.done():
                    ended.set_exception(error)

            def read() -> None:
                try:
                    _follow(first, pictures, show, between)
                except BaseException as error:  # noqa: BLE001 - the command raises it
                    with suppress(RuntimeError):  # the loop has ended
                        loop.call_soon_threadsafe(end, error)

            Thread(target=read, daemon=True, name="read-cluster").start()
            opened = asyncio.create_task(_say_when_opened(page))
            try:
                await ended
            finally:
                opened.cancel()

        asyncio.run(run())


def _follow(
    picture: "Picture",
    pictures: "Iterator[Picture]",
    show: "Callable[[Picture], None]",
    between: timedelta,
) -> None:
    while True:
        show(picture)
        time.sleep(between.total_seconds())
        picture = next(pictures)
