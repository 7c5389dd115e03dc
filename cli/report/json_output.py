"""Renders a report as JSON, for `leeway demo -o json`."""

from datetime import UTC, datetime
from typing import Any

from cli.report.model import (
    Launch,
    NodeReport,
    Notice,
    PodReport,
    Shortage,
    StormReport,
    UnmanagedReport,
)
from cli.report.run import Run
from cli.report.summary import drained_in_time, missing_for, summarize, to_cordon, to_ready


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
            "leastSecondsToSpare": _rounded(count.to_spare),
        },
        "nodes": [_node(node) for node in report.nodes],
        "launches": [_launch(launch) for launch in report.launches],
        "shortages": [_shortage(shortage) for shortage in report.shortages],
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
        "cordonedAt": [_moment(cordon) for cordon in trace.cordons],
        "cordonedAfterSeconds": _rounded(to_cordon(node)),
        "drained": drained_in_time(node),
        "drainedAt": _moment(node.drained_at),
        "reclaimAt": _moment(trace.reclaim_at),
        "instanceGoneAt": _moment(trace.instance_gone_at),
        "reclaimedByEC2": trace.reclaimed_by_ec2,
        "nodeGoneAt": _moment(trace.node_gone_at),
        "replacement": None
        if trace.replacement is None
        else {
            "instance": trace.replacement.instance,
            "node": trace.replacement.node,
            "launchedAt": _moment(trace.replacement.launched_at),
            "readyAt": _moment(trace.replacement.ready_at),
            "afterSeconds": _rounded(to_ready(node)),
        },
        "leewayEvents": [
            {
                "at": _moment(event.at),
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
            {"at": _moment(attempt.at), "status": attempt.status} for attempt in trace.attempts
        ],
        "terminationRequestedAt": _moment(trace.requested_at),
        "requestedBy": trace.requested_by,
        "graceSeconds": trace.workload.grace,
        "graceGivenSeconds": _rounded(trace.grace_given),
        "endedAt": _moment(trace.ended_at),
        "ended": trace.how,
        "missingForSeconds": _rounded(missing_for(trace)),
        "replacement": None
        if successor is None
        else {
            "pod": successor.pod,
            "node": successor.node,
            "runningAt": _moment(successor.running_at),
        },
    }


def _launch(launch: Launch) -> dict[str, Any]:
    return {
        "at": _moment(launch.at),
        "instance": launch.instance,
        "pool": launch.pool,
        "instanceType": launch.instance_type,
        "zone": launch.zone,
        "capacityType": launch.capacity_type,
        "fallback": launch.fallback,
        "node": launch.node,
        "readyAt": _moment(launch.ready_at),
    }


def _shortage(shortage: Shortage) -> dict[str, Any]:
    return {
        "at": _moment(shortage.at),
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
    return {"id": notice.id, "at": _moment(notice.at), "time": _moment(notice.sent_at)}


def _spread(spread: Any) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"median": round(spread.median, 3), "worst": round(spread.maximum, 3)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _moment(moment: float | None) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
