"""Keeps a watch on one cluster open in a thread of its own, whatever its API server does."""

import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from leeway.pod_watch.burst import ManifestMark, UnscheduledPod
from leeway.ports.kubernetes import ClusterUnavailable, WatchExpired


@dataclass(frozen=True, slots=True)
class PodChange:
    """One event of a watch: `version` is the place from which a later watch resumes.

    - `pod`, `manifest`: what has changed; None if the event only announces a version.
    - `gone`: the pod is bound to a node or deleted; the manifest is deleted.
    """

    version: str
    pod: UnscheduledPod | None = None
    gone: bool = False
    manifest: ManifestMark | None = None


class KindMissing(ClusterUnavailable):
    """The API server does not have the kind that is to be watched."""


class PodWatch(Protocol):
    """One watch on the unscheduled pods of a cluster, or on its manifests of one kind."""

    def run(self, began: Callable[[], None], receive: Callable[[PodChange], None]) -> None:
        """Watch until the API server ends the watch; call `began` when it has accepted it.

        Raises:
            WatchExpired: the version is too old; a watch without a version begins again.
            ClusterUnavailable, ClusterRefused: the API server failed, or refused.
        """
        ...

    def stop(self) -> None:
        """End the watch, from another thread."""
        ...


type OpenWatch = Callable[[str, str], PodWatch]
"""Prepares a watch on a cluster that continues after a version: on its unscheduled pods, or on its
manifests of one kind. With an empty version the watch reports first what exists. Raises
CloudUnavailable or CloudRefused if the endpoint of the cluster can't be read."""


@dataclass(frozen=True, slots=True)
class WatchBegan:
    """The API server accepted a watch. `fresh`: it repeats all existing pods."""

    follower: "Follower"
    fresh: bool


@dataclass(frozen=True, slots=True)
class WatchHealthy:
    """A watch lasted as long as it should."""

    follower: "Follower"


@dataclass(frozen=True, slots=True)
class WatchInterrupted:
    """A watch failed, or the API server closed it early."""

    follower: "Follower"
    error: Exception


@dataclass(frozen=True, slots=True)
class PodReceived:
    """A watch sent a change."""

    follower: "Follower"
    change: PodChange


type FollowerMessage = WatchBegan | WatchHealthy | WatchInterrupted | PodReceived


class ClosedEarly(Exception):
    """The API server, or a proxy before it, closed a watch long before its time."""


class Follower:
    """Follows what one watch on a cluster reports, and sends messages, in its own thread.

    A watch resumes after the last version that it received. It begins from nothing if that version
    has expired, after a watch that was too short to have delivered anything for sure, and after one
    that sent nothing at all, not even a bookmark: if etcd was restored from a backup, the version
    is still to come, and the API server is silent until then.
    """

    def __init__(
        self, cluster: str, open_watch: OpenWatch, send: Callable[[FollowerMessage], None]
    ) -> None:
        self.cluster = cluster
        self._open_watch = open_watch
        self._send = send
        self._version = ""
        self._has_received = False
        self._failures = 0
        self._began_at = math.inf
        self._watch: PodWatch | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {cluster}", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch; the thread ends soon after."""
        self._stopped.set()
        if self._watch is not None:
            self._watch.stop()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended. A thread that still connects ends at its timeout
        instead, and sends no more messages."""
        self._thread.join(max(seconds, 0.0))

    def _run(self) -> None:
        while not self._stopped.is_set():
            error = self._watch_once()
            if self._stopped.is_set():
                return
            expired, healthy = isinstance(error, WatchExpired), self._lasted() >= HEALTHY_AFTER
            self._failures = 0 if healthy else self._failures + 1
            if expired or not healthy or not self._has_received:
                self._version = ""
            if healthy:
                self._send(WatchHealthy(self))
            elif not expired or self._failures > 1:
                closed = ClosedEarly("the API server or a proxy closed it at once")
                self._send(WatchInterrupted(self, error or closed))
            self._stopped.wait(pause_after(self._failures, random.random()))  # noqa: S311

    def _lasted(self) -> float:
        return time.monotonic() - self._began_at

    def _watch_once(self) -> Exception | None:
        """Watch until the watch ends; return the error that ended it."""
        self._began_at, self._has_received = math.inf, False
        try:
            self._watch = self._open_watch(self.cluster, self._version)
            if self._stopped.is_set():  # `stop` came before there was a watch to end
                return None
            self._watch.run(self._begin, self._receive)
        except Exception as error:  # noqa: BLE001 (reported; the other clusters go on)
            return error
        return None

    def _begin(self) -> None:
        self._began_at = time.monotonic()
        self._send(WatchBegan(self, fresh=not self._version))

    def _receive(self, change: PodChange) -> None:
        if self._stopped.is_set():
            return
        self._version, self._has_received = change.version or self._version, True
        self._send(PodReceived(self, change))


HEALTHY_AFTER = 10.0
"""Seconds that a watch must last to count as healthy. A reverse proxy may close each watch at once,
and must not be asked again at once."""

FIRST = 1.0

LONGEST = 30.0
"""Seconds: the pause doubles with each failure up to this, half of what the minute's schedule
leaves a pod to wait."""


def pause_after(failures: int, fraction: float) -> float:
    """Return the seconds to wait after consecutive failures; none after a healthy watch.

    `fraction` is a random number from 0 to 1: half of the pause is random, so that watches which
    failed together do not return together.
    """
    if failures < 1:
        return 0.0
    longest = min(LONGEST, FIRST * 2.0 ** min(failures - 1, 10))
    return longest * (0.5 + fraction / 2)
