"""Tables of objects for `kubectl get`.

Rules: the printers of Kubernetes' API server. Nodes, pods, Deployments, budgets and Events have
their columns; of those of `-o wide`, pods have their node. Other kinds have name and age.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from leeway_sandbox.kubernetes import errors, registry
from leeway_sandbox.kubernetes.objects import (
    CLOCK,
    Object,
    at,
    condition,
    epoch,
    is_bound,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
)
from leeway_sandbox.kubernetes.registry import Kind

_META = "meta.k8s.io/v1"
METADATA = "PartialObjectMetadata"
METADATA_LIST = "PartialObjectMetadataList"
# Answers are always JSON; a client that accepts one of these accepts JSON too.
_MEDIA_TYPES = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/*",
    "*/*",
)
_NONE = "<none>"
_ROLE = "node-role.kubernetes.io/"


@dataclasses.dataclass(frozen=True, slots=True)
class _Column:
    """A column: its name, its cells, and whether only `-o wide` shows it."""

    name: str
    cell: Callable[[Object], Any]
    wide: bool = False

    @property
    def definition(self) -> Object:
        format_ = "name" if self.name == "Name" else ""
        about = f"{self.name} of the object."
        shown = {"name": self.name, "type": "string", "format": format_, "description": about}
        return {**shown, "priority": int(self.wide)}


def form_of(accept: str, *, of_list: bool) -> str:
    """Return the form that the Accept header prefers: `Table`, `PartialObjectMetadata`,
    `PartialObjectMetadataList`, or empty for whole objects; 406 if the server has none of it."""
    ranges = [one.replace(" ", "").partition(";") for one in accept.split(",") if one.strip()]
    known = [parameters.split(";") for media, _, parameters in ranges if media in _MEDIA_TYPES]
    if ranges and not known:
        raise errors.not_acceptable(_MEDIA_TYPES[:3])
    preferred = set(known[0]) if known and "g=meta.k8s.io" in known[0] else set()
    forms = ("Table", METADATA_LIST if of_list else METADATA)
    return next((form for form in forms if f"as={form}" in preferred), "")


def table(kind: Kind, objects: list[Object], metadata: Object, included: str) -> Object:
    """Return a `meta.k8s.io/v1` Table; `included` is the part of each object in its row."""
    columns = [_NAME, *(_custom(kind) or _TABLES.get(kind, [_AGE]))]
    return {
        "kind": "Table",
        "apiVersion": _META,
        "metadata": metadata,
        "columnDefinitions": [column.definition for column in columns],
        "rows": [
            {
                "cells": [column.cell(obj) for column in columns],
                "object": _included(kind, obj, included),
            }
            for obj in objects
        ],
    }


def _custom(kind: Kind) -> list[_Column]:
    """Return the columns that a definition names."""

    def column(given: Object) -> _Column:
        path, dated = given["jsonPath"], given["type"] == "date"

        def value(obj: Object) -> Any:
            found = _cell(path, obj)
            return _age(found) if dated else found

        return _Column(given["name"], value, wide=bool(given.get("priority")))

    return [column(one) for one in kind.columns]


def _included(kind: Kind, obj: Object, included: str) -> Object | None:
    if included == "None":
        return None
    if included == "Object":
        return kind.typed(obj)
    return metadata_of(obj)


def metadata_of(obj: Object) -> Object:
    """Return an object with its metadata only."""
    return {"kind": METADATA, "apiVersion": _META, "metadata": obj["metadata"]}


def metadata_list(objects: list[Object], metadata: Object) -> Object:
    """Return a list of objects with their metadata only. Without objects, its items are null, as
    the API server writes an empty list of Go that was never made."""
    items = [metadata_of(one) for one in objects] or None
    return {"kind": METADATA_LIST, "apiVersion": _META, "metadata": metadata, "items": items}


def _age(text: str | None) -> str:
    """Return the age of a time in kubectl's format of one or two units."""
    if not text:
        return "<unknown>"
    seconds = max(0, int(CLOCK.now() - epoch(text)))
    for unit, name, smaller, smaller_name, most, both in (
        (1, "s", 0, "", 120, 0),
        (60, "m", 1, "s", 180, 10),
        (3600, "h", 60, "m", 48, 8),
    ):
        count = seconds // unit
        if count < most:
            rest = seconds % unit // smaller if smaller and count < both else 0
            return f"{count}{name}" + (f"{rest}{smaller_name}" if rest else "")
    return f"{seconds // 86400}d"


