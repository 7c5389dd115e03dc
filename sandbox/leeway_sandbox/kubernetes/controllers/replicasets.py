"""The ReplicaSet controller, which keeps the number of pods."""

from __future__ import annotations

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.base import Controller
from leeway_sandbox.kubernetes.controllers.pods import spawn
from leeway_sandbox.kubernetes.deletion import delete
from leeway_sandbox.kubernetes.objects import Object, epoch, is_finished, is_ready, is_terminating


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
