"""Handles create, update, patch and apply."""

from __future__ import annotations

import dataclasses

from leeway_sandbox.kubernetes import (
    apply,
    defaults,
    errors,
    pod_security,
    registry,
    schema,
    validation,
)
from leeway_sandbox.kubernetes.calls import Call
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.objects import Object, copy, is_terminating, uid_of
from leeway_sandbox.kubernetes.patches import json_patch, merge, strategic_merge

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
_KEPT_METADATA = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
)
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_NAME_SUFFIX = 5


@dataclasses.dataclass(slots=True)
class Written:
    """The result of a write: the object, whether it is new, and warnings for the client."""

    object: Object
    created: bool
    warnings: list[str]


def create(cluster: Cluster, call: Call) -> Written:
    """Create the object of the body."""
    kind, body = call.kind, call.object()
    _check_type(call, body)
    metadata = body.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise errors.bad_request("json: cannot unmarshal into Go value of type v1.ObjectMeta")
    _place(call, metadata)
    if not metadata.get("name"):
        prefix = metadata.get("generateName")
        if not prefix:
            cause = errors.value_required("metadata.name", "name or generateName is required")
            raise errors.invalid(kind, "", [cause])
        metadata["name"] = prefix + suffix(cluster)
    warnings = _prune(call, body)
    return Written(_store_new(cluster, call, body, "Update"), created=True, warnings=warnings)


def update(cluster: Cluster, call: Call) -> Written:
    """Replace an object, or its status, by the body."""
    current = cluster.store.read(call.kind, call.target.namespace, call.target.name)
    body = call.object()
    _check_type(call, body)
    metadata = body.setdefault("metadata", {})
    _place(call, metadata)
    _check_name(call, metadata)
    warnings = _prune(call, body)
    return Written(_store_changed(cluster, call, body, current), created=False, warnings=warnings)


def patch(cluster: Cluster, call: Call) -> Written:
    """Apply the patch in the body, by its content type."""
    content_type = call.content_type
    if content_type not in (MERGE, STRATEGIC, JSON_PATCH, APPLY):
        raise errors.unsupported_media_type()
    change = call.decoded()
    target = call.target
    if content_type == APPLY:
        return _apply(cluster, call, change)
    current = cluster.store.read(call.kind, target.namespace, target.name)
    if content_type == STRATEGIC and call.kind.custom is not None:
        raise errors.unsupported_media_type()
    proposed = patched(content_type, call.kind.typed(current), change)
    _check_type(call, proposed)
    warnings = _prune(call, proposed)
    _check_name(call, proposed["metadata"])
    return Written(_store_changed(cluster, call, proposed, current), False, warnings)


def patched(content_type: str, current: Object, change: object) -> Object:
    """Return an independent object: the current one with a patch of this type applied."""
    if content_type == JSON_PATCH:
        return copy(json_patch(copy(current), change))
    if not isinstance(change, dict):
        raise errors.bad_request("error decoding patch: json: cannot unmarshal into Go value")
    function = merge if content_type == MERGE else strategic_merge
    return copy(function(current, change))


def suffix(cluster: Cluster) -> str:
    """Return the five random characters of a generated name."""
    return "".join(cluster.random.choices(_NAME_ALPHABET, k=_NAME_SUFFIX))


def _apply(cluster: Cluster, call: Call, applied: Object) -> Written:
    kind, target = call.kind, call.target
    if not isinstance(applied, dict):
        raise errors.bad_request("error decoding YAML: no object")
    if "fieldManager" not in call.query:
        cause = errors.value_required("fieldManager", "is required for apply patch")
        raise errors.invalid_options("PatchOptions", cause)
    _check_type(call, applied)
    where = (applied.get("metadata") or {}).get("namespace", "") + "/" + target.name
    unknown = schema.prune(kind, applied)
    if unknown:
        described = f"{where}; {kind.api_version}, Kind={kind.kind}"
        text = ", ".join(f".{path}: field not declared in schema" for path in unknown)
        message = f"failed to create typed patch object ({described}): {text}"
        raise errors.ApiError(500, None, message)
    metadata = applied.setdefault("metadata", {})
    metadata.setdefault("name", target.name)
    _place(call, metadata)
    _strip_type(applied)
    current = cluster.store.get(kind, target.namespace, target.name)
    if current is None and target.subresource:
        raise errors.not_found(kind, target.name)
    force = call.query.get("force") == "true"
    if current is None:
        return Written(_store_new(cluster, call, applied, "Apply"), created=True, warnings=[])
    _check_version(call, applied["metadata"], current)
    merged = apply.merged(kind, current, applied, call.manager, target.subresource, force=force)
    return Written(_finish(cluster, call, merged, current), created=False, warnings=[])


def _check_name(call: Call, metadata: Object) -> None:
    if metadata.get("name") != call.target.name:
        raise errors.bad_request(
            f"the name of the object ({metadata.get('name', '')}) does not match the name on the "
            f"URL ({call.target.name})"
        )


def _check_type(call: Call, body: Object) -> None:
    kind = call.kind
    found = (body.get("apiVersion", kind.api_version), body.get("kind", kind.kind))
    if found != (kind.api_version, kind.kind):
        raise errors.bad_request(
            f"the API version in the data ({found[0]}, Kind={found[1]}) does not match the "
            f"expected API version ({kind.api_version}, Kind={kind.kind})"
        )


