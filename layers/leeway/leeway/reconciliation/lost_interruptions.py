"""Finds Spot instances that EC2 interrupts and whose interruption warning was lost."""

from datetime import datetime, timedelta

from leeway.instances.observed import ObservedInterruption
from leeway.notices import NoticeKind
from leeway.reconciliation.findings import CheckContext, LostEvent, attempt_of, is_effective
from leeway.reconciliation.reasons import INTERRUPTION_EVENT_LOST
from leeway.retirement.record import Retirement

INTERRUPTION_EVENT_DELAY = timedelta(seconds=3)
"""How long an interruption warning may take. It is short, since the next run is a minute later and
the instance has two minutes. A warning that arrives after all changes nothing."""

SAME_INTERRUPTION = timedelta(minutes=3)
"""The largest difference between the time of a warning and that of the Spot request's status."""

CERTAIN_ENDS = frozenset(
    {NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION, NoticeKind.STATE_CHANGE}
)
"""Kinds of notices after which the instance certainly stops or ends."""


def check_interruption(
    interruption: ObservedInterruption,
    launched_at: datetime,
    retirement: Retirement | None,
    context: CheckContext,
) -> LostEvent | None:
    """Check an instance that EC2 interrupts. `launched_at` is its last start: notices before that
    were about an earlier stop."""
    instance, marked_at = interruption.instance, interruption.marked_at
    if context.now < marked_at + INTERRUPTION_EVENT_DELAY:
        return None
    since = max(launched_at, marked_at - SAME_INTERRUPTION)
    if retirement is not None and _serves_interruption(retirement, since, context):
        return None
    about = f"interruption-{instance}-{int(marked_at.timestamp())}-{attempt_of(retirement)}"
    event = context.origin.interruption(about, marked_at, instance, interruption.action)
    reason = INTERRUPTION_EVENT_LOST(instance=instance, action=interruption.action)
    return LostEvent(instance, event, reason)


def _serves_interruption(retirement: Retirement, since: datetime, context: CheckContext) -> bool:
    if not is_effective(retirement, context):
        return False
    return retirement.kind in CERTAIN_ENDS and retirement.noticed_at >= since
