"""The scheduler: binds pending pods to nodes, or reports why no node fits.

Rules: the filters of kube-scheduler (cordon, taints, node affinity, resources, spread, pod
affinity), highest priority first. It compares a few of the nodes that fit, and selects the one with
the fewest similar pods and the lowest load. Then preemption: pods of lower priority are deleted to
make room for a pod. PodDisruptionBudgets are ignored; a real scheduler prefers victims whose
budgets allow it, but does not require that.
"""

from __future__ import annotations

import collections
import heapq
import time

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.scheduling_info import NodeInfo, PodInfo, read_pod_info
from leeway_sandbox.kubernetes.controllers.topology import (
    MISSING_LABEL,
    NO_AFFINITY_MATCH,
    Topology,
)
from leeway_sandbox.kubernetes.controllers.volumes import Volumes
from leeway_sandbox.kubernetes.deletion import delete
from leeway_sandbox.kubernetes.objects import (
    Object,
    condition,
    is_finished,
    is_terminating,
    name_of,
    path_of,
    timestamp,
    uid_of,
    with_condition,
)
from leeway_sandbox.kubernetes.store import Change
from leeway_sandbox.kubernetes.subresources import assign

_SCHEDULER = "default-scheduler"
_COMPARED = 12
_SLICE_SECONDS = 0.01
_RETRY_SECONDS = 0.2


