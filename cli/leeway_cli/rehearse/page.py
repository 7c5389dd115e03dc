"""Renders a rehearsal as one self-contained HTML file."""

import shlex

from leeway_cli.html_templates import environment
from leeway_cli.rehearse.chart import lay_out
from leeway_cli.rehearse.report import COUNTS, Rehearsal
from leeway_cli.rehearse.rounds import counts
from leeway_cli.rehearse.words import losses, number, price, seconds, spread

_MOST_PODS = 400
"""Rows of the table of pods: a page of more is slow to open, and -o json lists all."""


def render_rehearsal(found: Rehearsal) -> str:
    """Render the page of a rehearsal."""
    pages = environment()
    pages.filters["number"] = number
    pages.filters["seconds"] = seconds
    worst = found.result.worst
    moving = [fate for fate in worst.fates if not fate.left]
    return pages.get_template("rehearsal.html.j2").render(
        found=found,
        result=found.result,
        worst=worst,
        counts=counts(worst),
        names=COUNTS,
        chart=lay_out(found.result.workloads, found.rounds),
        headline=headline(found),
        faults=(),
        lost=losses(found.lose),
        command=_command(found),
        pods=moving[:_MOST_PODS],
        more_pods=max(0, len(moving) - _MOST_PODS),
        below=sum(one.below_budget.worst >= 1 for one in found.result.workloads),
        stopped=sum(one.none_ready.worst >= 1 for one in found.result.workloads),
        price=price(found.price, found.rounds),
        spread=lambda value, unit="": spread(value, found.rounds, unit),
    )


def headline(found: Rehearsal) -> str:
    """Return the result of a rehearsal in one sentence."""
    workloads = found.result.workloads
    hurt = sum(
        one.back is None or one.none_ready.worst >= 1 or one.below_budget.worst >= 1
        for one in workloads
    )
    what = f"{losses(found.lose)} lost"
    if not workloads:
        return f"{what}: no pod has to move."
    if not hurt:
        return f"{what}: every workload keeps running within its budget."
    return f"{what}: {hurt} of {len(workloads)} workloads stop or fall below their budgets."


def _command(found: Rehearsal) -> str:
    words = ["leeway", "rehearse"]
    for one in found.lose:
        words += ["--lose", one]
    if found.rounds > 1:
        words += ["--rounds", str(found.rounds), "--seed", str(found.seed)]
    return shlex.join(words)
