"""`leeway status`: what is under way in clusters now."""

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import BadInputError, CannotBeDoneError
from cli.output import Format, FormatOption, print_json, results
from cli.stack import CLUSTERS, DEFAULT_STACK, Stack, StackOption, find_stack

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from cli.situation import Situation

EVERY = 2.0
"""Seconds between two looks."""

SHOWN_AFTER = timedelta(minutes=1)
"""How long a retirement that has ended stays on the screen."""


def status(
    cluster: Annotated[
        str,
        typer.Option(metavar="NAME", envvar="LEEWAY_CLUSTER", help="Only this cluster."),
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C.")] = False,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show retirements with their pods, admissions, headroom, and what cannot be read.

    The pods are as retire_node last told, at most some seconds ago.
    """
    if watch and output is Format.JSON:
        raise BadInputError("--output: expected table with --watch, which never ends")
    found = find_stack(stack)
    names = (cluster,) if cluster else found.clusters
    if names is None:
        raise BadInputError(f"--cluster: expected a name, since {CLUSTERS} names none")
    if watch:
        _watch(found, names, results())
        return

    from cli.situation import read_situation

    situations = [read_situation(found, name) for name in names]
    if output is Format.JSON:
        from cli.situation_view import as_data

        print_json(as_data(situations))
    else:
        from cli.situation_view import as_view

        results().print(as_view(situations, datetime.now(UTC)), soft_wrap=True)


def _watch(stack: Stack, names: Sequence[str], console: "Console") -> None:
    """Show it anew every two seconds: in place on a terminal, else whenever it has changed."""
    from rich.live import Live

    shown = ""
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    with suppress(KeyboardInterrupt), live or nullcontext():
        for view in _views(stack, names):
            if live is not None:
                live.update(view, refresh=True)
                continue
            with console.capture() as captured:
                console.print(view, soft_wrap=True)
            if captured.get() != shown:
                shown = captured.get()
                console.print(view, soft_wrap=True)


def _views(stack: Stack, names: Sequence[str]) -> Iterator["RenderableType"]:
    """Look every two seconds, for ever; trouble on the way is shown instead, and passes."""
    from rich.text import Text

    from cli.situation_view import as_view

    watched = Watched()
    yield as_view(watched.look(stack, names), datetime.now(UTC))
    while True:
        time.sleep(EVERY)
        try:
            yield as_view(watched.look(stack, names), datetime.now(UTC))
        except CannotBeDoneError as error:
            yield Text(str(error), style="red")


class Watched:
    """Remembers what was under way, so that its end is seen too."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, datetime]] = {}

    def look(self, stack: Stack, names: Sequence[str]) -> "list[Situation]":
        """Read how it stands now, with what has ended a short while ago.

        Raises:
            CannotBeDoneError: the table cannot be read.
        """
        from leeway.retirement.record import OVER

        from cli.situation import read_situation

        now = datetime.now(UTC)
        situations = []
        for name in names:
            seen = {i: at for i, at in self._seen.get(name, {}).items() if now - at < SHOWN_AFTER}
            situation = read_situation(stack, name, seen)
            for one in situation.retirements:
                if one.record.phase not in OVER:
                    seen[one.record.instance] = now
            self._seen[name] = seen
            situations.append(situation)
        return situations