class Scheduler:
    """Watches nodes and pods; schedules pending pods between requests."""

    def __init__(self, cluster: Cluster, volumes: Volumes) -> None:
        self._cluster = cluster
        self._volumes = volumes
        self._nodes: dict[str, NodeInfo] = {}
        self._ring: list[str] = []
        self._next = 0
        self._topology = Topology(self._nodes)
        self._pending: dict[str, PodInfo] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._unschedulable: dict[str, PodInfo] = {}
        self._failed: dict[str, tuple[str, str]] = {}
        self._count = 0
        self._running = False
        self._retrying = False

    def start(self) -> None:
        """Start to watch changes."""
        self._cluster.store.listen(registry.NODE, self._node_changed)
        self._cluster.store.listen(registry.POD, self._pod_changed)
        self._cluster.store.listen(
            registry.PERSISTENT_VOLUME_CLAIM, lambda _change: self._retry_soon()
        )

    def _node_changed(self, change: Change) -> None:
        name = name_of(change.object)
        if change.type == "DELETED":
            node_info = self._nodes.pop(name)
            self._ring.remove(name)
            for info in node_info.pods.values():
                self._topology.left(info, node_info)
            self._topology.changed(node_info, {})
            return
        known = self._nodes.get(name)
        if known is None:
            node_info = self._nodes[name] = NodeInfo(change.object)
            self._ring.append(name)
            self._topology.changed(node_info, {})
            for pod in self._cluster.store.on_node(name):
                self._take(pod, node_info)
        else:
            before, kept_away = known.labels, (known.taints, known.cordoned)
            known.refresh(change.object)
            if known.labels != before:
                self._topology.changed(known, before)
            if (known.taints, known.cordoned) != kept_away:
                self._topology.tainted(known)
        self._retry_soon()

    def _pod_changed(self, change: Change) -> None:
        pod, uid = change.object, uid_of(change.object)
        node = pod["spec"].get("nodeName")
        gone = change.type == "DELETED" or is_finished(pod)
        if node:
            node_info = self._nodes.get(node)
            if node_info is not None and gone:
                self._release(uid, node_info)
            elif node_info is not None and uid not in node_info.pods:
                self._take(pod, node_info)
            elif node_info is not None and is_terminating(pod):
                self._pod_terminates(node_info.pods[uid], node_info)
            self._pending.pop(uid, None)
            self._unschedulable.pop(uid, None)
        elif gone or is_terminating(pod):
            self._pending.pop(uid, None)
            self._unschedulable.pop(uid, None)
            promised = self._nodes.get(pod["status"].get("nominatedNodeName", ""))
            if promised is not None:
                promised.nominated.pop(uid, None)
        elif uid not in self._pending and uid not in self._unschedulable:
            ours = pod["spec"].get("schedulerName", _SCHEDULER) == _SCHEDULER
            if ours and not pod["spec"].get("schedulingGates"):
                self._enqueue(read_pod_info(pod))

    def _take(self, pod: Object, node_info: NodeInfo) -> None:
        if not is_finished(pod):
            info = self._pending.get(uid_of(pod)) or read_pod_info(pod)
            node_info.add_pod(info)
            self._topology.placed(info, node_info)

    def _pod_terminates(self, info: PodInfo, node_info: NodeInfo) -> None:
        if not info.terminating and self._topology.leaves(info, node_info):
            self._retry_soon()

    def _release(self, uid: str, node_info: NodeInfo) -> None:
        info = node_info.pods.get(uid)
        if info is None:
            return
        node_info.remove_pod(uid)
        self._topology.left(info, node_info)
        self._retry_soon()

    def _enqueue(self, info: PodInfo) -> None:
        self._pending[info.uid] = info
        self._count += 1
        heapq.heappush(self._heap, (-info.priority, self._count, info.uid))
        if not self._running:
            self._running = True
            self._cluster.soon(self._work)

    def _retry_soon(self) -> None:
        """Retry unschedulable pods shortly after a change that can help them."""
        self._failed.clear()
        if self._unschedulable and not self._retrying:
            self._retrying = True
            self._cluster.later(_RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        parked, self._unschedulable = self._unschedulable, {}
        for info in parked.values():
            self._enqueue(info)

    def _work(self) -> None:
        until = time.monotonic() + _SLICE_SECONDS
        while self._heap and time.monotonic() < until:
            _, _, uid = heapq.heappop(self._heap)
            info = self._pending.get(uid)
            if info is not None:
                self._schedule(info)
                self._pending.pop(uid, None)
        if self._heap:
            self._cluster.soon(self._work)
        else:
            self._running = False

    def _schedule(self, info: PodInfo) -> None:
        pod = self._cluster.store.get(registry.POD, info.namespace, info.name)
        if pod is None or uid_of(pod) != info.uid or is_terminating(pod):
            return
        # Pods of one owner fail for the same reasons until a node or a pod changes.
        why = self._failed.get(info.shape)
        if info.claims:
            info.volume_terms, missing = self._volumes.places(info.namespace, info.claims)
            why = self._unavailable(missing) if missing else None
        if devices := pod["spec"].get("resourceClaims"):  # the sandbox has no such claims
            name = devices[0].get("resourceClaimName") or devices[0]["name"]
            why = self._unavailable(f'resourceclaim.resource.k8s.io "{name}" not found')
        if why is None:
            node_info = self._choose(info)
            if node_info is not None:
                self._bind(pod, node_info)
                return
            why = self._failure_message(info)
            self._failed[info.shape] = why
        self._park(pod, info, *why)

    def _choose(self, info: PodInfo) -> NodeInfo | None:
        if info.pinned_to is not None:
            pinned = self._nodes.get(info.pinned_to)
            return pinned if pinned is not None and self._refusal(info, pinned) is None else None
        best: NodeInfo | None = None
        best_score = (0, 0, 0.0)
        compared = 0
        for _ in range(len(self._ring)):
            self._next = (self._next + 1) % len(self._ring)
            node_info = self._nodes[self._ring[self._next]]
            if self._refusal(info, node_info) is not None:
                continue
            score = (
                self._topology.soft_spread_score(info, node_info),
                node_info.owners.get(info.owner, 0) if info.owner else 0,
                node_info.load(),
            )
            if best is None or score < best_score:
                best, best_score = node_info, score
            compared += 1
            if compared == _COMPARED:
                break
        return best

    def _refusal(self, info: PodInfo, node_info: NodeInfo) -> tuple[list[str], bool] | None:
        """Return why a pod does not fit a node, and whether that is true without other pods too.

        None if the pod fits.
        """
        why = node_info.taint_reason(info)
        if why is not None:
            return [why], True
        if info.pinned_to not in (None, node_info.name):
            return ["node(s) didn't satisfy plugin(s) [NodeAffinity]"], True
        if not node_info.matches(info):
            return ["node(s) didn't match Pod's node affinity/selector"], True
        if info.ports and node_info.port_holders(info.ports):
            return ["node(s) didn't have free ports for the requested pod ports"], False
        short = node_info.insufficient(info)
        if short:
            return short, not node_info.can_hold(info)
        if not all(test(node_info.labels) for test in info.volume_terms):
            return ["node(s) didn't match PersistentVolume's node affinity"], True
        refusal = self._topology.refusal(info, node_info)
        return ([refusal], refusal in (MISSING_LABEL, NO_AFFINITY_MATCH)) if refusal else None

    def _bind(self, pod: Object, node_info: NodeInfo) -> None:
        bound = assign(self._cluster, pod, node_info.name)
        if bound is None:
            return
        self._cluster.journal.add(
            "pod-bound",
            pod=path_of(bound),
            uid=uid_of(bound),
            node=node_info.name,
            owner=self._cluster.owner_name(bound),
        )

    def _failure_message(self, info: PodInfo) -> tuple[str, str]:
        """Return why no node fits a pod, and why preemption does not help."""
        if not self._nodes:
            return "no nodes available to schedule pods", ""
        refused = {
            name: refusal
            for name, node_info in self._nodes.items()
            if (refusal := self._refusal(info, node_info)) is not None
        }
        reasons = collections.Counter(one for text, _ in refused.values() for one in text)
        text = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        why, _ = self._unavailable(text)
        return why, why_not(info, refused, self._nodes)

    def _unavailable(self, text: str) -> tuple[str, str]:
        total = len(self._nodes)
        why = f"0/{total} nodes are available: {text}."
        return why, f"0/{total} nodes are available: {total} {NOT_HELPFUL}."

    def _park(self, pod: Object, info: PodInfo, why: str, no_preemption: str) -> None:
        """Mark a pod as unschedulable, and try preemption."""
        self._unschedulable[info.uid] = info
        nominated = None
        message = why
        if no_preemption:
            nominated = preempt(self._cluster, self._nodes, self._topology, info)
            if nominated is None:
                message += f" no new claims to deallocate, preemption: {no_preemption}"
        scheduled = condition(pod, "PodScheduled")
        if scheduled is not None and scheduled.get("message") == message and not nominated:
            return
        status: Object = {
            "conditions": with_condition(
                pod["status"].get("conditions"),
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": timestamp(),
                    "reason": "Unschedulable",
                    "message": message,
                },
            )
        }
        if nominated is not None:
            status["nominatedNodeName"] = nominated
        marked = self._cluster.store.amend(registry.POD, pod, status=status)
        if marked is not None:
            self._cluster.events.write(
                registry.POD, marked, "FailedScheduling", message, _SCHEDULER
            )


