"""Simulates the three days of the scale-down report, and shows the progress."""

from rich.console import Console

from leeway_cli.progress_bars import ProgressBars
from leeway_cli.report.scale_down import ScaleDownReport
from leeway_cli.simulated_day.cluster import Options
from leeway_cli.simulated_day.day import simulate
from leeway_cli.simulated_day.record import Moment, Record
from leeway_cli.simulated_day.workload import DAY


def simulate_days(seed: int, console: Console, minutes: int = DAY) -> ScaleDownReport:
    """Simulate a day with Leeway, one in which only empty nodes are given back, and one in which
    none is, all with the same pods."""
    with _Progress(console) as progress:
        return ScaleDownReport(
            leeway=progress.day("Leeway", Options(seed, minutes)),
            only_empty=progress.day("Only empty nodes", Options(seed, minutes, only_empty=True)),
            never=progress.day("No give-back", Options(seed, minutes, gives_back=False)),
        )


class _Progress(ProgressBars):
    """A context that shows the minutes of days on the given console."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "{task.fields[now]}")

    def day(self, name: str, options: Options) -> Record:
        """Simulate one day."""
        task = self._bars.add_task(name, total=options.minutes, now="")
        if not self._console.is_terminal:
            self._console.print(f"{name}: a day of {options.minutes // 60} hours is simulated")

        def show(moment: Moment) -> None:
            now = (
                f"{moment.minute // 60:02}:{moment.minute % 60:02}, {moment.nodes} nodes,"
                f" {moment.price:.2f} USD per hour"
            )
            self._bars.update(task, completed=moment.minute + 1 - options.start, now=now)

        return simulate(options, show)
