"""Previews and outcomes of launches, as data and for a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from leeway_cli.output import stdout_console

if TYPE_CHECKING:
    from leeway.launch.launch_nodes import LaunchPreview
    from leeway.launch.outcome import LaunchOutcome
    from leeway.launch.prepare import PreparedLaunch

    from leeway_cli.launch.admissions import Joined


def print_preview(preview: "LaunchPreview") -> None:
    """Print the fleet requests of a preview as a table."""
    from rich.table import Table

    console = stdout_console()
    table = Table(box=None, pad_edge=False)
    for title in ("POOL", "NODES", "CAPACITY", "TYPES", "ZONES", "TEMPLATES"):
        table.add_column(title, overflow="fold", justify="right" if title == "NODES" else "left")
    for one in preview.prepared:
        request = one.intent.request
        if request is not None:
            kinds = list(dict.fromkeys(each.instance_type for each in request.overrides))
            zones = sorted({each.zone for each in request.overrides})
            templates = [each.name for each in one.templates]
            table.add_row(
                one.intent.pool,
                str(request.count),
                request.capacity_type,
                _some(kinds),
                _some(zones),
                _some(templates, 1),
            )
    if preview.prepared:
        console.print(table)
    for placement in preview.plan.existing:
        console.print(f"on {placement.node}: {_some(placement.pods, 8)}", soft_wrap=True)
    for miss in preview.outcome.without_node:
        console.print(miss.reason.message, soft_wrap=True, markup=False)


def preview_as_data(preview: "LaunchPreview") -> dict[str, Any]:
    """Render a preview for JSON."""
    return {
        "launches": [_prepared(one) for one in preview.prepared],
        **outcome_as_data(preview.outcome),
    }


def print_launch(outcome: "LaunchOutcome", joined: "Sequence[Joined]") -> None:
    """Print the launched instances and their nodes as a table."""
    from rich.table import Table

    console = stdout_console()
    table = Table(box=None, pad_edge=False)
    for title in ("NODE", "INSTANCE", "POOL", "TYPE", "ZONE", "CAPACITY"):
        table.add_column(title, overflow="fold")
    nodes = {one.instance: one.node for one in joined if one.problem is None}
    for one in outcome.launched:
        launched = one.instance
        node = nodes.get(launched.instance, "not Ready")
        place = (launched.instance_type, launched.zone, launched.capacity_type)
        table.add_row(node, launched.instance, one.pool, *place)
    if outcome.launched:
        console.print(table)
    else:
        console.print("Leeway launched no node.")


def launch_as_data(outcome: "LaunchOutcome", joined: "Sequence[Joined]") -> dict[str, Any]:
    """Render a launch for JSON."""
    nodes = [
        {
            "instance": one.instance,
            "node": one.node or None,
            "ready": one.problem is None,
            "reason": one.problem,
        }
        for one in joined
    ]
    return {**outcome_as_data(outcome), "nodes": nodes}


def outcome_as_data(outcome: "LaunchOutcome") -> dict[str, Any]:
    """Render an outcome for JSON."""
    return {
        "launched": [
            {
                "instance": one.instance.instance,
                "instanceType": one.instance.instance_type,
                "zone": one.instance.zone,
                "capacityType": one.instance.capacity_type,
                "nodePool": one.pool,
                "intent": one.intent,
            }
            for one in outcome.launched
        ],
        "placed": [{"node": one.node, "pods": list(one.pods)} for one in outcome.placed],
        "withoutNode": [
            {"pod": one.pod, "code": one.reason.code, "reason": one.reason.message}
            for one in outcome.without_node
        ],
        "reasons": [{"code": one.code, "reason": one.message} for one in outcome.reasons],
    }


def _prepared(one: "PreparedLaunch") -> dict[str, Any]:
    request = one.intent.request
    overrides = request.templates if request is not None else ()
    return {
        "nodePool": one.intent.pool,
        "pods": list(one.intent.pods),
        "count": request.count if request is not None else 0,
        "capacityType": request.capacity_type if request is not None else "",
        "launchTemplates": [
            {
                "name": each.template,
                "overrides": [
                    {
                        "instanceType": override.instance_type,
                        "zone": override.zone,
                        "subnet": override.subnet,
                    }
                    for override in each.overrides
                ],
            }
            for each in overrides
        ],
        "warnings": [{"code": each.code, "reason": each.message} for each in one.warnings],
    }


def _some(names: Sequence[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
