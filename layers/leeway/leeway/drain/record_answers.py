"""Updates a pod's progress from the API server's answer to a request."""

import zlib
from dataclasses import replace
from datetime import datetime, timedelta

from leeway.drain.answers import Answer, Meaning
from leeway.drain.deadline import Terms
from leeway.drain.plan import PodRequest
from leeway.drain.progress import Drain, PodProgress, RemovalMethod, Stage, ended
from leeway.drain.reasons import GRACE_SHORTENED, SEVERAL_BUDGETS
from leeway.policy.rules import OnBlocked

FIRST_RETRY_DELAY = timedelta(seconds=1)
LONGEST_RETRY_DELAY = timedelta(seconds=5)
"""Between two tries of one pod's eviction; five seconds is also `kubectl drain`'s pause."""


def record_answer(
    drain: Drain, request: PodRequest, answer: Answer, terms: Terms, now: datetime
) -> Drain:
    """Update a drain from the answer to a request, which arrived at `now`."""
    known = drain.pods[request.pod.uid]
    if (
        request.method is RemovalMethod.EVICT
        and known.method is RemovalMethod.DELETE
        and known.requested_at is not None
    ):
        return drain  # the eviction hung, and its answer arrived after the pod was deleted
    attempts = known.attempts + 1
    tried = replace(known, attempts=attempts, method=request.method, grace=request.grace)
    delay = retry_delay(request.pod.uid, attempts, terms)
    match answer.meaning:
        case Meaning.ACCEPTED:
            changed = _accepted(tried, request, now)
        case Meaning.GONE:
            changed = ended(tried, terms, now, answer.reason)
        case Meaning.TERMINATING if request.pod.deletion is not None:
            changed = replace(tried, stage=Stage.TERMINATING, reason=answer.reason)
        case Meaning.NOT_EVICTABLE if terms.deadline is None and terms.on_blocked is OnBlocked.FAIL:
            # As `kubectl drain` does: no retry can succeed while there are two budgets.
            changed = replace(tried, stage=Stage.FAILED, reason=answer.reason)
        case Meaning.BLOCKED | Meaning.NOT_EVICTABLE:
            changed = replace(
                tried,
                stage=Stage.BLOCKED,
                reason=answer.reason,
                budgets=answer.budgets or known.budgets,
                blocked_at=known.blocked_at or now,
                next_try_at=now + delay,
            )
        case Meaning.DENIED if terms.deadline is None:
            changed = replace(tried, stage=Stage.FAILED, reason=answer.reason)
        case _:
            if answer.retry_after is not None:
                delay = timedelta(seconds=answer.retry_after)
            changed = replace(tried, reason=answer.reason, next_try_at=now + delay)
    return drain.with_pod(changed)


def record_budgets(drain: Drain, uid: str, budgets: tuple[str, ...]) -> Drain:
    """Add the names of the budgets of a pod that several budgets select."""
    reason = SEVERAL_BUDGETS(budgets=", ".join(budgets))
    return drain.with_pod(replace(drain.pods[uid], reason=reason, budgets=budgets))


def _accepted(tried: PodProgress, request: PodRequest, now: datetime) -> PodProgress:
    own, granted, reason = request.pod.grace, request.grace, request.reason
    if granted is not None and granted < own:
        reason = reason.and_then(GRACE_SHORTENED(own=own, granted=granted))
    return replace(
        tried, stage=Stage.TERMINATING, reason=reason, requested_at=now, next_try_at=None
    )


def retry_delay(uid: str, attempts: int, terms: Terms) -> timedelta:
    """Return the pause after a failed try: longer after each try, and with jitter."""
    if terms.deadline is None:
        return LONGEST_RETRY_DELAY
    steady = min(FIRST_RETRY_DELAY * 1.5 ** min(attempts - 1, 8), LONGEST_RETRY_DELAY)
    # The jitter comes from the pod's UID and try, so that a replayed step pauses as before.
    fraction = (zlib.crc32(f"{uid}/{attempts}".encode()) % 1000) / 1000
    return steady * (0.75 + 0.25 * fraction)
