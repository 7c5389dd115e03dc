"""The StatefulSet controller: pods with stable names and volume claims, in order."""

from __future__ import annotations

import contextlib

from leeway_sandbox.kubernetes import errors, registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.base import Controller
from leeway_sandbox.kubernetes.controllers.pods import spawn
from leeway_sandbox.kubernetes.deletion import delete
from leeway_sandbox.kubernetes.objects import (
    Object,
    is_finished,
    is_ready,
    is_terminating,
    name_of,
    namespace_of,
)


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
        claim = {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}
        # A claim outlives its pod, and the next pod with this name uses it again.
        with contextlib.suppress(errors.ApiError):
            self._store.create(registry.PERSISTENT_VOLUME_CLAIM, claim)


def _ordinal(pod: Object) -> int:
    return int(name_of(pod).rpartition("-")[2])
