"""The Job controller: runs pods until enough have succeeded or too many have failed."""

from __future__ import annotations

from sandbox.kubernetes import registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.deletion import delete
from sandbox.kubernetes.inhabitants.controllers import Controller
from sandbox.kubernetes.inhabitants.pods import spawn
from sandbox.kubernetes.objects import (
    Object,
    condition,
    is_finished,
    is_ready,
    is_terminating,
    name_of,
    timestamp,
    uid_of,
)


class Jobs(Controller):
    """Follows Jobs and their pods."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, registry.JOB, registry.POD)

    def reconcile(self, owner: Object, owned: list[Object]) -> Object | None:
        """Start what may run now, and say when it is over."""
        if condition(owner, "Complete") or condition(owner, "Failed"):
            return None
        # A pod that was deleted while it ran counts as neither: the job makes another.
        running = [pod for pod in owned if not is_finished(pod) and not is_terminating(pod)]
        succeeded = sum(pod["status"].get("phase") == "Succeeded" for pod in owned)
        failed = sum(pod["status"].get("phase") == "Failed" for pod in owned)
        spec, now = owner["spec"], timestamp()
        status: Object = {"startTime": now, **owner.get("status", {}), "active": len(running)}
        status["ready"] = sum(map(is_ready, running))
        status |= {"succeeded": succeeded, "failed": failed}
        completions = spec.get("completions")
        done = succeeded >= completions if completions else bool(succeeded and not running)
        if done:
            status["completionTime"] = now
            return {**status, "conditions": [_condition("Complete", "CompletionsReached", now)]}
        if failed > spec["backoffLimit"]:
            for pod in running:
                delete(self._cluster, registry.POD, pod)
            return {**status, "conditions": [_condition("Failed", "BackoffLimitExceeded", now)]}
        wanted = 0 if spec.get("suspend") else spec["parallelism"]
        if completions:
            wanted = min(wanted, completions - succeeded)
        keys = (("controller-uid", uid_of(owner)), ("job-name", name_of(owner)))
        labels = {f"batch.kubernetes.io/{key}": value for key, value in keys}
        for _ in range(wanted - len(running)):
            spawn(self._cluster, registry.JOB, owner, labels=labels)
        return status


def _condition(kind: str, reason: str, now: str) -> Object:
    times = {"lastProbeTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": "True", **times, "reason": reason, "message": ""}
