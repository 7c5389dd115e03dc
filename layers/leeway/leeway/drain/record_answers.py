"""What an answer to a request makes of a pod's progress."""

import zlib
from dataclasses import replace
from datetime import datetime, timedelta

from leeway.drain.answers import Answer, Meaning
from leeway.drain.deadline import Terms
from leeway.drain.plan import PodRequest
from leeway.drain.progress import Drain, PodProgress, RemovalMethod, Stage, ended
from leeway.policy.rules import OnBlocked

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=5)
"""Between two tries of one pod's eviction; five seconds is also `kubectl drain`'s pause."""


def record(drain: Drain, ask: PodRequest, answer: Answer, terms: Terms, now: datetime) -> Drain:
    """Take in the answer to a request, which came at `now`."""
    known = drain.pods[ask.pod.uid]
    if (
        ask.way is RemovalMethod.EVICT
        and known.way is RemovalMethod.DELETE
        and known.asked_at is not None
    ):
        return drain  # an eviction that hung is answered after the pod was deleted
    attempts = known.attempts + 1
    tried = replace(known, attempts=attempts, way=ask.way, grace=ask.grace)
    pause = pause_after(ask.pod.uid, attempts, terms)
    match answer.meaning:
        case Meaning.ACCEPTED:
            changed = _accepted(tried, ask, now)
        case Meaning.GONE:
            changed = ended(tried, terms, now, answer.detail)
        case Meaning.TERMINATING if ask.pod.deletion is not None:
            changed = replace(tried, stage=Stage.TERMINATING, reason=answer.detail)
        case Meaning.NOT_EVICTABLE if terms.deadline is None and terms.on_blocked is OnBlocked.FAIL:
            # As `kubectl drain` does: no later try could succeed while there are two budgets.
            changed = replace(tried, stage=Stage.FAILED, reason=answer.detail)
        case Meaning.BLOCKED | Meaning.NOT_EVICTABLE:
            changed = replace(
                tried,
                stage=Stage.BLOCKED,
                reason=answer.detail,
                budgets=answer.budgets or known.budgets,
                blocked_at=known.blocked_at or now,
                next_try_at=now + pause,
            )
        case Meaning.DENIED if terms.deadline is None:
            changed = replace(tried, stage=Stage.FAILED, reason=answer.detail)
        case Meaning.THROTTLED if answer.retry_after is not None:
            wait = timedelta(seconds=answer.retry_after)
            changed = replace(tried, reason=answer.detail, next_try_at=now + wait)
        case _:
            changed = replace(tried, reason=answer.detail, next_try_at=now + pause)
    return drain.with_pod(changed)


def name_budgets(drain: Drain, uid: str, budgets: tuple[str, ...]) -> Drain:
    """Take in which budgets guard a pod that has more of them than an eviction can heed."""
    known = drain.pods[uid]
    reason = f"it has more than one PodDisruptionBudget: {', '.join(budgets)}"
    return drain.with_pod(replace(known, reason=reason, budgets=budgets))


def _accepted(tried: PodProgress, ask: PodRequest, now: datetime) -> PodProgress:
    cut = ask.grace is not None and ask.grace < ask.pod.grace
    said = f"{ask.reason}, its grace of {ask.pod.grace}s cut to {ask.grace}s" if cut else ask.reason
    return replace(tried, stage=Stage.TERMINATING, reason=said, asked_at=now, next_try_at=None)


def pause_after(uid: str, attempts: int, terms: Terms) -> timedelta:
    """Return how long to wait after a try in vain: longer each time, and not all at once."""
    if terms.deadline is None:
        return LONGEST_PAUSE
    steady = min(FIRST_PAUSE * 1.5 ** min(attempts - 1, 8), LONGEST_PAUSE)
    # Jitter from the pod's own name and try: a replayed step pauses as it did before.
    fraction = (zlib.crc32(f"{uid}/{attempts}".encode()) % 1000) / 1000
    return steady * (0.75 + 0.25 * fraction)
