"""Use case: wake the buyer of each cluster with pools, each minute and when pods fit nowhere.

The schedule of each minute starts a run. Every run wakes the buyers once, which finds whatever a
watch missed. One run at a time also watches, for up to 14 minutes; the lease says which.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from leeway.capacity_requests import ProvisionNodes
from leeway.clock import Clock
from leeway.manifests.configuration import POOL, Configuration
from leeway.manifests.in_cluster import Home, home_of
from leeway.parallel import in_parallel
from leeway.pod_watch.follower import PodWatches
from leeway.pod_watch.holding import (
    NO_CLUSTER,
    PODS_NOT_WATCHED,
    PROVISIONING_NOT_WOKEN,
    WATCH_LEASE_UNAVAILABLE,
    Holding,
    LeaseKeeper,
    Periods,
    PodWatchTelemetry,
    WatchMode,
)
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.reasons import Reason, ReasonCode
from leeway.table import Table
from leeway.telemetry import describe_error

LONGEST_WATCH = 14 * 60.0
"""Seconds that a run watches at most: Lambda ends a function after 15 minutes."""

SHORTEST_WATCH = 60.0
"""Seconds. A run with less time does not watch."""

TIME_TO_CLOSE = 30.0
"""Seconds before the function's timeout at which the watches are closed."""

MINUTE_SCHEDULE = "The schedule of each minute."

CLUSTERS_AT_ONCE = 32

POOLS_NOT_READ = ReasonCode(
    "PoolsNotRead",
    "The pools of cluster {cluster} can't be read: {error}.",
    "pods-are-not-watched",
)


@dataclass(frozen=True, slots=True)
class WatchReport:
    """One run: `woken` are the clusters whose buyer it woke at its start, `watched` those that it
    watched from then on, `reason` is why it ended or did not watch."""

    woken: tuple[str, ...]
    watched: tuple[str, ...]
    reason: Reason


class WatchPods:
    """Runs once a minute. `new_id` creates the id of a run."""

    def __init__(
        self,
        mode_of: Callable[[str], WatchMode],
        watches: PodWatches,
        of_manifests: Sequence[PodWatches],
        table: Table,
        provisioning: ProvisionNodes,
        telemetry: PodWatchTelemetry,
        clock: Clock,
        new_id: Callable[[], str],
        periods: Periods | None = None,
    ) -> None:
        self._mode_of_cluster = mode_of
        self._watches = watches
        self._of_manifests = of_manifests
        self._table = table
        self._provisioning = provisioning
        self._telemetry = telemetry
        self._clock = clock
        self._new_id = new_id
        self._periods = periods or Periods()

    def run(self, clusters: Sequence[str], seconds: float) -> WatchReport:
        """Wake the buyers, and watch if no other run does; `seconds` is how long the function may
        still run."""
        ends_at = time.monotonic() + min(LONGEST_WATCH, seconds - TIME_TO_CLOSE)
        modes = self._modes_of(clusters)
        pools = [name for name, mode in modes.items() if mode is not WatchMode.NOT_AT_ALL]
        answers = in_parallel(self._wake, pools, CLUSTERS_AT_ONCE)
        woken = tuple(name for name, was in zip(pools, answers, strict=True) if was)
        watched = tuple(name for name, mode in modes.items() if mode.watches)
        problems = len(clusters) - len(modes) + len(pools) - len(woken)
        keeper, reason = self._take_lease(watched, ends_at)
        problems += reason.code == WATCH_LEASE_UNAVAILABLE.name
        self._telemetry.watch_problems(problems)
        if keeper is None:
            return WatchReport(woken, (), reason)
        self._telemetry.tell(reason, clusters=len(watched))
        ended = Holding(
            self._watches,
            self._of_manifests,
            self._provisioning,
            keeper,
            partial(self._modes_of, clusters),
            self._telemetry,
            ends_at,
            self._periods,
        ).run(modes)
        self._telemetry.tell(ended)
        return WatchReport(woken, watched, ended)

    def _take_lease(
        self, watched: Sequence[str], ends_at: float
    ) -> tuple[LeaseKeeper | None, Reason]:
        """Take the lease if there is something to watch; None if this run does not watch."""
        remaining = ends_at - time.monotonic()
        if not watched:
            return None, PODS_NOT_WATCHED(why=NO_CLUSTER)
        if remaining < SHORTEST_WATCH:
            left = round(remaining + TIME_TO_CLOSE)
            why = f"the function has {left} s left, which is too short. Raise its timeout"
            return None, PODS_NOT_WATCHED(why=why)
        watches_for = timedelta(seconds=remaining)
        keeper = LeaseKeeper(self._table, self._clock, self._new_id(), watches_for)
        try:
            decision = keeper.take()
        except (CloudUnavailable, CloudRefused) as error:
            consequence = "The next run retries it."
            reason = WATCH_LEASE_UNAVAILABLE(error=describe_error(error), consequence=consequence)
            self._telemetry.watch_problem("", reason)
            return None, reason
        return keeper if decision.takes else None, decision.reason

    def _modes_of(self, clusters: Sequence[str]) -> Mapping[str, WatchMode]:
        """Read the modes of clusters, without those that can't be read."""
        found = in_parallel(self._mode_of, list(clusters), CLUSTERS_AT_ONCE)
        return {name: mode for name, mode in zip(clusters, found, strict=True) if mode is not None}

    def _mode_of(self, cluster: str) -> WatchMode | None:
        try:
            return self._mode_of_cluster(cluster)
        except (CloudUnavailable, CloudRefused) as error:
            reason = POOLS_NOT_READ(cluster=cluster, error=describe_error(error))
            self._telemetry.watch_problem(cluster, reason)
            return None

    def _wake(self, cluster: str) -> bool:
        try:
            self._provisioning.wake(cluster, MINUTE_SCHEDULE)
        except (CloudUnavailable, CloudRefused) as error:
            reason = PROVISIONING_NOT_WOKEN(cluster=cluster, error=describe_error(error))
            self._telemetry.watch_problem(cluster, reason)
            return False
        return True


def mode_of(configuration: Configuration, table: Table, cluster: str) -> WatchMode:
    """Return the mode of a cluster, by its manifests at most a minute ago. A pool whose manifest is
    invalid can launch nothing, and does not count. Deleted pools may have left nodes, which are
    given back. Manifests in the API server are watched before there is a pool.

    Raises:
        CloudUnavailable, CloudRefused: its manifests have never been read.
    """
    if home_of(table, cluster).home is Home.CLUSTER:
        watches = configuration.policy_of(cluster).watches_pods
        return WatchMode.WITH_MANIFESTS if watches else WatchMode.BY_THE_MINUTE
    if not configuration.manifests(cluster, (POOL,)):
        deleted = configuration.has_deleted(cluster, (POOL,))
        return WatchMode.BY_THE_MINUTE if deleted else WatchMode.NOT_AT_ALL
    watches = configuration.policy_of(cluster).watches_pods
    return WatchMode.BY_WATCH if watches else WatchMode.BY_THE_MINUTE
