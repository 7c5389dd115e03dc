"""Reads the objects of a cluster that selection needs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from leeway.kubernetes.connection import Connection, raise_unless_object
from leeway.ports.kubernetes import ClusterRefused
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.reading.cluster_objects import (
    checked,
    daemons_of,
    existing_nodes,
    pending_pods,
)
from leeway.selection.reading.objects import BadObject, Document
from lightkube import ApiError

from cli.errors import as_clause
from cli.output import write_stderr

PATHS = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "LimitRange": "/api/v1/limitranges",
}

PAGE = 500


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of a cluster, converted for selection, and all pods by `namespace/name`."""

    waiting: tuple[Pod, ...]
    nodes: tuple[ExistingNode, ...]
    daemons: tuple[PodSpec, ...]
    joined: frozenset[str]
    pods: Mapping[str, Document]


def read_objects(connection: Connection) -> ClusterObjects:
    """Read the objects. An object that Leeway cannot read is left out with a warning: it must not
    hide the others.

    Raises:
        ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
    """
    documents = [one for kind, path in PATHS.items() for one in _list(connection, kind, path)]
    pods = {_key(one): one for one in documents if one["kind"] == "Pod"}
    joined = frozenset(
        str((one.get("spec") or {}).get("providerID") or "").rpartition("/")[2]
        for one in documents
        if one["kind"] == "Node"
    )
    while True:
        try:
            valid = checked(documents)
            waiting = pending_pods(valid, {})
            return ClusterObjects(waiting, existing_nodes(valid), daemons_of(valid), joined, pods)
        except BadObject as error:
            position = error.path[0] if error.path else None
            if not isinstance(position, int):
                raise ClusterRefused(str(error)) from error
            bad = documents.pop(position)
            write_stderr(f"warning: {bad['kind']} {_key(bad)} is left out: {as_clause(error)}")


def _list(connection: Connection, kind: str, path: str) -> Iterator[Document]:
    """List the objects of a kind page by page; none if the API server does not have the kind."""
    next_page = ""
    while True:
        params = {"limit": str(PAGE), **({"continue": next_page} if next_page else {})}
        try:
            page = connection.call(partial(_page, path=path, params=params))
        except ApiError:
            return
        for item in page.get("items") or ():
            yield {**item, "kind": kind}
        next_page = (page.get("metadata") or {}).get("continue") or ""
        if not next_page:
            return


def _page(connection: Connection, path: str, params: dict[str, str]) -> dict[str, Any]:
    response = connection.plain.request("GET", path, params=params)
    raise_unless_object(response)
    page: dict[str, Any] = response.json()
    return page


def _key(document: Document) -> str:
    metadata = document.get("metadata") or {}
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata.get('name')}" if namespace else str(metadata.get("name"))
