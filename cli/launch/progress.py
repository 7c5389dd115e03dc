"""Shows the progress of a launch on stderr."""

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bars

from cli.launch.admissions import Joined
from cli.output import stderr_console


class LaunchProgress:
    """A context with a bar on a terminal, and with one line for each step elsewhere."""

    def __init__(self) -> None:
        self._console = stderr_console()
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed}/{task.total}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bars.add_task("Launching", total=None)

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

    def launched(self, count: int) -> None:
        """Show that so many instances were launched."""
        self._bars.update(self._task, description="Ready nodes", completed=0, total=count)
        if not self._console.is_terminal:
            self._console.print(f"Launched {count} instances; waiting for their nodes")

    def ended(self, joined: Joined) -> None:
        """Show that one instance is a Ready node, or will not be one in time."""
        self._bars.advance(self._task)
        if not self._console.is_terminal and joined.problem is None:
            self._console.print(f"Node {joined.node} ({joined.instance}) is Ready")
