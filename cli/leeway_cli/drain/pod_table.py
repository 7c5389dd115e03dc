"""Renders the plan of each pod as JSON or as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leeway.interruption.explain import PodPlan
    from rich.table import Table


def pods_as_data(plans: "Sequence[PodPlan]") -> list[dict[str, Any]]:
    """Render the plans of pods as JSON."""
    return [
        {
            "pod": plan.pod,
            "decision": plan.action.value,
            "reason": asdict(plan.reason),
            "warning": plan.warning,
            "critical": plan.critical,
            "latestMoment": plan.latest.isoformat() if plan.latest else None,
            "gracePeriodSeconds": plan.grace,
        }
        for plan in plans
    ]


def pods_as_table(plans: "Sequence[PodPlan]", answers: Mapping[str, str] | None = None) -> "Table":
    """Render the plans of pods as a table. `answers` are those of the API server, by pod."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("POD", "DECISION", "LATEST", "GRACE", "REASON"):
        table.add_column(title, overflow="fold")
    for plan in plans:
        answer = f" The API server: {answers[plan.pod]}" if answers and plan.pod in answers else ""
        reason = plan.reason.message + (f" Loss: {plan.warning}." if plan.warning else "")
        latest = f"{plan.latest:%H:%M:%S}" if plan.latest else "-"
        # As Text: an API server's message may have brackets, which rich would read as markup.
        table.add_row(plan.pod, plan.action.value, latest, f"{plan.grace}s", Text(reason + answer))
    return table
