"""Finds scheduled changes of EC2 whose announcement, cancellation or end was lost."""

from collections.abc import Collection
from datetime import datetime, timedelta

from leeway.execution.attempt import Phase
from leeway.instances.observed import CHANGE_PREFIX, ObservedChange, ObservedInstance, is_over
from leeway.notices import NoticeKind
from leeway.notices.synthetic import Event
from leeway.policy.rules import SAFETY_MARGIN, Policy
from leeway.reconciliation.lost_events import (
    EVENT_LOST,
    STATE_DIFFERS,
    CheckContext,
    LostEvent,
    attempt_of,
    is_undone,
    waits_for_retry,
)
from leeway.retirement.record import TERMINATED_WITHIN, Retirement

SCHEDULE_DELAY = timedelta(minutes=2)
"""How long after the lead of a change its one-time schedule may take: EventBridge Scheduler takes
up to a minute."""

UNCONFIRMED_UNTIL = timedelta(days=1)
"""How long after its time a change of AWS Health that EC2 does not list counts as pending. Health
announces more changes than EC2 lists, and its last event may be lost."""


def check_scheduled_change(
    change: ObservedChange, retirement: Retirement | None, policy: Policy, context: CheckContext
) -> LostEvent | None:
    """Check an instance that EC2 will reboot, stop or retire, from the lead of the change on."""
    begins = _begins(change, policy)
    if begins is not None and context.now < begins + SCHEDULE_DELAY:
        return None
    if retirement is not None and _serves_change(retirement, begins, context):
        return None
    event = context.origin.scheduled_change(
        f"change-{change.instance}-{change.event}-{attempt_of(retirement)}",
        context.now,
        change.instance,
        change.event,
        change.starts_at,
    )
    planned = f"EC2 has scheduled {change.code} of instance {change.instance}"
    reason = EVENT_LOST(what=f"{planned} for {change.starts_at:%Y-%m-%d %H:%M} UTC")
    return LostEvent(change.instance, event, reason)


def _begins(change: ObservedChange, policy: Policy) -> datetime | None:
    return None if policy.lead is None else change.starts_at - policy.lead


def _serves_change(retirement: Retirement, begins: datetime | None, context: CheckContext) -> bool:
    if is_undone(retirement):
        return False
    if retirement.had_no_effect and not context.dry_run:
        return waits_for_retry(retirement, context.now)
    if retirement.deadline_from_begin:
        if retirement.drain_began_at is None:
            return False  # the disruption budget may never allow it
        ended_at = retirement.ended_at
        if ended_at is not None and context.now >= ended_at + TERMINATED_WITHIN:
            return False  # the instance still runs, perhaps with pods that budgets blocked
    return begins is None or retirement.noticed_at >= begins


def check_cancelled_change(
    retirement: Retirement,
    changes: Collection[ObservedChange],
    policy: Policy,
    context: CheckContext,
) -> LostEvent | None:
    """Check a retirement that waits for the disruption budget because of a scheduled change: EC2
    may have cancelled or postponed the change. `changes` are all changes that EC2 lists."""
    waits = retirement.kind is NoticeKind.SCHEDULED_CHANGE and retirement.phase is Phase.NOTICED
    if not waits or not _is_cancelled(retirement, changes, policy, context.now):
        return None
    event = _cancellation("called-off", retirement, context)
    reason = STATE_DIFFERS(
        what="EC2 cancelled or postponed the scheduled change that the retirement of instance "
        f"{retirement.instance} waits for"
    )
    return LostEvent(retirement.instance, event, reason)


def check_completed_change(
    instance: ObservedInstance,
    retirement: Retirement | None,
    changes: Collection[ObservedChange],
    policy: Policy,
    context: CheckContext,
) -> LostEvent | None:
    """Check a running instance whose node was drained for a scheduled change and is still marked as
    retiring. If the change is over and no replacement was requested, the marks are removed. A
    reboot changes neither the state nor the launch time of the instance. `changes` are all changes
    that EC2 lists."""
    if instance.state != "running" or retirement is None:
        return None
    if retirement.kind is not NoticeKind.SCHEDULED_CHANGE or not _only_drained(retirement):
        return None
    cancelled = _is_cancelled(retirement, changes, policy, context.now)
    if not cancelled and not _is_long_past(retirement, changes, context.now):
        return None
    event = _cancellation("over", retirement, context)
    reason = STATE_DIFFERS(
        what=f"Instance {retirement.instance} still runs after the scheduled change that its node "
        "was drained for"
    )
    return LostEvent(retirement.instance, event, reason)


def _only_drained(retirement: Retirement) -> bool:
    drained = retirement.phase is Phase.FINISHED and not retirement.had_no_effect
    return drained and retirement.replacement_intent is None


def _cancellation(about: str, retirement: Retirement, context: CheckContext) -> Event:
    return context.origin.scheduled_change(
        f"{about}-{retirement.instance}-{retirement.event}-{retirement.attempt}",
        context.now,
        retirement.instance,
        retirement.event,
        context.now,
        called_off=True,
    )


def _is_cancelled(
    retirement: Retirement, changes: Collection[ObservedChange], policy: Policy, now: datetime
) -> bool:
    if not retirement.event.startswith(CHANGE_PREFIX):
        # An event of AWS Health has another id than the change of EC2, but the same time.
        starts_at = retirement.deadline + SAFETY_MARGIN if retirement.deadline else None
        return starts_at is not None and is_over(changes, retirement.instance, starts_at)
    begun = {
        change.event
        for change in changes
        if change.instance == retirement.instance
        and not change.over
        and ((begins := _begins(change, policy)) is None or begins <= now)
    }
    return retirement.event not in begun


def _is_long_past(
    retirement: Retirement, changes: Collection[ObservedChange], now: datetime
) -> bool:
    if retirement.deadline is None or now < retirement.deadline + UNCONFIRMED_UNTIL:
        return False
    return not any(change.instance == retirement.instance and not change.over for change in changes)
