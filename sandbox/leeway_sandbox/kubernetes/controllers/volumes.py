"""Volumes: provisions claims, attaches volumes to nodes, detaches them after the end of the pod.

Rules: the PersistentVolume and the attach/detach controller, and the scheduler's plugin
VolumeBinding. A volume is attached to one node at a time. If a node dies
without the out-of-service taint, its volumes stay attached until the force-detach timeout.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.instances import Instances
from leeway_sandbox.kubernetes.controllers.scheduling_info import claims_of
from leeway_sandbox.kubernetes.objects import (
    Object,
    condition,
    has_taint,
    is_finished,
    is_terminating,
    name_of,
    namespace_of,
    timestamp,
    uid_of,
)
from leeway_sandbox.kubernetes.selectors import LabelTest, requirements
from leeway_sandbox.kubernetes.store import Change

_DRIVER = "ebs.csi.aws.com"
_BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_ZONE = "topology.kubernetes.io/zone"


class Volumes:
    """Attaches and detaches volumes, and tracks the pods that wait for them."""

    def __init__(self, cluster: Cluster, instances: Instances) -> None:
        self._cluster = cluster
        self._instances = instances
        self._waiting: dict[str, tuple[Object, str, Callable[[Object], None]]] = {}

    def start(self) -> None:
        """Start to watch changes."""
        self._cluster.store.listen(registry.POD, self._pod_changed)
        self._cluster.store.listen(registry.VOLUME_ATTACHMENT, self._attachment_changed)
        self._cluster.store.listen(registry.NODE, self._node_changed)
        self._cluster.store.listen(registry.PERSISTENT_VOLUME_CLAIM, self._claim_changed)
        self._cluster.store.listen(registry.PERSISTENT_VOLUME, self._volume_changed)

    def places(self, namespace: str, claims: list[str]) -> tuple[list[LabelTest], str | None]:
        """Return the node requirements of the volumes of some claims, or why no node fits."""
        tests: list[LabelTest] = []
        for name in claims:
            claim = self._cluster.store.get(registry.PERSISTENT_VOLUME_CLAIM, namespace, name)
            if claim is None:
                return [], f'persistentvolumeclaim "{name}" not found'
            volume_name = claim["spec"].get("volumeName", "")
            if is_terminating(claim):
                return [], f'persistentvolumeclaim "{name}" is being deleted'
            if claim["status"].get("phase") == "Lost":
                lost = f'bound to non-existent persistentvolume "{volume_name}"'
                return [], f'persistentvolumeclaim "{name}" {lost}'
            if not _is_bound(claim) and not self._binds_later(claim):
                return [], "pod has unbound immediate PersistentVolumeClaims"
            volume = self._cluster.store.get(registry.PERSISTENT_VOLUME, "", volume_name)
            required = ((volume or {}).get("spec", {}).get("nodeAffinity") or {}).get("required")
            for term in (required or {}).get("nodeSelectorTerms") or ():
                tests += requirements(term.get("matchExpressions"))
        return tests, None

    def when_attached(self, pod: Object, node: str, then: Callable[[Object], None]) -> None:
        """Call `then` with the pod when all its volumes are attached to its node."""
        if not any(claims_of(pod)):
            then(pod)
            return
        self._waiting[uid_of(pod)] = (pod, node, then)
        self._try(uid_of(pod))

    def _try(self, uid: str) -> None:
        pod, node, then = self._waiting[uid]
        attached = [self._attach(pod, claim, node) for claim in claims_of(pod)]
        if all(attached):
            del self._waiting[uid]
            then(pod)

    def _attach(self, pod: Object, claim_name: str, node: str) -> bool:
        """Whether the volume of a claim is attached to a node; start to attach a free one."""
        store = self._cluster.store
        claim = store.get(registry.PERSISTENT_VOLUME_CLAIM, namespace_of(pod), claim_name)
        if claim is None:
            return False
        volume = claim["spec"].get("volumeName")
        if not volume and self._waits_for_scheduler(pod, claim):
            return False
        volume = volume or self._provision(claim, node)
        attachments = list(self._attachments(volume))
        for one in attachments:
            if one["spec"]["nodeName"] == node and not is_terminating(one):
                return bool(one["status"]["attached"])
        if attachments:
            return False
        digest = hashlib.sha256(f"{volume}{_DRIVER}{node}".encode()).hexdigest()
        made = store.create(
            registry.VOLUME_ATTACHMENT,
            {
                "metadata": {"name": f"csi-{digest}"},
                "spec": {
                    "attacher": _DRIVER,
                    "nodeName": node,
                    "source": {"persistentVolumeName": volume},
                },
                "status": {"attached": False},
            },
        )
        takes = self._cluster.jitter(self._cluster.settings.volume_attach)
        self._cluster.later(takes, self._set_attached, made)
        return False

    def _waits_for_scheduler(self, pod: Object, claim: Object) -> bool:
        """Whether no volume is provisioned, because the scheduler has not chosen the node of the
        claim: the pod was created with the name of its node."""
        return self._binds_later(claim) and condition(pod, "PodScheduled") is None

    def _binds_later(self, claim: Object) -> bool:
        return self._mode(claim) == "WaitForFirstConsumer"

    def _mode(self, claim: Object) -> str:
        """When the class of a claim binds volumes; empty without a class."""
        name = claim["spec"].get("storageClassName", "")
        found = self._cluster.store.get(registry.STORAGE_CLASS, "", name)
        return str(found["volumeBindingMode"]) if found is not None else ""

    def _claim_changed(self, change: Change) -> None:
        """Bind a claim that names a volume, or whose class binds volumes at once."""
        claim = change.object
        if change.type == "DELETED" or is_terminating(claim) or _is_bound(claim):
            return
        store, volume = self._cluster.store, claim["spec"].get("volumeName")
        if volume and store.get(registry.PERSISTENT_VOLUME, "", volume) is not None:
            self._set_bound(claim, volume)
        elif not volume and self._mode(claim) == "Immediate":
            node = next(iter(store.every(registry.NODE)), None)
            self._provision(claim, name_of(node) if node else "")

    def _volume_changed(self, change: Change) -> None:
        """Bind the claims that name a new volume; those of a deleted one are lost."""
        volume, store = name_of(change.object), self._cluster.store
        for claim in list(store.every(registry.PERSISTENT_VOLUME_CLAIM)):
            if claim["spec"].get("volumeName") != volume:
                continue
            if change.type == "DELETED":
                store.amend(registry.PERSISTENT_VOLUME_CLAIM, claim, status={"phase": "Lost"})
            elif change.type == "ADDED" and not _is_bound(claim):
                self._set_bound(claim, volume)

    def _set_bound(self, claim: Object, volume: str, **status: Object) -> None:
        annotations = {**(claim["metadata"].get("annotations") or {}), **_BOUND}
        self._cluster.store.amend(
            registry.PERSISTENT_VOLUME_CLAIM,
            claim,
            metadata={"annotations": annotations},
            spec={"volumeName": volume},
            status={"phase": "Bound", **status},
        )

    def _provision(self, claim: Object, node: str) -> str:
        store = self._cluster.store
        volume = f"pvc-{uid_of(claim)}"
        found = store.get(registry.NODE, "", node)
        zone = (found["metadata"].get("labels") or {}).get(_ZONE, "") if found else ""
        term = {"key": _ZONE, "operator": "In", "values": [zone]}
        spec = {
            "capacity": claim["spec"].get("resources", {}).get("requests", {}),
            "accessModes": claim["spec"].get("accessModes", ["ReadWriteOnce"]),
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": claim["spec"].get("storageClassName", ""),
            "csi": {"driver": _DRIVER, "volumeHandle": f"vol-{uuid.uuid4().hex[:17]}"},
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "namespace": namespace_of(claim),
                "name": name_of(claim),
                "uid": uid_of(claim),
            },
        }
        if zone:
            spec["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
            }
        store.create(
            registry.PERSISTENT_VOLUME,
            {"metadata": {"name": volume}, "spec": spec, "status": {"phase": "Bound"}},
        )
        self._set_bound(claim, volume, capacity=spec["capacity"])
        return volume

    def _attachments(self, volume: str) -> Iterator[Object]:
        for one in self._cluster.store.every(registry.VOLUME_ATTACHMENT):
            if one["spec"]["source"].get("persistentVolumeName") == volume:
                yield one

    def _set_attached(self, attachment: Object) -> None:
        self._cluster.store.amend(registry.VOLUME_ATTACHMENT, attachment, status={"attached": True})

    def _attachment_changed(self, change: Change) -> None:
        status = change.object.get("status", {})
        if change.type == "DELETED" or status.get("attached"):
            for uid in list(self._waiting):
                self._try(uid)

    def _pod_changed(self, change: Change) -> None:
        pod = change.object
        if change.type != "DELETED" and not is_finished(pod):
            return
        self._waiting.pop(uid_of(pod), None)
        node = pod["spec"].get("nodeName")
        if not node:
            return
        for claim in claims_of(pod):
            if not self._is_used(namespace_of(pod), claim, node):
                self._detach(namespace_of(pod), claim, node)

    def _is_used(self, namespace: str, claim: str, node: str) -> bool:
        return any(
            namespace_of(pod) == namespace and claim in claims_of(pod) and not is_finished(pod)
            for pod in self._cluster.store.on_node(node)
        )

    def _detach(self, namespace: str, claim_name: str, node: str) -> None:
        store = self._cluster.store
        claim = store.get(registry.PERSISTENT_VOLUME_CLAIM, namespace, claim_name)
        volume = (claim or {"spec": {}})["spec"].get("volumeName")
        for one in list(self._attachments(volume)) if volume else ():
            if one["spec"]["nodeName"] == node and not is_terminating(one):
                settings = self._cluster.settings
                takes = settings.volume_force_detach
                if self._instances.is_alive(node) or self._is_out_of_service(node):
                    takes = self._cluster.jitter(settings.volume_detach)
                    store.amend(
                        registry.VOLUME_ATTACHMENT, one, metadata={"deletionTimestamp": timestamp()}
                    )
                self._cluster.later(takes, store.remove, registry.VOLUME_ATTACHMENT, one)

    def _is_out_of_service(self, node: str) -> bool:
        found = self._cluster.store.get(registry.NODE, "", node)
        return found is not None and has_taint(found, OUT_OF_SERVICE)

    def _node_changed(self, change: Change) -> None:
        """Detach the volumes of a dead node at once if it has the out-of-service taint."""
        name = name_of(change.object)
        if change.type == "DELETED" or not self._is_out_of_service(name):
            return
        if not self._instances.is_alive(name):
            for one in list(self._cluster.store.every(registry.VOLUME_ATTACHMENT)):
                if one["spec"]["nodeName"] == name:
                    self._cluster.store.remove(registry.VOLUME_ATTACHMENT, one)


def _is_bound(claim: Object) -> bool:
    return _BOUND.keys() <= (claim["metadata"].get("annotations") or {}).keys()
