"""Renders a report as one self-contained HTML file."""

import math
from typing import TYPE_CHECKING

from leeway_cli.html_templates import environment
from leeway_cli.report.model import Outcome, StormReport
from leeway_cli.report.run import Run
from leeway_cli.report.summary import (
    missing_for,
    owner_of,
    shortage_text,
    summarize,
    to_cordon,
    to_ready,
)
from leeway_cli.report.timeline import lay_out, short

if TYPE_CHECKING:
    from jinja2 import Environment

OUTCOMES = {
    Outcome.MOVED: "moved in time",
    Outcome.ENDED: "ended in time",
    Outcome.STAYED: "stayed",
    Outcome.CUT: "cut short",
    Outcome.NOT_RESCHEDULED: "not rescheduled",
    Outcome.DIED: "died",
}
NUMBERS = (
    *("No", "One", "Two", "Three", "Four", "Five", "Six"),
    *("Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"),
)


def render_page(report: StormReport, run: Run) -> str:
    """Render the report of a run as a self-contained HTML document."""
    return (
        page_environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            run=run,
            summary=summarize(report),
            timeline=lay_out(report),
            headline=headline(report),
            faults=report.all_faults,
            outcomes=OUTCOMES,
            to_cordon=to_cordon,
            to_ready=to_ready,
            missing_for=missing_for,
            owner_of=owner_of,
            shortage_text=shortage_text,
        )
    )


def headline(report: StormReport) -> str:
    """Return the result of the storm in one sentence."""
    count = summarize(report)
    number = NUMBERS[count.nodes] if count.nodes < len(NUMBERS) else str(count.nodes)
    interrupted = f"{number} node{'s' if count.nodes != 1 else ''} interrupted"
    if count.lost:
        return f"{interrupted}, {count.lost} of {count.pods} pods lost."
    if not report.good:
        return f"{interrupted}, with faults."
    if count.cut:
        return f"{interrupted}, {count.pods - count.cut} of {count.pods} pods moved in time."
    return f"{interrupted}, every pod moved in time."


def page_environment() -> "Environment":
    """Return the environment of the reports' templates."""
    found = environment()
    found.filters["seconds"] = _seconds
    found.filters["short"] = short
    return found


def _seconds(value: float | None) -> str:
    """Render seconds: two decimals below one second, a dash without a measurement."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.2f} s" if abs(value) < 1 else f"{value:.1f} s"
