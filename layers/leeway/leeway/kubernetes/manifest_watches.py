"""Watches on the manifests of clusters, as metadata only: a watch says that a manifest has changed,
and whoever acts on it reads the manifests.

A manifest counts as changed if its users change it: its generation, its labels or its annotations.
A status is none of these, so what Leeway and Karpenter write does not come back as a change.
"""

import zlib
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.json import Decoder, encode

from leeway.kubernetes.connection import ApiError, Connection, is_unknown_path
from leeway.kubernetes.list_watch import WatchEvent, WatchRequest, events_in, read_json
from leeway.kubernetes.unscheduled_pods import EXISTING
from leeway.manifests.in_cluster import READ, is_read
from leeway.manifests.reading import KINDS, Kind
from leeway.pod_watch.burst import ManifestMark
from leeway.pod_watch.follower import KindMissing, PodChange, PodWatches
from leeway.ports.kubernetes import ClusterUnavailable

_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class _Metadata(Struct):
    uid: str = ""
    version: str = field(name="resourceVersion", default="")
    generation: int = 0
    deletion: str | None = field(name="deletionTimestamp", default=None)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class _Object(Struct):
    metadata: _Metadata


_DECODER = Decoder(_Object)  # built on import, by one thread: see leeway.kubernetes.list_watch


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
                    receive(change_of(kind, event))

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


def change_of(kind: Kind, event: WatchEvent) -> PodChange:
    """Return an event of a watch as a change."""
    found = read_json(event.object, _DECODER).metadata
    if event.type == "BOOKMARK":
        return PodChange(found.version)
    gone = event.type == "DELETED" or not _is_read(kind, found)
    seen = [found.generation, found.deletion, sorted(found.labels.items())]
    mark = zlib.crc32(encode([*seen, sorted(found.annotations.items())]))
    return PodChange(found.version, manifest=ManifestMark(found.uid, mark), gone=gone)


def _is_read(kind: Kind, found: _Metadata) -> bool:
    marks = {"labels": found.labels, "annotations": found.annotations}
    return is_read(kind, {"metadata": marks})
