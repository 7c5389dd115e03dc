"""Renders the report of a scale-up as JSON, for `leeway demo --scenario scale-up -o json`."""

from typing import Any

from leeway_cli.report.json_output import launch_as_data, rounded, shortage_as_data
from leeway_cli.report.run import ScaleUpRun
from leeway_cli.report.scale_up import ScaleUpReport


def scale_up_as_data(report: ScaleUpReport, run: ScaleUpRun) -> dict[str, Any]:
    """Render the report. Times are RFC 3339, durations seconds, prices USD per hour; a missing
    observation is null."""
    plan = report.plan
    zero = report.first_pod_at or plan.scaled_at
    return {
        "good": report.good,
        "faults": list(report.faults),
        "run": {
            "command": run.command,
            "seed": run.seed,
            "nodes": plan.nodes,
            "replicasBefore": plan.before,
            "replicas": plan.after,
            "began": run.began.isoformat(),
            "durationSeconds": round(run.duration, 1),
        },
        "summary": {
            "podsPendingAtMost": report.most_pending,
            "podsRunning": report.last.running,
            "launchedAfterSeconds": rounded(report.seconds_to_launch),
            "allRunningAfterSeconds": rounded(report.seconds_to_run),
            "nodesLaunched": len(report.launches),
            "fleets": report.fleets,
            "pricePerHour": round(report.price, 6),
            "lowerBoundPerHour": round(report.bound, 6),
            "priceToBound": rounded(report.over_bound),
        },
        "nodes": [
            {
                "instanceType": group.offering.instance_type,
                "zone": group.offering.zone,
                "capacityType": group.offering.capacity_type,
                "count": group.count,
                "pricePerHour": group.price,
            }
            for group in report.nodes
        ],
        "launches": [launch_as_data(launch) for launch in report.launches],
        "shortages": [shortage_as_data(shortage) for shortage in report.shortages],
        "pods": [
            {
                "afterSeconds": rounded(point.at - zero),
                "pending": point.pending,
                "starting": point.starting,
                "running": point.running,
            }
            for point in report.curve
        ],
    }
