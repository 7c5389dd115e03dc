"""Field ownership: `metadata.managedFields` in its wire format.

Rules: Kubernetes' server-side apply. A field set is a set of paths. An element of a path is
`f:name` (a field), `k:{…}` (an item of a list that merges by keys) or `v:…` (a member of a set).
The path of a list item itself ends in ".".
"""

from __future__ import annotations

from typing import Any

from leeway_sandbox.kubernetes.objects import Object, encode, timestamp
from leeway_sandbox.kubernetes.patches import is_set, merge_keys
from leeway_sandbox.kubernetes.registry import EVENT, LEASE, NODE, Kind

type Path = tuple[str, ...]

STATUS = "f:status"
# Kinds with one writer need no field ownership.
_UNTRACKED = frozenset((EVENT, LEASE))
_ATOMIC_MAPS = frozenset(("nodeSelector", "selector", "labelSelector", "resourceFieldRef"))
_SERVER_METADATA = frozenset(
    (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
        "generateName",
    )
)


def leaves(obj: Object) -> dict[Path, Any]:
    """Return the fields of an object that a manager can own, with their values."""
    found: dict[Path, Any] = {}
    for name, value in obj.items():
        if name in ("kind", "apiVersion"):
            continue
        if name == "metadata":
            value = {key: one for key, one in value.items() if key not in _SERVER_METADATA}
            if not value:
                continue
        _collect(name, value, (f"f:{name}",), found)
    return found


def _collect(field: str, value: Any, path: Path, found: dict[Path, Any]) -> None:
    if isinstance(value, dict) and value and not _is_atomic(field, value):
        for name, one in value.items():
            _collect(name, one, (*path, f"f:{name}"), found)
    elif isinstance(value, list) and value and is_set(field):
        for one in value:
            found[*path, "v:" + encode(one).decode()] = one
    elif isinstance(value, list) and value and (keys := merge_keys(field, value)):
        for item in value:
            element = item_element(item, keys)
            found[*path, element, "."] = None
            for name, one in item.items():
                _collect(name, one, (*path, element, f"f:{name}"), found)
    else:
        found[path] = value


def _is_atomic(field: str, value: Object) -> bool:
    return field in _ATOMIC_MAPS and ("matchLabels" in value or field == "nodeSelector")


def item_element(item: Object, keys: tuple[str, ...]) -> str:
    """Return the path element of a list item, with the fields that identify it."""
    present = {key: item[key] for key in sorted(keys) if key in item}
    return "k:" + encode(present).decode()


def read(managed: list[Object] | None) -> dict[tuple[str, str, str], set[Path]]:
    """Return the field sets of `managedFields` by (manager, operation, subresource)."""
    result = {}
    for entry in managed or ():
        paths: set[Path] = set()
        _read_fields(entry.get("fieldsV1") or {}, (), paths)
        result[identity(entry)] = paths
    return result


def sent(metadata: Object) -> list[Object] | None:
    """Return the `managedFields` of a request, or None if it has no valid ones."""
    managed = metadata.get("managedFields")
    entries = managed if isinstance(managed, list) else []
    known = all(
        one.get("manager") and one.get("operation") and one.get("fieldsType") == "FieldsV1"
        for one in entries
    )
    return entries if entries and known else None


def identity(entry: Object) -> tuple[str, str, str]:
    """Return the identity of an entry: manager, operation, subresource."""
    return entry["manager"], entry["operation"], entry.get("subresource", "")


def _read_fields(fields: Object, path: Path, paths: set[Path]) -> None:
    for name, below in fields.items():
        if below:
            _read_fields(below, (*path, name), paths)
        else:
            paths.add((*path, name))


def write(
    owners: dict[tuple[str, str, str], set[Path]],
    kind: Kind,
    before: list[Object] | None,
) -> list[Object]:
    """Return `managedFields`; an entry with unchanged fields keeps its time."""
    known = {identity(entry): entry for entry in before or ()}
    entries = []
    for owner, paths in owners.items():
        if not paths:
            continue
        fields: Object = {}
        for path in sorted(paths):
            below = fields
            for element in path:
                below = below.setdefault(element, {})
        old = known.get(owner)
        if old is not None and old["fieldsV1"] == fields:
            entries.append(old)
            continue
        manager, operation, subresource = owner
        entry = {
            "manager": manager,
            "operation": operation,
            "apiVersion": kind.api_version,
            "time": timestamp(),
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        if subresource:
            entry["subresource"] = subresource
        entries.append(entry)
    return entries


def record_new(obj: Object, asked: Object, kind: Kind, manager: str, operation: str) -> None:
    """Record the creator as owner of the applied fields of a new object, or of all fields."""
    if kind in _UNTRACKED:
        return
    paths = set(leaves(asked if operation == "Apply" else obj))
    if kind is not NODE:  # a kubelet creates its Node with the status
        paths = {path for path in paths if path[0] != STATUS}
    obj["metadata"]["managedFields"] = write({(manager, operation, ""): paths}, kind, None)


def record_change(
    new: Object,
    old: Object,
    managed: list[Object] | None,
    kind: Kind,
    manager: str,
    subresource: str,
) -> None:
    """Record the manager of an update as the owner of the changed fields."""
    if kind in _UNTRACKED:
        return
    before, after = leaves(old), leaves(new)
    changed = {path for path in after if path not in before or before[path] != after[path]}
    removed = before.keys() - after.keys()
    if not changed and not removed:
        return
    owners = read(managed)
    for paths in owners.values():
        paths -= changed | removed
    owners.setdefault((manager, "Update", subresource), set()).update(changed)
    new["metadata"]["managedFields"] = write(owners, kind, managed)
