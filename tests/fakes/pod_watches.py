"""Watches on the unscheduled pods of clusters, and the queue of the buyer, in memory."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from leeway.pod_watch.burst import ManifestMark, UnscheduledPod
from leeway.pod_watch.follower import PodChange
from leeway.ports.aws import CloudUnavailable
from leeway.ports.kubernetes import WatchExpired

from tests.fakes.provision_queue import ProvisionQueueInMemory


@dataclass
class PodsInMemory:
    """The unscheduled pods of a cluster, with the history of their changes."""

    changes: list[PodChange] = field(default_factory=list)
    first: int = 0  # the oldest version from which a watch may resume
    error: Exception | None = None  # of each watch, at its start
    closes_at_once: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)
    watches: int = 0  # how often a watch was started
    open: int = 0  # watches that run
    ended: int = 0  # how often the watches have come to their end
    expired: int = 0  # watches that asked for a version that is forgotten

    def put(self, pod: UnscheduledPod, gone: bool = False) -> None:
        """Create or change a pod; `gone`: bind or delete it."""
        with self.changed:
            self.changes.append(PodChange(str(len(self.changes) + 1), pod, gone))
            self.changed.notify_all()

    def change(self, uid: str, mark: int, gone: bool = False) -> None:
        """Change or delete a manifest."""
        with self.changed:
            version = str(len(self.changes) + 1)
            self.changes.append(PodChange(version, manifest=ManifestMark(uid, mark), gone=gone))
            self.changed.notify_all()

    def compact(self) -> None:
        """Forget the history."""
        with self.changed:
            self.first = len(self.changes)

    def restore(self, changes: int) -> None:
        """Go back to the state after so many changes, as etcd does with a backup."""
        with self.changed:
            del self.changes[changes:]

    def end_watches(self) -> None:
        """End the watches that run, as the API server does when their time is over. Later changes
        reach only the next ones."""
        with self.changed:
            self.ended += 1
            self.changed.notify_all()

    def wake_watches(self) -> None:
        """Let the watches see a new setting."""
        with self.changed:
            self.changed.notify_all()


@dataclass
class PodWatchesInMemory:
    """Opens watches, as `OpenWatch`."""

    clusters: dict[str, PodsInMemory] = field(default_factory=dict)

    def of(self, cluster: str) -> PodsInMemory:
        return self.clusters.setdefault(cluster, PodsInMemory())

    def __call__(self, cluster: str, version: str) -> "WatchInMemory":
        return WatchInMemory(self.of(cluster), version)


class WatchInMemory:
    """The PodWatch Protocol."""

    def __init__(self, pods: PodsInMemory, version: str) -> None:
        self._pods = pods
        self._version = version
        self._stopped = False

    def run(self, began: Callable[[], None], receive: Callable[[PodChange], None]) -> None:
        with self._pods.changed:
            self._pods.open += 1
            try:
                self._run(began, receive)
            finally:
                self._pods.open -= 1

    def _run(self, began: Callable[[], None], receive: Callable[[PodChange], None]) -> None:
        pods = self._pods
        pods.watches += 1
        if pods.error is not None:
            raise pods.error
        sent, ended = int(self._version or 0), pods.ended
        if self._version and sent < pods.first:
            pods.expired += 1
            raise WatchExpired("410")
        began()
        if not self._version:
            for change in self._existing():
                receive(change)
            sent = len(pods.changes)
        while pods.ended == ended:
            for change in pods.changes[sent:]:
                receive(change)
            sent = max(sent, len(pods.changes))
            if self._stopped or pods.closes_at_once:
                return
            if pods.error is not None:
                raise pods.error
            pods.changed.wait(10)

    def stop(self) -> None:
        self._stopped = True
        self._pods.wake_watches()

    def _existing(self) -> list[PodChange]:
        last: dict[str, PodChange] = {}
        for change in self._pods.changes:
            if (changed := change.pod or change.manifest) is not None:
                last[changed.uid] = change
        return [replace(change) for change in last.values() if not change.gone]


@dataclass
class WakesInMemory(ProvisionQueueInMemory):
    """`failures` is how many of the next calls fail. Calls for the cluster `slow` wait for
    `answers`."""

    failures: int = 0
    slow: str = ""
    answers: threading.Event = field(default_factory=threading.Event)

    def wake(self, cluster: str, why: str, at: datetime | None = None) -> None:
        assert at is None, "the watch wakes at once"
        if self.failures:
            self.failures -= 1
            raise CloudUnavailable("SendMessage: ThrottlingException")
        super().wake(cluster, why)
        if cluster == self.slow:
            self.answers.wait(60)

    def count(self, cluster: str) -> int:
        """Count the wakes of a cluster."""
        return sum(name == cluster for name, _ in self.wakes)
