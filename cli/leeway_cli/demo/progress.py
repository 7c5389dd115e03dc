"""Shows the progress of a demo: a bar on a terminal, plain lines elsewhere."""

import time

from rich.console import Console

from leeway_cli.progress_bars import ProgressBars
from leeway_cli.report.model import Outcome, StormPlan, StormReport
from leeway_cli.report.scale_up import ScaleUpPlan, ScaleUpReport
from leeway_cli.report.summary import drained_in_time


class Progress(ProgressBars):
    """A context that shows progress on the given console."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "{task.fields[now]}")
        self._task = self._bars.add_task("Sandbox", total=None, now="")
        self._ends_at = 0.0

    def show_start(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Show what the sandbox does, and its progress if the total is known."""
        self._bars.update(self._task, now=what, completed=done, total=total)
        if not self._console.is_terminal and total is None:
            self._console.print(f"Sandbox: {what}")

    def storm(self, plan: StormPlan) -> None:
        """Show that the storm begins."""
        left = plan.warning - plan.late
        self._ends_at = time.monotonic() + left
        self._bars.update(self._task, visible=False)
        self._task = self._bars.add_task("Storm", total=1, now="")
        if not self._console.is_terminal:
            self._console.print(
                f"Storm: EC2 reclaims {len(plan.targets)} nodes in {left:.0f} s; their pods move"
            )

    def show_storm(self, report: StormReport) -> None:
        """Show the progress of the storm."""
        pods = report.moving
        in_time = {Outcome.MOVED, Outcome.ENDED, Outcome.CUT}
        moved = sum(1 for pod in pods if pod.evaluation.outcome in in_time)
        nodes = sum(1 for node in report.nodes if drained_in_time(node))
        left = max(0.0, self._ends_at - time.monotonic())
        now = (
            f"{moved}/{len(pods)} pods moved, {nodes}/{len(report.nodes)} nodes empty,"
            f" {left:.0f} s left"
        )
        if report.launches:
            fallbacks = sum(launch.fallback for launch in report.launches)
            short = f", {fallbacks} on-demand because Spot is short" if fallbacks else ""
            now += f"; Leeway launched {len(report.launches)}{short}"
        elif report.shortages:
            now += "; capacity is short"
        self._bars.update(self._task, completed=moved, total=max(len(pods), 1), now=now)

    def scale_up(self, plan: ScaleUpPlan) -> None:
        """Show that the scale-up begins."""
        self._bars.update(self._task, visible=False)
        self._task = self._bars.add_task("Scale-up", total=plan.after, now="")
        if not self._console.is_terminal:
            self._console.print(
                f"Scale-up: {plan.owner} gets {plan.after} pods instead of {plan.before};"
                " Leeway launches nodes"
            )

    def show_scale_up(self, report: ScaleUpReport) -> None:
        """Show the progress of the scale-up."""
        last, launched = report.last, len(report.launches)
        ready = sum(one.ready_at is not None for one in report.launches)
        now = f"{last.pending} pods pending, {last.running} running"
        if launched:
            now += f"; {ready}/{launched} new nodes Ready, {report.price:.2f} USD per hour"
        elif report.shortages:
            now += "; capacity is short"
        self._bars.update(self._task, completed=last.running, now=now)
