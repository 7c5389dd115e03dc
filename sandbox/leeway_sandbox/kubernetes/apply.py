"""Server-side apply: merges an applied configuration, and finds conflicts with other managers.

Rules: Kubernetes' server-side apply. A field that another manager owns with another value is a
conflict unless forced. A field that a manager no longer applies is removed if it has no other
owner. `metadata.managedFields` has a set of paths for each manager. An element of a path is
`f:name` (a field), `k:{…}` (an item of a list that merges by keys) or `v:…` (a member of a set).
The path of a list item itself ends in ".".
"""

from __future__ import annotations

from typing import Any

from leeway_sandbox.kubernetes import defaults, errors
from leeway_sandbox.kubernetes.objects import Object, copy, decode, encode, timestamp
from leeway_sandbox.kubernetes.patches import is_set, merge_keys
from leeway_sandbox.kubernetes.registry import EVENT, LEASE, NODE, Kind


def merged(
    kind: Kind,
    current: Object,
    applied: Object,
    manager: str,
    subresource: str,
    *,
    force: bool,
) -> Object:
    """Return the current object with an applied configuration merged in; 409 on conflicts."""
    live = copy(current)
    if subresource == "status":
        applied = {"metadata": applied["metadata"], "status": applied.get("status", {})}
    elif "status" in kind.subresources:
        applied = {name: value for name, value in applied.items() if name != "status"}
    managed = live["metadata"].get("managedFields")
    owners = read_owners(managed)
    own = (manager, "Apply", subresource)
    wanted = leaves(applied)
    values = leaves(live)
    differing = {path for path in wanted if path not in values or values[path] != wanted[path]}
    lost = {
        identity: paths & differing
        for identity, paths in owners.items()
        if identity != own and paths & differing
    }
    if lost and not force:
        raise _conflicts(lost, managed or [])
    for identity, paths in lost.items():
        owners[identity] = owners[identity] - paths
    previous = owners.get(own, set())
    owners[own] = set(wanted)
    shared = set().union(*owners.values())
    dropped = {path for path in previous - shared if path[0] != STATUS or subresource}
    for path in sorted(dropped, key=_deepest_first):
        _remove(live, path)
    result: Object = _merge("", live, applied)
    defaults.fill(kind, result)
    result["metadata"]["managedFields"] = write_owners(owners, kind, managed)
    return result


def _deepest_first(path: Path) -> tuple[int, bool, Path]:
    """Sort removals: a list item (`.`) before its fields, because its key identifies it."""
    return -len(path), path[-1] != ".", path


def _conflicts(
    lost: dict[tuple[str, str, str], set[Path]], managed: list[Object]
) -> errors.ApiError:
    entries = {owner_of(entry): entry for entry in managed}
    causes = []
    reasons = []
    for owner in sorted(lost):
        described = _describe(entries[owner])
        fields = [_field(path) for path in sorted(lost[owner])]
        message = f"conflict with {described}"
        causes += [
            {"reason": "FieldManagerConflict", "message": message, "field": field}
            for field in fields
        ]
        if len(fields) == 1:
            reasons.append(f"{message}: {fields[0]}")
        else:
            reasons.append(f"conflicts with {described}:" + "".join(f"\n- {one}" for one in fields))
    count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    message = f"Apply failed with {count}: " + "\n".join(reasons)
    return errors.ApiError(409, "Conflict", message, {"causes": causes})


def _describe(entry: Object) -> str:
    described = f'"{entry["manager"]}"'
    if "subresource" in entry:
        described += f' with subresource "{entry["subresource"]}"'
    if entry["operation"] == "Update":
        described += f" using {entry['apiVersion']} at {entry['time']}"
    return described


def _field(path: Path) -> str:
    """Format a path for an error cause: `.spec.containers[name="c"].image`."""
    reasons = ""
    for element in path:
        if element.startswith("f:"):
            reasons += f".{element[2:]}"
        elif element.startswith("k:"):
            keys = ",".join(f'{key}="{value}"' for key, value in decode(element[2:]).items())
            reasons += f"[{keys}]"
        elif element.startswith("v:"):
            reasons += f"[={element[2:]}]"
    return reasons


def _merge(field: str, live: Any, applied: Any) -> Any:
    if isinstance(applied, dict) and isinstance(live, dict) and field != "nodeSelector":
        return {
            **live,
            **{name: _merge(name, live.get(name), value) for name, value in applied.items()},
        }
    if isinstance(applied, list) and isinstance(live, list):
        if is_set(field):
            return [*live, *(one for one in applied if one not in live)]
        keys = merge_keys(field, [*live, *applied])
        if keys:
            return _merge_items(keys, live, applied)
    return applied


def _merge_items(keys: tuple[str, ...], live: list[Object], applied: list[Object]) -> list[Object]:
    result = {item_element(item, keys): item for item in live}
    for item in applied:
        element = item_element(item, keys)
        result[element] = _merge("", result[element], item) if element in result else item
    return list(result.values())


def _remove(obj: Any, path: Path) -> None:
    """Remove one field or list item, if it exists."""
    name, below = path[0][2:], path[1:]
    if not isinstance(obj, dict) or name not in obj:
        return
    if not below:
        del obj[name]
    elif not below[0].startswith(("k:", "v:")):
        _remove(obj[name], below)
    elif (found := _item(obj[name], below[0])) is not None:
        if below[1:] in ((), (".",)):
            obj[name].remove(found)
        else:
            _remove(found, below[1:])


def _item(items: list[Any], element: str) -> Any:
    identity = decode(element[2:])
    for item in items:
        if item == identity or (
            isinstance(identity, dict)
            and all(item.get(key) == value for key, value in identity.items())
        ):
            return item
    return None


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


def read_owners(managed: list[Object] | None) -> dict[tuple[str, str, str], set[Path]]:
    """Return the field sets of `managedFields` by (manager, operation, subresource)."""
    result = {}
    for entry in managed or ():
        paths: set[Path] = set()
        _read_fields(entry.get("fieldsV1") or {}, (), paths)
        result[owner_of(entry)] = paths
    return result


def owner_of(entry: Object) -> tuple[str, str, str]:
    """Return the identity of an entry: manager, operation, subresource."""
    return entry["manager"], entry["operation"], entry.get("subresource", "")


def _read_fields(fields: Object, path: Path, paths: set[Path]) -> None:
    for name, below in fields.items():
        if below:
            _read_fields(below, (*path, name), paths)
        else:
            paths.add((*path, name))


def write_owners(
    owners: dict[tuple[str, str, str], set[Path]],
    kind: Kind,
    before: list[Object] | None,
) -> list[Object]:
    """Return `managedFields`; an entry with unchanged fields keeps its time."""
    known = {owner_of(entry): entry for entry in before or ()}
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
    obj["metadata"]["managedFields"] = write_owners({(manager, operation, ""): paths}, kind, None)


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
    owners = read_owners(managed)
    for paths in owners.values():
        paths -= changed | removed
    owners.setdefault((manager, "Update", subresource), set()).update(changed)
    new["metadata"]["managedFields"] = write_owners(owners, kind, managed)
