"""Renders a story as one HTML file that needs nothing else."""

import math
from typing import TYPE_CHECKING

from cli.pages import environment
from cli.report.figures import figures, missing_for, to_cordon, to_ready
from cli.report.run import Run
from cli.report.story import Outcome, Story
from cli.report.timeline import lay_out, short

if TYPE_CHECKING:
    from jinja2 import Environment

WORDS = {
    Outcome.MOVED: "moved in time",
    Outcome.ENDED: "ended in time",
    Outcome.STAYED: "stayed",
    Outcome.CUT: "cut short",
    Outcome.UNPLACED: "has no place",
    Outcome.DIED: "died",
}
NUMBERS = (
    *("No", "One", "Two", "Three", "Four", "Five", "Six"),
    *("Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"),
)


def render_page(story: Story, run: Run) -> str:
    """The report of a run as a self-contained HTML document."""
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            story=story,
            run=run,
            figures=figures(story),
            timeline=lay_out(story),
            headline=headline(story),
            words=WORDS,
            to_cordon=to_cordon,
            to_ready=to_ready,
            missing_for=missing_for,
        )
    )


def headline(story: Story) -> str:
    """The whole story in one sentence."""
    count = figures(story)
    number = NUMBERS[count.nodes] if count.nodes < len(NUMBERS) else str(count.nodes)
    taken = f"{number} node{'s' if count.nodes != 1 else ''} taken"
    if count.lost:
        return f"{taken}, {count.lost} of {count.pods} pods lost."
    if not story.good:
        return f"{taken}, and not all went right."
    if count.cut:
        return f"{taken}, {count.pods - count.cut} of {count.pods} pods moved in time."
    return f"{taken}, every pod moved in time."


def _environment() -> "Environment":
    made = environment()
    made.filters["seconds"] = _seconds
    made.filters["short"] = short
    return made


def _seconds(value: float | None) -> str:
    """Seconds to read: two digits below ten, none where nothing was measured."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.2f} s" if abs(value) < 1 else f"{value:.1f} s"
