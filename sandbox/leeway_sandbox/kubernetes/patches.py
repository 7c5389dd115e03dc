"""Applies merge, strategic-merge and JSON patches.

Rules: RFC 7386, RFC 6902, and Kubernetes' strategic merge, in which some lists merge by a key
(containers by name) and others, such as a node's taints, are replaced as a whole.
"""

from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer

from leeway_sandbox.kubernetes import errors
from leeway_sandbox.kubernetes.objects import Object

# Lists that merge, and the fields that identify their items: strategic merge uses the first field,
# server-side apply uses all. Other lists are atomic.
MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_SETS = frozenset(("finalizers",))


def merge_keys(field: str, items: list[Any]) -> tuple[str, ...] | None:
    """Return the fields that identify the items of a list; None if the list is atomic."""
    if field == "ports":
        container = any(isinstance(item, dict) and "containerPort" in item for item in items)
        return ("containerPort" if container else "port", "protocol")
    return MERGE_KEYS.get(field)


def is_set(field: str) -> bool:
    """Whether a list of strings merges as a set."""
    return field in _SETS


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386): null deletes, lists are replaced."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def json_patch(target: Object, operations: Any) -> Object:
    """Apply a JSON patch (RFC 6902); 422 if it does not apply, 400 if it is not valid."""
    if not isinstance(operations, list):
        raise errors.bad_request("error decoding patch: json: cannot unmarshal into Go value")
    try:
        patched: Object = target
        for operation in operations:
            patched = jsonpatch.apply_patch(patched, [_lenient(patched, operation)])
    except jsonpatch.InvalidJsonPatch as error:
        raise errors.bad_request(f"error decoding patch: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        message = "the server rejected our request due to an error in our request"
        raise errors.ApiError(422, "Invalid", message, {}) from error
    return patched


def _lenient(target: Object, operation: Any) -> Any:
    """Return an operation with the semantics of Kubernetes: replace also adds a missing field."""
    if not isinstance(operation, dict) or operation.get("op") != "replace":
        return operation
    parent, _, name = str(operation.get("path", "")).rpartition("/")
    above = jsonpointer.resolve_pointer(target, parent, None)
    missing = isinstance(above, dict) and jsonpointer.unescape(name) not in above
    return {**operation, "op": "add"} if missing else operation


def strategic_merge(target: Any, patch: Any) -> Any:
    """Apply a strategic merge patch; the directive `$setElementOrder` is ignored."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    retained = patch.get("$retainKeys")
    if retained is not None:
        result = {name: value for name, value in result.items() if name in retained}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            result[field] = [item for item in result.get(field) or () if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            result.pop(name, None)
        elif isinstance(value, list):
            result[name] = _merge_list(name, result.get(name) or [], value)
        else:
            result[name] = strategic_merge(result.get(name), value)
    return result


def _merge_list(field: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if is_set(field):
        return [*target, *(item for item in patch if item not in target)]
    keys = merge_keys(field, [*target, *patch])
    if keys is None or not all(isinstance(item, dict) for item in patch):
        return patch
    key = keys[0]
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = list(target)
    for item in patch:
        if key not in item:
            raise errors.bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((i for i, old in enumerate(result) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != item[key]]
        elif at is None:
            result.append(strategic_merge({}, item))
        else:
            result[at] = strategic_merge(result[at], item)
    return result
