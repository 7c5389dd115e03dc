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
from leeway.pod_watch.reasons import (
    PODS_ALREADY_WATCHED,
    WATCH_HANDED_OVER,
    WATCH_HANDOVER_PENDING,
    WATCH_LEASE_EXPIRED,
    WATCH_LEASE_FREE,
    WATCH_LEASE_KEPT,
    WATCH_TAKEN_OVER,
)
from leeway.ports.table import RecordChanged
from leeway.reasons import Reason


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
        return StartDecision(True, WATCH_LEASE_FREE())
    if lease.holder == holder:
        return StartDecision(True, WATCH_LEASE_KEPT())
    if not lease.is_alive(now):
        renewed = f"{lease.renewed_at:%H:%M:%S}"
        return StartDecision(True, WATCH_LEASE_EXPIRED(holder=lease.holder, renewed_at=renewed))
    facts = {"holder": lease.holder, "ends_at": f"{lease.ends_at:%H:%M:%S}"}
    if lease.ends_at - now <= HANDOVER:
        return StartDecision(True, WATCH_TAKEN_OVER(**facts))
    return StartDecision(False, PODS_ALREADY_WATCHED(**facts))


class Renewal(StrEnum):
    """What a run that watches does about the lease."""

    RENEW = "renew"
    WAIT = "wait"
    END = "end"


@dataclass(frozen=True, slots=True)
class RenewalDecision:
    """Whether a run goes on watching: RENEW writes its own lease, WAIT and END do not."""

    renewal: Renewal
    reason: Reason


def decide_renewal(stored: Lease | None, holder: str, now: datetime) -> RenewalDecision:
    """Decide how the run `holder` goes on after it found another lease than its own last one. It
    ends only when another living run watches all clusters."""
    if stored is None or stored.holder == holder or not stored.is_alive(now):
        return RenewalDecision(Renewal.RENEW, WATCH_LEASE_KEPT())
    if stored.watching:
        return RenewalDecision(Renewal.END, WATCH_HANDED_OVER(holder=stored.holder))
    return RenewalDecision(Renewal.WAIT, WATCH_HANDOVER_PENDING(holder=stored.holder))


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

    def renew(self, watching: bool) -> RenewalDecision:
        """Renew the lease, or decide how to go on if another run has taken it."""
        if self._write(watching):
            return RenewalDecision(Renewal.RENEW, WATCH_LEASE_KEPT())
        stored = self._leases.read()
        decision = decide_renewal(stored, self._holder, self._clock.now())
        # Only then: with the version of a successor's lease the next write would overwrite it.
        if decision.renewal is Renewal.RENEW:
            self._version = stored.version if stored else 0
            self._write(watching)  # if it fails, the next renewal decides again
        return decision

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
