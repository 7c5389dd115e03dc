"""The state of a Pod for the scheduler: bound, nominated, finished, terminating, or of a DaemonSet.

Pods must be validated.
"""

from collections.abc import Container

from leeway.selection.reading.objects import Document, namespace_of

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
