"""Findings of reconcile: what was lost about interruptions, states, status checks, hooks and EC2's
scheduled changes, and which executions did not start, died, or left work undone.

A check compares one observed fact with the records of its instance. It returns None if nothing is
lost, or if it is too early to know: events take some seconds.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.admission.record import Admission
from leeway.execution.attempt import OVERDUE, Phase
from leeway.instances.facts import (
    CHANGE_PREFIX,
    ObservedChange,
    ObservedHook,
    ObservedImpairment,
    ObservedInstance,
    ObservedInterruption,
    is_over,
)
from leeway.notices import InterruptionAction, LifecycleHook, NoticeKind
from leeway.notices.parse import Event, EventOrigin
from leeway.policy.repair import Unhealthy
from leeway.policy.rules import SAFETY_MARGIN, SPOT_WARNING, VOLUNTARY, Action, Policy
from leeway.ports.aws import HookResult
from leeway.reasons import Reason, ReasonCode
from leeway.retirement.attempts import CLOCK_TOLERANCE, has_kept_running, is_drained_in_time
from leeway.retirement.record import (
    ENDED_WITHOUT_NODE_AFTER,
    INTERRUPTIONS,
    OVER,
    TERMINATED_WITHIN,
    Retirement,
    ReturnTerms,
    latest_end,
)

EVENT_LOST = ReasonCode(
    "EventLost",
    "{what}, and Leeway received no event about it.",
    "eventbridge-delivers-no-notices",
)
HOOK_ANSWER_LOST = ReasonCode(
    "HookAnswerLost",
    "Instance {instance} waits for lifecycle hook {hook} although the work is finished: the answer "
    "was lost.",
    "eventbridge-delivers-no-notices",
)
STATE_DIFFERS = ReasonCode("StateDiffers", "{what}.")

EVENT_DELAY = timedelta(seconds=10)
"""How long an event may take. After that it counts as lost."""

RETRY_WITHOUT_EFFECT_AFTER = timedelta(hours=1)
"""How long after a retirement ended without effect (declined, dry run) its cause is found again:
what prevented it may be over."""


@dataclass(frozen=True, slots=True)
class LostEvent:
    """An event that EventBridge did not deliver.

    `begun` is the action that Leeway has begun. It is continued even if the policy has changed,
    since no other component continues it.
    """

    instance: str
    event: Event
    reason: Reason
    begun: Action | None = None


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """A lifecycle hook that still waits although its work is finished."""

    instance: str
    hook: LifecycleHook
    result: HookResult
    reason: Reason


@dataclass(frozen=True, slots=True)
class LostStart:
    """A recorded attempt of a retirement, or of an admission, whose execution did nothing."""

    instance: str
    cluster: str
    attempt: int
    is_admission: bool
    reason: Reason


@dataclass(frozen=True, slots=True)
class LostReturn:
    """A return of capacity whose execution died, as its record was read. No event leads to it: a
    notice of another kind would drop its terms."""

    record: Retirement
    terms: ReturnTerms
    reason: Reason

    @property
    def instance(self) -> str:
        """The id of the instance."""
        return self.record.instance


type Finding = LostEvent | LostAnswer | LostStart | LostReturn


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The inputs of every check: where events come from, the time, and whether the cluster's policy
    is a dry run."""

    origin: EventOrigin
    now: datetime
    dry_run: bool = False


def is_undone(retirement: Retirement) -> bool:
    """Whether the retirement was undone, or is being undone."""
    return retirement.phase in {Phase.UNDOING, Phase.UNDONE}


def is_effective(retirement: Retirement, context: CheckContext) -> bool:
    """Whether the retirement has, or may still have, an effect on its instance. Under a dry run one
    without effect counts too: it would be repeated once a minute."""
    if is_undone(retirement):
        return False
    return context.dry_run or not retirement.had_no_effect


def waits_for_retry(retirement: Retirement, now: datetime) -> bool:
    """Whether a retirement without effect has ended too recently to be retried."""
    ended_at = retirement.ended_at
    return ended_at is not None and now < ended_at + RETRY_WITHOUT_EFFECT_AFTER


def attempt_of(retirement: Retirement | None) -> int:
    """Return the attempt, which is part of a lost event's id; 0 without a retirement."""
    return retirement.attempt if retirement else 0


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
    reason = EVENT_LOST(what=f"EC2 interrupts Spot instance {instance} ({interruption.action})")
    return LostEvent(instance, event, reason)


