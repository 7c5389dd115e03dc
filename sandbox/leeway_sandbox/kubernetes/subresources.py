"""Handles the subresources `/scale` and `/binding`, and parses the body of `/eviction`."""

from __future__ import annotations

from typing import Any

from leeway_sandbox.kubernetes import apply, errors, registry, schema, writing
from leeway_sandbox.kubernetes.calls import Call
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.objects import Object, copy, timestamp, with_condition
from leeway_sandbox.kubernetes.selectors import format_selector

_EVICTION_VERSIONS = ("policy/v1", "policy/v1beta1")
_SCALE_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale(cluster: Cluster, call: Call) -> Object:
    """Return the scale of a workload, or change it; 409 if the version in the body is old, 422 if
    an admission policy denies the scale."""
    target = call.target
    current = cluster.store.read(call.kind, target.namespace, target.name)
    if call.verb == "get":
        return _scale_of(call.kind, current)
    shown = _scale_of(call.kind, current)
    if call.verb == "update":
        proposed = call.object()
    else:
        proposed = writing.patched(call.content_type, shown, call.decoded())
    version = (proposed.get("metadata") or {}).get("resourceVersion")
    if version and version != current["metadata"]["resourceVersion"]:
        raise errors.conflict(call.kind, target.name)
    replicas = (proposed.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        why = "must be greater than or equal to 0"
        cause = errors.value_invalid("spec.replicas", str(replicas), why)
        raise errors.invalid(call.kind, target.name, [cause])
    if replicas == current["spec"].get("replicas"):
        return shown
    cluster.policies.check(call, "UPDATE", proposed, shown)
    changed = copy(current)
    changed["spec"]["replicas"] = replicas
    changed["metadata"]["generation"] += 1
    managed = current["metadata"].get("managedFields")
    apply.record_change(changed, current, managed, call.kind, call.manager, "scale")
    stored = cluster.store.replace(call.kind, changed, dry_run=call.dry_run)
    return _scale_of(call.kind, stored)


def _scale_of(kind: registry.Kind, workload: Object) -> Object:
    # An object of a cluster-scoped kind, such as a NodePool, has no namespace.
    shown = workload["metadata"]
    replicas: Any = workload
    for name in kind.replicas:
        replicas = (replicas or {}).get(name)
    metadata = {name: shown[name] for name in _SCALE_METADATA if name in shown}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": workload["spec"].get("replicas", 0)},
        "status": {
            "replicas": replicas or 0,
            "selector": format_selector(workload["spec"].get("selector")),
        },
    }


def eviction_of(call: Call) -> Object:
    """Parse the body of an eviction; 400 for another kind or another namespace."""
    body = call.object()
    version = body.get("apiVersion", registry.EVICTION.api_version)
    kind = body.get("kind", registry.EVICTION.kind)
    group = version.rpartition("/")[0]
    if version not in _EVICTION_VERSIONS:
        known = any(one.api_version == version for one in registry.KINDS.values())
        if not known and group != "policy":
            scheme = '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"'
            why = f'no kind "{kind}" is registered for version "{version}" in scheme {scheme}'
            raise errors.bad_request(why)
        raise errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({registry.EVICTION.api_version})"
        )
    if kind != registry.EVICTION.kind:
        raise errors.bad_request(f"not a Eviction object: *policy.{kind}")
    schema.prune(registry.EVICTION, body)
    namespace = (body.get("metadata") or {}).get("namespace", call.target.namespace)
    if namespace != call.target.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return body


def assign(cluster: Cluster, pod: Object, node_name: str) -> Object | None:
    """Set the node of a pod and copy the node's topology labels; None if the pod is deleted."""
    node = cluster.store.get(registry.NODE, "", node_name)
    labels = dict(pod["metadata"].get("labels") or {})
    for key in ("topology.kubernetes.io/zone", "topology.kubernetes.io/region"):
        value = (node["metadata"].get("labels") or {}).get(key) if node else None
        if value is not None:
            labels[key] = value
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    scheduled["lastTransitionTime"] = timestamp()
    conditions = with_condition(pod["status"].get("conditions"), scheduled)
    status = {"conditions": conditions}
    return cluster.store.amend(
        registry.POD,
        pod,
        metadata={"labels": labels},
        spec={"nodeName": node_name},
        status=status,
    )
