"""Use case: wake the buyer of each cluster with pools, each minute and when pods fit nowhere.

The schedule of each minute starts a run. Every run wakes the buyers once, which finds whatever a
watch missed. One run at a time also watches, for up to 14 minutes; the lease says which.

One thread of it decides; threads of clusters, and of calls to AWS, put messages into its inbox. So
no cluster, and no slow call, delays the others.

The lease avoids double work, and nothing relies on it for safety: if two runs watch the same
cluster, the buyer is woken twice and finds nothing to do the second time. So every doubt is decided
for watching: a gap costs pods a minute, an overlap costs cents.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from queue import Empty, SimpleQueue
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.capacity_requests import ProvisionNodes
from leeway.clock import Clock
from leeway.manifests.configuration import POOL, Configuration
from leeway.manifests.in_cluster import Home, home_of
from leeway.parallel import in_parallel
from leeway.pod_watch.burst import ManifestBursts, PodBursts
from leeway.pod_watch.follower import (
    Follower,
    FollowerMessage,
    KindMissing,
    OpenWatch,
    PodReceived,
    WatchBegan,
    WatchHealthy,
    WatchInterrupted,
)
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes import ClusterRefused
from leeway.reasons import Reason, ReasonCode, counted
from leeway.table import Record, RecordChanged, Table
from leeway.telemetry import Telemetry, describe_error


class Lease(BaseModel):
    """The lease.

    - `holder`: the id of the run that watches.
    - `renewed_at`: its last sign of life.
    - `ends_at`: when it will end by itself, because the function's time is over.
    - `watching`: whether it watches all of its clusters, except those that do not answer.
    - `version`: counts writes (the optimistic lock).
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    holder: str
    renewed_at: AwareDatetime
    ends_at: AwareDatetime
    watching: bool = False
    version: Annotated[int, Field(ge=1)] = 1

    def is_alive(self, now: datetime) -> bool:
        """Return whether its holder still runs. A renewal in the future comes from a wrong clock
        and proves nothing: it must not keep others from watching."""
        return abs(now - self.renewed_at) < LASTS


PODS_WATCHED = ReasonCode("PodsWatched", "This run watches pods: {why}.")
PODS_NOT_WATCHED = ReasonCode("PodsNotWatched", "This run does not watch pods: {why}.")
WATCH_LEASE_UNAVAILABLE = ReasonCode(
    "WatchLeaseUnavailable",
    "The lease of the pod watches can't be read or written: {error}. {consequence}",
    "pods-are-not-watched",
)

LASTS = timedelta(seconds=45)
"""A holder that has not renewed its lease for this long counts as dead: three renewals."""

HANDOVER = timedelta(seconds=120)
"""How long before the end of a holder the next run takes over. The schedule starts a run each
minute, so one start may fail or be throttled."""


