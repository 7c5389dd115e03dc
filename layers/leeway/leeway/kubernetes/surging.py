"""The Workloads Protocol over HTTP: workloads that may get one more pod before an eviction."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from leeway.kubernetes.connection import MERGE, ApiError, Connection
from leeway.kubernetes.list_watch import list_any
from leeway.kubernetes.translate import is_subdomain
from leeway.kubernetes.transport import within
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.ports.workloads import SURGE_MANAGER, BudgetHealth, Replica, Replicas, Workload
from leeway.printable import printable

ANNOTATION = "leeway.sh/surge"
"""The annotation of a workload: `true` or `false`."""

READ_SECONDS = 5.0
"""Timeout of what is read together."""

_ROLLOUT, _ROLLOUT_HASH = "Rollout", "rollouts-pod-template-hash"
"""The kind of Argo Rollouts, and the label of the pods of one template. A Rollout adds it to the
selectors of its Services. Source: argo-rollouts, pkg/apis/rollouts/v1alpha1/types.go."""

_KINDS = {
    "Deployment": ("apps/v1", "deployments"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    _ROLLOUT: ("argoproj.io/v1alpha1", "rollouts"),
    "StatefulSet": ("apps/v1", "statefulsets"),
}
"""The API versions and the plurals of kinds that are read."""

_ABOVE = frozenset({"Deployment", _ROLLOUT})
"""The kinds whose ReplicaSets have the pods."""

_SCALERS = {
    "HorizontalPodAutoscaler": "autoscaling/v1/namespaces/{}/horizontalpodautoscalers",
    "ScaledObject": "keda.sh/v1alpha1/namespaces/{}/scaledobjects",
}
_SERVICE_NAME = "kubernetes.io/service-name"
_SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
"""Source: Kubernetes documentation, "Persistent Volumes", access modes."""

_ENDED = frozenset({"Succeeded", "Failed"})

type _Object = Mapping[str, Any]


class HttpSurgeWorkloads:
    """The workloads of one cluster. Safe to use from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, namespace: str, kind: str, name: str) -> Workload | None:
        """Read a workload by one GET, or two for that of a ReplicaSet. Each claim of a Deployment
        is one more: pods may share a volume that several nodes may mount at once."""
        with within(READ_SECONDS):
            found = self._get(namespace, kind, name)
            if found is not None and kind == "ReplicaSet":
                owner = _controller(found)
                kind, name = owner.get("kind", ""), owner.get("name", "")
                if kind not in _ABOVE or owner["apiVersion"] != _KINDS[kind][0]:
                    return None
                found = self._get(namespace, kind, name)
            if found is None:
                return None
            workload = _workload(kind, found)
            claims = _shared_claims(found)
            shared = workload.claims and all(self._is_shared(namespace, one) for one in claims)
        return replace(workload, claims=False) if shared and claims else workload

    def _is_shared(self, namespace: str, claim: str) -> bool:
        """Whether several nodes may mount the volume of a claim; not if Leeway may not read it."""
        try:
            path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}"
            found = self._read(path) if is_subdomain(claim) else None
        except ClusterRefused:
            return False
        modes = set(found["spec"].get("accessModes") or ()) if found is not None else set()
        return bool(modes) and modes <= _SHARED_MODES

    def scalers(self, workload: Workload) -> tuple[str, ...]:
        """List the autoscalers of the namespace."""
        with within(READ_SECONDS):
            return tuple(
                f"{kind} {one['metadata']['name']}"
                for kind, path in _SCALERS.items()
                for one in list_any(self._connection, f"/apis/{path.format(workload.namespace)}")
                if _scales(one["spec"].get("scaleTargetRef") or {}, workload)
            )

    def replicas(self, workload: Workload) -> Replicas:
        """List the pods by the labels of the workload, the Services, and their EndpointSlices."""
        space = workload.namespace
        with within(READ_SECONDS):
            found = self._get(space, workload.kind, workload.name)
            if found is None:
                return Replicas(())
            spec = found["spec"]
            equal = spec["selector"].get("matchLabels") or {}
            path = f"/api/v1/namespaces/{space}"
            labels_of_pods = ",".join(f"{key}={value}" for key, value in equal.items())
            pods = list_any(self._connection, f"{path}/pods", {"labelSelector": labels_of_pods})
            labels = (spec["template"].get("metadata") or {}).get("labels") or {}
            if workload.kind == _ROLLOUT:
                stable = (found.get("status") or {}).get("stableRS", "")
                labels = {**labels, _ROLLOUT_HASH: stable}
            services = [
                one
                for one in list_any(self._connection, f"{path}/services")
                if (chosen := one["spec"].get("selector")) and chosen.items() <= labels.items()
            ]
            ready = self._ready(space, [one["metadata"]["name"] for one in services])
        owned = (one for one in pods if _is_of(one, found) and _runs(one))
        shared = any(one["spec"].get("clusterIP") != "None" for one in services)
        return Replicas(tuple(_replica(one, ready) for one in owned), shared)

    def _ready(self, namespace: str, services: list[str]) -> list[frozenset[str]]:
        """Return the UIDs of the pods that the EndpointSlices of each Service have as ready."""
        if not services:
            return []
        ready: dict[str, set[str]] = {one: set() for one in services}
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        selection = {"labelSelector": f"{_SERVICE_NAME} in ({','.join(services)})"}
        for one in list_any(self._connection, path, selection):
            uids = ready.get(one["metadata"]["labels"][_SERVICE_NAME], set())
            for endpoint in one.get("endpoints") or ():
                # Source: Kubernetes API, EndpointConditions: no value means ready.
                if (endpoint.get("conditions") or {}).get("ready", True):
                    uids.add((endpoint.get("targetRef") or {}).get("uid", ""))
        return [frozenset(uids) for uids in ready.values()]

    def budget(self, namespace: str, name: str) -> BudgetHealth | None:
        """Read the status of a budget, by a list: Leeway may list budgets."""
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        with within(READ_SECONDS):
            found = list_any(self._connection, path, {"fieldSelector": f"metadata.name={name}"})
        for one in found:
            status = one.get("status") or {}
            if status.get("observedGeneration", 0) >= one["metadata"].get("generation", 0):
                return BudgetHealth(
                    status.get("disruptionsAllowed", 0),
                    status.get("currentHealthy", 0),
                    status.get("desiredHealthy", 0),
                )
        return None

    def scale(self, workload: Workload, replicas: int) -> bool:
        """Patch the scale subresource at the version of the workload."""
        path = f"{_path(workload.namespace, workload.kind, workload.name)}/scale"
        body = {"metadata": {"resourceVersion": workload.version}, "spec": {"replicas": replicas}}
        params = {"fieldManager": SURGE_MANAGER}
        try:
            self._connection.request("PATCH", path, params=params, body=body, content=MERGE)
        except ApiError:
            return False  # 404 or 409
        return True

    def _get(self, namespace: str, kind: str, name: str) -> _Object | None:
        # The owner of a pod may have any name, which would be another path.
        known = kind in _KINDS and is_subdomain(name)
        found = self._read(_path(namespace, kind, name)) if known else None
        if found is None or kind != _ROLLOUT:
            return found
        # A Rollout may use the template and the selector of a Deployment, which has no pods then.
        named = found["spec"].get("workloadRef") or {}
        of = named.get("kind") == "Deployment"
        other = self._get(namespace, "Deployment", named.get("name", "")) if of else None
        taken = {**((other or {}).get("spec") or {}), **found["spec"]}
        if "selector" not in taken or "template" not in taken:
            return None
        spec = {**found["spec"], "selector": taken["selector"], "template": taken["template"]}
        return {**found, "spec": spec}

    def _read(self, path: str) -> _Object | None:
        """Read an object; None if there is none."""
        try:
            return self._connection.request("GET", path)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise ClusterUnavailable(str(error)) from error


