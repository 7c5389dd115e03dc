"""The Job controller: runs pods until enough have succeeded or too many have failed.

Rules: kube-controller-manager's job controller. Each pod holds a finalizer until it is counted,
so no end is missed, and a pod that is deleted while it runs counts as failed unless the Job's
podFailurePolicy ignores it. Failed pods are replaced at once, without a backoff.
"""

from __future__ import annotations

from sandbox.kubernetes import registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.controllers.base import Controller
from sandbox.kubernetes.controllers.pods import spawn
from sandbox.kubernetes.deletion import delete, release
from sandbox.kubernetes.objects import (
    Object,
    condition,
    is_finished,
    is_ready,
    is_terminating,
    timestamp,
    uid_of,
)
from sandbox.kubernetes.store import Change

TRACKING = "batch.kubernetes.io/job-tracking"


class Jobs(Controller):
    """Follows Jobs and their pods."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, registry.JOB, registry.POD)

    def start(self) -> None:
        """Begin to follow changes."""
        super().start()
        self._store.listen(registry.JOB, self._job_changed)

    def _job_changed(self, change: Change) -> None:
        if change.type == "DELETED":
            self._release(self._store.owned(uid_of(change.object), registry.POD))

    def reconcile(self, owner: Object, owned: list[Object]) -> Object | None:
        """Count who has ended, start what may run now, and say when it is over."""
        if condition(owner, "Complete") or condition(owner, "Failed"):
            self._release(owned)
            return None
        spec, now = owner["spec"], timestamp()
        before = owner.get("status", {})
        waits = _waits_for_end(spec)
        ended = [pod for pod in owned if _is_tracked(pod) and _has_ended(pod, waits=waits)]
        verdicts = [_verdict(pod, spec.get("podFailurePolicy")) for pod in ended]
        succeeded = before.get("succeeded", 0) + verdicts.count("Succeeded")
        failed = before.get("failed", 0) + verdicts.count("Count")
        running = [pod for pod in owned if not is_finished(pod) and not is_terminating(pod)]
        leaving = sum(is_terminating(pod) and not is_finished(pod) for pod in owned)
        self._release(ended)
        status: Object = {
            "startTime": now,
            **before,
            "active": len(running),
            "ready": sum(map(is_ready, running)),
            "terminating": leaving,
            "succeeded": succeeded,
            "failed": failed,
            "uncountedTerminatedPods": {},
        }
        completions = spec.get("completions")
        if succeeded >= completions if completions else bool(succeeded and not running):
            told = _condition("Complete", "CompletionsReached", _COMPLETE, now)
            return {**status, "completionTime": now, "conditions": [told]}
        failure = _failure(failed, spec, fails="FailJob" in verdicts)
        if failure:
            for pod in running:
                delete(self._cluster, registry.POD, pod)
            self._release(self._store.owned(uid_of(owner), registry.POD))
            return {**status, "active": 0, "conditions": [_condition("Failed", *failure, now)]}
        wanted = 0 if spec.get("suspend") else spec["parallelism"]
        if completions:
            wanted = min(wanted, completions - succeeded)
        held = leaving if waits else 0
        for _ in range(wanted - len(running) - held):
            spawn(self._cluster, registry.JOB, owner, finalizers=[TRACKING])
        return status

    def _release(self, pods: list[Object]) -> None:
        for pod in filter(_is_tracked, pods):
            release(self._cluster, registry.POD, pod, TRACKING)


_COMPLETE = "Reached expected number of succeeded pods"


def _is_tracked(pod: Object) -> bool:
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def _waits_for_end(spec: Object) -> bool:
    """Say whether a pod that is being deleted counts only when it has ended."""
    usual = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    return bool(spec.get("podReplacementPolicy", usual) == "Failed")


def _has_ended(pod: Object, *, waits: bool) -> bool:
    return is_finished(pod) or (is_terminating(pod) and not waits)


def _verdict(pod: Object, policy: Object | None) -> str:
    """Return what a pod's end means: Succeeded, Count (a failure), Ignore or FailJob."""
    if pod["status"].get("phase") == "Succeeded":
        return "Succeeded"
    for rule in (policy or {}).get("rules") or ():
        if _meets_conditions(pod, rule) or _meets_exit_codes(pod, rule):
            return str(rule["action"])
    return "Count"


def _meets_conditions(pod: Object, rule: Object) -> bool:
    for pattern in rule.get("onPodConditions") or ():
        found = condition(pod, pattern["type"])
        if found is not None and found["status"] == pattern.get("status", "True"):
            return True
    return False


def _meets_exit_codes(pod: Object, rule: Object) -> bool:
    wanted = rule.get("onExitCodes")
    if not wanted:
        return False
    for status in pod["status"].get("containerStatuses") or ():
        code = ((status.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
        named = wanted.get("containerName") in (None, status["name"])
        if code and named and (code in wanted["values"]) is (wanted["operator"] == "In"):
            return True
    return False


def _failure(failed: int, spec: Object, *, fails: bool) -> tuple[str, str] | None:
    """Return why a Job has failed, as reason and message; None while it has not."""
    if fails:
        return "PodFailurePolicy", "A pod's end matches a FailJob rule of podFailurePolicy"
    if failed > spec["backoffLimit"]:
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    return None


def _condition(kind: str, reason: str, message: str, now: str) -> Object:
    times = {"lastProbeTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": "True", **times, "reason": reason, "message": message}
