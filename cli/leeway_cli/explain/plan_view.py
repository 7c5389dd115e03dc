"""Renders the plan for a notice as JSON or for a terminal."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from leeway.interruption.explain import DRAINS, Explanation, InstancePlan
from leeway.policy.rules import Ruling

from leeway_cli.drain.run import pods_as_data, pods_as_table
from leeway_cli.output import picked

if TYPE_CHECKING:
    from rich.console import Console


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Render a plan as JSON."""
    return {
        "notice": picked(explanation.notice, "id", "kind", "time", "effective_at"),
        "policy": _ruling_as_data(explanation.ruling),
        "instances": [_instance_as_data(plan) for plan in explanation.instances],
    }


def _instance_as_data(plan: InstancePlan) -> dict[str, Any]:
    about = ("instance", "cluster", "owner", "node", "node_reason", "reason", "begins_at")
    new = ("replacement", "replacement_reason", "replacement_first", "remarks")
    return {
        **picked(plan, *about, *new, decision="action"),
        "policy": _ruling_as_data(plan.ruling) | {"source": plan.policy_source},
        "pods": pods_as_data(plan.pods),
    }


def _ruling_as_data(ruling: Ruling) -> dict[str, Any]:
    return picked(ruling, "action", "reason", "deadline", "replacement", "on_blocked")


def show(explanation: Explanation, console: "Console") -> None:
    """Print a plan."""
    from rich.markup import escape

    notice = explanation.notice
    console.print(
        f"[bold]{notice.kind}[/] of {_utc(notice.time)}, {escape(notice.id)}", soft_wrap=True
    )
    if not explanation.instances:
        console.print(f"  {explanation.ruling.action}: {explanation.ruling.reason}", markup=False)
    for plan in explanation.instances:
        _show_instance(plan, console)


def _show_instance(plan: InstancePlan, console: "Console") -> None:
    ruling = plan.ruling
    owner = f" ({plan.owner})" if plan.owner else ""
    first = ", before the drain" if plan.replacement_first else ""
    lines = {
        "decision": f"{plan.action}: {plan.reason}",
        "policy": f"{plan.policy_source}: {ruling.action}",
        "cluster": plan.cluster or "unknown",
        "node": f"{plan.node or 'none'}: {plan.node_reason}",
    }
    if plan.action in DRAINS:
        lines |= {
            "begins": _utc(plan.begins_at) if plan.begins_at else "at once",
            "deadline": _utc(ruling.deadline) if ruling.deadline else "none",
            "blocked pods": str(ruling.on_blocked),
            "replacement": f"{plan.replacement or 'unknown'}: {plan.replacement_reason}{first}",
        }
    from rich.markup import escape

    console.print(f"\n[bold]{plan.instance}[/]{escape(owner)}")
    for title, text in lines.items():
        console.print(f"  {title:<13}{text}", soft_wrap=True, markup=False)
    for remark in plan.remarks:
        console.print(f"  {'remark':<13}{remark}", soft_wrap=True, markup=False)
    if plan.pods:
        console.print(pods_as_table(plan.pods))


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
