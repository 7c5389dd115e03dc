"""The watches of watch_pods: on the unscheduled pods of clusters, and on their manifests.

Manifests are watched as metadata only: a watch says that one has changed, and whoever acts on it
reads the manifests. A manifest counts as changed if its users change it: its generation, its labels
or its annotations. A status is none of these, so what Leeway and Karpenter write does not come back
as a change.
"""

import zlib
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct, field
from msgspec.json import Decoder, encode

from leeway.kubernetes.connection import ApiError, Connection, is_unknown_path
from leeway.kubernetes.list_watch import WatchEvent, WatchRequest, events_in, read_json
from leeway.manifests.in_cluster import READ, is_read
from leeway.manifests.reading import KINDS, Kind
from leeway.pod_watch.burst import ManifestMark, UnscheduledPod
from leeway.pod_watch.follower import KindMissing, OpenWatch, PodChange
from leeway.ports.kubernetes import ClusterUnavailable

PODS = "/api/v1/pods"

SELECTION = {"fieldSelector": "spec.nodeName=", "allowWatchBookmarks": "true"}

EXISTING = "0"
"""The version of a watch that reports all existing pods first, from the API server's cache. Without
a list, no answer with all pods has to be in memory at once. Source: Kubernetes API concepts,
"Semantics for watch", Get State and Start at Any."""


class _Owner(Struct):
    kind: str = ""


class _Metadata(Struct):
    uid: str = ""
    version: str = field(name="resourceVersion", default="")
    deletion: str | None = field(name="deletionTimestamp", default=None)
    owners: list[_Owner] = field(name="ownerReferences", default_factory=list)


class _Spec(Struct):
    node: str = field(name="nodeName", default="")
    gates: list[object] = field(name="schedulingGates", default_factory=list)


class _Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str = ""


class _Status(Struct):
    phase: str = ""
    nominated: str = field(name="nominatedNodeName", default="")
    conditions: list[_Condition] = field(default_factory=list)


class _Pod(Struct):
    """Only the fields that are used: a pod of some kilobytes becomes some hundred bytes."""

    metadata: _Metadata
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


_DECODER = Decoder(_Pod)  # built on import, by one thread: see leeway.kubernetes.list_watch


class HttpWatch:
    """The PodWatch Protocol, by the first of `requests` that the API server knows; each comes with
    what turns its events into changes. `optional` is the plural of a kind that the API server may
    lack; empty if it has to have it."""

    def __init__(
        self,
        requests: Sequence[tuple[WatchRequest, Callable[[WatchEvent], PodChange]]],
        optional: str = "",
    ) -> None:
        self._requests = requests
        self._optional = optional

    def run(self, began: Callable[[], None], receive: Callable[[PodChange], None]) -> None:
        """Watch until the API server ends the watch.

        Raises:
            KindMissing: the API server does not have an optional kind.
        """
        for request, change_of in self._requests:

            def apply(
                lines: list[bytes], change_of: Callable[[WatchEvent], PodChange] = change_of
            ) -> None:
                for event in events_in(lines):
                    receive(change_of(event))

            try:
                request.read(apply, began)
            except ApiError as error:
                raise ClusterUnavailable(str(error)[:200]) from error
            except ClusterUnavailable as error:
                if not (self._optional and is_unknown_path(error)):
                    raise
            else:
                return
        raise KindMissing(f"the API server has no {self._optional}")

    def stop(self) -> None:
        """End the watch, from another thread."""
        for request, _ in self._requests:
            request.stop()


def pod_watches(connection_to: Callable[[str], Connection]) -> OpenWatch:
    """Return what watches the unscheduled pods of a cluster; `connection_to` connects to one. A
    resource version is opaque, so the empty one means none."""

    def open_watch(cluster: str, version: str) -> HttpWatch:
        start = {"resourceVersion": version or EXISTING}
        request = WatchRequest(connection_to(cluster), PODS, SELECTION | start)
        return HttpWatch([(request, change_of)])

    return open_watch


def change_of(event: WatchEvent) -> PodChange:
    found = read_json(event.object, _DECODER)
    if event.type == "BOOKMARK":
        return PodChange(found.metadata.version)
    return PodChange(found.metadata.version, _pod(found), gone=event.type == "DELETED")


def _pod(found: _Pod) -> UnscheduledPod:
    metadata, spec, status = found.metadata, found.spec, found.status
    refused = [
        one.reason
        for one in status.conditions
        if one.type == "PodScheduled" and one.status == "False"
    ]
    return UnscheduledPod(
        uid=metadata.uid,
        phase=status.phase,
        node=spec.node,
        nominated=status.nominated,
        gated=bool(spec.gates),
        terminating=metadata.deletion is not None,
        of_daemon_set=any(owner.kind == "DaemonSet" for owner in metadata.owners),
        unscheduled_because=refused[0] if refused else "",
    )


_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class _ManifestMetadata(Struct):
    uid: str = ""
    version: str = field(name="resourceVersion", default="")
    generation: int = 0
    deletion: str | None = field(name="deletionTimestamp", default=None)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class _Object(Struct):
    metadata: _ManifestMetadata


_MANIFEST_DECODER = Decoder(
    _Object
)  # built on import, by one thread: see leeway.kubernetes.list_watch


def manifest_watches(connection_to: Callable[[str], Connection]) -> list[OpenWatch]:
    """Return what watches the manifests of a cluster, for each kind that Leeway reads there."""
    return [manifest_watch(connection_to, resource) for resource in READ]


def manifest_watch(connection_to: Callable[[str], Connection], resource: str) -> OpenWatch:
    """Return what watches the manifests of one kind, in the newest version that the API server
    has."""
    kinds = [one for one in reversed(KINDS) if one.resource == resource and not one.current]

    def open_watch(cluster: str, version: str) -> HttpWatch:
        connection = connection_to(cluster)
        parameters = {"allowWatchBookmarks": "true", "resourceVersion": version or EXISTING}
        requests = [
            (
                WatchRequest(
                    connection,
                    f"/apis/{kind.api_version}/{kind.plural}",
                    parameters,
                    accept=_METADATA_ONLY,
                ),
                partial(_change_of_manifest, kind),
            )
            for kind in kinds
        ]
        return HttpWatch(requests, optional=kinds[0].plural)

    return open_watch


def _change_of_manifest(kind: Kind, event: WatchEvent) -> PodChange:
    found = read_json(event.object, _MANIFEST_DECODER).metadata
    if event.type == "BOOKMARK":
        return PodChange(found.version)
    gone = event.type == "DELETED" or not _is_read(kind, found)
    seen = [found.generation, found.deletion, sorted(found.labels.items())]
    mark = zlib.crc32(encode([*seen, sorted(found.annotations.items())]))
    return PodChange(found.version, manifest=ManifestMark(found.uid, mark), gone=gone)


def _is_read(kind: Kind, found: _ManifestMetadata) -> bool:
    marks = {"labels": found.labels, "annotations": found.annotations}
    return is_read(kind, {"metadata": marks})
