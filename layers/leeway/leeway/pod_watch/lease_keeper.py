"""Takes and renews the lease of the pod watches for one run."""

from datetime import timedelta

from leeway.clock import Clock
from leeway.pod_watch.lease import (
    Lease,
    Renewal,
    RenewalDecision,
    StartDecision,
    decide_renewal,
    decide_start,
)
from leeway.pod_watch.ports import Leases
from leeway.pod_watch.reasons import WATCH_LEASE_KEPT
from leeway.table import RecordChanged

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
