"""Progress bars on a terminal, which commands show while they work."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn


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
