"""Reduces an object of a cluster to the fields that Leeway sets, so that the two can be compared.

The API server adds defaults, managed fields and a status. Rules, subjects and references are
compared whole: an additional rule is a difference.
"""

import json
from collections.abc import Mapping
from typing import Any

from leeway.headroom.pause_pods import MANAGED_BY
from leeway.kubernetes.connection import FIELD_MANAGER

from cli.cluster_setup.settings import ClusterObject

_WHOLE = frozenset({"rules", "subjects", "roleRef"})
_LABELS = (("app.kubernetes.io/name", "leeway"), (MANAGED_BY, "leeway"))


def as_found(wanted: ClusterObject, found: Mapping[str, Any]) -> ClusterObject:
    """Return an object of the cluster as a setting, reduced to the fields of `wanted`."""
    body = wanted.body
    whole = _WHOLE if "rules" in body or "roleRef" in body else frozenset[str]()
    reduced = {
        key: found.get(key) if key in whole else _projected(value, found.get(key))
        for key, value in body.items()
        if key in found
    }
    content = json.dumps(reduced, sort_keys=True)
    return ClusterObject(wanted.path, wanted.kind, wanted.name, content, _is_ours(found))


def _projected(wanted: Any, found: Any) -> Any:
    match wanted, found:
        case dict(), dict():
            return {k: _projected(v, found[k]) for k, v in wanted.items() if k in found}
        case list(), list() if len(wanted) == len(found):
            return [_projected(one, other) for one, other in zip(wanted, found, strict=True)]
    return found


def _is_ours(found: Mapping[str, Any]) -> bool:
    metadata = found.get("metadata") or {}
    labels = metadata.get("labels") or {}
    return any(labels.get(key) == value for key, value in _LABELS) or any(
        entry.get("manager") == FIELD_MANAGER for entry in metadata.get("managedFields") or ()
    )