def _pod_status(pod: Object) -> str:
    phase = at(pod, "status.phase", "Unknown")
    if is_terminating(pod):
        return "Terminating"
    if phase == "Pending" and is_bound(pod):
        return "ContainerCreating"
    shown = {"Succeeded": "Completed", "Failed": "Error"}.get(phase, phase)
    return str(at(pod, "status.reason", shown))


def _pod_ready(pod: Object) -> str:
    ready = sum(one["ready"] for one in at(pod, "status.containerStatuses", ()))
    return f"{ready}/{len(pod['spec']['containers'])}"


def _ready_replicas(deployment: Object) -> str:
    return f"{at(deployment, 'status.readyReplicas', 0)}/{at(deployment, 'spec.replicas', 0)}"


def _node_status(node: Object) -> str:
    shown = "Ready" if is_ready(node) else "NotReady"
    if condition(node, "Ready") is None:
        shown = "Unknown"
    return shown + (",SchedulingDisabled" if node["spec"].get("unschedulable") else "")


def _roles(node: Object) -> str:
    names = [key.removeprefix(_ROLE) for key in labels_of(node) if key.startswith(_ROLE)]
    return ",".join(sorted(names)) or _NONE


def _about(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _field(name: str, path: str, default: Any = "", *, wide: bool = False) -> _Column:
    return _Column(name, lambda obj: at(obj, path, default), wide)


def _cell(path: str, obj: Object) -> Any:
    """Return the value of a custom column: a path of fields, `[*]`, or one filter by a field."""
    found: list[Any] = [obj]
    for step in re.findall(r'\.([\w-]+)|\[(\*)\]|\[\?\(@\.(\w+)=="([^"]*)"\)\]', path):
        name, every, field, wanted = step
        below: list[Any] = []
        for one in found:
            if name:
                below += [one[name]] if isinstance(one, dict) and name in one else []
            elif isinstance(one, list):
                below += [item for item in one if every or item.get(field) == wanted]
        found = below
    if len(found) > 1:
        return ",".join(str(one) for one in found)
    return found[0] if found else None


_NAME = _Column("Name", name_of)
_AGE = _Column("Age", lambda obj: _age(obj["metadata"].get("creationTimestamp")))
_TABLES: dict[Kind, list[_Column]] = {
    registry.POD: [
        _Column("Ready", _pod_ready),
        _Column("Status", _pod_status),
        _Column("Restarts", lambda _pod: "0"),
        _AGE,
        _field("Node", "spec.nodeName", _NONE, wide=True),
    ],
    registry.NODE: [
        _Column("Status", _node_status),
        _Column("Roles", _roles),
        _AGE,
        _field("Version", "status.nodeInfo.kubeletVersion"),
    ],
    registry.DEPLOYMENT: [
        _Column("Ready", _ready_replicas),
        _field("Up-to-date", "status.updatedReplicas", 0),
        _field("Available", "status.availableReplicas", 0),
        _AGE,
    ],
    registry.BUDGET: [
        _field("Min Available", "spec.minAvailable", "N/A"),
        _field("Max Unavailable", "spec.maxUnavailable", "N/A"),
        _field("Allowed Disruptions", "status.disruptionsAllowed", 0),
        _AGE,
    ],
    registry.EVENT: [
        _Column("Last Seen", lambda obj: _age(obj.get("lastTimestamp"))),
        _field("Type", "type"),
        _field("Reason", "reason"),
        _Column("Object", _about),
        _field("Message", "message"),
    ],
}