type NodeInfos = dict[str, NodeInfo]


NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


def why_not(info: PodInfo, refused: dict[str, tuple[list[str], bool]], nodes: NodeInfos) -> str:
    """Return kube-scheduler's message about preemption that does not help.

    `refused` has, by node, the reasons and whether they remain without the other pods.
    """
    if not info.preempts:
        return "not eligible due to preemptionPolicy=Never."
    reasons: collections.Counter[str] = collections.Counter()
    for name, (refusal, stays) in refused.items():
        lower = any(one.priority < info.priority for one in nodes[name].pods.values())
        if stays:
            reasons[NOT_HELPFUL] += 1
        else:
            reasons.update(refusal if lower else [_NO_VICTIMS])
    text = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{len(nodes)} nodes are available: {text}."


def preempt(cluster: Cluster, nodes: NodeInfos, topology: Topology, info: PodInfo) -> str | None:
    """Delete the cheapest victims on one node; return the node, or None if it does not help."""
    if not info.preempts:
        return None
    for node_info in nodes.values():
        if info.uid in node_info.nominated:
            return node_info.name
    best: tuple[tuple[int, int], NodeInfo, list[PodInfo]] | None = None
    for node_info in nodes.values():
        if (
            node_info.taint_reason(info)
            or not node_info.matches(info)
            or topology.refusal(info, node_info)
        ):
            continue
        if not all(test(node_info.labels) for test in info.volume_terms):
            continue
        victims = _victims(node_info, info)
        if not victims:
            continue
        cost = (max(one.priority for one in victims), len(victims))
        if best is None or cost < best[0]:
            best = (cost, node_info, victims)
    if best is None:
        return None
    _, node_info, victims = best
    node_info.nominated[info.uid] = info
    for victim in victims:
        pod = cluster.store.get(registry.POD, victim.namespace, victim.name)
        if pod is not None and not is_terminating(pod):
            message = f"Preempted by pod {info.uid} on node {node_info.name}"
            cluster.events.write(registry.POD, pod, "Preempted", message, "default-scheduler")
            delete(cluster, registry.POD, pod, via="preemption")
    return node_info.name


def _victims(node_info: NodeInfo, info: PodInfo) -> list[PodInfo]:
    """Return the pods of the lowest priorities without which this pod fits; empty if none."""
    freed: dict[str, int] = {}
    victims = []
    lower = [one for one in node_info.pods.values() if one.priority < info.priority]
    takers = {one.uid for one in node_info.port_holders(info.ports)}
    if not takers <= {one.uid for one in lower}:
        return []
    # Pods that hold a needed port are the first victims.
    for one in sorted(lower, key=lambda other: (other.uid not in takers, other.priority)):
        victims.append(one)
        for name, value in one.requests.items():
            freed[name] = freed.get(name, 0) + value
        takers.discard(one.uid)
        if not takers and not node_info.insufficient(info, freed=freed):
            return victims
    return []