def _path(namespace: str, kind: str, name: str) -> str:
    version, plural = _KINDS[kind]
    return f"/apis/{version}/namespaces/{namespace}/{plural}/{name}"


def _workload(kind: str, found: _Object) -> Workload:
    metadata, spec, status = found["metadata"], found["spec"], found.get("status") or {}
    replicas = spec.get("replicas", 1)
    owner = _controller(found)
    annotation = (metadata.get("annotations") or {}).get(ANNOTATION, "")
    volumes = spec["template"]["spec"].get("volumes") or ()
    failed = (
        one.get("message", "")
        for one in status.get("conditions") or ()
        if one["type"] == "ReplicaFailure" and one["status"] == "True"
    )
    return Workload(
        kind=kind,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        replicas=replicas,
        surges={"true": True, "false": False}.get(annotation),
        # A Rollout writes the generation as text.
        settled=str(status.get("observedGeneration", 0)) == str(metadata.get("generation", 0))
        and status.get("updatedReplicas", 0) == status.get("replicas", 0) == replicas
        and (kind != _ROLLOUT or status.get("stableRS") == status.get("currentPodHash")),
        sizers=frozenset(_owners_of_size(metadata)),
        controller=printable(f"{owner['kind']} {owner['name']}") if owner else "",
        claims=bool(spec.get("volumeClaimTemplates"))
        or any("persistentVolumeClaim" in one or "ephemeral" in one for one in volumes),
        failure=next(failed, ""),
    )


def _shared_claims(found: _Object) -> list[str]:
    """Return the claims that all pods of a workload use; none if each has volumes of its own."""
    spec = found["spec"]
    volumes = spec["template"]["spec"].get("volumes") or ()
    if spec.get("volumeClaimTemplates") or any("ephemeral" in one for one in volumes):
        return []
    named = (one.get("persistentVolumeClaim") for one in volumes)
    return [one["claimName"] for one in named if one]


def _owners_of_size(metadata: _Object) -> set[str]:
    return {
        str(one.get("manager", ""))
        for one in metadata.get("managedFields") or ()
        if "f:replicas" in ((one.get("fieldsV1") or {}).get("f:spec") or {})
    }


def _controller(found: _Object) -> _Object:
    owners = found["metadata"].get("ownerReferences") or ()
    return next((one for one in owners if one.get("controller")), {})


def _scales(target: _Object, workload: Workload) -> bool:
    """Whether a reference of an autoscaler names the workload; KEDA's default is a Deployment."""
    same = target.get("kind", "Deployment") == workload.kind
    return same and target.get("name") == workload.name


def _is_of(pod: _Object, workload: _Object) -> bool:
    """Whether a pod with the labels of a workload belongs to it; a Deployment has no other
    ReplicaSets with the labels of its selector."""
    owner = _controller(pod)
    return owner.get("kind") == "ReplicaSet" or owner.get("uid") == workload["metadata"]["uid"]


def _runs(pod: _Object) -> bool:
    ended = (pod.get("status") or {}).get("phase") in _ENDED
    return not (ended or "deletionTimestamp" in pod["metadata"])


def _replica(pod: _Object, ready: list[frozenset[str]]) -> Replica:
    metadata, status = pod["metadata"], pod.get("status") or {}
    is_ready = any(
        one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ()
    )
    return Replica(
        metadata["name"],
        metadata["uid"],
        pod["spec"].get("nodeName", ""),
        datetime.fromisoformat(metadata["creationTimestamp"]),
        is_ready and all(metadata["uid"] in uids for uids in ready),
    )
