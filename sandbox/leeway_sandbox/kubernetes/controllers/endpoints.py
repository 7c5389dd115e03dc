"""The EndpointSlice controller: one slice for each Service that selects pods.

Rules: kube-controller-manager's endpointslice controller, with IPv4 addresses and one slice, which
has room for all pods of a sandbox.
"""

from __future__ import annotations

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.base import WorkQueue
from leeway_sandbox.kubernetes.objects import (
    Object,
    is_finished,
    is_ready,
    is_terminating,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from leeway_sandbox.kubernetes.store import Change, Key

_GATHER = 0.05  # seconds
_SERVICE_NAME = "kubernetes.io/service-name"
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"


class Endpoints:
    """Watches Services and pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._store = cluster.store
        self._queue: WorkQueue[Key] = WorkQueue(cluster, self._reconcile, after=_GATHER)

    def start(self) -> None:
        """Start to watch changes."""
        self._store.listen(registry.SERVICE, lambda change: self._queue.add(key_of(change.object)))
        self._store.listen(registry.POD, self._pod_changed)

    def _pod_changed(self, change: Change) -> None:
        if not self._store.count(registry.SERVICE):
            return
        for service in self._store.every(registry.SERVICE, namespace_of(change.object)):
            if _selects(service, change.object):
                self._queue.add(key_of(service))

    def _reconcile(self, key: Key) -> None:
        service = self._store.get(registry.SERVICE, *key)
        if service is None or not service["spec"].get("selector"):
            return
        pods = self._store.every(registry.POD, namespace_of(service))
        endpoints = [_endpoint(pod) for pod in pods if _selects(service, pod) and _is_listed(pod)]
        ports = [
            {
                "name": port.get("name", ""),
                "port": port.get("targetPort", port["port"]),
                "protocol": port.get("protocol", "TCP"),
            }
            for port in service["spec"].get("ports") or ()
        ]
        content = {"addressType": "IPv4", "endpoints": endpoints or None, "ports": ports or None}
        current = next(iter(self._store.owned(uid_of(service), registry.ENDPOINT_SLICE)), None)
        if current is not None:
            self._store.replace(registry.ENDPOINT_SLICE, {**current, **content})
            return
        name = name_of(service)
        metadata = {
            "name": f"{name}-{uid_of(service)[:5]}",
            "namespace": namespace_of(service),
            "labels": {_SERVICE_NAME: name, _MANAGED_BY: "endpointslice-controller.k8s.io"},
            "ownerReferences": [owner_reference("Service", "v1", service)],
        }
        self._store.create(registry.ENDPOINT_SLICE, {"metadata": metadata, **content})


def _selects(service: Object, pod: Object) -> bool:
    selector = service["spec"].get("selector")
    return bool(selector) and selector.items() <= labels_of(pod).items()


def _is_listed(pod: Object) -> bool:
    return bool(pod["status"].get("podIP")) and not is_finished(pod)


def _endpoint(pod: Object) -> Object:
    serves, ends = is_ready(pod), is_terminating(pod)
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": serves and not ends, "serving": serves, "terminating": ends},
        "nodeName": pod["spec"]["nodeName"],
        "targetRef": {
            "kind": "Pod",
            "namespace": namespace_of(pod),
            "name": name_of(pod),
            "uid": uid_of(pod),
        },
    }
