"""A story as data: what `leeway demo -o json` prints."""

from datetime import UTC, datetime
from typing import Any

from cli.report.figures import drained_in_time, figures, missing_for, to_cordon, to_ready
from cli.report.run import Run
from cli.report.story import NodeStory, Notice, PodStory, Story, StrangerStory


def as_data(story: Story, run: Run) -> dict[str, Any]:
    """The whole report; moments are RFC 3339, durations seconds, what nobody saw is null."""
    count = figures(story)
    return {
        "good": story.good,
        "faults": list(story.all_faults),
        "run": {
            "command": run.command,
            "seed": run.seed,
            "nodes": run.nodes,
            "pods": run.pods,
            "interruptions": run.interruptions,
            "began": run.began.isoformat(),
            "wallSeconds": round(run.wall, 1),
            "warningSeconds": story.plan.warning,
            "secondsLeftOnArrival": story.plan.warning - story.plan.late,
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
        "nodes": [_node(node) for node in story.nodes],
        "strangers": [_stranger(stranger) for stranger in story.strangers],
    }


def _node(node: NodeStory) -> dict[str, Any]:
    trace = node.trace
    return {
        "node": trace.target.node,
        "instance": trace.target.instance,
        "group": trace.target.group,
        "notices": [_notice(notice) for notice in trace.notices],
        "cordonedAt": [_moment(cordon) for cordon in trace.cordons],
        "cordonedAfterSeconds": _rounded(to_cordon(node)),
        "drained": drained_in_time(node),
        "drainedAt": _moment(node.drained_at),
        "reclaimAt": _moment(trace.takes_at),
        "instanceGoneAt": _moment(trace.dead_at),
        "takenByEC2": trace.taken_by_ec2,
        "nodeGoneAt": _moment(trace.gone_at),
        "replacement": None
        if trace.replacement is None
        else {
            "instance": trace.replacement.instance,
            "node": trace.replacement.node,
            "launchedAt": _moment(trace.replacement.launched_at),
            "readyAt": _moment(trace.replacement.ready_at),
            "afterSeconds": _rounded(to_ready(node)),
        },
        "leewaySaid": [
            {
                "at": _moment(claim.at),
                "kind": claim.kind,
                "result": claim.result,
                "evicted": claim.evicted,
                "deleted": claim.deleted,
                "left": claim.failed,
            }
            for claim in trace.claims
        ],
        "faults": list(node.faults),
        "pods": [_pod(pod) for pod in node.pods],
    }


def _pod(pod: PodStory) -> dict[str, Any]:
    trace, successor = pod.trace, pod.trace.successor
    return {
        "pod": trace.pod,
        "uid": trace.uid,
        "owner": trace.workload.owner,
        "outcome": pod.verdict.outcome.value,
        "fault": pod.verdict.fault,
        "reason": pod.verdict.reason,
        "evictions": [
            {"at": _moment(attempt.at), "status": attempt.status} for attempt in trace.attempts
        ],
        "askedToEndAt": _moment(trace.asked_at),
        "askedBy": trace.asked_by,
        "graceSeconds": trace.workload.grace,
        "graceGivenSeconds": _rounded(trace.grace_given),
        "endedAt": _moment(trace.ended_at),
        "ended": trace.how,
        "missingForSeconds": _rounded(missing_for(trace)),
        "successor": None
        if successor is None
        else {
            "pod": successor.pod,
            "node": successor.node,
            "runningAt": _moment(successor.running_at),
        },
    }


def _stranger(stranger: StrangerStory) -> dict[str, Any]:
    return {
        "instance": stranger.instance,
        "notices": [_notice(notice) for notice in stranger.notices],
        "faults": list(stranger.faults),
    }


def _notice(notice: Notice) -> dict[str, Any]:
    return {"id": notice.id, "at": _moment(notice.at), "time": _moment(notice.said_at)}


def _spread(spread: Any) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"median": round(spread.middle, 3), "worst": round(spread.worst, 3)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _moment(moment: float | None) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
