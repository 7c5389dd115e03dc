"""The StatefulSet controller: pods with names of their own, in order, each with its claims."""

from __future__ import annotations

from sandbox.kubernetes import errors, registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.deletion import delete
from sandbox.kubernetes.inhabitants.pods import spawn
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


class StatefulSets:
    """Follows StatefulSets and their pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._queue: WorkQueue[Key] = WorkQueue(cluster, self._reconcile)

    def start(self) -> None:
        """Begin to follow changes."""
        self._store.listen(registry.STATEFUL_SET, self._changed)
        self._store.listen(registry.POD, self._pod_changed)

    def _changed(self, change: Change) -> None:
        self._queue.add((namespace_of(change.object), name_of(change.object)))

    def _pod_changed(self, change: Change) -> None:
        owner = controller_of(change.object)
        if owner is not None and owner["kind"] == "StatefulSet":
            self._queue.add((namespace_of(change.object), owner["name"]))

    def _reconcile(self, key: Key) -> None:
        owner = self._store.get(registry.STATEFUL_SET, *key)
        if owner is None or is_terminating(owner):
            return
        wanted = owner["spec"]["replicas"]
        in_order = owner["spec"]["podManagementPolicy"] == "OrderedReady"
        for ordinal in range(wanted):
            pod = self._store.get(registry.POD, key[0], f"{key[1]}-{ordinal}")
            if pod is None:
                self._create(owner, ordinal)
            elif is_finished(pod) and not is_terminating(pod):
                delete(self._cluster, registry.POD, pod)
            elif is_ready(pod) and not is_terminating(pod):
                continue
            if in_order:
                break
        else:
            self._shrink(owner, wanted)
        self._write_status(owner)

    def _shrink(self, owner: Object, wanted: int) -> None:
        """Delete the highest ordinal above what is wanted, one at a time."""
        owned = self._store.owned(uid_of(owner), registry.POD)
        surplus = sorted(
            (pod for _, pod in owned if _ordinal(pod) >= wanted), key=_ordinal, reverse=True
        )
        if surplus and not is_terminating(surplus[0]):
            delete(self._cluster, registry.POD, surplus[0])

    def _create(self, owner: Object, ordinal: int) -> None:
        name = f"{name_of(owner)}-{ordinal}"
        spec = dict(owner["spec"]["template"]["spec"])
        spec["hostname"] = name
        volumes = list(spec.get("volumes") or ())
        for template in owner["spec"].get("volumeClaimTemplates") or ():
            claim = f"{template['metadata']['name']}-{name}"
            self._claim(owner, template, claim)
            volumes.append(
                {
                    "name": template["metadata"]["name"],
                    "persistentVolumeClaim": {"claimName": claim},
                }
            )
        if volumes:
            spec["volumes"] = volumes
        labels = {
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        spawn(self._cluster, registry.STATEFUL_SET, owner, name=name, labels=labels, spec=spec)

    def _claim(self, owner: Object, template: Object, name: str) -> None:
        metadata = {**template["metadata"], "name": name, "namespace": namespace_of(owner)}
        claim = {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}
        try:
            self._store.create(registry.PERSISTENT_VOLUME_CLAIM, claim)
        except errors.ApiError:
            return  # The claim outlives the pod: the next one of its name finds it again.

    def _write_status(self, owner: Object) -> None:
        pods = [pod for _, pod in self._store.owned(uid_of(owner), registry.POD)]
        ready = sum(is_ready(pod) and not is_terminating(pod) for pod in pods)
        status = {
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": len(pods),
            "updatedReplicas": len(pods),
            "observedGeneration": owner["metadata"]["generation"],
        }
        self._store.replace(registry.STATEFUL_SET, {**owner, "status": status})


def _ordinal(pod: Object) -> int:
    return int(name_of(pod).rpartition("-")[2])
