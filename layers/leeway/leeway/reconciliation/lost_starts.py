"""Finds retirements and admissions whose execution did not start, died, or left work undone."""

from datetime import datetime, timedelta

from leeway.admission.record import Admission
from leeway.execution.attempt import OVERDUE, Phase
from leeway.notices import InterruptionAction, NoticeKind
from leeway.notices.synthetic import Event
from leeway.policy.rules import VOLUNTARY, Action
from leeway.reasons import Reason, ReasonCode
from leeway.reconciliation.lost_events import (
    CERTAIN_ENDS,
    GONE,
    STATE_DIFFERS,
    CheckContext,
    LostEvent,
    LostReturn,
    LostStart,
    is_undone,
)
from leeway.retirement.record import (
    ENDED_WITHOUT_NODE_AFTER,
    OVER,
    TERMINATED_WITHIN,
    Retirement,
    latest_end,
)

START_LOST = ReasonCode(
    "StartLost",
    "Attempt {attempt} of instance {instance} is recorded and has done nothing: its start may be "
    "lost.",
    "eventbridge-delivers-no-notices",
)
EXECUTION_OVERDUE = ReasonCode(
    "ExecutionOverdue",
    "The {work} of instance {instance} should have ended by {time} UTC: its execution has died.",
    "eventbridge-delivers-no-notices",
)
INSTANCE_STILL_RUNS = ReasonCode(
    "RetiredInstanceRuns",
    "Leeway has to terminate instance {instance} after its drain, and it still runs.",
    "eventbridge-delivers-no-notices",
)

START_DELAY = timedelta(seconds=90)
URGENT_START_DELAY = timedelta(seconds=30)
START_REPEATED_FOR = timedelta(minutes=6)
"""When, after its notice, the start of an execution that has done nothing is repeated. Executions
that wait for the disruption budget do nothing for long; a repeated start does no harm, since Lambda
starts an execution name once."""


def check_start(record: Retirement | Admission, now: datetime) -> LostStart | None:
    """Check a record whose execution may never have started."""
    urgent = isinstance(record, Retirement) and record.kind in CERTAIN_ENDS
    delay, since = URGENT_START_DELAY if urgent else START_DELAY, record.noticed_at
    if isinstance(record, Retirement) and record.returns and record.returns.without_node:
        since += ENDED_WITHOUT_NODE_AFTER  # until then its execution has nothing to do
    waits = record.phase in {Phase.NOTICED, Phase.UNDOING}
    if not waits or not delay <= now - since < START_REPEATED_FOR:
        return None
    return LostStart(
        record.instance,
        record.facts.cluster,
        record.attempt,
        isinstance(record, Admission),
        START_LOST(instance=record.instance, attempt=record.attempt),
    )


def check_overdue_retirement(
    record: Retirement, state: str | None, context: CheckContext
) -> LostEvent | LostReturn | None:
    """Check a retirement that has not ended in time, or that ended and did not restore the capacity
    of its group. `state` is the state of its instance, None if EC2 does not list it."""
    if record.phase in OVER and not record.must_restore_capacity:
        return None
    end = latest_end(record)
    if context.now < end + OVERDUE or (context.dry_run and record.phase in OVER):
        return None
    reason = (
        STATE_DIFFERS(
            what=f"The retirement of instance {record.instance} raised the desired capacity of its "
            "group and did not lower it again"
        )
        if record.phase in OVER
        else _died("retirement", record.instance, end)
    )
    here = state is not None and state not in GONE
    if (terms := record.returns) and here and not (is_undone(record) or record.hooks):
        return LostReturn(record, terms, reason)
    begun = Action.RETIRE if record.must_restore_capacity else record.action
    return LostEvent(record.instance, _repeated_notice(record, state, context), reason, begun=begun)


def _repeated_notice(record: Retirement, state: str | None, context: CheckContext) -> Event:
    """Return an event of the kind that started the retirement, or of the end of its instance."""
    origin, now, instance = context.origin, context.now, record.instance
    about = f"overdue-retirement-{instance}-{record.attempt}"
    if state is None or state in GONE:
        return origin.state_change(about, now, instance, state or "terminated")
    if is_undone(record):
        return origin.state_change(about, now, instance, "running")
    if record.hooks:
        return origin.lifecycle_action(about, now, instance, record.hooks[-1], launching=False)
    if record.kind in VOLUNTARY:
        return _repeated_voluntary(record, about, context)
    if record.kind is NoticeKind.STATE_CHANGE:
        return origin.state_change(about, now, instance, "stopping")
    action = InterruptionAction.STOP if record.stops else InterruptionAction.TERMINATE
    return origin.interruption(about, now, instance, action)


def _repeated_voluntary(record: Retirement, about: str, context: CheckContext) -> Event:
    origin, now, instance = context.origin, context.now, record.instance
    if record.kind is NoticeKind.IMPAIRED_STATUS:
        return origin.impaired_status(about, now, instance, ())
    if record.kind is NoticeKind.UNHEALTHY_NODE:
        return origin.unhealthy_node(about, now, instance, record.reason.message)
    return origin.rebalance(about, now, instance)


def check_overdue_admission(
    record: Admission, state: str | None, context: CheckContext
) -> LostEvent | None:
    """Check an admission that has not ended in time and that a hook may wait for."""
    if context.now < record.deadline + OVERDUE or not record.hooks:
        return None
    if state is None or state in GONE:
        return None
    about = f"overdue-admission-{record.instance}-{record.attempt}"
    event = context.origin.lifecycle_action(
        about, context.now, record.instance, record.hooks[-1], launching=True
    )
    return LostEvent(record.instance, event, _died("admission", record.instance, record.deadline))


def may_be_left_running(record: Retirement, now: datetime) -> bool:
    """Whether the record says that Leeway has to terminate the instance, and did not in time. The
    time doubles after each failure."""
    intent = record.replacement_intent
    if record.phase not in OVER or not record.needs_termination or intent is None:
        return False
    waits = TERMINATED_WITHIN * 2**intent.failures
    return record.ended_at is None or now >= record.ended_at + waits


def check_detached_instance(
    record: Retirement, state: str | None, context: CheckContext
) -> LostEvent | None:
    """Check an instance that Leeway has to terminate and did not; no other component terminates
    it. `state` is the result of a fresh read, None if EC2 does not know the instance."""
    if not may_be_left_running(record, context.now):
        return None
    instance = record.instance
    about = f"detached-{instance}-{record.attempt}"
    if state is None or state in GONE:
        end = state or "terminated"
        event = context.origin.state_change(about, context.now, instance, end)
        reason = STATE_DIFFERS(
            what=f"Leeway had to terminate instance {instance} after its drain, and it has ended"
        )
    elif state == "running":
        event = _repeated_voluntary(record, about, context)
        reason = INSTANCE_STILL_RUNS(instance=instance)
    else:
        return None
    return LostEvent(instance, event, reason, begun=Action.RETIRE)


def _died(work: str, instance: str, end: datetime) -> Reason:
    return EXECUTION_OVERDUE(work=work, instance=instance, time=f"{end:%H:%M:%S}")
