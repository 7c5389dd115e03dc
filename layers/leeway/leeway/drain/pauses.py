"""How long a drain that is not over may be suspended: pure decisions."""

from datetime import datetime, timedelta

from leeway.drain.plan import POLL_EVERY, last_change_at, only_waits
from leeway.drain.progress import Drain

POLL_AFTER_CHANGE = timedelta(seconds=3)
"""How long after the last change a drain with no request left is polled. A suspension and a new
invocation cost as much as one and a half seconds of a function with 1 GB; most pods end within
three seconds."""

LONGEST_TERMINATION_PAUSE = timedelta(seconds=10)
"""The longest pause between two polls of terminating pods. The instance is kept at most this much
longer than its pods need it."""

NO_PAUSE_BEFORE_DEADLINE = timedelta(seconds=20)
"""How long before its deadline a drain with terminating pods is polled without a pause."""

PAUSE_AFTER_A_DAY = timedelta(minutes=20)
"""The pause between two passes of a drain that has run for a day. With five minutes, the longest
RetirementTimeout would need more operations than the 3,000 that an execution may have."""


def pause_while_terminating(
    drain: Drain, now: datetime, deadline: datetime | None, heartbeat: datetime | None
) -> timedelta:
    """Return how long a drain may be suspended whose pods are all terminating.

    There is no pause in the first POLL_AFTER_CHANGE, in which most pods end. After that the pause
    is as long as the time since the last change, up to LONGEST_TERMINATION_PAUSE. It ends before
    the deadline, so that a pod that comes back is removed at its latest moment, and before the next
    heartbeat of a lifecycle hook.
    """
    changed_at = last_change_at(drain)
    if changed_at is None or not only_waits(drain) or now - changed_at < POLL_AFTER_CHANGE:
        return timedelta(0)
    pause = min(now - changed_at, LONGEST_TERMINATION_PAUSE)
    if deadline is not None:
        pause = min(pause, deadline - NO_PAUSE_BEFORE_DEADLINE - now)
    if heartbeat is not None:
        pause = min(pause, heartbeat - now)
    return pause if pause >= 2 * POLL_EVERY else timedelta(0)


def pause_before_next_pass(
    started_at: datetime,
    now: datetime,
    deadline: datetime | None,
    heartbeat: datetime | None = None,
    retries: bool = False,
) -> timedelta:
    """Return how long a drain that is not over may be suspended, by how long it has run.

    With `retries` of the cordon or the replacement, a pass has twice as many durable operations, so
    that the pauses after the first hour are twice as long. The pause ends two minutes before the
    deadline, when the latest moments of the pods come, and before the next heartbeat of a lifecycle
    hook.
    """
    elapsed = now - started_at
    if elapsed < timedelta(minutes=10):
        pause = timedelta(0)
    elif elapsed < timedelta(hours=1):
        pause = timedelta(seconds=60)
    else:
        first_day = elapsed < timedelta(days=1)
        pause = timedelta(minutes=5) if first_day else PAUSE_AFTER_A_DAY
        pause *= 1 + retries
    if deadline is not None:
        pause = min(pause, deadline - timedelta(minutes=2) - now)
    if heartbeat is not None:
        pause = min(pause, heartbeat - now)
    return pause if pause >= POLL_EVERY else timedelta(0)
