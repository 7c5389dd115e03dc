"""Creates the pods of a controller from its template."""

from __future__ import annotations

from leeway_sandbox.kubernetes import defaults, errors, pod_security, registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.objects import (
    Object,
    is_terminating,
    name_of,
    namespace_of,
    owner_reference,
)
from leeway_sandbox.kubernetes.registry import Kind
from leeway_sandbox.kubernetes.writing import suffix


def spawn(
    cluster: Cluster,
    kind: Kind,
    owner: Object,
    *,
    name: str = "",
    labels: dict[str, str] | None = None,
    spec: Object | None = None,
) -> Object | None:
    """Create a pod from the template of its owner; `labels` and `spec` override the template.

    None if the namespace is terminating, PodSecurity refuses the pod, or the name exists.
    """
    namespace = namespace_of(owner)
    home = cluster.store.get(registry.NAMESPACE, "", namespace)
    if home is None or is_terminating(home):
        return None
    template = owner["spec"]["template"]
    given = template.get("metadata") or {}
    metadata: Object = {
        "namespace": namespace,
        "labels": {**(given.get("labels") or {}), **(labels or {})},
        "ownerReferences": [owner_reference(kind.kind, kind.api_version, owner)],
    }
    if given.get("annotations"):
        metadata["annotations"] = given["annotations"]
    if name:
        metadata["name"] = name
    else:
        metadata["generateName"] = f"{name_of(owner)}-"
        metadata["name"] = metadata["generateName"] + suffix(cluster)
    pod_spec = {**template["spec"], **(spec or {}), "enableServiceLinks": True}
    if pod_security.refusal(cluster.store, namespace, pod_spec) is not None:
        return None
    pod_spec["tolerations"] = list(pod_spec.get("tolerations") or ())
    pod = {"metadata": metadata, "spec": pod_spec}
    defaults.admit(registry.POD, pod, cluster.store)
    try:
        return cluster.store.create(registry.POD, pod)
    except errors.ApiError:
        return None
