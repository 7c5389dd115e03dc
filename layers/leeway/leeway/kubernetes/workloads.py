"""The Workloads Protocol over HTTP, for objects of any kind."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from leeway.headroom.pause_pods import BUFFER_LABEL, MANAGED_BY, OWNER_LABELS
from leeway.headroom.plan import ClusterSize, FoundDeployment, PodTemplate, ScaleTarget, TargetScale
from leeway.kubernetes.connection import FIELD_MANAGER, MERGE, ApiError, Connection, is_unknown_path
from leeway.kubernetes.list_watch import list_any
from leeway.kubernetes.translate import is_api_version, is_segment
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.printable import printable
from leeway.selection.resources import parse

SHORTEST_JOIN = timedelta(seconds=10)
"""A pod that was scheduled within this time did not wait for a node."""

LONGEST_JOIN = timedelta(minutes=15)
"""A pod that was scheduled later than this waited for something else, for example a quota."""

APPLY = "application/apply-patch+yaml"
PLURALS = {
    ("v1", "PodTemplate"): "podtemplates",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("scheduling.k8s.io/v1", "PriorityClass"): "priorityclasses",
}
"""Plurals of known kinds. Other kinds take a discovery request for their API group."""

_PAUSE_PODS = {"labelSelector": f"{MANAGED_BY}=leeway,{BUFFER_LABEL}"}


class HttpWorkloads:
    """One cluster's workloads. Safe to use from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._plurals = dict(PLURALS)

    def apply(self, desired: Mapping[str, Any]) -> None:
        """Apply an object as field manager `leeway`, by force: its fields are taken over from other
        managers."""
        metadata = desired["metadata"]
        path = self._path(
            desired["apiVersion"], desired["kind"], metadata.get("namespace"), metadata["name"]
        )
        self._request("PATCH", path, params={"force": "true"}, content=APPLY, body=desired)

    def deployments(self, namespace: str) -> list[FoundDeployment]:
        """List the Deployments of a namespace; none if the namespace does not exist."""
        path = self._path("apps/v1", "Deployment", namespace, "")
        return [
            FoundDeployment(
                item["metadata"]["namespace"],
                item["metadata"]["name"],
                item["spec"]["template"]["spec"].get("priorityClassName", ""),
                _applied_by_leeway(item),
                item.get("status", {}).get("readyReplicas", 0),
            )
            for item in list_any(self._connection, path)
        ]

    def join_times(self) -> dict[tuple[str, str], list[timedelta]]:
        """Return how long the pause pods waited for a node, by namespace and buffer. One list of
        the pause pods of all namespaces."""
        times: dict[tuple[str, str], list[timedelta]] = {}
        for pod in list_any(self._connection, "/api/v1/pods", _PAUSE_PODS):
            join = _join_time(pod)
            if join is not None:
                metadata = pod["metadata"]
                key = metadata["namespace"], metadata["labels"][BUFFER_LABEL]
                times.setdefault(key, []).append(join)
        return times

    def size(self) -> ClusterSize:
        """Count the Ready, schedulable nodes and their cores, by a list of all nodes."""
        nodes = list_any(self._connection, "/api/v1/nodes")
        counted = [node for node in nodes if _is_schedulable(node)]
        cores = sum(parse(node["status"]["capacity"]["cpu"]) for node in counted)
        return ClusterSize(len(counted), int(cores * 1000))

    def remove_deployment(self, namespace: str, name: str) -> None:
        """Delete a Deployment with its pods; a missing one is not an error."""
        self._delete(self._path("apps/v1", "Deployment", namespace, name))

    def remove_priority_class(self, name: str) -> None:
        """Delete a PriorityClass with Leeway's labels; a missing one is not an error."""
        path = self._path("scheduling.k8s.io/v1", "PriorityClass", None, name)
        found = self._request("GET", path)
        if found and OWNER_LABELS.items() <= found["metadata"].get("labels", {}).items():
            self._delete(path)

    def scale_of(self, target: ScaleTarget) -> TargetScale | None:
        """Read the scale subresource of a target; None if the target does not exist."""
        scale = self._request("GET", f"{self._path_of(target)}/scale")
        if scale is None:
            return None
        return TargetScale(scale["spec"].get("replicas", 0), scale["metadata"].get("uid", ""))

    def scale(self, target: ScaleTarget, replicas: int) -> None:
        """Set the replicas of a target by its scale subresource."""
        body = {"spec": {"replicas": replicas}}
        self._request("PATCH", f"{self._path_of(target)}/scale", content=MERGE, body=body)

    def template(self, target: ScaleTarget) -> PodTemplate | None:
        """Read the pod template of an object; None if the object does not exist."""
        found = self._request("GET", self._path_of(target))
        if found is None:
            return None
        if target.kind == "PodTemplate":
            return _pod_template(target, found.get("template"), None)
        spec = found.get("spec") or {}
        return _pod_template(target, spec.get("template"), spec.get("replicas", 1))

    def _path_of(self, target: ScaleTarget) -> str:
        return self._path(target.api_version, target.kind, target.namespace, target.name)

    def _path(self, api_version: str, kind: str, namespace: str | None, name: str) -> str:
        """Return the path of an object; with an empty name, the path of its kind.

        Raises:
            ClusterRefused: a name is invalid, so the path would be that of another resource; or the
                cluster does not have the kind.
        """
        names = [one for one in (namespace, name) if one]
        if not is_api_version(api_version) or not all(map(is_segment, names)):
            shown = printable(f"{api_version} {kind} {namespace or ''}/{name}")
            raise ClusterRefused(f"{shown}: the name is not valid in Kubernetes")
        parts = [_group_path(api_version)]
        if namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self._plural(api_version, kind))
        if name:
            parts.append(name)
        return "/".join(parts)

    def _plural(self, api_version: str, kind: str) -> str:
        if (api_version, kind) not in self._plurals:
            found = self._request("GET", _group_path(api_version)) or {"resources": []}
            for resource in found["resources"]:
                if "/" not in resource["name"]:
                    self._plurals[api_version, resource["kind"]] = resource["name"]
        if (api_version, kind) not in self._plurals:
            raise ClusterRefused(f"the cluster has no kind {kind} in {api_version}")
        return self._plurals[api_version, kind]

    def _delete(self, path: str) -> None:
        # Background propagation deletes the object immediately and its dependents afterwards.
        self._request("DELETE", path, body={"propagationPolicy": "Background"})

    def _request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        content: str = "application/json",
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """Make one request; None if the API server answers that the object does not exist. PATCH
        raises in that case."""
        may_be_missing = method in {"GET", "DELETE"}
        if method == "PATCH":
            params = {**(params or {}), "fieldManager": FIELD_MANAGER}
        try:
            return self._connection.request(method, path, params=params, body=body, content=content)
        except ApiError as error:
            if error.response.status_code == 404 and may_be_missing:
                return None
            raise ClusterRefused(str(error)) from error
        except ClusterUnavailable as error:
            if may_be_missing and is_unknown_path(error):
                return None
            raise