BLOCK_DRAINED_BEFORE = timedelta(minutes=10)
"""How long before EC2 begins to end the instances of a Capacity Block it warns of that."""


def check_block_end(
    instance: ObservedInstance,
    ends_at: datetime,
    retirement: Retirement | None,
    context: CheckContext,
) -> LostEvent | None:
    """Check an instance of a Capacity Block, which EC2 ends from a time on."""
    if context.now < ends_at - BLOCK_DRAINED_BEFORE + EVENT_DELAY:
        return None
    if retirement is not None and _serves_interruption(retirement, instance.launched_at, context):
        return None
    name = instance.facts.instance
    about = f"block-{name}-{int(ends_at.timestamp())}-{attempt_of(retirement)}"
    event = context.origin.reservation_interruption(about, context.now, name, ends_at)
    what = f"The Capacity Block of instance {name} ends, and EC2 ends the instance from then on"
    return LostEvent(name, event, EVENT_LOST(what=f"{what}: {ends_at:%Y-%m-%d %H:%M} UTC"))


def _serves_interruption(retirement: Retirement, since: datetime, context: CheckContext) -> bool:
    if not is_effective(retirement, context):
        return False
    return retirement.kind in CERTAIN_ENDS and retirement.noticed_at >= since


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
    return LostEvent(name, event, EVENT_LOST(what=f"EC2 reports instance {name} as {state}"))


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
    return LostEvent(name, event, EVENT_LOST(what=f"Instance {name} was stopped and runs again"))


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


def check_impairment(
    impairment: ObservedImpairment,
    retirement: Retirement | None,
    policy: Policy,
    context: CheckContext,
) -> LostEvent | None:
    """Check an instance whose status checks fail, once for each time that they begin to fail."""
    since = impairment.failing_since(policy.checks)
    if since is None or context.now < since + policy.tolerates:
        return None
    kind = NoticeKind.IMPAIRED_STATUS
    if retirement is not None and _serves_failure(retirement, since, kind, context):
        return None
    instance = impairment.instance
    about = f"impaired-{instance}-{int(since.timestamp())}-{attempt_of(retirement)}"
    failed = sorted(impairment.since.keys() & policy.checks)
    event = context.origin.impaired_status(about, context.now, instance, failed)
    checks = f"The EC2 status checks ({', '.join(failed)}) of instance {instance}"
    reason = STATE_DIFFERS(what=f"{checks} have failed since {since:%Y-%m-%d %H:%M:%S} UTC")
    return LostEvent(instance, event, reason)


def _serves_failure(
    retirement: Retirement, since: datetime, kind: NoticeKind, context: CheckContext
) -> bool:
    """Whether a retirement serves a failure of its instance that leads to notices of a kind."""
    if is_undone(retirement):
        return False
    if retirement.phase is Phase.FINISHED:
        if retirement.had_no_effect and not context.dry_run:
            return waits_for_retry(retirement, context.now)
        return retirement.noticed_at >= since
    if retirement.kind in VOLUNTARY - {kind}:
        return retirement.drain_began_at is not None or retirement.replacement_intent is not None
    return True


def check_unhealthy_node(
    instance: str, why: Unhealthy, retirement: Retirement | None, context: CheckContext
) -> LostEvent | None:
    """Check an instance whose node is unhealthy for longer than that is tolerated, once for each
    time that it becomes so. A drain that may not end without its kubelet does not serve it."""
    since = why.since or context.now
    if retirement is not None and _serves_unhealthy_node(retirement, since, context):
        return None
    about = f"unhealthy-{instance}-{int(since.timestamp())}-{attempt_of(retirement)}"
    what = f"The node of instance {instance} is unhealthy: {why}"
    event = context.origin.unhealthy_node(about, context.now, instance, str(why))
    return LostEvent(instance, event, STATE_DIFFERS(what=what))


def _serves_unhealthy_node(retirement: Retirement, since: datetime, context: CheckContext) -> bool:
    kind = NoticeKind.UNHEALTHY_NODE
    if retirement.kind in VOLUNTARY - {kind}:
        if retirement.phase not in OVER:
            return is_drained_in_time(retirement, kind)
        if retirement.needs_termination:
            return False  # its drain left pods
    return _serves_failure(retirement, since, kind, context)


