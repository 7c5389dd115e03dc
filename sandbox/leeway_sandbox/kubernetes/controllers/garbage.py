"""Deletes what nothing needs: dependents of deleted objects, pods of deleted or tainted nodes, the
content of terminating namespaces.

Rules: the taint-eviction controller (tolerationSeconds starts with the taint) and the pod garbage
collector (terminating pods on a NotReady node with the out-of-service taint are deleted at once).
"""

from __future__ import annotations

import asyncio

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.base import WorkQueue
from leeway_sandbox.kubernetes.controllers.instances import Instances
from leeway_sandbox.kubernetes.controllers.scheduling_info import tolerates
from leeway_sandbox.kubernetes.controllers.volumes import OUT_OF_SERVICE
from leeway_sandbox.kubernetes.deletion import delete, finish_pod, targeted
from leeway_sandbox.kubernetes.objects import (
    Object,
    has_taint,
    is_bound,
    is_finished,
    is_ready,
    is_terminating,
    name_of,
    namespace_of,
    taints_of,
    uid_of,
)
from leeway_sandbox.kubernetes.registry import KINDS, Kind
from leeway_sandbox.kubernetes.store import Change


class Taints:
    """Watches the taints of nodes and their pods."""

    def __init__(self, cluster: Cluster, instances: Instances) -> None:
        self._cluster = cluster
        self._instances = instances
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tainted: set[str] = set()

    def start(self) -> None:
        """Start to watch changes."""
        self._cluster.store.listen(registry.NODE, self._node_changed)
        self._cluster.store.listen(registry.POD, self._pod_changed)

    def _node_changed(self, change: Change) -> None:
        node, name = change.object, name_of(change.object)
        taints = [] if change.type == "DELETED" else _no_execute(node)
        if not taints and name not in self._tainted:
            return
        (self._tainted.add if taints else self._tainted.discard)(name)
        for pod in self._cluster.store.on_node(name):
            self._decide(pod, taints)
        if taints and has_taint(node, OUT_OF_SERVICE) and not is_ready(node):
            for pod in self._cluster.store.on_node(name):
                if is_terminating(pod):
                    drop(self._cluster, pod, died=not self._instances.is_alive(name))

    def _pod_changed(self, change: Change) -> None:
        pod = change.object
        name = pod["spec"].get("nodeName")
        if change.type == "DELETED":
            self._cancel(uid_of(pod))
        elif name in self._tainted and (change.previous is None or not is_bound(change.previous)):
            node = self._cluster.store.get(registry.NODE, "", name)
            if node is not None:
                self._decide(pod, _no_execute(node))

    def _decide(self, pod: Object, taints: list[Object]) -> None:
        self._cancel(uid_of(pod))
        if is_terminating(pod) or not taints:
            return
        tolerations = pod["spec"].get("tolerations") or ()
        seconds: list[float] = []
        for taint in taints:
            covering = [one for one in tolerations if tolerates(one, taint)]
            bounds = [one["tolerationSeconds"] for one in covering if "tolerationSeconds" in one]
            seconds += bounds if covering else [0.0]
        if seconds:
            timer = self._cluster.later(min(seconds), self._evict, pod)
            self._timers[uid_of(pod)] = timer

    def _evict(self, pod: Object) -> None:
        self._timers.pop(uid_of(pod), None)
        current = self._cluster.store.current(registry.POD, pod)
        if current is None or is_terminating(current):
            return
        delete(self._cluster, registry.POD, current, via="taint")
        node = self._cluster.store.get(registry.NODE, "", current["spec"]["nodeName"])
        if node and not is_ready(node) and has_taint(node, OUT_OF_SERVICE):
            drop(self._cluster, current, died=not self._instances.is_alive(name_of(node)))

    def _cancel(self, uid: str) -> None:
        timer = self._timers.pop(uid, None)
        if timer is not None:
            timer.cancel()


def _no_execute(node: Object) -> list[Object]:
    return [one for one in taints_of(node) if one["effect"] == "NoExecute"]


# Admission must know that a namespace is terminating before its objects are deleted.
_NAMESPACE_RESTS_SECONDS = 5.0
_SWEEP_SECONDS = 60.0
# The collector looks up an owner that it does not know before it deletes the dependents.
_LOOKUP_SECONDS = 1.0


