"""Renders the plan of each pod as JSON or as a table."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leeway_cli.output import picked, table

if TYPE_CHECKING:
    from leeway.interruption.explain import PodPlan
    from rich.table import Table


def pods_as_data(plans: "Sequence[PodPlan]") -> list[dict[str, Any]]:
    """Render the plans of pods as JSON."""
    renamed = {"decision": "action", "latestMoment": "latest", "gracePeriodSeconds": "grace"}
    return [picked(plan, "pod", "reason", "warning", "critical", **renamed) for plan in plans]


def pods_as_table(plans: "Sequence[PodPlan]", answers: Mapping[str, str] | None = None) -> "Table":
    """Render the plans of pods as a table. `answers` are those of the API server, by pod."""
    from rich.text import Text

    rows = table("POD", "DECISION", "LATEST", "GRACE", "REASON")
    for plan in plans:
        answer = f" The API server: {answers[plan.pod]}" if answers and plan.pod in answers else ""
        reason = plan.reason.message + (f" Loss: {plan.warning}." if plan.warning else "")
        latest = f"{plan.latest:%H:%M:%S}" if plan.latest else "-"
        # As Text: an API server's message may have brackets, which rich would read as markup.
        rows.add_row(plan.pod, plan.action.value, latest, f"{plan.grace}s", Text(reason + answer))
    return rows