def _pod_template(target: ScaleTarget, template: Any, replicas: int | None) -> PodTemplate:
    """Read a pod template of an object of any kind.

    Raises:
        ClusterRefused: the object has none.
    """
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise ClusterRefused(f"{target} has no pod template")
    labels = (template.get("metadata") or {}).get("labels") or {}
    return PodTemplate(template["spec"], replicas, labels)


def _group_path(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _applied_by_leeway(item: dict[str, Any]) -> bool:
    """Whether Leeway applied an object, by its managed fields: any user may set or remove
    labels."""
    return any(
        entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply"
        for entry in item["metadata"].get("managedFields") or ()
    )


def _join_time(pod: dict[str, Any]) -> timedelta | None:
    """Return how long a pause pod waited for a node; None if it did not wait for one."""
    created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    since = {
        condition["type"]: datetime.fromisoformat(condition["lastTransitionTime"])
        for condition in pod.get("status", {}).get("conditions", ())
        if condition["status"] == "True" and condition.get("lastTransitionTime")
    }
    if "PodScheduled" not in since:
        return None
    waited = since["PodScheduled"] - created
    return waited if SHORTEST_JOIN < waited <= LONGEST_JOIN else None


def _is_schedulable(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and not node.get("spec", {}).get("unschedulable")
