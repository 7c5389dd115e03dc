"""The Protocols of pod watches."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from leeway.pod_watch.lease import Lease
from leeway.pod_watch.pods import UnscheduledPod


@dataclass(frozen=True, slots=True)
class PodChange:
    """One event of a watch: `version` is the place from which a later watch resumes.

    - `pod`: the pod; None if the event only announces a version.
    - `gone`: the pod is bound to a node or deleted.
    """

    version: str
    pod: UnscheduledPod | None = None
    gone: bool = False


class PodWatch(Protocol):
    """One watch on the unscheduled pods of a cluster."""

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


class PodWatches(Protocol):
    """Watches on the unscheduled pods of clusters."""

    def watch(self, cluster: str, version: str) -> PodWatch:
        """Prepare a watch that continues after a version. Without a version it reports first all
        unscheduled pods that exist.

        Raises:
            CloudUnavailable, CloudRefused: the endpoint of the cluster can't be read.
        """
        ...


class Leases(Protocol):
    """The lease in the table. Every method may raise CloudUnavailable or CloudRefused."""

    def read(self) -> Lease | None:
        """Read the lease consistently; None if there is none."""
        ...

    def write(self, lease: Lease) -> None:
        """Write a lease whose `version` is one above the stored one (1: there is none).

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...


class WatchMode(StrEnum):
    """How pending pods of a cluster are found."""

    NOT_AT_ALL = "not-at-all"
    """It has no pool, so nothing can be launched."""
    BY_THE_MINUTE = "by-the-minute"
    """By the schedule of each minute only, as the Cluster manifest says."""
    BY_WATCH = "by-watch"


class WatchModes(Protocol):
    """How clusters are configured, at most a minute ago."""

    def mode_of(self, cluster: str) -> WatchMode:
        """Return the mode of a cluster.

        Raises:
            CloudUnavailable, CloudRefused: its manifests have never been read.
        """
        ...
