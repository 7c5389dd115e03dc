"""Renders the report of a simulated day as JSON."""

from typing import Any

from leeway_cli.report.run import ScaleDownRun
from leeway_cli.report.scale_down import ScaleDownReport, cause_of
from leeway_cli.simulated_day.record import Record


def scale_down_as_data(report: ScaleDownReport, run: ScaleDownRun) -> dict[str, Any]:
    """Render the report. Times are minutes of the day, prices USD per hour, costs USD."""
    return {
        "good": report.good,
        "faults": list(report.faults),
        "simulated": True,
        "run": {
            "command": run.command,
            "seed": run.seed,
            "began": run.began.isoformat(),
            "durationSeconds": round(run.duration, 1),
        },
        "days": {
            "leeway": _day(report.leeway),
            "onlyEmpty": _day(report.only_empty),
            "never": _day(report.never),
        },
        "givenBack": [
            {
                "minute": one.minute,
                "node": one.node,
                "instanceType": one.kind[0],
                "capacityType": one.kind[1],
                "cause": cause_of(one),
                "pods": one.pods,
                "savingPerHour": round(one.saving, 6),
                "reason": one.reason,
            }
            for one in report.leeway.given_back
        ],
        "minutes": [
            {
                "minute": one.minute,
                "pricePerHour": round(one.price, 6),
                "lowerBoundPerHour": round(one.bound, 6),
                "nodes": one.nodes,
                "pods": one.pods,
                "podsPending": one.pending,
            }
            for one in report.leeway.moments
        ],
    }


def _day(record: Record) -> dict[str, Any]:
    return {
        "cost": round(record.dollars, 4),
        "lowerBound": round(record.bound, 4),
        "nodeHours": round(record.node_hours, 2),
        "nodesGivenBack": len(record.given_back),
        "nodesLaunched": len(record.launched),
        "podsMoved": record.moved,
        "podMinutesPending": record.pending_minutes,
    }
