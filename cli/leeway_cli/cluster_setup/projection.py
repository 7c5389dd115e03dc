"""Reduces an object of a cluster to the fields that Leeway sets, so that the two can be compared.

The API server adds defaults, managed fields and a status, and omits `false`, 0 and whatever is
empty. Rules, subjects and references are compared whole: an additional rule is a difference, and
their order is none.
"""

import json
from collections.abc import Mapping
from typing import Any

from leeway.headroom.pause_pods import MANAGED_BY
from leeway.kubernetes.connection import FIELD_MANAGER

from leeway_cli.cluster_setup.settings import ClusterObject

_WHOLE = frozenset({"rules", "subjects", "roleRef"})
_LABELS = (("app.kubernetes.io/name", "leeway"), (MANAGED_BY, "leeway"))


def as_found(wanted: ClusterObject, found: Mapping[str, Any]) -> ClusterObject:
    """Return an object of the cluster as a setting, reduced to the fields of `wanted`."""
    body = wanted.body
    whole = _WHOLE if "rules" in body or "roleRef" in body else frozenset[str]()
    reduced = {
        key: _compared(value, found.get(key), whole=key in whole)
        for key, value in body.items()
        if key in found or not value
    }
    content = json.dumps(reduced, sort_keys=True)
    return ClusterObject(wanted.path, wanted.kind, wanted.name, content, _is_ours(found))


def _compared(wanted: Any, found: Any, *, whole: bool = False) -> Any:
    """Return `wanted` if `found` says the same, else what is found of it."""
    if whole:
        return wanted if (_canonical(wanted) or None) == (_canonical(found) or None) else found
    match wanted, found:
        case dict(), dict():
            kept = {k: v for k, v in wanted.items() if k in found or not v}
            return {k: _compared(v, found.get(k)) for k, v in kept.items()}
        case list(), list() if len(wanted) == len(found):
            return [_compared(one, other) for one, other in zip(wanted, found, strict=True)]
    return wanted if not wanted and found is None else found


def _canonical(value: Any) -> Any:
    """Return a value without its empty fields, and with its lists sorted."""
    match value:
        case dict():
            return {key: _canonical(one) for key, one in value.items() if one}
        case list():
            return sorted(map(_canonical, value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


def _is_ours(found: Mapping[str, Any]) -> bool:
    metadata = found.get("metadata") or {}
    labels = metadata.get("labels") or {}
    return any(labels.get(key) == value for key, value in _LABELS) or any(
        entry.get("manager") == FIELD_MANAGER for entry in metadata.get("managedFields") or ()
    )
