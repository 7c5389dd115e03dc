"""Decides whether a late notice still applies: whether EC2 confirms what it announced.

EventBridge delivers an event within seconds, and stops after the hour of the rules' retry policy.
An older event was sent again: from an archive, from a dead-letter queue, or by hand.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from leeway.instances.observed import CurrentInstance, ObservedChange, is_scheduled
from leeway.notices import Notice, NoticeKind
from leeway.policy.rules import ENDING_STATES

LATE_AFTER = timedelta(minutes=10)
"""How old a notice is before Leeway asks EC2 whether it still applies."""

REBALANCE_VALID_FOR = timedelta(hours=2)
"""How long a rebalance recommendation applies. EC2 does not store it; EventBridge and Lambda each
retry its delivery for an hour."""

_HOOKS = frozenset({NoticeKind.TERMINATE_HOOK, NoticeKind.LAUNCH_HOOK})


def is_late(notice: Notice, now: datetime) -> bool:
    """Return whether the notice is late: its announced end is more than LATE_AFTER ago, or, if it
    announces none or cancels one, its own time is."""
    happens = notice.effective_at or notice.time
    if notice.over:
        happens = notice.time
    return now - happens > LATE_AFTER


def why_outdated(
    notice: Notice,
    instance: str,
    current: CurrentInstance | None,
    changes: Collection[ObservedChange],
    now: datetime,
) -> str:
    """Return why a late notice does not apply to an instance any more; empty if EC2 confirms it.

    `current` is the instance as EC2 describes it now, None if EC2 has no such instance. `changes`
    are the changes that EC2 has scheduled for it.
    """
    if notice.kind in _HOOKS:
        return "reconcile sends a new notice for a lifecycle action that still waits"
    if current is None:
        return "EC2 has no such instance"
    cancelled_at = notice.effective_at if instance in notice.over else None
    if cancelled_at is not None and is_scheduled(changes, instance, cancelled_at):
        return "EC2 still has the change scheduled"
    if notice.over or notice.state == "running":
        runs = current.state == "running"
        return "" if runs else f"the instance is {current.state}"
    if current.launched_at > notice.time:
        return f"the instance was started again at {current.launched_at:%Y-%m-%d %H:%M:%S} UTC"
    if current.state in ENDING_STATES:
        return ""
    return _why_instance_stays(notice, instance, current, changes, now)


def _why_instance_stays(
    notice: Notice,
    instance: str,
    current: CurrentInstance,
    changes: Collection[ObservedChange],
    now: datetime,
) -> str:
    """Return why the notice does not end a running instance; empty if EC2 confirms that it does."""
    match notice.kind:
        case NoticeKind.SPOT_INTERRUPTION if current.interrupted:
            return ""
        case NoticeKind.IMPAIRED_STATUS:
            return "reconcile sends a new notice while the status checks fail"
        case NoticeKind.UNHEALTHY_NODE:
            return "reconcile sends a new notice while the node is unhealthy"
        case NoticeKind.REBALANCE if now - notice.time <= REBALANCE_VALID_FOR:
            return ""
        case NoticeKind.REBALANCE:
            return "a rebalance recommendation applies for two hours"
        case NoticeKind.SCHEDULED_CHANGE if notice.effective_at is not None:
            if is_scheduled(changes, instance, notice.effective_at):
                return ""
            return "EC2 has no change scheduled for the instance at that time"
        case _:
            return f"the instance is {current.state}, and EC2 does not interrupt it"
