"""What the pods on each node request, over HTTP."""

from collections.abc import Callable, Collection
from typing import Any

from msgspec.json import Decoder

from leeway.costs import NodeUse, PodUse
from leeway.kubernetes.connection import ApiError, Connection
from leeway.kubernetes.list_watch import ObjectList, list_objects
from leeway.kubernetes.transport import within
from leeway.ports.kubernetes import ClusterRefused
from leeway.selection.reading.objects import (
    Document,
    bound_node,
    instance_of,
    is_finished,
    namespace_of,
)
from leeway.selection.reading.pod_objects import requests_of
from leeway.selection.resources import Resources

READ_FOR = 20.0
"""Seconds for both lists of a cluster. All clusters are read at once, in a function that ends after
120 s: a cluster that takes longer must not cost the others their records."""

_OBJECTS = Decoder(ObjectList[dict[str, Any]])
_SHAPES = (AttributeError, KeyError, TypeError, ValueError)


def read_use(connection: Connection, labels: Collection[str]) -> dict[str, NodeUse]:
    """Read what pods request, by the ids of the instances of their nodes. Of a page, only what is
    counted is kept.

    Raises:
        ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
    """
    pods: dict[str, list[PodUse]] = {}
    with within(READ_FOR):
        for one in _listed(connection, "/api/v1/pods", lambda pod: _pod(pod, labels)):
            pods.setdefault(one["node"], []).append(one["use"])
        nodes = _listed(connection, "/api/v1/nodes", _node)
    found: dict[str, NodeUse] = {}
    copied: set[str] = set()
    for one in nodes:
        instance = one["instance"]
        copied |= {instance} & found.keys()
        found[instance] = NodeUse(one["allocatable"], tuple(pods.get(one["name"], ())))
    return {name: use for name, use in found.items() if name not in copied}


def _listed(
    connection: Connection, path: str, lean: Callable[[Document], dict[str, Any] | None]
) -> list[dict[str, Any]]:
    def kept(page: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [one for one in map(lean, page) if one is not None]

    try:
        return connection.call(lambda one: list_objects(one, path, _OBJECTS, kept))
    except ApiError as error:
        raise ClusterRefused(f"{path}: {error}"[:300]) from error


def _pod(pod: Document, labels: Collection[str]) -> dict[str, Any] | None:
    """Return the node of a pod and what it requests; a pod that can't be read requests nothing."""
    try:
        if is_finished(pod) or not (node := bound_node(pod)):
            return None
        given = (pod.get("metadata") or {}).get("labels") or {}
        own = {key: str(given[key]) for key in labels if key in given}
        return {
            "node": node,
            "use": PodUse(namespace_of(pod), requests_of(pod.get("spec") or {}), own),
        }
    except _SHAPES:
        return None


def _node(node: Document) -> dict[str, Any] | None:
    """Return the instance of a Node; None for a Node of another provider, or that can't be read."""
    try:
        if not (instance := instance_of(node)):
            return None
        amounts = (node.get("status") or {}).get("allocatable") or {}
        return {
            "instance": instance,
            "name": str(node["metadata"]["name"]),
            "allocatable": Resources.parsed({name: str(each) for name, each in amounts.items()}),
        }
    except _SHAPES:
        return None
