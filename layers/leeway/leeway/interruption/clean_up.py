"""Starts reconcile to clean up after a terminated instance, at a limited rate."""

import zlib
from datetime import timedelta

from leeway.clock import Clock
from leeway.interruption.instance_notice import InstanceNotice
from leeway.interruption.outcome import InstanceOutcome
from leeway.ports.functions import CleanUp
from leeway.ports.table import Claims
from leeway.retirement.attempts import has_kept_running

MAX_CLEAN_UPS = 8
CLAIM_TIME = timedelta(seconds=10)
"""At most MAX_CLEAN_UPS clean-ups of a cluster start in each CLAIM_TIME. Each makes up to two calls
to EC2, which allows an account 20 such calls per second after a burst of 100."""


class CleanUpRequests:
    """Starts clean-ups."""

    def __init__(self, clean_up: CleanUp, claims: Claims, clock: Clock) -> None:
        self._clean_up = clean_up
        self._claims = claims
        self._clock = clock

    def request(self, about: InstanceNotice, outcome: InstanceOutcome) -> InstanceOutcome:
        """Start a clean-up after a terminated instance and return the outcome of its notice.

        If too many clean-ups have started, the next run of reconcile cleans up after all instances.
        No clean-up starts after a retirement that left an empty node: only the Node object is left,
        which the next run of reconcile deletes.
        """
        retirement = about.retirement
        empty = retirement is not None and retirement.left_empty_node
        if retirement is not None and has_kept_running(retirement, about.notice.time):
            empty = False
        if about.cluster_policy.dry_run or empty:
            return outcome
        return outcome.with_side_effect(
            "The next run of reconcile cleans up after the instance", lambda: self._start(about)
        )

    def _start(self, about: InstanceNotice) -> str:
        facts, now = about.facts, self._clock.now()
        slot = zlib.crc32(facts.instance.encode()) % MAX_CLEAN_UPS
        if not self._claims.claim(f"clean/{facts.cluster}/{slot}", now, now + CLAIM_TIME):
            return "many instances terminate at the same time"
        self._clean_up.start(facts.instance, facts.cluster)
        return ""
