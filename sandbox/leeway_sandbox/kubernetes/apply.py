"""Server-side apply: merges an applied configuration, and finds conflicts with other managers.

Rules: Kubernetes' server-side apply. A field that another manager owns with another value is a
conflict unless forced. A field that a manager no longer applies is removed if it has no other
owner.
"""

from __future__ import annotations

from typing import Any

from leeway_sandbox.kubernetes import defaults, errors, ownership
from leeway_sandbox.kubernetes.objects import Object, annotation, copy, decode, encode
from leeway_sandbox.kubernetes.ownership import Path
from leeway_sandbox.kubernetes.patches import is_set, merge_keys
from leeway_sandbox.kubernetes.registry import Kind

_KUBECTL = "kubectl"  # kubectl's default field manager
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


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
    owners = ownership.read(managed)
    own = (manager, "Apply", subresource)
    wanted = ownership.leaves(applied)
    values = ownership.leaves(live)
    differing = {path for path in wanted if path not in values or values[path] != wanted[path]}
    lost = {
        identity: paths & differing
        for identity, paths in owners.items()
        if identity != own and paths & differing
    }
    if lost and not force:
        allowed = _applied_before(live) if manager == _KUBECTL else set()
        lost_to_others = {identity: paths - allowed for identity, paths in lost.items()}
        lost_to_others = {identity: paths for identity, paths in lost_to_others.items() if paths}
        if lost_to_others:
            raise _conflicts(lost_to_others, managed or [])
    for identity, paths in lost.items():
        owners[identity] = owners[identity] - paths
    previous = owners.get(own, set())
    owners[own] = set(wanted)
    shared = set().union(*owners.values())
    dropped = {path for path in previous - shared if path[0] != ownership.STATUS or subresource}
    for path in sorted(dropped, key=_deepest_first):
        _remove(live, path)
    result: Object = _merge("", live, applied)
    if manager == _KUBECTL and annotation(live, _LAST_APPLIED) is not None:
        _note_applied(kind, result, applied)
    defaults.fill(kind, result)
    result["metadata"]["managedFields"] = ownership.write(owners, kind, managed)
    return result


def _applied_before(live: Object) -> set[Path]:
    """Return the fields that `kubectl apply` without `--server-side` set, by its annotation.

    kubectl's server-side apply may take ownership of these fields without a conflict.
    """
    text = annotation(live, _LAST_APPLIED)
    try:
        last = decode(text) if text else {}
        return set(ownership.leaves(last)) if isinstance(last, dict) else set()
    except (ValueError, AttributeError):
        return set()


def _note_applied(kind: Kind, result: Object, applied: Object) -> None:
    """Update the annotation of client-side apply, which can then be used again."""
    metadata = result["metadata"]
    kept = {key: one for key, one in applied["metadata"].items() if key != "managedFields"}
    text = encode(kind.typed({**applied, "metadata": kept})).decode() + "\n"
    metadata["annotations"] = {**(metadata.get("annotations") or {}), _LAST_APPLIED: text}


def _deepest_first(path: Path) -> tuple[int, bool, Path]:
    """Sort removals: a list item (`.`) before its fields, because its key identifies it."""
    return -len(path), path[-1] != ".", path


def _conflicts(
    lost: dict[tuple[str, str, str], set[Path]], managed: list[Object]
) -> errors.ApiError:
    entries = {ownership.identity(entry): entry for entry in managed}
    causes = []
    reasons = []
    for identity in sorted(lost):
        described = _describe(entries[identity])
        fields = [_field(path) for path in sorted(lost[identity])]
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
    result = {ownership.item_element(item, keys): item for item in live}
    for item in applied:
        element = ownership.item_element(item, keys)
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