LEASE = Record(Lease, "LEASE#watch_pods", "LEASE", versioned=True, kept_for=timedelta(days=1))


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Whether a run that has just started takes the lease."""

    takes: bool
    reason: Reason


def decide_start(lease: Lease | None, holder: str, now: datetime) -> StartDecision:
    """Decide whether the new run `holder` watches; `lease` is None if none is stored. The stored
    lease may be its own: the answer to its write was lost."""
    if lease is None:
        return StartDecision(True, PODS_WATCHED(why="no run has watched before"))
    if lease.holder == holder:
        return StartDecision(True, PODS_WATCHED(why="it holds the lease"))
    if not lease.is_alive(now):
        why = f"run {lease.holder} renewed the lease last at {lease.renewed_at:%H:%M:%S}"
        return StartDecision(True, PODS_WATCHED(why=why))
    other = f"run {lease.holder} watches them until {lease.ends_at:%H:%M:%S}"
    takes = lease.ends_at - now <= HANDOVER
    return StartDecision(takes, (PODS_WATCHED if takes else PODS_NOT_WATCHED)(why=other))


class Renewal(StrEnum):
    """What a run that watches does: RENEW writes its own lease, WAIT and END do not."""

    RENEW = "renew"
    WAIT = "wait"
    END = "end"


def decide_renewal(stored: Lease | None, holder: str, now: datetime) -> Renewal:
    """Decide how the run `holder` goes on after it found another lease than its own last one. It
    ends only when another living run watches all clusters."""
    if stored is None or stored.holder == holder or not stored.is_alive(now):
        return Renewal.RENEW
    return Renewal.END if stored.watching else Renewal.WAIT


TRIES = 5
"""How often a conditional write is decided again after another run has written."""


class LeaseKeeper:
    """Keeps the lease of the run `holder`, which ends after `watches_for`.

    Call it from one thread at a time. Its methods raise CloudUnavailable and CloudRefused.
    """

    def __init__(self, table: Table, clock: Clock, holder: str, watches_for: timedelta) -> None:
        self._table = table
        self._clock = clock
        self._holder = holder
        self._ends_at = clock.now() + watches_for
        self._version = 0  # of the lease that this run may replace

    def take(self) -> StartDecision:
        """Take the lease if it is free, expired, or about to be handed over. Of runs that start
        together one takes it: the others decide again and find it taken."""
        decision = self._decide_start()
        for _ in range(TRIES):
            if not decision.takes or self._write(watching=False):
                break
            decision = self._decide_start()
        return decision

    def renew(self, watching: bool) -> Renewal:
        """Renew the lease, or decide how to go on if another run has taken it."""
        if self._write(watching):
            return Renewal.RENEW
        stored = self._table.get(LEASE)
        renewal = decide_renewal(stored, self._holder, self._clock.now())
        # Only then: with the version of a successor's lease the next write would overwrite it.
        if renewal is Renewal.RENEW:
            self._version = stored.version if stored else 0
            self._write(watching)  # if it fails, the next renewal decides again
        return renewal

    def _decide_start(self) -> StartDecision:
        stored = self._table.get(LEASE)
        self._version = stored.version if stored else 0
        return decide_start(stored, self._holder, self._clock.now())

    def _write(self, watching: bool) -> bool:
        lease = Lease(
            holder=self._holder,
            renewed_at=self._clock.now(),
            ends_at=self._ends_at,
            watching=watching,
            version=self._version + 1,
        )
        try:
            self._table.put(LEASE, lease)
        except RecordChanged:
            return False
        self._version = lease.version
        return True


class WatchMode(StrEnum):
    """How pending pods of a cluster are found."""

    NOT_AT_ALL = "not-at-all"
    """It has no pool, so nothing can be launched."""
    BY_THE_MINUTE = "by-the-minute"
    """By the schedule of each minute only, as the Cluster manifest says."""
    BY_WATCH = "by-watch"
    WITH_MANIFESTS = "with-manifests"
    """By watch, and its manifests are watched, too: they are in its API server."""

    @property
    def watches(self) -> bool:
        """Whether the cluster is watched."""
        return self in (WatchMode.BY_WATCH, WatchMode.WITH_MANIFESTS)


POD_WATCH_ENDED = ReasonCode("PodWatchEnded", "This run watches pods no longer: {why}.")
POD_WATCH_FAILED = ReasonCode(
    "PodWatchFailed",
    "The watch on unscheduled pods of cluster {cluster} failed: {error}. It is retried with "
    "growing pauses; meanwhile pending pods wait for the schedule of each minute.{advice}",
    "pods-are-not-watched",
)
POD_WATCH_RESTORED = ReasonCode(
    "PodWatchRestored", "The watch on unscheduled pods of cluster {cluster} works again."
)
MANIFEST_WATCH_FAILED = ReasonCode(
    "ManifestWatchFailed",
    "The watch on manifests of cluster {cluster} failed: {error}. It is retried with growing "
    "pauses; meanwhile a change acts within a minute.{advice}",
    "pods-are-not-watched",
)
PROVISIONING_NOT_WOKEN = ReasonCode(
    "ProvisioningNotWoken",
    "The message to provision_nodes for cluster {cluster} can't be sent: {error}. It is retried.",
    "pods-are-not-watched",
)
NO_CLUSTER = "no cluster has a pool and a Cluster manifest that allows watches"

_ADVICE = (
    " Apply rbac/ and create the access entry of the role of watch_pods with the group "
    "leeway:watch."
)

CALLS_AT_ONCE = 8
"""Threads for calls to AWS."""

STOP_WITHIN = 5.0
"""Seconds for the threads of all clusters to end."""


@dataclass(frozen=True, slots=True)
class Periods:
    """Seconds between two renewals of the lease, two looks at the configuration, and two reports
    of the problems."""

    renew: float = 15.0
    configure: float = 15.0
    report: float = 60.0


@dataclass(frozen=True, slots=True)
class PodWatchTelemetry(Telemetry):
    """Logs and measures pod watches."""

    def tell(self, reason: Reason, **facts: object) -> None:
        """Log what a run does."""
        self.logger.info(reason.message, extra={"code": reason.code, **facts})

    def watch_problem(self, cluster: str, reason: Reason) -> None:
        """Log why a cluster is not watched, or what failed; `cluster` may be empty."""
        self.logger.error(reason.message, extra={"code": reason.code, "cluster": cluster})

    def watch_problems(self, problems: int) -> None:
        """Count the watches that do not work, and the clusters whose buyer was not woken."""
        self.count("MinorProblems", problems)


@dataclass(frozen=True, slots=True)
class _Modes:
    modes: Mapping[str, WatchMode]


@dataclass(frozen=True, slots=True)
class _Renewed:
    renewal: Renewal | None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message to the buyer about these pods was sent, or not."""

    follower: Follower
    uids: frozenset[str]
    error: Exception | None


