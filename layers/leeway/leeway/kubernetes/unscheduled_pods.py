"""The unscheduled pods of clusters, by watches."""

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.json import Decoder

from leeway.kubernetes.connection import ApiError, Connection
from leeway.kubernetes.list_watch import WatchEvent, WatchRequest, events_in, read_json
from leeway.pod_watch.burst import UnscheduledPod
from leeway.pod_watch.follower import PodChange
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
