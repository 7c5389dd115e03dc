"""What would become of each pod, as data and as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leeway.retire_node.plan import PodPlan
    from rich.table import Table


def pods_as_data(plans: "Sequence[PodPlan]") -> list[dict[str, Any]]:
    """Render pods' plans for JSON."""
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
    """Render pods' plans for a terminal; `answers` are the API server's, by pod."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("POD", "DECISION", "LATEST", "GRACE", "WHY"):
        table.add_column(title, overflow="fold")
    for plan in plans:
        said = f" The server: {answers[plan.pod]}" if answers and plan.pod in answers else ""
        why = plan.reason.message + (f" Loss: {plan.warning}." if plan.warning else "")
        latest = f"{plan.latest:%H:%M:%S}" if plan.latest else "-"
        # As it is: an API server's words may have brackets, which would pass for markup.
        table.add_row(plan.pod, plan.action.value, latest, f"{plan.grace}s", Text(why + said))
    return table