type _Message = FollowerMessage | _Modes | _Renewed | _Sent


@dataclass(slots=True)
class _Cluster:
    """The state of a watched cluster.

    - `settled`: its first watch has begun or failed.
    - `problem`: its watch has not worked since the last error.
    - `sending`: a message to its buyer is on the way; the next one waits for it.
    - `of_manifests`: the watches on its manifests, one for each kind; `failing` are those that have
      not worked since the last error.
    """

    follower: Follower
    bursts: PodBursts = field(default_factory=PodBursts)
    settled: bool = False
    problem: bool = False
    sending: bool = False
    of_manifests: tuple[Follower, ...] = ()
    manifests: ManifestBursts = field(default_factory=ManifestBursts)
    failing: set[Follower] = field(default_factory=set)

    @property
    def followers(self) -> tuple[Follower, ...]:
        """All its watches."""
        return (self.follower, *self.of_manifests)

    def due_at(self) -> float:
        """Return when to wake the buyer."""
        if self.sending:
            return math.inf
        return min(self.bursts.due_at(), self.manifests.due_at())


class Holding:
    """Watches the clusters whose mode says so. `watches` are those on pods, `of_manifests` those on
    each kind of manifests. `modes` reads the modes of all clusters, and leaves out those that it
    can't read. `ends_at` is a time of the monotonic clock."""

    def __init__(
        self,
        watches: OpenWatch,
        of_manifests: Sequence[OpenWatch],
        provisioning: ProvisionNodes,
        keeper: LeaseKeeper,
        modes: Callable[[], Mapping[str, WatchMode]],
        telemetry: PodWatchTelemetry,
        ends_at: float,
        periods: Periods,
    ) -> None:
        self._watches = watches
        self._of_manifests = of_manifests
        self._provisioning = provisioning
        self._keeper = keeper
        self._modes = modes
        self._telemetry = telemetry
        self._ends_at = ends_at
        self._periods = periods
        self._inbox: SimpleQueue[_Message] = SimpleQueue()
        self._clusters: dict[str, _Cluster] = {}
        self._ended: Reason | None = None
        self._lease_problem = False
        self._announced = False  # that all clusters are watched
        self._renewing = False
        now = time.monotonic()
        self._renew_at = now + periods.renew
        self._configure_at = now + periods.configure
        self._report_at = now + periods.report

    def run(self, modes: Mapping[str, WatchMode]) -> Reason:
        """Watch from these modes on; return why the run ended."""
        with ThreadPoolExecutor(CALLS_AT_ONCE, "aws") as self._calls:
            try:
                self._configure(modes)
                while self._ended is None:
                    self._act(time.monotonic())
                    self._wait()
            finally:
                self._stop()
        return self._ended

    def _act(self, now: float) -> None:
        """Do everything that is due."""
        if now >= self._ends_at:
            self._ended = POD_WATCH_ENDED(why="its time is over")
        for cluster in self._clusters.values():
            if now >= cluster.due_at():
                self._wake(cluster, now)
        if now >= self._configure_at:
            self._configure_at = now + self._periods.configure
            self._calls.submit(self._read_modes)
        if now >= self._report_at:
            self._report_at = now + self._periods.report
            self._report()
        all_settled = all(cluster.settled for cluster in self._clusters.values())
        news = all_settled and not self._announced
        # The next renewal begins when the last one has ended: the keeper serves one thread.
        if not self._renewing and (news or now >= self._renew_at):
            self._renewing, self._announced = True, all_settled
            self._calls.submit(self._renew, all_settled)

    def _wait(self) -> None:
        """Wait for a message or for the next action; handle all messages that have arrived."""
        due = [cluster.due_at() for cluster in self._clusters.values()]
        renew_at = math.inf if self._renewing else self._renew_at
        next_at = min(self._ends_at, self._configure_at, renew_at, self._report_at, *due)
        with suppress(Empty):
            self._handle(self._inbox.get(timeout=max(next_at - time.monotonic(), 0.0)))
            # A flood of changes must not keep the burst that it belongs to from ending.
            for _ in range(self._inbox.qsize()):
                self._handle(self._inbox.get_nowait())

    def _handle(self, message: _Message) -> None:
        match message:
            case _Modes(modes=modes):
                self._configure(modes)
            case _Renewed():
                self._renewed(message)
            case _:
                cluster = self._clusters.get(message.follower.cluster)
                # There may be late messages of a watch that has been stopped.
                if cluster is None or message.follower not in cluster.followers:
                    return
                if message.follower is cluster.follower:
                    self._handle_of(cluster, message)
                else:
                    self._handle_manifests(cluster, message)

    def _handle_of(self, cluster: _Cluster, message: FollowerMessage | _Sent) -> None:
        name, now = cluster.follower.cluster, time.monotonic()
        match message:
            case PodReceived(change=change) if change.pod is not None:
                if change.gone:
                    cluster.bursts.forget(change.pod.uid)
                else:
                    cluster.bursts.see(change.pod, now)
            case WatchBegan(fresh=fresh):
                cluster.settled = True
                if fresh:
                    cluster.bursts.restart()
            case WatchHealthy():
                if cluster.problem:
                    self._telemetry.tell(POD_WATCH_RESTORED(cluster=name), cluster=name)
                cluster.problem = False
            case WatchInterrupted(error=error):
                cluster.settled = True
                self._interrupted(cluster, error)
            case _Sent(error=None):
                cluster.sending = False
            case _Sent(uids=uids, error=error):
                cluster.sending = False
                cluster.bursts.give_back(uids, now)
                cluster.manifests.give_back(uids, now)
                reason = PROVISIONING_NOT_WOKEN(cluster=name, error=error and describe_error(error))
                self._telemetry.watch_problem(name, reason)

    def _handle_manifests(self, cluster: _Cluster, message: FollowerMessage | _Sent) -> None:
        """Handle a message of a watch on manifests. Its failure concerns no pod."""
        follower, name = message.follower, message.follower.cluster
        match message:
            case PodReceived(change=change) if change.manifest is not None:
                now = time.monotonic()
                cluster.manifests.change(follower, change.manifest, change.gone, now)
            case WatchHealthy() | WatchInterrupted(error=KindMissing()):
                cluster.failing.discard(follower)
            case WatchInterrupted(error=error):
                if not cluster.failing:
                    advice = _ADVICE if isinstance(error, ClusterRefused) else ""
                    error_text = describe_error(error)
                    reason = MANIFEST_WATCH_FAILED(cluster=name, error=error_text, advice=advice)
                    self._telemetry.watch_problem(name, reason)
                cluster.failing.add(follower)

    def _interrupted(self, cluster: _Cluster, error: Exception) -> None:
        """Log the first error since the watch worked last; the following ones are counted once a
        minute."""
        if cluster.problem:
            return
        cluster.problem = True
        name = cluster.follower.cluster
        advice = _ADVICE if isinstance(error, ClusterRefused) else ""
        reason = POD_WATCH_FAILED(cluster=name, error=describe_error(error), advice=advice)
        self._telemetry.watch_problem(name, reason)

    def _configure(self, modes: Mapping[str, WatchMode]) -> None:
        """Start and stop watches as the manifests say. A cluster that can't be read now stays as it
        is."""
        for name, mode in modes.items():
            if mode.watches and name not in self._clusters:
                follower = Follower(name, self._watches, self._inbox.put)
                self._clusters[name] = _Cluster(follower)
                follower.start()
            elif not mode.watches and name in self._clusters:
                for follower in self._clusters.pop(name).followers:
                    follower.stop()
            if name in self._clusters:
                self._follow_manifests(self._clusters[name], mode is WatchMode.WITH_MANIFESTS)
        if not self._clusters:
            self._ended = POD_WATCH_ENDED(why=NO_CLUSTER)

    def _follow_manifests(self, cluster: _Cluster, wanted: bool) -> None:
        if wanted and not cluster.of_manifests:
            name, put = cluster.follower.cluster, self._inbox.put
            cluster.of_manifests = tuple(Follower(name, one, put) for one in self._of_manifests)
            for follower in cluster.of_manifests:
                follower.start()
        elif not wanted and cluster.of_manifests:
            for follower in cluster.of_manifests:
                follower.stop()
            cluster.of_manifests, cluster.manifests = (), ManifestBursts()
            cluster.failing.clear()

    def _renewed(self, message: _Renewed) -> None:
        self._renewing = False
        self._renew_at = time.monotonic() + self._periods.renew
        if message.renewal is None:
            if not self._lease_problem:
                reason = WATCH_LEASE_UNAVAILABLE(
                    error=message.error and describe_error(message.error),
                    consequence="This run goes on watching.",
                )
                self._telemetry.watch_problem("", reason)
            self._lease_problem = True
            return
        self._lease_problem = False
        if message.renewal is Renewal.END:
            self._ended = POD_WATCH_ENDED(why="another run watches all clusters")

    def _report(self) -> None:
        clusters = self._clusters.values()
        problems = sum(one.problem or bool(one.failing) for one in clusters)
        self._telemetry.watch_problems(problems + self._lease_problem)

    def _wake(self, cluster: _Cluster, now: float) -> None:
        pods, changed = cluster.bursts.take(now), cluster.manifests.take(now)
        cluster.sending = True
        found = f"The scheduler found no node for {counted(len(pods), 'new pod')}." if pods else ""
        more = f"{counted(len(changed), 'manifest')} changed." if changed else ""
        why = f"{found} {more}".strip()
        self._calls.submit(self._send, cluster.follower, pods | changed, why)

    def _send(self, follower: Follower, uids: frozenset[str], why: str) -> None:
        try:
            self._provisioning.wake(follower.cluster, why)
        except Exception as error:  # noqa: BLE001 (logged and retried by the thread that decides)
            self._inbox.put(_Sent(follower, uids, error))
        else:
            self._inbox.put(_Sent(follower, uids, None))

    def _renew(self, watching: bool) -> None:
        try:
            self._inbox.put(_Renewed(self._keeper.renew(watching)))
        except Exception as error:  # noqa: BLE001 (logged; without a lease the run goes on)
            self._inbox.put(_Renewed(None, error))

    def _read_modes(self) -> None:
        self._inbox.put(_Modes(self._modes()))

    def _stop(self) -> None:
        """End all watches, and wake the buyer for bursts that are still open."""
        followers = [one for cluster in self._clusters.values() for one in cluster.followers]
        for follower in followers:
            follower.stop()
        until = time.monotonic() + STOP_WITHIN
        for follower in followers:
            follower.join(until - time.monotonic())
        with suppress(Empty):
            while True:
                message = self._inbox.get_nowait()
                if isinstance(message, PodReceived):
                    self._handle(message)
        for cluster in self._clusters.values():
            if min(cluster.bursts.due_at(), cluster.manifests.due_at()) < math.inf:
                self._wake(cluster, time.monotonic())


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
        watches: OpenWatch,
        of_manifests: Sequence[OpenWatch],
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
