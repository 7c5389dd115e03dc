"""The states of clusters for provisioning. A warm function reads only the changes."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue

from msgspec import MsgspecError

from leeway.clock import Clock
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.kept_kind import PATHS, KeptKind, UnboundPods
from leeway.kubernetes.transport import within
from leeway.kubernetes.watches import WatchStream
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.kept_objects import KeptObjects

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
