"""Keeps a watch on one cluster open in a thread of its own, whatever its API server does."""

import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from leeway.pod_watch.pauses import HEALTHY_AFTER, pause_after
from leeway.pod_watch.ports import PodChange, PodWatch, PodWatches
from leeway.ports.kubernetes import WatchExpired


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
    """Follows the unscheduled pods of a cluster, and sends messages, in its own thread.

    A watch resumes after the last version that it received. It begins from nothing if that version
    has expired, after a watch that was too short to have delivered anything for sure, and after one
    that sent nothing at all, not even a bookmark: if etcd was restored from a backup, the version
    is still to come, and the API server is silent until then.
    """

    def __init__(
        self, cluster: str, watches: PodWatches, send: Callable[[FollowerMessage], None]
    ) -> None:
        self.cluster = cluster
        self._watches = watches
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
            self._watch = self._watches.watch(self.cluster, self._version)
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
