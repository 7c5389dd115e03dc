"""What becomes of a notice that comes late: whether EC2 still says what it announced.

EventBridge delivers within seconds, and gives up after the hour of the rules' retry policy. What is
older was sent again: from an archive, out of a queue of failures, or by hand.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from leeway.instances.observed import CurrentInstance, ObservedChange, is_scheduled
from leeway.notices import Notice, NoticeKind
from leeway.policy.rules import LEAVING_STATES

LATE = timedelta(minutes=10)
"""How old a notice is that is not obeyed before EC2 is asked."""

RECOMMENDED_FOR = timedelta(hours=2)
"""How long a rebalance recommendation counts, of which EC2 keeps no record: EventBridge and Lambda
each try for an hour to deliver it."""

_HOOKS = frozenset({NoticeKind.TERMINATE_HOOK, NoticeKind.LAUNCH_HOOK})


def is_late(notice: Notice, now: datetime) -> bool:
    """Whether what a notice announces should be over: counted from the announced moment where it
    names one, else from its own time. A change that is called off weeks later is not late."""
    happens = notice.effective_at or notice.time
    if notice.over:
        happens = notice.time
    return now - happens > LATE


def why_over(
    notice: Notice,
    instance: str,
    current: CurrentInstance | None,
    changes: Collection[ObservedChange],
    now: datetime,
) -> str:
    """Say why a late notice for an instance is not obeyed; empty where EC2 confirms it.

    `current` is the instance as EC2 describes it now, None where EC2 knows none; `changes` are
    what EC2 has scheduled for it.
    """
    if notice.kind in _HOOKS:
        return "reconcile hands in a lifecycle action that still waits for its answer"
    if current is None:
        return "EC2 knows no such instance"
    ends = notice.effective_at if instance in notice.over else None
    if ends is not None and is_scheduled(changes, instance, ends):
        return "EC2 still has the change scheduled"
    if notice.over or notice.state == "running":
        runs = current.state == "running"
        return "" if runs else f"EC2 says that the instance is {current.state}"
    if current.launched_at > notice.time:
        return f"the instance was started again at {current.launched_at:%Y-%m-%d %H:%M:%S} UTC"
    if current.state in LEAVING_STATES:
        return ""
    return _why_it_stays(notice, instance, current, changes, now)


def _why_it_stays(
    notice: Notice,
    instance: str,
    current: CurrentInstance,
    changes: Collection[ObservedChange],
    now: datetime,
) -> str:
    """Say why an instance that runs is left alone; empty where EC2 is about to take it."""
    match notice.kind:
        case NoticeKind.SPOT_INTERRUPTION if current.interrupted:
            return ""
        case NoticeKind.IMPAIRED_STATUS:
            return "reconcile says so again while its status checks fail"
        case NoticeKind.REBALANCE if now - notice.time <= RECOMMENDED_FOR:
            return ""
        case NoticeKind.REBALANCE:
            return "a rebalance recommendation counts for two hours"
        case NoticeKind.SCHEDULED_CHANGE if notice.effective_at is not None:
            if is_scheduled(changes, instance, notice.effective_at):
                return ""
            return "EC2 has nothing scheduled for the instance at that time"
        case _:
            return f"EC2 says that the instance is {current.state}, and does not take it back"
