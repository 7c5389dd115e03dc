"""The Job controller: runs pods until enough have succeeded or too many have failed."""

from __future__ import annotations

from sandbox.kubernetes import registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.deletion import delete
from sandbox.kubernetes.inhabitants.pods import spawn
from sandbox.kubernetes.inhabitants.workqueue import WorkQueue
from sandbox.kubernetes.objects import (
    Object,
    condition,
    controller_of,
    is_finished,
    is_ready,
    is_terminating,
    name_of,
    namespace_of,
    timestamp,
    uid_of,
)
from sandbox.kubernetes.store import Change, Key

_CONTROLLER_LABEL = "batch.kubernetes.io/controller-uid"


class Jobs:
    """Follows Jobs and their pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._queue: WorkQueue[Key] = WorkQueue(cluster, self._reconcile)

    def start(self) -> None:
        """Begin to follow changes."""
        self._store.listen(registry.JOB, self._changed)
        self._store.listen(registry.POD, self._pod_changed)

    def _changed(self, change: Change) -> None:
        self._queue.add((namespace_of(change.object), name_of(change.object)))

    def _pod_changed(self, change: Change) -> None:
        owner = controller_of(change.object)
        if owner is not None and owner["kind"] == "Job":
            self._queue.add((namespace_of(change.object), owner["name"]))

    def _reconcile(self, key: Key) -> None:
        job = self._store.get(registry.JOB, *key)
        if job is None or is_terminating(job) or _is_over(job):
            return
        pods = [pod for _, pod in self._store.owned(uid_of(job), registry.POD)]
        # A pod that was deleted while it ran counts as neither: the job makes another.
        running = [pod for pod in pods if not is_finished(pod) and not is_terminating(pod)]
        succeeded = sum(pod["status"].get("phase") == "Succeeded" for pod in pods)
        failed = sum(pod["status"].get("phase") == "Failed" for pod in pods)
        spec = job["spec"]
        status: Object = {
            **job.get("status", {}),
            "active": len(running),
            "ready": sum(is_ready(pod) for pod in running),
            "succeeded": succeeded,
            "failed": failed,
        }
        status.setdefault("startTime", timestamp())
        completions = spec.get("completions")
        done = succeeded >= completions if completions else bool(succeeded and not running)
        if done:
            status["completionTime"] = timestamp()
            status["conditions"] = [_condition("Complete", "CompletionsReached")]
        elif failed > spec["backoffLimit"]:
            status["conditions"] = [_condition("Failed", "BackoffLimitExceeded")]
            for pod in running:
                delete(self._cluster, registry.POD, pod)
        elif not spec.get("suspend"):
            wanted = spec["parallelism"]
            if completions:
                wanted = min(wanted, completions - succeeded)
            labels = {_CONTROLLER_LABEL: uid_of(job), "batch.kubernetes.io/job-name": key[1]}
            for _ in range(wanted - len(running)):
                spawn(self._cluster, registry.JOB, job, labels=labels)
        self._store.replace(registry.JOB, {**job, "status": status})


def _is_over(job: Object) -> bool:
    return condition(job, "Complete") is not None or condition(job, "Failed") is not None


def _condition(kind: str, reason: str) -> Object:
    now = timestamp()
    return {
        "type": kind,
        "status": "True",
        "lastProbeTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": "",
    }
