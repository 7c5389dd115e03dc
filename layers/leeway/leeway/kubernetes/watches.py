"""The watches of watch_pods: on the unscheduled pods of clusters, and on their manifests.

Manifests are watched as metadata only: a watch says that one has changed, and whoever acts on it
reads the manifests. A manifest counts as changed if its users change it: its generation, its labels
or its annotations. A status is none of these, so what Leeway and Karpenter write does not come back
as a change.
"""

import zlib
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.json import Decoder, encode

from leeway.kubernetes.connection import ApiError, Connection, is_unknown_path
from leeway.kubernetes.list_watch import WatchEvent, WatchRequest, events_in, read_json
from leeway.manifests.in_cluster import READ, is_read
from leeway.manifests.reading import KINDS, Kind
from leeway.pod_watch.burst import ManifestMark, UnscheduledPod
from leeway.pod_watch.follower import KindMissing, PodChange, PodWatches
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


class HttpPodWatches:
    """The PodWatches Protocol; `connection_to` connects to a cluster."""

    def __init__(self, connection_to: Callable[[str], Connection]) -> None:
        self._connection_to = connection_to

    def watch(self, cluster: str, version: str) -> "HttpPodWatch":
        """Prepare a watch. A resource version is opaque, so the empty one means none."""
        return HttpPodWatch(self._connection_to(cluster), version)


class HttpPodWatch:
    """The PodWatch Protocol."""

    def __init__(self, connection: Connection, version: str) -> None:
        start = {"resourceVersion": version or EXISTING}
        self._request = WatchRequest(connection, PODS, SELECTION | start)

    def run(self, began: Callable[[], None], receive: Callable[[PodChange], None]) -> None:
        """Watch until the API server ends the watch."""

        def apply(lines: list[bytes]) -> None:
            for event in events_in(lines):
                receive(change_of(event))

        try:
            self._request.read(apply, began)
        except ApiError as error:
            raise ClusterUnavailable(str(error)[:200]) from error

    def stop(self) -> None:
        """End the watch, from another thread."""
        self._request.stop()


def change_of(event: WatchEvent) -> PodChange:
    """Return an event of a watch as a change."""
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


def manifest_watches(connection_to: Callable[[str], Connection]) -> Sequence[PodWatches]:
    """Return the watches of all kinds that Leeway reads in clusters."""
    return [HttpManifestWatches(connection_to, resource) for resource in READ]


class HttpManifestWatches:
    """The PodWatches Protocol for the manifests of one kind; `connection_to` connects to a
    cluster."""

    def __init__(self, connection_to: Callable[[str], Connection], resource: str) -> None:
        self._connection_to = connection_to
        found = [one for one in KINDS if one.resource == resource and not one.current]
        self._kinds = tuple(reversed(found))

    def watch(self, cluster: str, version: str) -> "HttpManifestWatch":
        """Prepare a watch on the newest version of the kind that the API server has."""
        return HttpManifestWatch(self._connection_to(cluster), self._kinds, version)


class HttpManifestWatch:
    """The PodWatch Protocol."""

    def __init__(self, connection: Connection, kinds: Sequence[Kind], version: str) -> None:
        parameters = {"allowWatchBookmarks": "true", "resourceVersion": version or EXISTING}
        self._requests = [
            (
                kind,
                WatchRequest(
                    connection,
                    f"/apis/{kind.api_version}/{kind.plural}",
                    parameters,
                    accept=_METADATA_ONLY,
                ),
            )
            for kind in kinds
        ]

    def run(self, began: Callable[[], None], receive: Callable[[PodChange], None]) -> None:
        """Watch until the API server ends the watch.

        Raises:
            KindMissing: the API server does not have the kind.
        """
        for kind, request in self._requests:

            def apply(lines: list[bytes], kind: Kind = kind) -> None:
                for event in events_in(lines):
                    receive(_change_of_manifest(kind, event))

            try:
                request.read(apply, began)
            except ApiError as error:
                raise ClusterUnavailable(str(error)[:200]) from error
            except ClusterUnavailable as error:
                if not is_unknown_path(error):
                    raise
            else:
                return
        raise KindMissing(f"the API server has no {self._requests[0][0].plural}")

    def stop(self) -> None:
        """End the watch, from another thread."""
        for _, request in self._requests:
            request.stop()


def _change_of_manifest(kind: Kind, event: WatchEvent) -> PodChange:
    """Return an event of a watch as a change."""
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
