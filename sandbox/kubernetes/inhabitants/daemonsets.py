"""The DaemonSet controller: one pod on every node that takes it."""

from __future__ import annotations

import collections

from sandbox.kubernetes import registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.deletion import delete
from sandbox.kubernetes.inhabitants.needs import NodeRoom, need_of, tolerates
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

_STATUS_AFTER_SECONDS = 0.1
# What every daemon pod tolerates, as the controller adds it.
_TOLERATIONS: list[Object] = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
]


class DaemonSets:
    """Follows DaemonSets, nodes and daemon pods, each pair of set and node on its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._queue: WorkQueue[tuple[Key, str]] = WorkQueue(cluster, self._reconcile)
        self._pods: dict[tuple[str, str], dict[str, Key]] = collections.defaultdict(dict)
        self._due: set[Key] = set()

    def start(self) -> None:
        """Begin to follow changes."""
        self._store.listen(registry.DAEMON_SET, self._changed)
        self._store.listen(registry.NODE, self._node_changed)
        self._store.listen(registry.POD, self._pod_changed)

    def _changed(self, change: Change) -> None:
        if change.type == "DELETED":
            return
        key = (namespace_of(change.object), name_of(change.object))
        if change.previous is None or change.previous["spec"] != change.object["spec"]:
            for node in self._store.every(registry.NODE):
                self._queue.add((key, name_of(node)))
            self._count_soon(key)

    def _node_changed(self, change: Change) -> None:
        old, node = change.previous, change.object
        if old is not None and change.type != "DELETED":
            same = _placing(old) == _placing(node)
            if same:
                return
        for one in self._store.every(registry.DAEMON_SET):
            key = (namespace_of(one), name_of(one))
            self._queue.add((key, name_of(node)))

    def _pod_changed(self, change: Change) -> None:
        pod = change.object
        owner = controller_of(pod)
        if owner is None or owner["kind"] != "DaemonSet":
            return
        node = _meant_for(pod)
        known = self._pods[owner["uid"], node]
        if change.type == "DELETED":
            known.pop(uid_of(pod), None)
        else:
            known[uid_of(pod)] = (namespace_of(pod), name_of(pod))
        key = (namespace_of(pod), owner["name"])
        if change.type == "DELETED" or is_finished(pod):
            self._queue.add((key, node))
        self._count_soon(key)

    def _reconcile(self, item: tuple[Key, str]) -> None:
        key, node_name = item
        daemon_set = self._store.get(registry.DAEMON_SET, *key)
        node = self._store.get(registry.NODE, "", node_name)
        if daemon_set is None or is_terminating(daemon_set):
            return
        pods = self._pods_on(uid_of(daemon_set), node_name)
        for pod in pods:
            if is_finished(pod) and not is_terminating(pod):
                delete(self._cluster, registry.POD, pod)
        wanted = node is not None and _is_wanted(daemon_set, node)
        if wanted and not pods:
            spawn(
                self._cluster, registry.DAEMON_SET, daemon_set, spec=_pinned(daemon_set, node_name)
            )
        elif not wanted and node is not None:
            for pod in pods:
                if not is_terminating(pod):
                    delete(self._cluster, registry.POD, pod)
        self._count_soon(key)

    def _pods_on(self, uid: str, node: str) -> list[Object]:
        found = (self._store.get(registry.POD, *key) for key in self._pods[uid, node].values())
        return [pod for pod in found if pod is not None]

    def _count_soon(self, key: Key) -> None:
        if key not in self._due:
            self._due.add(key)
            self._cluster.later(_STATUS_AFTER_SECONDS, self._write_status, key)

    def _write_status(self, key: Key) -> None:
        self._due.discard(key)
        daemon_set = self._store.get(registry.DAEMON_SET, *key)
        if daemon_set is None:
            return
        nodes = list(self._store.every(registry.NODE))
        desired = sum(_is_wanted(daemon_set, node) for node in nodes)
        pods = [pod for _, pod in self._store.owned(uid_of(daemon_set), registry.POD)]
        current = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        ready = sum(is_ready(pod) for pod in pods)
        status = {
            "currentNumberScheduled": min(current, desired),
            "numberMisscheduled": max(0, current - desired),
            "desiredNumberScheduled": desired,
            "numberReady": ready,
            "numberAvailable": ready,
            "updatedNumberScheduled": current,
            "numberUnavailable": max(0, desired - ready),
            "observedGeneration": daemon_set["metadata"]["generation"],
        }
        self._store.replace(registry.DAEMON_SET, {**daemon_set, "status": status})


def _placing(node: Object) -> tuple[object, object]:
    return node["metadata"].get("labels"), node["spec"].get("taints")


def _is_wanted(daemon_set: Object, node: Object) -> bool:
    spec = _pinned(daemon_set, name_of(node))
    metadata = {"name": "", "namespace": "", "uid": ""}
    need = need_of({"metadata": metadata, "spec": spec})
    room = NodeRoom(node)
    untolerated = [
        taint
        for taint in room.taints
        if taint["key"] != "node.kubernetes.io/not-ready"
        and not any(tolerates(one, taint) for one in need.tolerations)
    ]
    return room.matches(need) and not untolerated


def _pinned(daemon_set: Object, node: str) -> Object:
    """Return a daemon pod's spec for one node: its tolerations, and the node by its name."""
    spec = daemon_set["spec"]["template"]["spec"]
    affinity = dict(spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{**term, "matchFields": [field]} for term in required.get("nodeSelectorTerms") or [{}]]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    affinity["nodeAffinity"] = node_affinity
    tolerations = [*(spec.get("tolerations") or ()), *_TOLERATIONS]
    return {**spec, "affinity": affinity, "tolerations": tolerations}


def _meant_for(pod: Object) -> str:
    if "affinity" not in pod["spec"]:  # a pod that somebody else made and gave this owner
        return str(pod["spec"].get("nodeName", ""))
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    node: str = terms[0]["matchFields"][0]["values"][0]
    return node
