"""The states of clusters for provisioning: the objects of each kind are listed once, then changed
by the events of watches. A warm function reads only the changes.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from http.client import NOT_FOUND
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import MsgspecError, Raw, Struct, field
from msgspec.json import Decoder

from leeway.clock import Clock
from leeway.kubernetes.connection import (
    ApiError,
    Connection,
    is_unknown_path,
    raise_for_status,
    without_nulls,
)
from leeway.kubernetes.list_watch import (
    PAGE,
    ListMeta,
    ObjectList,
    WatchEvent,
    WatchStream,
    list_pages,
    read_json,
)
from leeway.kubernetes.transport import within
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused, ClusterUnavailable
from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.kept_objects import KINDS, KeptObjects, key_in
from leeway.selection.reading.objects import Document, bound_node, is_finished
from leeway.selection.reading.schemas import SCHEMAS

PATHS = {
    "Pod": "/api/v1/pods",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "LimitRange": "/api/v1/limitranges",
    "Node": "/api/v1/nodes",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}
"""The kinds in the order of their lists. Pods are first: a pod that is bound to a newer node still
counts as waiting, and the node as empty. In the other order, a node would be missing whose pods do
not wait any more.
"""

OPTIONAL = frozenset({"NodeClaim"})
"""Kinds that a cluster may not have. Provisioning works without them."""

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

# In one thread, on import: see leeway.kubernetes.list_watch.
_DECODERS: Mapping[str, Decoder[Any]] = {kind: Decoder(SCHEMAS[kind]) for kind in sorted(KINDS)}


class _Metadata(Struct):
    name: str
    namespace: str = ""
    resource_version: str = field(name="resourceVersion", default="")


class _Named(Struct):
    metadata: _Metadata


class _Bookmark(Struct):
    metadata: ListMeta


class _Termination(Struct):
    finished_at: datetime | None = field(name="finishedAt", default=None)


class _ContainerState(Struct):
    terminated: _Termination | None = None


class _Container(Struct):
    state: _ContainerState | None = None


class _Containers(Struct):
    statuses: list[_Container] | None = field(name="containerStatuses", default=None)


class _Deletion(Struct):
    timestamp: datetime | None = field(name="deletionTimestamp", default=None)


class _EndedPod(Struct):
    metadata: _Deletion
    status: _Containers | None = None


_PAGES = Decoder(ObjectList[Raw])
_NAMED_PAGES = Decoder(ObjectList[_Named])
_EVENTS, _BOOKMARKS, _NAMES = Decoder(WatchEvent), Decoder(_Bookmark), Decoder(_Named)
_ANY = Decoder(dict[str, Any])
_ENDED_PODS = Decoder(_EndedPod)


class _Missing(ClusterUnavailable):
    """The API server does not have the kind."""


class KeptKind:
    """The objects of `kind`, which it puts into `objects`.

    `version` is the resource version up to which all changes are known; None before a list, or if a
    watch can't go on from there. Resource versions of one kind are compared as numbers. Source:
    Kubernetes API, "Resource versions" (comparable since 1.35; etcd's revisions before). If an API
    server has others, the objects are listed each time. `absent`: the API server does not have the
    kind, or no role lets Leeway read it.
    """

    def __init__(self, kind: str, objects: KeptObjects) -> None:
        self.path = PATHS[kind]
        self.version: int | None = None
        self.absent = False
        self._kind = kind
        self._decoder = _DECODERS[kind]
        self._objects = objects
        self._unbound: dict[str, str] = {}

    def list_all(self, connection: Connection) -> None:
        """List all objects. Errors of an optional kind are noted among the objects.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        if self.absent:
            return
        self.version = None
        try:
            self._list_kind(connection)
        except (ClusterUnavailable, ClusterRefused) as error:
            if self._kind not in OPTIONAL:
                raise
            # A missing right is no problem: the API server checks it before it knows the kind.
            self.absent = isinstance(error, _Missing | ClusterForbidden)
            for key in self._objects.keys(self._kind):
                self._remove(key)
            if not self.absent:
                self._objects.note_unreadable(self._kind, str(error))

    def _list_kind(self, connection: Connection) -> None:
        try:
            version = connection.call(self._list)
        except ApiError as error:
            missing = error.response.status_code == NOT_FOUND
            raise (_Missing if missing else ClusterUnavailable)(str(error)) from error
        except ClusterUnavailable as error:
            if is_unknown_path(error):
                raise _Missing(str(error)) from error
            raise
        self.version = _number(version)

    def _list(self, connection: Connection) -> str:
        listed: set[str] = set()
        version = ""
        for first, page in list_pages(partial(self._list_page, connection), {}, PAGE):
            if first:
                listed = set()
            listed.update(self._put(raw) for raw in page.items)
            version = page.metadata.resourceVersion
        for key in self._objects.keys(self._kind):
            if key not in listed:
                self._remove(key)
        return version

    def _list_page(self, connection: Connection, parameters: dict[str, str]) -> ObjectList[Raw]:
        response = connection.plain.request("GET", self.path, params=parameters)
        raise_for_status(response)
        page = read_json(response.content, _PAGES)
        if page.kind != f"{self._kind}List":
            raise ValueError(f"expected a {self._kind}List, got {page.kind[:60]}")
        return page

    def apply(self, lines: Sequence[bytes]) -> None:
        """Apply events of a watch. Events up to `version` are known already: they are ignored.

        Raises:
            ClusterUnavailable: the watch sent an error, for example because its start is too old.
            MsgspecError, ValueError: an event can't be read.
        """
        for line in lines:
            event = _EVENTS.decode(line)
            if event.type == "ERROR":
                raise ClusterUnavailable(f"watch: {bytes(event.object)[:200]!r}")
            if event.type == "BOOKMARK":
                bookmark = read_json(event.object, _BOOKMARKS)
                self._advance(bookmark.metadata.resourceVersion)
                continue
            named = read_json(event.object, _NAMES)
            if not self._advance(named.metadata.resource_version):
                continue
            if event.type == "DELETED":
                self._remove(key_in(self._kind, _identity(named)), event.object)
            else:
                self._put(event.object)

    def _advance(self, version: str) -> bool:
        number = _number(version)
        if number is None or self.version is None:
            raise ValueError(f"expected a resource version, got {version[:60]!r}")
        if number <= self.version:
            return False
        self.version = number
        return True

    def _put(self, raw: Raw) -> str:
        try:
            document = read_json(raw, self._decoder)
        except MsgspecError as error:
            document = _loosely(raw)
            self._objects.put_unreadable(self._kind, document, str(error))
        else:
            ended_at = _ended_at(raw) if self._is_finished_pod(document) else None
            self._objects.put(self._kind, document, ended_at)
        key = key_in(self._kind, document)
        if self._kind == "Pod":
            self._unbound.pop(key, None)
            if not bound_node(document):
                self._unbound[key] = str(document["metadata"].get("resourceVersion") or "")
        return key

    def _remove(self, key: str, last: Raw | None = None) -> None:
        self._unbound.pop(key, None)
        ended_at = _ended_at(last) if last is not None and self._kind == "Pod" else None
        self._objects.remove(self._kind, key, ended_at)

    def _is_finished_pod(self, document: Document) -> bool:
        return self._kind == "Pod" and is_finished(document)

    def is_current(self, unbound: "UnboundPods", quiet: bool) -> bool:
        """Whether all events up to a list of the pods without a node are applied: a newer one is,
        or the watch is `quiet` and the same pods have no node."""
        if self.version is not None and unbound.version <= self.version:
            return True
        return quiet and self._unbound == unbound.versions


class UnboundPods:
    """The resource versions of all pods without a node by `namespace/name`, and the version of the
    list. The API server reads at least the state at the time of the request."""

    def __init__(self, connection: Connection) -> None:
        """Read them.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        self.versions: dict[str, str] = {}
        self.version = 0
        try:
            connection.call(self._read)
        except ApiError as error:
            raise ClusterUnavailable(str(error)) from error

    def _read(self, connection: Connection) -> None:
        selection = {"fieldSelector": "spec.nodeName="}
        for first, page in list_pages(partial(self._read_page, connection), selection, 10 * PAGE):
            if first:
                self.versions.clear()
            for item in page.items:
                key = key_in("Pod", _identity(item))
                self.versions[key] = item.metadata.resource_version
            self.version = _number(page.metadata.resourceVersion) or 0

    def _read_page(self, connection: Connection, parameters: dict[str, str]) -> ObjectList[_Named]:
        response = connection.plain.request(
            "GET", PATHS["Pod"], params=parameters, headers={"Accept": _METADATA_ONLY}
        )
        raise_for_status(response)
        return read_json(response.content, _NAMED_PAGES)


def _ended_at(pod: Raw) -> datetime | None:
    """Return when the last container of a pod ended, or, if that is not known, when the pod was to
    end; None without both."""
    try:
        ended = read_json(pod, _ENDED_PODS)
    except MsgspecError:
        return None
    statuses = (ended.status.statuses if ended.status else None) or ()
    terminated = (one.state.terminated if one.state else None for one in statuses)
    times = [one.finished_at if one else None for one in terminated]
    known = [at for at in times if at is not None and at.tzinfo is not None]
    if known and len(known) == len(times):
        return max(known)
    deletion = ended.metadata.timestamp
    return deletion if deletion is not None and deletion.tzinfo is not None else None


def _identity(named: _Named) -> Document:
    return {"metadata": {"name": named.metadata.name, "namespace": named.metadata.namespace}}


def _number(version: str) -> int | None:
    """Return a resource version as a number; None if it is not a decimal number above zero."""
    is_number = version.isascii() and version.isdecimal() and not version.startswith("0")
    return int(version) if is_number and len(version) <= 30 else None


def _loosely(raw: Raw) -> Document:
    """Read an object that does not have the shape of its kind: its metadata that is text, and its
    spec and status, whose fields may be of any shape.

    Raises:
        MsgspecError: it is no object with a name.
    """
    named = read_json(raw, _NAMES)
    document: dict[str, Any] = without_nulls(_ANY.decode(raw))
    status = document.get("status")
    spec = document.get("spec")
    metadata = {k: v for k, v in document["metadata"].items() if isinstance(v, str)}
    phase = status.get("phase") if isinstance(status, dict) else None
    return {
        "metadata": {**metadata, **_identity(named)["metadata"]},
        "spec": spec if isinstance(spec, dict) else {},
        "status": {"phase": phase if isinstance(phase, str) else ""},
    }


LIST_SECONDS = 60.0
"""Timeout of all lists of one read together."""

CATCH_UP_SECONDS = 3.0
"""How long watches may take to reach the present. Kinds that have not are listed."""

QUIET_SECONDS = 0.05
"""A watch that sends nothing for this long has sent its backlog."""

LONGEST_SECONDS = 0.5
"""How long a watch of another kind than pods is read if it is never quiet. Its backlog is sent at
once, so what follows happens now; the next read goes on from there."""

STOP_SECONDS = 1.0
"""How long a read waits for the threads of its watches. A thread that still connects ends alone."""

LIST_AGAIN_AFTER = timedelta(minutes=15)
"""How long objects are kept without a list, in case an event is lost."""

MOST_KEPT = 150_000
"""How many pods and nodes of all clusters are kept between reads."""


_MOST_MESSAGES = 1000
"""How many messages are applied before the time is checked."""


class KubernetesClusterStates:
    """The ClusterStates Protocol. `connect` returns the connection to a cluster, and the same one
    while its API server is the same.

    A read of a cluster that is known resumes a watch of each kind where the last read ended. A
    watch does not say when it has reached the present. So the pods without a node are listed as
    well, with their names and versions only: the watch has reached the time of this list when it
    has the same ones, or a newer event. Then every pod that was bound before the list is on its
    node. A deletion that is a few milliseconds old may be missing: the next read has it.

    Safe for several threads; reads run one at a time.
    """

    def __init__(self, connect: Callable[[str], Connection], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, _KeptCluster] = {}

    def read(self, cluster: str) -> ClusterState:
        """Read the current state of a cluster.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        connection = self._connect(cluster)
        with self._lock:
            # Nothing is kept after an unexpected error: the next read lists everything.
            kept = self._kept.pop(cluster, None)
            now = self._clock.now()
            if kept is None or kept.connection is not connection or kept.is_old(now):
                kept = _KeptCluster(connection, now)
            try:
                with within(LIST_SECONDS):
                    kept.catch_up()
            except (ClusterUnavailable, ClusterRefused):
                self._keep(cluster, kept)
                raise
            state = kept.objects.state(now)
            self._keep(cluster, kept)
            return state

    def _keep(self, cluster: str, kept: "_KeptCluster") -> None:
        """Keep a cluster; forget those that were read least recently."""
        self._kept[cluster] = kept
        while len(self._kept) > 1 and sum(len(k.objects) for k in self._kept.values()) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]


