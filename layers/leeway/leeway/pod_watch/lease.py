"""The lease of the pod watches: which run watches, and when the next one takes over.

The lease avoids double work, and nothing relies on it for safety: if two runs watch the same
cluster, the buyer is woken twice and finds nothing to do the second time. So every doubt is decided
for watching: a gap costs pods a minute, an overlap costs cents.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Protocol

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.clock import Clock
from leeway.reasons import Reason, ReasonCode
from leeway.table import RecordChanged


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

    def __init__(self, leases: Leases, clock: Clock, holder: str, watches_for: timedelta) -> None:
        self._leases = leases
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
        stored = self._leases.read()
        renewal = decide_renewal(stored, self._holder, self._clock.now())
        # Only then: with the version of a successor's lease the next write would overwrite it.
        if renewal is Renewal.RENEW:
            self._version = stored.version if stored else 0
            self._write(watching)  # if it fails, the next renewal decides again
        return renewal

    def _decide_start(self) -> StartDecision:
        stored = self._leases.read()
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
            self._leases.write(lease)
        except RecordChanged:
            return False
        self._version = lease.version
        return True
