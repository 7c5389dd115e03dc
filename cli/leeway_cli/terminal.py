"""A console for untrusted text: control characters are shown and have no effect. Progress bars."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Any, Self

from leeway.printable import printable_lines
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.segment import Segment
from rich.style import Style


class Terminal(Console):
    """Shows control characters of text as `\\u001b`. Colours and cursor movements come from styles
    and control segments and are not changed."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render an object as segments of printable text."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable_lines(text), style, control)


def terminal(**settings: Any) -> Console:
    """Return a console without highlighting."""
    return Terminal(highlight=False, **settings)


class ProgressBars:
    """A context with bars on a terminal, whose last column has the format `last`. Elsewhere it
    shows no bars: a subclass prints lines."""

    def __init__(self, console: Console, last: str) -> None:
        self._console = console
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn(last),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()


_LAST = 5
"""Lines at the end of a view that are shown in any case: the totals are there."""


class _Fitted:
    """A view that has at most as many lines as the terminal. A longer one loses its middle."""

    def __init__(self, view: RenderableType) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._view, options, pad=False)
        room = max(options.size.height - 1, _LAST + 2)
        if len(lines) > room:
            first = room - _LAST - 1
            words = f"… {len(lines) - first - _LAST:,} lines more"
            lines[first:-_LAST] = [[Segment(words, Style(dim=True))]]
        for line in lines:
            yield from line
            yield Segment.line()


def show_changes(views: Iterator[RenderableType], console: Console) -> None:
    """Print views until Ctrl-C: in place on a terminal, elsewhere after each change."""
    shown = ""
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    with suppress(KeyboardInterrupt), live or nullcontext():
        for view in views:
            if live is not None:
                live.update(_Fitted(view), refresh=True)
                continue
            with console.capture() as captured:
                console.print(view, soft_wrap=True)
            if captured.get() != shown:
                shown = captured.get()
                console.print(view, soft_wrap=True)