class _KeptCluster:
    """The objects of one cluster, and where their watches go on."""

    def __init__(self, connection: Connection, listed_at: datetime) -> None:
        self.connection = connection
        self.objects = KeptObjects()
        self._listed_at = listed_at
        self._kinds = {kind: KeptKind(kind, self.objects) for kind in PATHS}

    def is_old(self, now: datetime) -> bool:
        """Whether everything is to be listed again."""
        return now - self._listed_at > LIST_AGAIN_AFTER

    def catch_up(self) -> None:
        """Read the changes up to now: by watches, or by lists of kinds without a watch.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        watched = {name: kind for name, kind in self._kinds.items() if kind.version is not None}
        known = max((kind.version or 0 for kind in watched.values()), default=0)
        current: set[str] = set()
        if watched:
            with _Watches(self.connection, watched) as watches:
                unbound = UnboundPods(self.connection)
                # An older version than a known one: etcd was restored from a backup. The watches
                # are silent until the API server has come to their versions, so all are lists.
                if unbound.version >= known:
                    current = watches.read_until_current(unbound)
        for name, kind in self._kinds.items():
            if name not in current:
                kind.list_all(self.connection)


@dataclass(slots=True)
class _Progress:
    """A watch that runs: when the API server accepted it, and when it sent something; None before
    that. `ended` says that it sends nothing more."""

    started: float | None = None
    active: float = 0.0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class _Started:
    kind: str


@dataclass(frozen=True, slots=True)
class _Received:
    kind: str
    lines: list[bytes]


@dataclass(frozen=True, slots=True)
class _Ended:
    kind: str
    error: Exception | None


class _Watches:
    """The watches of several kinds, one thread each."""

    def __init__(self, connection: Connection, kinds: Mapping[str, KeptKind]) -> None:
        self._connection = connection
        self._kinds = kinds
        self._messages: SimpleQueue[_Started | _Received | _Ended] = SimpleQueue()
        self._progress = {kind: _Progress() for kind in kinds}
        self._streams: list[WatchStream] = []

    def __enter__(self) -> "_Watches":
        for name, kind in self._kinds.items():
            self._streams.append(self._watch(name, kind))
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.stop()
        until = time.monotonic() + STOP_SECONDS
        for stream in self._streams:
            stream.join(max(0.0, until - time.monotonic()))

    def _watch(self, name: str, kind: KeptKind) -> WatchStream:
        put = self._messages.put
        return WatchStream(
            self._connection,
            kind.path,
            {"resourceVersion": str(kind.version), "allowWatchBookmarks": "true"},
            receive=lambda _, lines: put(_Received(name, lines)),
            ended=lambda _, error: put(_Ended(name, error)),
            started=lambda _: put(_Started(name)),
            seconds=2 * CATCH_UP_SECONDS,
        )

    def read_until_current(self, unbound: UnboundPods) -> set[str]:
        """Apply events until each kind is current or its watch fails; return the current kinds."""
        until = time.monotonic() + CATCH_UP_SECONDS
        reading, current = set(self._kinds), set[str]()
        while reading and time.monotonic() < until:
            reading -= self._apply_messages()
            done = {kind for kind in reading if self._is_current(kind, unbound)}
            current |= done
            reading -= done
        return current

    def _apply_messages(self) -> set[str]:
        """Wait for a message, and apply all that have arrived; return the kinds that failed."""
        failed = set()
        wait: float | None = QUIET_SECONDS / 5
        with suppress(Empty):
            for _ in range(_MOST_MESSAGES):
                message = self._messages.get(block=wait is not None, timeout=wait)
                wait = None
                if not self._apply(message):
                    failed.add(message.kind)
        return failed

    def _apply(self, message: _Started | _Received | _Ended) -> bool:
        progress = self._progress[message.kind]
        progress.active = time.monotonic()
        if isinstance(message, _Started):
            progress.started = progress.active
        elif isinstance(message, _Ended):
            progress.ended = True
            return message.error is None and progress.started is not None
        else:
            try:
                self._kinds[message.kind].apply(message.lines)
            except (ClusterUnavailable, MsgspecError, ValueError):
                return False
        return True

    def _is_current(self, kind: str, unbound: UnboundPods) -> bool:
        progress, now = self._progress[kind], time.monotonic()
        if progress.started is None:
            return False
        quiet = progress.ended or now - progress.active >= QUIET_SECONDS
        if kind == "Pod":
            return self._kinds[kind].is_current(unbound, quiet)
        return quiet or now - progress.started >= LONGEST_SECONDS
