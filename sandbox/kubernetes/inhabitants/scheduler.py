"""The scheduler: binds pending pods to nodes with room, or says why there is none.

Rules: the filters of kube-scheduler (cordon, taints, node affinity, resources, spread, pod
affinity), highest priority first. A few fitting nodes are compared, not all; the one with the
fewest of its kind and the lowest load wins.
"""

from __future__ import annotations

import collections
import heapq
import time

from sandbox.kubernetes import registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.inhabitants.needs import Need, NodeRoom, need_of
from sandbox.kubernetes.inhabitants.preemption import NOT_HELPFUL, preempt, why_not
from sandbox.kubernetes.inhabitants.topology import MISSING_LABEL, NO_KIN, Topology
from sandbox.kubernetes.inhabitants.volumes import Volumes
from sandbox.kubernetes.objects import (
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
from sandbox.kubernetes.store import Change
from sandbox.kubernetes.subresources import assign

_SCHEDULER = "default-scheduler"
_COMPARED = 12
_SLICE_SECONDS = 0.01
_RETRY_SECONDS = 0.2


class Scheduler:
    """Follows nodes and pods; works off pending pods between requests."""

    def __init__(self, cluster: Cluster, volumes: Volumes) -> None:
        self._cluster = cluster
        self._volumes = volumes
        self._nodes: dict[str, NodeRoom] = {}
        self._ring: list[str] = []
        self._next = 0
        self._topology = Topology(self._nodes)
        self._pending: dict[str, Need] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._parked: dict[str, Need] = {}
        self._failed: dict[str, tuple[str, str]] = {}
        self._count = 0
        self._running = False
        self._retrying = False

    def start(self) -> None:
        """Begin to follow changes."""
        self._cluster.store.listen(registry.NODE, self._node_changed)
        self._cluster.store.listen(registry.POD, self._pod_changed)
        self._cluster.store.listen(
            registry.PERSISTENT_VOLUME_CLAIM, lambda _change: self._retry_soon()
        )

    def _node_changed(self, change: Change) -> None:
        name = name_of(change.object)
        if change.type == "DELETED":
            room = self._nodes.pop(name)
            self._ring.remove(name)
            for need in room.pods.values():
                self._topology.left(need, room)
            self._topology.changed(room, {})
            return
        known = self._nodes.get(name)
        if known is None:
            room = self._nodes[name] = NodeRoom(change.object)
            self._ring.append(name)
            self._topology.changed(room, {})
            for pod in self._cluster.store.on_node(name):
                self._take(pod, room)
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
            room = self._nodes.get(node)
            if room is not None and gone:
                self._release(uid, room)
            elif room is not None and uid not in room.pods:
                self._take(pod, room)
            elif room is not None and is_terminating(pod):
                self._leaves(room.pods[uid], room)
            self._pending.pop(uid, None)
            self._parked.pop(uid, None)
        elif gone or is_terminating(pod):
            self._pending.pop(uid, None)
            self._parked.pop(uid, None)
            promised = self._nodes.get(pod["status"].get("nominatedNodeName", ""))
            if promised is not None:
                promised.nominated.pop(uid, None)
        elif uid not in self._pending and uid not in self._parked:
            ours = pod["spec"].get("schedulerName", _SCHEDULER) == _SCHEDULER
            if ours and not pod["spec"].get("schedulingGates"):
                self._enqueue(need_of(pod))

    def _take(self, pod: Object, room: NodeRoom) -> None:
        if not is_finished(pod):
            need = self._pending.get(uid_of(pod)) or need_of(pod)
            room.take(need)
            self._topology.placed(need, room)

    def _leaves(self, need: Need, room: NodeRoom) -> None:
        if not need.leaving and self._topology.leaves(need, room):
            self._retry_soon()

    def _release(self, uid: str, room: NodeRoom) -> None:
        need = room.pods.get(uid)
        if need is None:
            return
        room.release(uid)
        self._topology.left(need, room)
        self._retry_soon()

    def _enqueue(self, need: Need) -> None:
        self._pending[need.uid] = need
        self._count += 1
        heapq.heappush(self._heap, (-need.priority, self._count, need.uid))
        if not self._running:
            self._running = True
            self._cluster.soon(self._work)

    def _retry_soon(self) -> None:
        """Look at parked pods again, a moment after something got better for them."""
        self._failed.clear()
        if self._parked and not self._retrying:
            self._retrying = True
            self._cluster.later(_RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        parked, self._parked = self._parked, {}
        for need in parked.values():
            self._enqueue(need)

    def _work(self) -> None:
        until = time.monotonic() + _SLICE_SECONDS
        while self._heap and time.monotonic() < until:
            _, _, uid = heapq.heappop(self._heap)
            need = self._pending.get(uid)
            if need is not None:
                self._schedule(need)
                self._pending.pop(uid, None)
        if self._heap:
            self._cluster.soon(self._work)
        else:
            self._running = False

    def _schedule(self, need: Need) -> None:
        pod = self._cluster.store.get(registry.POD, need.namespace, need.name)
        if pod is None or uid_of(pod) != need.uid or is_terminating(pod):
            return
        # Pods of one owner fail alike until a node or a leaving pod changes something.
        why = self._failed.get(need.shape)
        if need.claims:
            need.volume_terms, missing = self._volumes.places(need.namespace, need.claims)
            why = self._unavailable(missing) if missing else None
        if why is None:
            room = self._choose(need)
            if room is not None:
                self._bind(pod, room)
                return
            why = self._explain(need)
            self._failed[need.shape] = why
        self._park(pod, need, *why)

    def _choose(self, need: Need) -> NodeRoom | None:
        if need.pinned_to is not None:
            pinned = self._nodes.get(need.pinned_to)
            return pinned if pinned is not None and self._refusal(need, pinned) is None else None
        best: NodeRoom | None = None
        best_score = (0, 0, 0.0)
        compared = 0
        for _ in range(len(self._ring)):
            self._next = (self._next + 1) % len(self._ring)
            room = self._nodes[self._ring[self._next]]
            if self._refusal(need, room) is not None:
                continue
            score = (
                self._topology.crowding(need, room),
                room.owners.get(need.owner, 0) if need.owner else 0,
                room.load(),
            )
            if best is None or score < best_score:
                best, best_score = room, score
            compared += 1
            if compared == _COMPARED:
                break
        return best

    def _refusal(self, need: Need, room: NodeRoom) -> tuple[list[str], bool] | None:
        """Return why a node can't take a pod, and whether it could if other pods were gone.

        The second is True where it still could not. None where the node can take the pod.
        """
        why = room.tolerated(need)
        if why is not None:
            return [why], True
        if need.pinned_to not in (None, room.name):
            return ["node(s) didn't satisfy plugin(s) [NodeAffinity]"], True
        if not room.matches(need):
            return ["node(s) didn't match Pod's node affinity/selector"], True
        if need.ports and room.takers(need.ports):
            return ["node(s) didn't have free ports for the requested pod ports"], False
        short = room.lacks(need)
        if short:
            return short, not room.can_hold(need)
        if not all(test(room.labels) for test in need.volume_terms):
            return ["node(s) didn't match PersistentVolume's node affinity"], True
        refusal = self._topology.refusal(need, room)
        return ([refusal], refusal in (MISSING_LABEL, NO_KIN)) if refusal else None

    def _bind(self, pod: Object, room: NodeRoom) -> None:
        bound = assign(self._cluster, pod, room.name)
        if bound is None:
            return
        self._cluster.audit.bound(bound)
        self._cluster.journal.add(
            "pod-bound",
            pod=path_of(bound),
            uid=uid_of(bound),
            node=room.name,
            owner=self._cluster.owner_name(bound),
        )

    def _explain(self, need: Need) -> tuple[str, str]:
        """Say why no node takes a pod, and why no pod gives way to it."""
        if not self._nodes:
            return "no nodes available to schedule pods", ""
        refused = {
            name: refusal
            for name, room in self._nodes.items()
            if (refusal := self._refusal(need, room)) is not None
        }
        reasons = collections.Counter(one for told, _ in refused.values() for one in told)
        told = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        why, _ = self._unavailable(told)
        return why, why_not(need, refused, self._nodes)

    def _unavailable(self, told: str) -> tuple[str, str]:
        total = len(self._nodes)
        why = f"0/{total} nodes are available: {told}."
        return why, f"0/{total} nodes are available: {total} {NOT_HELPFUL}."

    def _park(self, pod: Object, need: Need, why: str, no_preemption: str) -> None:
        """Mark a pod as fitting nowhere, and make room for it where its priority allows."""
        self._parked[need.uid] = need
        nominated = None
        message = why
        if no_preemption:
            nominated = preempt(self._cluster, self._nodes, self._topology, need)
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
            self._cluster.audit.unschedulable(marked)
            self._cluster.events.write(
                registry.POD, marked, "FailedScheduling", message, _SCHEDULER
            )
