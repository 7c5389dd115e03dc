"""Finds instances that stopped, ended or started again and whose state-change event was lost."""

from datetime import datetime, timedelta

from leeway.execution.attempt import Phase
from leeway.instances.observed import ObservedInstance
from leeway.notices import NoticeKind
from leeway.policy.rules import SPOT_WARNING, Action
from leeway.reconciliation.findings import (
    EVENT_DELAY,
    CheckContext,
    LostEvent,
    attempt_of,
    is_effective,
    is_undone,
)
from leeway.reconciliation.lost_interruptions import CERTAIN_ENDS
from leeway.reconciliation.reasons import RESTART_EVENT_LOST, STATE_EVENT_LOST
from leeway.retirement.attempts import CLOCK_TOLERANCE, has_kept_running
from leeway.retirement.record import INTERRUPTIONS, Retirement

GONE = frozenset({"shutting-down", "terminated"})

STOPS_OR_ENDS = frozenset({"stopping", "stopped", "shutting-down"})
"""States of an instance whose pods must be handled. A terminated instance has no pods, only a node
to clean up."""


def check_state(
    instance: ObservedInstance, retirement: Retirement | None, context: CheckContext
) -> LostEvent | None:
    """Check an instance that stops or ends."""
    if instance.state not in STOPS_OR_ENDS:
        return None
    if retirement is not None and _serves_end(retirement, context):
        return None
    name, state = instance.facts.instance, instance.state
    about = f"{state}-{name}-{attempt_of(retirement)}"
    event = context.origin.state_change(about, context.now, name, state)
    return LostEvent(name, event, STATE_EVENT_LOST(instance=name, state=state))


def _serves_end(retirement: Retirement, context: CheckContext) -> bool:
    if not is_effective(retirement, context):
        return False
    if retirement.kind in CERTAIN_ENDS:
        return retirement.kind is NoticeKind.STATE_CHANGE or not _only_cordoned(retirement)
    if retirement.phase is not Phase.FINISHED or _only_cordoned(retirement):
        return False
    return not has_kept_running(retirement, context.now)


def _only_cordoned(retirement: Retirement) -> bool:
    return retirement.phase is Phase.FINISHED and retirement.action is Action.CORDON


def check_restart(
    instance: ObservedInstance, retirement: Retirement | None, context: CheckContext
) -> LostEvent | None:
    """Check an instance whose node is marked as retiring: if it was stopped and runs again, the
    marks are removed. EC2 sets the launch time at each start, also at the first."""
    if instance.state != "running" or retirement is None or is_undone(retirement):
        return None
    if not _is_started_after(instance.launched_at, retirement, context.now):
        return None
    if not (retirement.stops or retirement.phase is Phase.FINISHED):
        return None
    name = instance.facts.instance
    about = f"running-{name}-{retirement.attempt}"
    event = context.origin.state_change(about, context.now, name, "running")
    return LostEvent(name, event, RESTART_EVENT_LOST(instance=name))


def _is_started_after(launched_at: datetime, retirement: Retirement, now: datetime) -> bool:
    return launched_at > _stopped_from(retirement) and now >= launched_at + EVENT_DELAY


def _stopped_from(retirement: Retirement) -> datetime:
    """Return the time from which a start of the instance is another one than before the notice.

    A warning may be about an instance that has just been launched. EC2 terminates it two minutes
    after the time of the warning, and until then it runs since its first start.
    """
    if retirement.ec2_terminates:
        return retirement.noticed_at + SPOT_WARNING
    tolerance = CLOCK_TOLERANCE if retirement.kind in INTERRUPTIONS else timedelta(0)
    return retirement.noticed_at + tolerance
