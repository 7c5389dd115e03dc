"""Shows the progress of a rehearsal on a terminal."""

from rich.console import Console

from leeway_cli.progress_bars import ProgressBars


class RoundProgress(ProgressBars):
    """A bar of the rounds; nothing elsewhere, because a rehearsal takes seconds."""

    def __init__(self, console: Console, rounds: int) -> None:
        super().__init__(console, "{task.completed} of {task.total} rounds")
        self._task = self._bars.add_task("rehearsing", total=rounds)

    def show(self, done: int) -> None:
        """Show how many rounds are done."""
        self._bars.update(self._task, completed=done)
