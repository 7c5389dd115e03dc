"""Kubernetes API documents: the error for invalid ones, and the state of a Pod."""

import json
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

type Document = Mapping[str, Any]

LONGEST_SHOWN = 60
"""Maximum number of characters of an invalid value in an error."""


def name_of(document: Document) -> str:
    """Return an object's name; empty if it has none yet."""
    return str((document.get("metadata") or {}).get("name") or "")


def namespace_of(document: Document) -> str:
    """Return an object's namespace, `default` by default."""
    return str((document.get("metadata") or {}).get("namespace") or "default")


def instance_of(document: Document, part: str = "spec") -> str:
    """Return the instance of a Node by its provider id, `aws:///ZONE/INSTANCE`; empty for other
    providers. A NodeClaim has the id in its `status`."""
    provider_id = str((document.get(part) or {}).get("providerID") or "")
    return provider_id.rpartition("/")[2] if provider_id.startswith("aws://") else ""


def key_of(document: Document) -> str:
    """Return `namespace/name`, or `namespace/generateName` of an object without a name."""
    metadata = document.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    return f"{namespace_of(document)}/{name}"


class BadObject(ValueError):
    """An invalid object. `path` leads to the invalid field."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)

    def below(self, *path: str | int) -> "BadObject":
        """Return the error with its path extended at the front."""
        return BadObject((*path, *self.path), str(self))


def creation_time(document: Document) -> datetime:
    """Return when an object was created, which every stored object says.

    Raises:
        BadObject: the time is missing or invalid.
    """
    text = (document.get("metadata") or {}).get("creationTimestamp")
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        path = ("metadata", "creationTimestamp")
        raise BadObject(path, f"expected a time, got {text!r}"[:80]) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def shown(value: Any) -> str:
    """Render an invalid value, shortened."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


_FINISHED = frozenset({"Succeeded", "Failed"})


def is_pending(pod: Document, nodes: Container[str]) -> bool:
    """Whether a pod needs a node: it is not bound, gated, finished, terminating or of a DaemonSet,
    and not nominated for one of `nodes`."""
    return needs_node(pod) and nominated_node(pod) not in nodes


def needs_node(pod: Document) -> bool:
    """Whether a pod is pending unless it is nominated for a node that exists."""
    spec = pod.get("spec") or {}
    return not (
        spec.get("nodeName")
        or spec.get("schedulingGates")
        or is_finished(pod)
        or is_terminating(pod)
        or daemon_of(pod)
    )


def node_of(pod: Document) -> str:
    """Return the node that a pod is bound to or nominated for; empty without one."""
    return bound_node(pod) or nominated_node(pod)


def bound_node(pod: Document) -> str:
    """Return the node that a pod is bound to; empty without one."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def nominated_node(pod: Document) -> str:
    """Return the node on which the scheduler preempts other pods for a pod; empty without one."""
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


def is_finished(pod: Document) -> bool:
    """Whether the containers of a pod have ended for good."""
    return (pod.get("status") or {}).get("phase") in _FINISHED


def is_terminating(document: Document) -> bool:
    """Whether an object has been deleted and ends."""
    return bool((document.get("metadata") or {}).get("deletionTimestamp"))


def controller_of(pod: Document) -> str:
    """Return the uid of the controller of a pod, such as a ReplicaSet; empty without one."""
    for owner in (pod.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid") or "")
    return ""


def daemon_of(pod: Document) -> str:
    """Return the DaemonSet that owns a pod, as `namespace/name`; empty without one."""
    for owner in (pod.get("metadata") or {}).get("ownerReferences") or ():
        if owner["kind"] == "DaemonSet":
            return f"{namespace_of(pod)}/{owner['name']}"
    return ""


WORKLOADS = frozenset({"Deployment", "StatefulSet", "Job", "ReplicaSet", "ReplicationController"})
REFERENCED = frozenset(
    {
        "CSINode",
        "LimitRange",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PriorityClass",
        "RuntimeClass",
        "StorageClass",
    }
)
"""Kinds that pods or nodes depend on."""
