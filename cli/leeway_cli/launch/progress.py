"""Shows the progress of a launch on stderr."""

from leeway_cli.launch.admissions import Joined
from leeway_cli.output import stderr_console
from leeway_cli.progress_bars import ProgressBars


class LaunchProgress(ProgressBars):
    """A context with a bar on a terminal, and with one line for each step elsewhere."""

    def __init__(self) -> None:
        super().__init__(stderr_console(), "{task.completed}/{task.total}")
        self._task = self._bars.add_task("Launching", total=None)

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
