"""Renders a report as JSON, for `leeway demo -o json`."""

from datetime import UTC, datetime
from typing import Any

from leeway_cli.report.model import (
    Launch,
    NodeReport,
    Notice,
    PodReport,
    Shortage,
    StormReport,
    UnmanagedReport,
)
from leeway_cli.report.run import Run
from leeway_cli.report.summary import drained_in_time, missing_for, summarize, to_cordon, to_ready


def as_data(report: StormReport, run: Run) -> dict[str, Any]:
    """Render the report. Times are RFC 3339, durations seconds; a missing observation is null."""
    count = summarize(report)
    return {
        "good": report.good,
        "faults": list(report.all_faults),
        "run": {
            "command": run.command,
            "seed": run.seed,
            "nodes": run.nodes,
            "pods": run.pods,
            "interruptions": run.interruptions,
            "began": run.began.isoformat(),
            "durationSeconds": round(run.duration, 1),
            "warningSeconds": report.plan.warning,
            "secondsLeftOnArrival": report.plan.warning - report.plan.late,
        },
        "summary": {
            "nodes": count.nodes,
            "nodesDrained": count.drained,
            "nodesReplaced": count.replaced,
            "pods": count.pods,
            "podsMoved": count.moved,
            "podsEnded": count.ended,
            "podsCutShort": count.cut,
            "podsLost": count.lost,
            "refusalsByBudgets": count.refusals,
            "duplicateNotices": count.duplicates,
            "cordonedAfterSeconds": _spread(count.to_cordon),
            "replacedAfterSeconds": _spread(count.to_ready),
            "leastSecondsToSpare": rounded(count.to_spare),
        },
        "nodes": [_node(node) for node in report.nodes],
        "launches": [launch_as_data(launch) for launch in report.launches],
        "shortages": [shortage_as_data(shortage) for shortage in report.shortages],
        "unmanagedInstances": [_unmanaged(unmanaged) for unmanaged in report.unmanaged],
    }


def _node(node: NodeReport) -> dict[str, Any]:
    trace = node.trace
    return {
        "node": trace.target.node,
        "instance": trace.target.instance,
        "group": trace.target.group or None,
        "pool": trace.target.pool or None,
        "notices": [_notice(notice) for notice in trace.notices],
        "cordonedAt": [moment_as_text(cordon) for cordon in trace.cordons],
        "cordonedAfterSeconds": rounded(to_cordon(node)),
        "drained": drained_in_time(node),
        "drainedAt": moment_as_text(node.drained_at),
        "reclaimAt": moment_as_text(trace.reclaim_at),
        "instanceGoneAt": moment_as_text(trace.instance_gone_at),
        "reclaimedByEC2": trace.reclaimed_by_ec2,
        "nodeGoneAt": moment_as_text(trace.node_gone_at),
        "replacement": None
        if trace.replacement is None
        else {
            "instance": trace.replacement.instance,
            "node": trace.replacement.node,
            "launchedAt": moment_as_text(trace.replacement.launched_at),
            "readyAt": moment_as_text(trace.replacement.ready_at),
            "afterSeconds": rounded(to_ready(node)),
        },
        "leewayEvents": [
            {
                "at": moment_as_text(event.at),
                "kind": event.kind,
                "result": event.result,
                "evicted": event.evicted,
                "deleted": event.deleted,
                "failed": event.failed,
            }
            for event in trace.leeway_events
        ],
        "faults": list(node.faults),
        "pods": [_pod(pod) for pod in node.pods],
    }


def _pod(pod: PodReport) -> dict[str, Any]:
    trace, successor = pod.trace, pod.trace.successor
    return {
        "pod": trace.pod,
        "uid": trace.uid,
        "owner": trace.workload.owner,
        "outcome": pod.evaluation.outcome.value,
        "fault": pod.evaluation.fault,
        "reason": pod.evaluation.reason,
        "evictions": [
            {"at": moment_as_text(attempt.at), "status": attempt.status}
            for attempt in trace.attempts
        ],
        "terminationRequestedAt": moment_as_text(trace.requested_at),
        "requestedBy": trace.requested_by,
        "graceSeconds": trace.workload.grace,
        "graceGivenSeconds": rounded(trace.grace_given),
        "endedAt": moment_as_text(trace.ended_at),
        "ended": trace.how,
        "missingForSeconds": rounded(missing_for(trace)),
        "replacement": None
        if successor is None
        else {
            "pod": successor.pod,
            "node": successor.node,
            "runningAt": moment_as_text(successor.running_at),
        },
    }


def launch_as_data(launch: Launch) -> dict[str, Any]:
    """Render an instance that Leeway launched."""
    return {
        "at": moment_as_text(launch.at),
        "instance": launch.instance,
        "pool": launch.pool,
        "instanceType": launch.instance_type,
        "zone": launch.zone,
        "capacityType": launch.capacity_type,
        "fallback": launch.fallback,
        "node": launch.node,
        "readyAt": moment_as_text(launch.ready_at),
    }


def shortage_as_data(shortage: Shortage) -> dict[str, Any]:
    """Render a shortage of capacity."""
    return {
        "at": moment_as_text(shortage.at),
        "pool": shortage.pool,
        "code": shortage.code,
        "capacityType": shortage.capacity_type,
        "instanceTypes": list(shortage.instance_types),
        "zones": list(shortage.zones),
    }


def _unmanaged(unmanaged: UnmanagedReport) -> dict[str, Any]:
    return {
        "instance": unmanaged.instance,
        "notices": [_notice(notice) for notice in unmanaged.notices],
        "faults": list(unmanaged.faults),
    }


def _notice(notice: Notice) -> dict[str, Any]:
    return {
        "id": notice.id,
        "at": moment_as_text(notice.at),
        "time": moment_as_text(notice.sent_at),
    }


def _spread(spread: Any) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"median": round(spread.median, 3), "worst": round(spread.maximum, 3)}


def rounded(value: float | None) -> float | None:
    """Round seconds or a ratio to three decimals."""
    return None if value is None else round(value, 3)


def moment_as_text(moment: float | None) -> str | None:
    """Render an epoch second as RFC 3339."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