class Garbage:
    """Watches every deletion."""

    def __init__(self, cluster: Cluster, instances: Instances) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._instances = instances
        self._namespaces: WorkQueue[str] = WorkQueue(cluster, self._empty_namespace)
        self._owners: WorkQueue[str] = WorkQueue(cluster, self._collect)

    def start(self) -> None:
        """Start to watch changes."""
        self._store.listen(None, self._changed)
        self._store.listen(registry.NODE, self._node_changed)
        self._store.listen(registry.POD, self._pod_changed)
        self._sweep()

    def _sweep(self) -> None:
        self._cluster.events.expire()
        self._cluster.later(_SWEEP_SECONDS, self._sweep)

    def _changed(self, change: Change) -> None:
        obj, namespace = change.object, namespace_of(change.object)
        if change.type == "ADDED" and obj["metadata"].get("ownerReferences"):
            self._cluster.later(_LOOKUP_SECONDS, self._collect_orphan, change.kind, obj)
        if change.type == "DELETED":
            self._owners.add(uid_of(obj))
            home = self._store.get(registry.NAMESPACE, "", namespace) if namespace else None
            if home is not None and is_terminating(home):
                self._namespaces.add(namespace)
        elif change.kind is registry.NAMESPACE and is_terminating(obj):
            self._cluster.later(_NAMESPACE_RESTS_SECONDS, self._namespaces.add, name_of(obj))

    def _collect(self, uid: str) -> None:
        """Delete the dependents of an owner."""
        for kind, dependent in self._store.dependents(uid):
            if not is_terminating(dependent):
                delete(self._cluster, kind, dependent)

    def _collect_orphan(self, kind: Kind, added: Object) -> None:
        """Delete an object whose owners do not exist. An owner of an unknown kind may exist."""
        obj = self._store.current(kind, added)
        if obj is None or is_terminating(obj):
            return
        references = obj["metadata"].get("ownerReferences") or ()
        if references and not any(self._may_exist(one, namespace_of(obj)) for one in references):
            delete(self._cluster, kind, obj)

    def _may_exist(self, reference: Object, namespace: str) -> bool:
        wanted = (reference["apiVersion"], reference["kind"])
        for kind in KINDS.values():
            if (kind.api_version, kind.kind) == wanted:
                home = namespace if kind.namespaced else ""
                owner = self._store.get(kind, home, reference["name"])
                return owner is not None and uid_of(owner) == reference["uid"]
        return True

    def _empty_namespace(self, name: str) -> None:
        namespace = self._store.get(registry.NAMESPACE, "", name)
        if namespace is None or not is_terminating(namespace):
            return
        for kind, obj in self._contents(name):
            if not is_terminating(obj):
                delete(self._cluster, kind, obj)
        if not self._contents(name):
            self._store.remove(registry.NAMESPACE, namespace)

    def _contents(self, namespace: str) -> list[tuple[Kind, Object]]:
        namespaced = (kind for kind in KINDS.values() if kind.namespaced)
        return [(kind, obj) for kind in namespaced for obj in self._store.every(kind, namespace)]

    def _pod_changed(self, change: Change) -> None:
        pod, old = change.object, change.previous
        if change.type == "DELETED" or not is_bound(pod) or (old is not None and is_bound(old)):
            return
        if self._store.get(registry.NODE, "", pod["spec"]["nodeName"]) is None:
            self._drop_after_quarantine(pod)

    def _drop_after_quarantine(self, pod: Object) -> None:
        """Delete the pod after a time without its Node, as the pod garbage collector does."""
        self._cluster.later(self._cluster.settings.pod_quarantine, self._drop_lost, pod)

    def _drop_lost(self, pod: Object) -> None:
        name = pod["spec"]["nodeName"]
        if self._store.get(registry.NODE, "", name) is None:
            drop(self._cluster, pod, died=not self._instances.has_kubelet(name))

    def _node_changed(self, change: Change) -> None:
        """Delete the pods of a deleted Node, or later if a kubelet still runs them."""
        if change.type != "DELETED":
            return
        name = name_of(change.object)
        for pod in self._store.on_node(name):
            if self._instances.has_kubelet(name):
                self._drop_after_quarantine(pod)
            else:
                drop(self._cluster, pod, died=not self._instances.is_alive(name))


def drop(cluster: Cluster, pod: Object, *, died: bool) -> None:
    """Delete a pod without a wait for its kubelet.

    `died`: the journal has the end of the pod since its node died.
    """
    lost = None if is_finished(pod) else targeted(pod, "lost")["status"]
    finish_pod(cluster, pod, None if died or is_finished(pod) else "forced", lost)