def check_recovery(
    retirement: Retirement,
    impairments: Collection[ObservedImpairment],
    policy: Policy,
    context: CheckContext,
) -> LostEvent | None:
    """Check a retirement that waits for the disruption budget because status checks failed: they
    may pass again. `impairments` are all instances with a failed check."""
    instance = retirement.instance
    waits = retirement.kind is NoticeKind.IMPAIRED_STATUS and retirement.phase is Phase.NOTICED
    fails = any(
        one.instance == instance and one.failing_since(policy.checks) is not None
        for one in impairments
    )
    if not waits or fails or context.now < retirement.noticed_at + EVENT_DELAY:
        return None
    about = f"recovered-{instance}-{retirement.attempt}"
    event = context.origin.impaired_status(about, context.now, instance, (), over=True)
    return LostEvent(
        instance,
        event,
        STATE_DIFFERS(what=f"The EC2 status checks of instance {instance} pass again"),
    )


def check_hook(
    hook: ObservedHook,
    retirement: Retirement | None,
    admission: Admission | None,
    context: CheckContext,
) -> LostEvent | LostAnswer | None:
    """Check an instance that waits for a hook. If its retirement ended without effect, it is
    retired again, except under a dry run."""
    record = admission if hook.launching else retirement
    event = _event(hook, record.attempt if record else 0, context)
    if record is None or hook.hook not in record.hooks:
        return LostEvent(hook.instance, event, _reason_of_event(hook))
    if record.phase not in OVER:
        return None
    if record.answer is not None:
        if _waits_for_another_action(hook, retirement, admission, context.now):
            return LostEvent(hook.instance, event, _reason_of_event(hook))
        if record.ended_at is not None and context.now < record.ended_at + EVENT_DELAY:
            return None  # the hook may have been read before its answer
        reason = HOOK_ANSWER_LOST(instance=hook.instance, hook=hook.hook.name)
        return LostAnswer(hook.instance, hook.hook, record.answer, reason)
    if isinstance(record, Admission) or context.dry_run:
        return None
    reason = STATE_DIFFERS(
        what=f"Instance {hook.instance} waits for lifecycle hook {hook.hook.name}, and its "
        "retirement ended without effect, for example under a dry run"
    )
    return LostEvent(hook.instance, event, reason)


def check_eks_hook(
    hook: ObservedHook, retirement: Retirement | None, context: CheckContext
) -> LostEvent | None:
    """Check an instance that waits for a hook that EKS answers: only whether it is drained."""
    if hook.launching:
        return None
    if retirement is not None and _serves_termination(retirement, context):
        return None
    event = _event(hook, attempt_of(retirement), context)
    return LostEvent(hook.instance, event, _reason_of_event(hook))


def _event(hook: ObservedHook, attempt: int, context: CheckContext) -> Event:
    about = f"hook-{hook.instance}-{hook.hook.group}/{hook.hook.name}-{attempt}"
    return context.origin.lifecycle_action(
        about, context.now, hook.instance, hook.hook, launching=hook.launching
    )


def _reason_of_event(hook: ObservedHook) -> Reason:
    waits = f"Instance {hook.instance} waits for lifecycle hook {hook.hook.name}"
    return EVENT_LOST(what=waits)


def _waits_for_another_action(
    hook: ObservedHook, retirement: Retirement | None, admission: Admission | None, now: datetime
) -> bool:
    """Whether the hook waits for another lifecycle action than the one that was answered.

    An action without an answer ends at the timeout of its hook. An instance that was launched or
    retired after the answer may have come back from the warm pool of its group.
    """
    record, other = (admission, retirement) if hook.launching else (retirement, admission)
    if record is None or record.ended_at is None:
        return True
    if isinstance(record, Admission) and record.into_pool:
        return True  # the answer let the instance enter the pool, and now it leaves the pool
    if now >= record.ended_at + timedelta(seconds=hook.timeout):
        return True
    return other is not None and other.noticed_at > record.ended_at


def _serves_termination(retirement: Retirement, context: CheckContext) -> bool:
    if not is_effective(retirement, context):
        return False
    return retirement.kind not in VOLUNTARY or retirement.replacement_intent is not None


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
