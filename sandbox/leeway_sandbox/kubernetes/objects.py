"""Accessors for Kubernetes objects: names, times, owners, readiness.

Objects are dictionaries in the shape of the API's JSON, without `kind` and `apiVersion`, which the
store knows. A stored object is never changed in place: a change builds a new dictionary that shares
the unchanged parts.
"""

from __future__ import annotations

import datetime
import functools
import re
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import msgspec


class Clock:
    """A clock that is `ahead` seconds ahead of the machine's clock; behind if negative."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return time.time() + self.ahead

    def date(self) -> str:
        """Return the time in the format of HTTP's `Date` header."""
        return formatdate(self.now(), usegmt=True)


CLOCK = Clock()
"""The clock of this process."""

type Object = dict[str, Any]

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


def copy(obj: Object) -> Object:
    """Return an independent copy that may be changed in place."""
    copied: Object = decode(encode(obj))
    return copied


def timestamp(at: float | None = None) -> str:
    """Return a `metav1.Time`: RFC 3339 in UTC with whole seconds; now by default."""
    return _written(int(CLOCK.now() if at is None else at))


@functools.lru_cache(maxsize=512)
def _written(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def epoch(text: str) -> float:
    """Parse a `metav1.Time` or `MicroTime` into seconds since the epoch."""
    return datetime.datetime.fromisoformat(text).timestamp()


def name_of(obj: Object) -> str:
    """Return `metadata.name`."""
    name: str = obj["metadata"]["name"]
    return name


def namespace_of(obj: Object) -> str:
    """Return `metadata.namespace`, empty for a cluster-scoped object."""
    namespace: str = obj["metadata"].get("namespace", "")
    return namespace


def uid_of(obj: Object) -> str:
    """Return `metadata.uid`."""
    uid: str = obj["metadata"]["uid"]
    return uid


def at(obj: Object, path: str, default: Any = None) -> Any:
    """Return the value at a path such as "spec.nodeName", or the default."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return default if value is None else value


def key_of(obj: Object) -> tuple[str, str]:
    """Return the namespace and the name."""
    return namespace_of(obj), name_of(obj)


def path_of(obj: Object) -> str:
    """Return "namespace/name", as in the journal."""
    return f"{namespace_of(obj)}/{name_of(obj)}"


def labels_of(obj: Object) -> dict[str, str]:
    """Return the labels, which can be empty."""
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    return labels


def annotation(obj: Object, key: str) -> str | None:
    """Return the value of an annotation, or None."""
    value: str | None = (obj["metadata"].get("annotations") or {}).get(key)
    return value


def controller_of(obj: Object) -> Object | None:
    """Return the owner reference of the controller, or None."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            controller: Object = reference
            return controller
    return None


def owner_reference(kind: str, api_version: str, owner: Object) -> Object:
    """Return the owner reference that a controller sets on its objects."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_terminating(obj: Object) -> bool:
    """Whether the deletion of an object has started."""
    return "deletionTimestamp" in obj["metadata"]


def taints_of(node: Object) -> list[Object]:
    """Return the taints of a node, which can be empty."""
    return node["spec"].get("taints") or []


def has_taint(node: Object, key: str) -> bool:
    """Whether a node has a taint with this key."""
    return any(one["key"] == key for one in taints_of(node))


def is_bound(pod: Object) -> bool:
    """Whether a pod has a node."""
    return bool(pod["spec"].get("nodeName"))


def is_finished(pod: Object) -> bool:
    """Whether a pod has succeeded or failed."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def condition(obj: Object, kind: str) -> Object | None:
    """Return the status condition of this type."""
    for found in obj.get("status", {}).get("conditions") or ():
        if found["type"] == kind:
            match: Object = found
            return match
    return None


def is_ready(obj: Object) -> bool:
    """Whether the Ready condition of a pod or a node is True."""
    ready = condition(obj, "Ready")
    return ready is not None and ready["status"] == "True"


def with_condition(conditions: list[Object] | None, new: Object) -> list[Object]:
    """Return the conditions with one set; its transition time changes only with its status."""
    result = []
    placed = False
    for old in conditions or ():
        if old["type"] != new["type"]:
            result.append(old)
            continue
        kept = new
        if old["status"] == new["status"] and "lastTransitionTime" in old:
            kept = {**new, "lastTransitionTime": old["lastTransitionTime"]}
            if old.get("reason") == new.get("reason") and "lastUpdateTime" in old:
                kept["lastUpdateTime"] = old["lastUpdateTime"]
        result.append(kept)
        placed = True
    if not placed:
        result.append(new)
    return result


def share(value: int | str, of: int, rounding: Callable[[float], int]) -> int:
    """Return a number of pods that is an integer or a percentage of `of`."""
    if isinstance(value, int):
        return value
    return rounding(float(value.removesuffix("%")) * of / 100)


def duration(text: str | None, default: float) -> float:
    """Parse "2s", "500ms", "1m30s" or a number into seconds; `default` if it is not valid."""
    if not text or not _DURATION.fullmatch(text):
        return default
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
