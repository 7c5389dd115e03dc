"""The table form of objects, as `kubectl get` asks for it and prints it.

Rules: the printers of Kubernetes' API server; kinds without columns of their own show their name
and age. Columns of priority 1 are what `-o wide` adds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sandbox.kubernetes import registry
from sandbox.kubernetes.matching import format_selector
from sandbox.kubernetes.objects import (
    Object,
    condition,
    epoch,
    is_ready,
    is_terminating,
    name_of,
)
from sandbox.kubernetes.registry import Kind

type Cells = list[Any]
type Column = tuple[str, str, int]

_NAME_DESCRIPTION = (
    "Name must be unique within a namespace. Is required when creating resources, although some "
    "resources may allow a client to request the generation of an appropriate name automatically. "
    "Name is primarily intended for creation idempotence and configuration definition. Cannot be "
    "updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
_AGE: Column = ("Age", "string", 0)


def wanted(accept: str) -> bool:
    """Say whether the Accept header prefers a table."""
    first = accept.partition(",")[0].replace(" ", "")
    return "as=Table" in first and "g=meta.k8s.io" in first


def table(kind: Kind, objects: list[Object], metadata: Object, included: str) -> Object:
    """Return a `meta.k8s.io/v1` Table; `included` says how much of each object comes along."""
    columns, cells = _TABLES.get(kind, (_PLAIN, _plain))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_definition(*column) for column in (_NAME, *columns)],
        "rows": [
            {"cells": [name_of(obj), *cells(obj)], "object": _included(kind, obj, included)}
            for obj in objects
        ],
    }


def _definition(name: str, of_type: str, priority: int) -> Object:
    is_name = name == "Name"
    return {
        "name": name,
        "type": of_type,
        "format": "name" if is_name else "",
        "description": _NAME_DESCRIPTION if is_name else f"{name} of the object.",
        "priority": priority,
    }


def _included(kind: Kind, obj: Object, included: str) -> Object | None:
    if included == "None":
        return None
    if included == "Object":
        return kind.typed(obj)
    metadata = obj["metadata"]
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
    }


def age(text: str | None) -> str:
    """Return how long ago a time was, as kubectl writes it: "5s", "3m20s", "2d4h"."""
    if not text:
        return "<unknown>"
    return human(max(0, int(time.time() - epoch(text))))


def human(seconds: int) -> str:
    """Return seconds in the two largest units that still say something."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    return f"{days}d"


def _created(obj: Object) -> str:
    return age(obj["metadata"].get("creationTimestamp"))


def _plain(obj: Object) -> Cells:
    return [_created(obj)]


def _pod(pod: Object) -> Cells:
    spec, status = pod["spec"], pod["status"]
    statuses = status.get("containerStatuses") or ()
    ready = sum(bool(one.get("ready")) for one in statuses)
    shown = status.get("reason") or status.get("phase", "Unknown")
    if is_terminating(pod):
        shown = "Terminating"
    elif status.get("phase") == "Pending" and spec.get("nodeName"):
        shown = "ContainerCreating"
    elif status.get("phase") == "Succeeded":
        shown = "Completed"
    elif status.get("phase") == "Failed" and "reason" not in status:
        shown = "Error"
    restarts = str(sum(one.get("restartCount", 0) for one in statuses))
    gates = spec.get("readinessGates")
    return [
        f"{ready}/{len(spec['containers'])}",
        shown,
        restarts,
        _created(pod),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"0/{len(gates)}" if gates else "<none>",
    ]


