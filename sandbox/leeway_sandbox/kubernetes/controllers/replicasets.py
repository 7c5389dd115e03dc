"""The controllers of ReplicaSets, StatefulSets and DaemonSets, which create and delete pods."""

from __future__ import annotations

import collections
import contextlib

from leeway_sandbox.kubernetes import defaults, errors, registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.base import Controller, spawn
from leeway_sandbox.kubernetes.controllers.scheduling_info import (
    NodeInfo,
    PodInfo,
    read_pod_info,
    tolerates,
)
from leeway_sandbox.kubernetes.deletion import delete
from leeway_sandbox.kubernetes.objects import (
    Object,
    epoch,
    is_bound,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from leeway_sandbox.kubernetes.store import Change


class ReplicaSets(Controller):
    """Watches ReplicaSets and their pods."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, registry.REPLICA_SET, registry.POD)

    def reconcile(self, owner: Object, owned: list[Object]) -> Object:
        """Create missing pods, delete surplus pods."""
        running = [pod for pod in owned if not is_finished(pod)]
        pods = [pod for pod in running if not is_terminating(pod)]
        leaving = len(running) - len(pods)
        missing = owner["spec"]["replicas"] - len(pods)
        if missing < 0:
            pods.sort(key=_removal_order)
            surplus, pods = pods[:-missing], pods[-missing:]
            for pod in surplus:
                delete(self._cluster, registry.POD, pod)
            leaving += sum(self._store.current(registry.POD, one) is not None for one in surplus)
        spawned = sum(
            spawn(self._cluster, registry.REPLICA_SET, owner) is not None for _ in range(missing)
        )
        ready = sum(map(is_ready, pods))
        available = self.available(owner, pods)
        counted = {"readyReplicas": ready, "availableReplicas": available}
        return {
            "replicas": len(pods) + spawned,
            "fullyLabeledReplicas": len(pods) + spawned,
            "terminatingReplicas": leaving,
            "observedGeneration": owner["metadata"]["generation"],
            **{name: count for name, count in counted.items() if count},
        }


def _removal_order(pod: Object) -> tuple[bool, bool, float]:
    """Sort surplus pods by deletion order: unbound, not Ready, youngest."""
    born = epoch(pod["metadata"]["creationTimestamp"])
    return bool(pod["spec"].get("nodeName")), is_ready(pod), -born


class StatefulSets(Controller):
    """Watches StatefulSets and their pods."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, registry.STATEFUL_SET, registry.POD)

    def reconcile(self, owner: Object, owned: list[Object]) -> Object:
        """Create pods in the order of their ordinals; then delete the highest surplus pod."""
        wanted = owner["spec"]["replicas"]
        in_order = owner["spec"]["podManagementPolicy"] == "OrderedReady"
        pods = {_ordinal(pod): pod for pod in owned}
        for ordinal in range(wanted):
            pod = pods.get(ordinal)
            if pod is None:
                self._create(owner, ordinal)
            elif is_finished(pod) and not is_terminating(pod):
                delete(self._cluster, registry.POD, pod)
            elif is_ready(pod) and not is_terminating(pod):
                continue
            if in_order:
                break
        else:
            highest = max(pods, default=-1)
            if highest >= wanted and not is_terminating(pods[highest]):
                delete(self._cluster, registry.POD, pods[highest])
        count = len(owned)
        staying = [pod for pod in owned if not is_terminating(pod)]
        return {
            "replicas": count,
            "readyReplicas": sum(map(is_ready, staying)),
            "availableReplicas": self.available(owner, staying),
            "currentReplicas": count,
            "updatedReplicas": count,
            "observedGeneration": owner["metadata"]["generation"],
        }

    def _create(self, owner: Object, ordinal: int) -> None:
        name = f"{name_of(owner)}-{ordinal}"
        spec = {**owner["spec"]["template"]["spec"], "hostname": name}
        for template in owner["spec"].get("volumeClaimTemplates") or ():
            volume = template["metadata"]["name"]
            self._claim(owner, template, f"{volume}-{name}")
            source = {"claimName": f"{volume}-{name}"}
            mounted = {"name": volume, "persistentVolumeClaim": source}
            spec["volumes"] = [*spec.get("volumes", ()), mounted]
        labels = {
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        spawn(self._cluster, registry.STATEFUL_SET, owner, name=name, labels=labels, spec=spec)

    def _claim(self, owner: Object, template: Object, name: str) -> None:
        metadata = {**template["metadata"], "name": name, "namespace": namespace_of(owner)}
        claim = {"metadata": metadata, "spec": {**template["spec"]}}
        defaults.admit(registry.PERSISTENT_VOLUME_CLAIM, claim, self._store)
        # A claim outlives its pod, and the next pod with this name uses it again.
        with contextlib.suppress(errors.ApiError):
            self._store.create(registry.PERSISTENT_VOLUME_CLAIM, claim)


def _ordinal(pod: Object) -> int:
    return int(name_of(pod).rpartition("-")[2])


# Gather changes: to check a thousand nodes after the change of each takes too long.
_GATHER_SECONDS = 0.1
# The tolerations that the controller adds to every daemon pod.
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


type _Placing = tuple[object, object]


class DaemonSets(Controller):
    """Watches DaemonSets, nodes and daemon pods."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, registry.DAEMON_SET, registry.POD, _GATHER_SECONDS)
        # By node, and by DaemonSet and generation: the labels and taints of the node, the decision.
        self._decided: dict[str, dict[tuple[str, int], tuple[_Placing, bool]]] = {}

    def start(self) -> None:
        """Start to watch changes."""
        super().start()
        self._store.listen(registry.NODE, self._node_changed)

    def _node_changed(self, change: Change) -> None:
        old, node = change.previous, change.object
        if change.type == "DELETED":
            self._decided.pop(name_of(node), None)
        if change.type != "MODIFIED" or old is None or _placing(old) != _placing(node):
            for daemon_set in self._store.every(registry.DAEMON_SET):
                self._queue.add(key_of(daemon_set))

    def reconcile(self, owner: Object, owned: list[Object]) -> Object:
        """Create missing daemon pods, and delete those on nodes that are not eligible."""
        pods: dict[str, list[Object]] = collections.defaultdict(list)
        for pod in owned:
            pods[_meant_for(pod)].append(pod)
        spec = owner["spec"]["template"]["spec"]
        tolerant = {**spec, "tolerations": [*(spec.get("tolerations") or ()), *_TOLERATIONS]}
        info = read_pod_info({**owner, "spec": tolerant})
        desired = 0
        for node in self._store.every(registry.NODE):
            name = name_of(node)
            is_wanted = self._is_wanted(owner, info, node)
            desired += is_wanted
            for pod in pods[name]:
                if not is_terminating(pod) and (is_finished(pod) or not is_wanted):
                    delete(self._cluster, registry.POD, pod)
            if is_wanted and not pods[name]:
                spawn(self._cluster, registry.DAEMON_SET, owner, spec=_pinned(tolerant, name))
            del pods[name]
        for pod in (pod for lost in pods.values() for pod in lost if not is_bound(pod)):
            delete(
                self._cluster, registry.POD, pod
            )  # Its node was deleted before the pod was bound.
        current = sum(is_bound(pod) for pod in owned)
        available = self.available(owner, owned)
        return {
            "currentNumberScheduled": min(current, desired),
            "numberMisscheduled": max(0, current - desired),
            "desiredNumberScheduled": desired,
            "numberReady": sum(map(is_ready, owned)),
            "numberAvailable": available,
            "updatedNumberScheduled": current,
            "numberUnavailable": max(0, desired - available),
            "observedGeneration": owner["metadata"]["generation"],
        }

    def _is_wanted(self, owner: Object, info: PodInfo, node: Object) -> bool:
        """Whether a node is eligible; cached until its labels or taints change."""
        decided = self._decided.setdefault(name_of(node), {})
        key, placing = (uid_of(owner), owner["metadata"]["generation"]), _placing(node)
        if key not in decided or decided[key][0] != placing:
            decided[key] = placing, _takes(NodeInfo(node), info)
        return decided[key][1]


def _placing(node: Object) -> _Placing:
    return node["metadata"].get("labels"), node["spec"].get("taints")


def _takes(node_info: NodeInfo, info: PodInfo) -> bool:
    return node_info.matches(info) and all(
        taint["key"] == "node.kubernetes.io/not-ready"
        or any(tolerates(one, taint) for one in info.tolerations)
        for taint in node_info.taints
    )


def _pinned(spec: Object, node: str) -> Object:
    """Return the spec of a daemon pod for one node, with the node in each affinity term."""
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{**term, "matchFields": [field]} for term in required.get("nodeSelectorTerms") or [{}]]
    here = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**node_affinity, **here}}}


def _meant_for(pod: Object) -> str:
    if "nodeName" in pod["spec"]:
        return str(pod["spec"]["nodeName"])
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])
