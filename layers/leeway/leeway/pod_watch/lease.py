"""The lease of the pod watches: which run watches, and when the next one takes over.

The lease avoids double work, and nothing relies on it for safety: if two runs watch the same
cluster, the buyer is woken twice and finds nothing to do the second time. So every doubt is decided
for watching: a gap costs pods a minute, an overlap costs cents.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.pod_watch.reasons import (
    PODS_ALREADY_WATCHED,
    WATCH_HANDED_OVER,
    WATCH_HANDOVER_PENDING,
    WATCH_LEASE_EXPIRED,
    WATCH_LEASE_FREE,
    WATCH_LEASE_KEPT,
    WATCH_TAKEN_OVER,
)
from leeway.reasons import Reason

LASTS = timedelta(seconds=45)
"""A holder that has not renewed its lease for this long counts as dead: three renewals."""

HANDOVER = timedelta(seconds=120)
"""How long before the end of a holder the next run takes over. The schedule starts a run each
minute, so one start may fail or be throttled."""


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
