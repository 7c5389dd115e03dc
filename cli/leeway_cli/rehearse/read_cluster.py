"""Reads the objects of a cluster that a rehearsal needs, by lists."""

from functools import partial
from typing import Any

from leeway.kubernetes.connection import Connection, is_unknown_path
from leeway.kubernetes.decoders import ObjectList, without_nulls
from leeway.kubernetes.kept_kind import PATHS
from leeway.kubernetes.pages import list_objects
from leeway.ports.kubernetes import ClusterForbidden, ClusterUnavailable
from leeway.selection.reading.objects import Document
from lightkube import ApiError
from msgspec.json import Decoder

from leeway_cli.errors import CannotBeDoneError
from leeway_cli.output import write_stderr

_NEEDED = {
    "Node": PATHS["Node"],
    "Pod": PATHS["Pod"],
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
}
_OTHERS = {
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    **{kind: path for kind, path in PATHS.items() if kind not in _NEEDED},
}
"""Without them the rehearsal knows less: how many replicas a workload has, where volumes are."""


_PAGES = Decoder(ObjectList[dict[str, Any]])


def read_documents(connection: Connection) -> list[Document]:
    """List the objects of a cluster.

    Raises:
        CannotBeDoneError: the user may not list nodes, pods or budgets.
        ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
    """
    found: list[Document] = []
    forbidden = []
    for kind, path in (_NEEDED | _OTHERS).items():
        try:
            found += connection.call(partial(_list, kind=kind, path=path))
        except ClusterForbidden:
            forbidden.append(kind)
        except ApiError:
            continue  # the API server does not have the kind
        except ClusterUnavailable as error:
            if not is_unknown_path(error):
                raise
    if missing := [path.rpartition("/")[2] for kind, path in _NEEDED.items() if kind in forbidden]:
        raise CannotBeDoneError(
            f"The user of the kubeconfig may not list {', '.join(missing)}. Grant the verb list on "
            "them in all namespaces."
        )
    for kind in forbidden:
        plural = _OTHERS[kind].rpartition("/")[2]
        write_stderr(
            f"warning: the user of the kubeconfig may not list {plural}: they are not considered"
        )
    return found


def _list(connection: Connection, kind: str, path: str) -> list[Document]:
    return [
        {**without_nulls(item), "kind": kind} for item in list_objects(connection, path, _PAGES)
    ]
