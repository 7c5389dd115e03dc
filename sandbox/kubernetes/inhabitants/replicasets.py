"""The ReplicaSet controller: keeps the number of pods that each one wants."""

from __future__ import annotations

from sandbox.kubernetes import registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.deletion import delete
from sandbox.kubernetes.inhabitants.pods import active, removal_order, spawn
from sandbox.kubernetes.inhabitants.workqueue import WorkQueue
from sandbox.kubernetes.objects import (
    Object,
    controller_of,
    is_finished,
    is_ready,
    is_terminating,
    name_of,
    namespace_of,
    uid_of,
)
from sandbox.kubernetes.store import Change, Key

_GATHER = 0.01  # seconds


class ReplicaSets:
    """Follows ReplicaSets and their pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queue: WorkQueue[Key] = WorkQueue(cluster, self._reconcile, after=_GATHER)

    def start(self) -> None:
        """Begin to follow changes."""
        self._cluster.store.listen(registry.REPLICA_SET, self._changed)
        self._cluster.store.listen(registry.POD, self._pod_changed)

    def _changed(self, change: Change) -> None:
        self._queue.add((namespace_of(change.object), name_of(change.object)))

    def _pod_changed(self, change: Change) -> None:
        owner = controller_of(change.object)
        if owner is not None and owner["kind"] == "ReplicaSet":
            self._queue.add((namespace_of(change.object), owner["name"]))

    def _reconcile(self, key: Key) -> None:
        owner = self._cluster.store.get(registry.REPLICA_SET, *key)
        if owner is None or is_terminating(owner):
            return
        pods = active(self._cluster, uid_of(owner))
        missing = owner["spec"]["replicas"] - len(pods)
        for _ in range(missing):
            spawn(self._cluster, registry.REPLICA_SET, owner)
        if missing < 0:
            for pod in sorted(pods, key=removal_order)[:-missing]:
                delete(self._cluster, registry.POD, pod)
        if missing:
            pods = active(self._cluster, uid_of(owner))
        self._write_status(owner, pods)

    def _write_status(self, owner: Object, pods: list[Object]) -> None:
        ready = sum(is_ready(pod) for pod in pods)
        status: Object = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "terminatingReplicas": self._leaving(owner),
            "observedGeneration": owner["metadata"]["generation"],
        }
        if ready:
            status |= {"readyReplicas": ready, "availableReplicas": ready}
        self._cluster.store.replace(registry.REPLICA_SET, {**owner, "status": status})

    def _leaving(self, owner: Object) -> int:
        owned = self._cluster.store.owned(uid_of(owner), registry.POD)
        return sum(is_terminating(pod) and not is_finished(pod) for _, pod in owned)
