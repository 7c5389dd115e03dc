"""The ClusterStates Protocol: lists the objects of a cluster, and converts them for selection."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lightkube import ApiError

from leeway.kubernetes.connection import Connection, raise_unless_object
from leeway.parallel import in_parallel
from leeway.ports.kubernetes import ClusterRefused
from leeway.provisioning.cluster_state import ClusterState, WaitingPod
from leeway.selection.pods import Pod
from leeway.selection.reading.cluster_objects import daemons_of, existing_nodes, pending_pods
from leeway.selection.reading.objects import BadObject, Document

PAGE = 500
LISTS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "LimitRange": "/api/v1/limitranges",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
}
MIRROR = "kubernetes.io/config.mirror"


class KubernetesClusterStates:
    """Reads clusters. `connection_to` connects to the API of a cluster."""

    def __init__(self, connection_to: Callable[[str], Connection]) -> None:
        self._connection_to = connection_to

    def read(self, cluster: str) -> ClusterState:
        """List all objects that selection needs. An object that cannot be converted is left out.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        connection = self._connection_to(cluster)
        read_at = datetime.now(UTC)
        kinds = list(LISTS)
        lists = in_parallel(lambda kind: _listed(connection, kind), kinds, len(kinds))
        objects = dict(zip(kinds, lists, strict=True))
        nodes, pods = objects.pop("Node"), objects.pop("Pod")
        others = [one for listed in objects.values() for one in listed]
        waiting = [one for one in pods if not (one.get("spec") or {}).get("nodeName")]
        by_name = {_key(one): one for one in waiting}
        found = _tolerant(waiting, lambda some: pending_pods(some, {}, others))
        return ClusterState(
            read_at=read_at,
            nodes=_tolerant([*nodes, *pods], lambda some: existing_nodes(some, others)),
            joined=dict(_instances(nodes)),
            waiting=sorted(
                (_waiting(pod, by_name[pod.name]) for pod in found),
                key=lambda one: (one.created_at, one.pod.name),
            ),
            daemons=_tolerant(objects["DaemonSet"], lambda some: daemons_of(some, others)),
            movable=_movable(pods, others),
        )


def _listed(connection: Connection, kind: str) -> list[Document]:
    """List all objects of a kind, page by page. The items of a list have no kind of their own."""
    found: list[Document] = []
    page: dict[str, str] = {"limit": str(PAGE)}
    while True:
        answer = _page(connection, LISTS[kind], dict(page))
        found += ({**item, "kind": kind} for item in answer.get("items") or ())
        token = (answer.get("metadata") or {}).get("continue")
        if not token:
            return found
        page["continue"] = token


def _page(connection: Connection, path: str, params: dict[str, str]) -> dict[str, Any]:
    def send(connection: Connection) -> dict[str, Any]:
        response = connection.plain.get(path, params=params)
        raise_unless_object(response)
        answer: dict[str, Any] = response.json()
        return answer

    try:
        return connection.call(send)
    except ApiError as error:
        if error.response.status_code == 404:  # an API server without this kind
            return {}
        raise ClusterRefused(f"{path}: {error}") from error


def _tolerant[T](
    objects: Sequence[Document], read: Callable[[Sequence[Document]], Sequence[T]]
) -> Sequence[T]:
    """Convert objects without those that cannot be converted: one of them must not keep all other
    pods from getting nodes."""
    kept = list(objects)
    while True:
        try:
            return read(kept)
        except BadObject as error:
            position = error.path[0] if error.path else None
            if not isinstance(position, int) or position >= len(kept):
                raise ClusterRefused(f"the objects cannot be read: {error}") from error
            del kept[position]


def _instances(nodes: Iterable[Document]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        provider_id = str((node.get("spec") or {}).get("providerID") or "")
        if provider_id:
            yield provider_id.rpartition("/")[2], str(node["metadata"]["name"])


def _waiting(pod: Pod, document: Document) -> WaitingPod:
    metadata = document["metadata"]
    created = datetime.fromisoformat(metadata["creationTimestamp"])
    return WaitingPod(pod, str(metadata.get("uid") or ""), created)


def _movable(pods: Sequence[Document], others: Sequence[Document]) -> Mapping[str, Sequence[Pod]]:
    """The pods of each node that a controller creates again elsewhere."""
    by_node: dict[str, list[Document]] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and _moves(pod):
            spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
            by_node.setdefault(str(node), []).append({**pod, "spec": spec})
    return {
        node: _tolerant(moving, lambda some: pending_pods(some, {}, others))
        for node, moving in by_node.items()
    }


def _moves(pod: Document) -> bool:
    metadata = pod["metadata"]
    owners = [o for o in metadata.get("ownerReferences") or () if o.get("controller")]
    ends = metadata.get("deletionTimestamp")
    mirrored = MIRROR in (metadata.get("annotations") or {})
    return bool(owners) and not ends and not mirrored


def _key(document: Document) -> str:
    return f"{document['metadata'].get('namespace') or 'default'}/{document['metadata']['name']}"