def _place(call: Call, metadata: Object) -> None:
    namespace = call.target.namespace
    if metadata.get("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata.pop("namespace", None)
    if namespace:
        metadata["namespace"] = namespace


def _strip_type(obj: Object) -> None:
    obj.pop("kind", None)
    obj.pop("apiVersion", None)


def _prune(call: Call, obj: Object) -> list[str]:
    """Drop unknown fields and return warnings; refuse them with fieldValidation=Strict."""
    unknown = schema.prune(call.kind, obj)
    _strip_type(obj)
    mode = call.query.get("fieldValidation", "Warn")
    text = [f'unknown field "{path}"' for path in unknown]
    if not text or mode == "Ignore":
        return []
    if mode == "Warn":
        return text
    kind = call.kind
    message = f"strict decoding error: {', '.join(text)}"
    if call.verb == "patch":
        cause = errors.value_invalid("patch", "{}", message)
        raise errors.invalid(kind, call.target.name, [cause])
    raise errors.bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {message}'
    )


def _store_new(cluster: Cluster, call: Call, body: Object, operation: str) -> Object:
    kind, store = call.kind, cluster.store
    for name in (*_KEPT_METADATA, "selfLink"):
        body["metadata"].pop(name, None)
    admit_namespace(cluster, call)
    if kind in _OWN_STATUS or (kind.custom is not None and "status" in kind.subresources):
        body.pop("status", None)
    applied = copy(body)
    defaults.fill(kind, body)
    defaults.admit(kind, body, store)
    validation.check(kind, body, None)
    _admit(cluster, kind, body)
    apply.record_new(body, applied, kind, call.manager, operation)
    cluster.policies.check(call, "CREATE", body, None)
    return store.create(kind, body, dry_run=call.dry_run)


def _store_changed(cluster: Cluster, call: Call, proposed: Object, current: Object) -> Object:
    """Store an update: keep the fields of the server, then validate it."""
    metadata = proposed["metadata"]
    if metadata.get("uid", uid_of(current)) != uid_of(current):
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, "
        why += f"UID in object meta: {uid_of(current)}"
        raise errors.conflict(call.kind, call.target.name, why)
    _check_version(call, metadata, current)
    managed = current["metadata"].get("managedFields")
    for name in _KEPT_METADATA:
        metadata.pop(name, None)
        if name in current["metadata"]:
            metadata[name] = current["metadata"][name]
    written = _sections(call, proposed, current)
    defaults.fill(call.kind, written)
    apply.record_change(written, current, managed, call.kind, call.manager, call.target.subresource)
    return _finish(cluster, call, written, current)


def _check_version(call: Call, metadata: Object, current: Object) -> None:
    """Check the version of a write, if it has one; 409 if the object has another one."""
    version = metadata.get("resourceVersion")
    if version and version != current["metadata"]["resourceVersion"]:
        raise errors.conflict(call.kind, call.target.name)


def _sections(call: Call, proposed: Object, current: Object) -> Object:
    """Return the object with the sections that this write can change."""
    if call.target.subresource == "status":
        return {**current, "metadata": proposed["metadata"], "status": proposed.get("status", {})}
    if call.kind.subresources.get("status") and "status" in current:
        return {**proposed, "status": current["status"]}
    return proposed


def _finish(cluster: Cluster, call: Call, written: Object, current: Object) -> Object:
    kind = call.kind
    if kind.has_generation and written.get("spec") != current.get("spec"):
        generation = current["metadata"].get("generation", 0) + 1
        written["metadata"]["generation"] = generation
    validation.check(kind, written, current)
    cluster.policies.check(call, "UPDATE", written, current)
    stored = cluster.store.replace(kind, written, dry_run=call.dry_run)
    leaves = is_terminating(stored) and not stored["metadata"].get("finalizers")
    held = stored["metadata"].get("deletionGracePeriodSeconds", 0) or kind is registry.NAMESPACE
    if leaves and not held and not call.dry_run:
        cluster.store.remove(kind, stored)
    return stored


def admit_namespace(cluster: Cluster, call: Call) -> None:
    """Refuse a creation in a namespace that is missing (404) or terminating (403)."""
    namespace = call.target.namespace
    if not namespace:
        return
    found = cluster.store.read(registry.NAMESPACE, "", namespace)
    if is_terminating(found):
        why = (
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise errors.forbidden(call.kind, call.target.name, why, [cause])


def _admit(cluster: Cluster, kind: registry.Kind, obj: Object) -> None:
    if kind is not registry.POD:
        return
    why = pod_security.refusal(cluster.store, obj["metadata"].get("namespace", ""), obj["spec"])
    if why is not None:
        raise errors.forbidden(kind, obj["metadata"]["name"], why)
    name = obj["spec"].get("priorityClassName")
    if name and cluster.store.get(registry.PRIORITY_CLASS, "", name) is None:
        why = f"no PriorityClass with name {name} was found"
        raise errors.forbidden(kind, obj["metadata"]["name"], why)


_OWN_STATUS = frozenset(
    kind
    for kind in registry.KINDS.values()
    if "status" in kind.subresources and kind is not registry.NODE
)
