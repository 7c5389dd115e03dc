"""Evicts pods by NoExecute taints, and deletes terminating pods of out-of-service nodes.

Rules: the taint-eviction controller (tolerationSeconds starts with the taint) and the pod garbage
collector (terminating pods on a NotReady node with the out-of-service taint are deleted at once).
"""

from __future__ import annotations

import asyncio

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.garbage import drop
from leeway_sandbox.kubernetes.controllers.instances import Instances
from leeway_sandbox.kubernetes.controllers.scheduling_info import tolerates
from leeway_sandbox.kubernetes.controllers.volumes import OUT_OF_SERVICE
from leeway_sandbox.kubernetes.deletion import delete
from leeway_sandbox.kubernetes.objects import (
    Object,
    has_taint,
    is_bound,
    is_ready,
    is_terminating,
    name_of,
    taints_of,
    uid_of,
)
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