def _node(node: Object) -> Cells:
    labels = node["metadata"].get("labels") or {}
    info = node["status"].get("nodeInfo") or {}
    shown = "Ready" if is_ready(node) else "NotReady"
    if condition(node, "Ready") is None:
        shown = "Unknown"
    if node["spec"].get("unschedulable"):
        shown += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    addresses = {one["type"]: one["address"] for one in node["status"].get("addresses") or ()}
    return [
        shown,
        ",".join(roles) or "<none>",
        _created(node),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _workload_wide(obj: Object) -> Cells:
    containers = obj["spec"]["template"]["spec"].get("containers") or ()
    return [
        ",".join(one["name"] for one in containers),
        ",".join(one.get("image", "") for one in containers),
        format_selector(obj["spec"].get("selector")),
    ]


def _deployment(obj: Object) -> Cells:
    spec, status = obj["spec"], obj.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [ready, *counts, _created(obj), *_workload_wide(obj)]


def _replica_set(obj: Object) -> Cells:
    spec, status = obj["spec"], obj.get("status", {})
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [*counts, _created(obj), *_workload_wide(obj)]


def _daemon_set(obj: Object) -> Cells:
    status = obj.get("status", {})
    names = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    selector = obj["spec"]["template"]["spec"].get("nodeSelector") or {}
    shown = ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>"
    counts = [status.get(name, 0) for name in names]
    return [*counts, shown, _created(obj), *_workload_wide(obj)]


def _stateful_set(obj: Object) -> Cells:
    spec, status = obj["spec"], obj.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [ready, _created(obj), *_workload_wide(obj)[:2]]


def _job(obj: Object) -> Cells:
    spec, status = obj["spec"], obj.get("status", {})
    shown = "Running"
    for kind, name in (("Complete", "Complete"), ("Failed", "Failed")):
        found = condition(obj, kind)
        if found is not None and found["status"] == "True":
            shown = name
    started, ended = status.get("startTime"), status.get("completionTime")
    took = ""
    if started:
        took = human(int(epoch(ended) - epoch(started))) if ended else age(started)
    completions = f"{status.get('succeeded', 0)}/{spec.get('completions', 1)}"
    return [shown, completions, took, _created(obj), *_workload_wide(obj)]


def _budget(obj: Object) -> Cells:
    spec = obj["spec"]
    return [
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        obj["status"].get("disruptionsAllowed", 0),
        _created(obj),
    ]


def _event(obj: Object) -> Cells:
    about = obj.get("involvedObject") or {}
    return [
        age(obj.get("lastTimestamp") or obj["metadata"].get("creationTimestamp")),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        (obj.get("source") or {}).get("component", ""),
        obj.get("message", ""),
        age(obj.get("firstTimestamp")),
        obj.get("count", 1),
        name_of(obj),
    ]


def _namespace(obj: Object) -> Cells:
    return [obj["status"].get("phase", "Active"), _created(obj)]


def _priority_class(obj: Object) -> Cells:
    policy = obj.get("preemptionPolicy", "")
    return [obj["value"], bool(obj.get("globalDefault")), _created(obj), policy]


def _attachment(obj: Object) -> Cells:
    spec = obj["spec"]
    source = spec.get("source", {}).get("persistentVolumeName", "")
    attached = obj.get("status", {}).get("attached", False)
    return [spec.get("attacher", ""), source, spec.get("nodeName", ""), attached, _created(obj)]


def _columns(text: str, wide: str = "") -> tuple[Column, ...]:
    """Read columns from "Name:type" words; underscores stand for spaces."""
    columns = []
    for priority, words in enumerate((text, wide)):
        for word in words.split():
            name, _, of_type = word.partition(":")
            columns.append((name.replace("_", " "), of_type or "string", priority))
    return tuple(columns)


_NAME: Column = ("Name", "string", 0)
_PLAIN: tuple[Column, ...] = (_AGE,)
_IMAGES = "Containers Images Selector"
_TABLES: dict[Kind, tuple[tuple[Column, ...], Callable[[Object], Cells]]] = {
    registry.POD: (
        _columns("Ready Status Restarts Age", "IP Node Nominated_Node Readiness_Gates"),
        _pod,
    ),
    registry.NODE: (
        _columns(
            "Status Roles Age Version",
            "Internal-IP External-IP OS-Image Kernel-Version Container-Runtime",
        ),
        _node,
    ),
    registry.DEPLOYMENT: (
        _columns("Ready Up-to-date:integer Available:integer Age", _IMAGES),
        _deployment,
    ),
    registry.REPLICA_SET: (
        _columns("Desired:integer Current:integer Ready:integer Age", _IMAGES),
        _replica_set,
    ),
    registry.DAEMON_SET: (
        _columns(
            "Desired:integer Current:integer Ready:integer Up-to-date:integer "
            "Available:integer Node_Selector Age",
            _IMAGES,
        ),
        _daemon_set,
    ),
    registry.STATEFUL_SET: (_columns("Ready Age", "Containers Images"), _stateful_set),
    registry.JOB: (_columns("Status Completions Duration Age", _IMAGES), _job),
    registry.BUDGET: (
        _columns("Min_Available Max_Unavailable Allowed_Disruptions:integer Age"),
        _budget,
    ),
    registry.EVENT: (
        _columns("Last_Seen Type Reason Object", "Source")
        + _columns("Message")
        + _columns("", "First_Seen Count:integer Name"),
        _event,
    ),
    registry.NAMESPACE: (_columns("Status Age"), _namespace),
    registry.PRIORITY_CLASS: (
        _columns("Value:integer Global-Default:boolean Age PreemptionPolicy"),
        _priority_class,
    ),
    registry.VOLUME_ATTACHMENT: (_columns("Attacher PV Node Attached:boolean Age"), _attachment),
}
