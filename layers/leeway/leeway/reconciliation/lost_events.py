"""What events did not tell: from what is, to the notice that should have come, with the reason.

Each decision is about one thing that was seen, and what the table says of its instance. None means
that all is well, or that it is too early to say: events take some seconds.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.admission.record import Admission
from leeway.execution.attempt import OVERDUE, Phase
from leeway.instances.observed import (
    CHANGE_PREFIX,
    ObservedChange,
    ObservedHook,
    ObservedImpairment,
    ObservedInstance,
    ObservedInterruption,
    is_over,
)
from leeway.notices import InterruptionAction, LifecycleHook, NoticeKind
from leeway.notices.synthetic import Event, EventOrigin
from leeway.policy.rules import SAFETY_MARGIN, VOLUNTARY, Action, Policy
from leeway.ports.aws import HookResult
from leeway.retirement.attempts import has_lived_on
from leeway.retirement.record import OVER, TERMINATED_WITHIN, Retirement, latest_end

PATIENCE = timedelta(seconds=10)
"""How old something is before its event counts as lost."""

HASTE = timedelta(seconds=3)
"""The same where two minutes are all there is: the next look is a minute later, and whoever comes
second changes nothing."""

ONE_INTERRUPTION = timedelta(minutes=3)
"""How far the time in a warning and that of its mark may lie apart."""

LOST_START = timedelta(seconds=90)
LOST_START_IN_HASTE = timedelta(seconds=30)
LOST_START_UNTIL = timedelta(minutes=6)
"""How long after a notice an execution that has done nothing yet is started again. Some wait for
their turn and do nothing for long; to these, too, that does no harm: the second start of a name
finds the first."""

SCHEDULE_LATE = timedelta(minutes=2)
"""How long after its lead a change is begun by the schedule that its notice has left: EventBridge
Scheduler takes up to a minute."""

SURELY_OVER = timedelta(days=1)
"""How long after its time a change counts as over of which EC2 does not tell: AWS Health knows of
more than EC2, and its word of the end may have got lost."""

ASKED_AGAIN_AFTER = timedelta(hours=1)
"""How long after a change came to nothing, declined or only rehearsed, it is told of again: what
stood in its way may be over."""

GONE = frozenset({"shutting-down", "terminated"})
STOPS_OR_ENDS = frozenset({"stopping", "stopped", "shutting-down"})
"""States in which there are pods to be seen to. What is terminated has none any more, only a node
to be cleaned up after."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A notice that should have come. `begun` is what Leeway began before, where it is to go on
    whatever the policy says by now: nobody else would."""

    instance: str
    event: Event
    reason: str
    begun: Action | None = None


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """A hook whose work is done, and which waits all the same."""

    instance: str
    hook: LifecycleHook
    result: HookResult
    reason: str


@dataclass(frozen=True, slots=True)
class LostStart:
    """A retirement or, with `admission`, an admission that was written down and did not begin."""

    instance: str
    cluster: str
    attempt: int
    admission: bool
    reason: str


_ENDS_SURELY = frozenset(
    {NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION, NoticeKind.STATE_CHANGE}
)

type Omission = Lost | LostAnswer | LostStart


def about_hook(
    seen: ObservedHook,
    retirement: Retirement | None,
    arrival: Admission | None,
    place: EventOrigin,
    now: datetime,
    dry_run: bool = False,
) -> Lost | LostAnswer | None:
    """Decide about an instance that waits for the answer to a hook. One whose retirement came to
    nothing, as that of a rehearsal did, is retired for real, unless that would be rehearsed again.
    """
    record = arrival if seen.launching else retirement
    attempt = record.attempt if record else 0
    about = f"hook-{seen.instance}-{seen.hook.group}/{seen.hook.name}-{attempt}"
    event = place.lifecycle_action(about, now, seen.instance, seen.hook, launching=seen.launching)
    if record is None or seen.hook not in record.hooks:
        return Lost(seen.instance, event, f"it waits for {seen.hook.name}, and nobody said so")
    if record.phase not in OVER:
        return None
    if record.answer is not None:
        if _waits_for_another(seen, retirement, arrival, now):
            why = f"it waits for {seen.hook.name} again, after its answer, and nobody said so"
            return Lost(seen.instance, event, why)
        why = f"what {seen.hook.name} waits for has ended, and its answer did not arrive"
        return LostAnswer(seen.instance, seen.hook, record.answer, why)
    if isinstance(record, Admission) or dry_run:
        return None
    return Lost(seen.instance, event, f"it waits for {seen.hook.name}, and nothing has been done")


def _waits_for_another(
    seen: ObservedHook, retirement: Retirement | None, arrival: Admission | None, now: datetime
) -> bool:
    """Whether an instance waits for another action of a hook than the one that was answered. An
    action that nobody answers lasts for its hook's timeout; and an instance that came in again, or
    was to go again, since the answer may be back from its group's warm pool."""
    record, other = (arrival, retirement) if seen.launching else (retirement, arrival)
    if record is None or record.ended_at is None:
        return True
    if isinstance(record, Admission) and record.into_pool:
        return True  # its answer let the instance into the pool, and now it comes out
    if now >= record.ended_at + timedelta(seconds=seen.timeout):
        return True
    return other is not None and other.noticed_at > record.ended_at


def about_eks_hook(
    seen: ObservedHook,
    retirement: Retirement | None,
    place: EventOrigin,
    now: datetime,
    dry_run: bool = False,
) -> Lost | None:
    """Decide about an instance that waits for a hook which EKS answers by itself: what is asked is
    only whether it is drained."""
    if seen.launching:
        return None
    if retirement is not None and _serves_a_termination(retirement, dry_run):
        return None
    attempt = retirement.attempt if retirement else 0
    about = f"hook-{seen.instance}-{seen.hook.group}/{seen.hook.name}-{attempt}"
    event = place.lifecycle_action(about, now, seen.instance, seen.hook, launching=False)
    return Lost(seen.instance, event, "its group terminates it, and nobody said so")


def _serves_a_termination(retirement: Retirement, dry_run: bool) -> bool:
    if retirement.phase in {Phase.UNDOING, Phase.UNDONE}:
        return False
    if retirement.had_no_effect and not dry_run:
        return False
    return retirement.kind not in VOLUNTARY or retirement.replacement_intent is not None


def about_interruption(
    seen: ObservedInterruption,
    launched_at: datetime,
    retirement: Retirement | None,
    place: EventOrigin,
    now: datetime,
    dry_run: bool = False,
) -> Lost | None:
    """Decide about an instance that EC2 is about to take back, and has launched last at
    `launched_at`: what was noticed before that, it was stopped for."""
    if now < seen.marked_at + HASTE:
        return None
    since = max(launched_at, seen.marked_at - ONE_INTERRUPTION)
    if retirement is not None and _serves_an_interruption(retirement, since, dry_run):
        return None
    attempt = retirement.attempt if retirement else 0
    about = f"interruption-{seen.instance}-{int(seen.marked_at.timestamp())}-{attempt}"
    event = place.interruption(about, seen.marked_at, seen.instance, seen.action)
    return Lost(seen.instance, event, f"EC2 takes it back ({seen.action}), and nobody said so")


def _serves_an_interruption(retirement: Retirement, since: datetime, dry_run: bool) -> bool:
    if retirement.phase in {Phase.UNDOING, Phase.UNDONE}:
        return False
    if retirement.had_no_effect and not dry_run:
        return False
    return retirement.kind in _ENDS_SURELY and retirement.noticed_at >= since


def about_state(
    seen: ObservedInstance,
    retirement: Retirement | None,
    place: EventOrigin,
    now: datetime,
    dry_run: bool = False,
) -> Lost | None:
    """Decide about an instance that stops or ends."""
    if seen.state not in STOPS_OR_ENDS:
        return None
    if retirement is not None and _serves_an_end(retirement, now, dry_run):
        return None
    instance, attempt = seen.facts.instance, retirement.attempt if retirement else 0
    about = f"{seen.state}-{instance}-{attempt}"
    event = place.state_change(about, now, instance, seen.state)
    return Lost(instance, event, f"EC2 says that it is {seen.state}, and nobody said so")


def _serves_an_end(retirement: Retirement, now: datetime, dry_run: bool) -> bool:
    if retirement.phase in {Phase.UNDOING, Phase.UNDONE}:
        return False
    if retirement.had_no_effect and not dry_run:
        return False
    if retirement.kind in _ENDS_SURELY:
        return retirement.kind is NoticeKind.STATE_CHANGE or not _only_cordoned(retirement)
    if retirement.phase is not Phase.FINISHED or _only_cordoned(retirement):
        return False
    return not has_lived_on(retirement, now)


def _only_cordoned(retirement: Retirement) -> bool:
    return retirement.phase is Phase.FINISHED and retirement.action is Action.CORDON


def about_return(
    seen: ObservedInstance, retirement: Retirement | None, place: EventOrigin, now: datetime
) -> Lost | None:
    """Decide about an instance whose node is marked as retiring: one that was stopped and runs
    again is to be freed. EC2 counts a launch from each start."""
    if seen.state != "running" or retirement is None:
        return None
    if now < seen.launched_at + PATIENCE or seen.launched_at <= retirement.noticed_at:
        return None
    undone = retirement.phase in {Phase.UNDOING, Phase.UNDONE}
    if undone or not (retirement.stops or retirement.phase is Phase.FINISHED):
        return None
    about = f"running-{seen.facts.instance}-{retirement.attempt}"
    event = place.state_change(about, now, seen.facts.instance, "running")
    return Lost(seen.facts.instance, event, "it was stopped and runs again, and nobody said so")


def about_change_over(
    seen: ObservedInstance,
    retirement: Retirement | None,
    changes: Collection[ObservedChange],
    policy: Policy,
    place: EventOrigin,
    now: datetime,
) -> Lost | None:
    """Decide about an instance whose node is marked as retiring, and was drained for a scheduled
    change: one that came through it, and that nothing succeeds, is to be freed. A reboot changes
    neither its state nor its launch. `changes` are all that EC2 has scheduled, or had of late."""
    if seen.state != "running" or retirement is None or retirement.replacement_intent is not None:
        return None
    drained = retirement.phase is Phase.FINISHED and not retirement.had_no_effect
    if retirement.kind is not NoticeKind.SCHEDULED_CHANGE or not drained:
        return None
    if not (
        _is_called_off(retirement, changes, policy, now) or _is_long_past(retirement, changes, now)
    ):
        return None
    event = place.scheduled_change(
        f"over-{retirement.instance}-{retirement.event}-{retirement.attempt}",
        now,
        retirement.instance,
        retirement.event,
        now,
        called_off=True,
    )
    why = "it came through the scheduled change that it was drained for, and nobody said so"
    return Lost(retirement.instance, event, why)


def _is_long_past(
    retirement: Retirement, changes: Collection[ObservedChange], now: datetime
) -> bool:
    if retirement.deadline is None or now < retirement.deadline + SURELY_OVER:
        return False
    return not any(one.instance == retirement.instance and not one.over for one in changes)


def about_change(
    seen: ObservedChange,
    retirement: Retirement | None,
    policy: Policy,
    place: EventOrigin,
    now: datetime,
    dry_run: bool = False,
) -> Lost | None:
    """Decide about an instance that EC2 announces to reboot, stop or retire. Before its lead there
    is nothing to be done about it."""
    begins = _begins(seen, policy)
    if begins is not None and now < begins + SCHEDULE_LATE:
        return None
    if retirement is not None and _serves_a_change(retirement, begins, now, dry_run):
        return None
    attempt = retirement.attempt if retirement else 0
    about = f"change-{seen.instance}-{seen.event}-{attempt}"
    event = place.scheduled_change(about, now, seen.instance, seen.event, seen.starts_at)
    why = f"EC2 has scheduled {seen.code} for {seen.starts_at:%Y-%m-%d %H:%M} UTC"
    return Lost(seen.instance, event, f"{why}, and nobody said so")


def _begins(seen: ObservedChange, policy: Policy) -> datetime | None:
    return None if policy.lead is None else seen.starts_at - policy.lead


def _serves_a_change(
    retirement: Retirement, begins: datetime | None, now: datetime, dry_run: bool
) -> bool:
    if retirement.phase in {Phase.UNDOING, Phase.UNDONE}:
        return False
    ended_at = retirement.ended_at
    if retirement.had_no_effect and not dry_run:
        return ended_at is not None and now < ended_at + ASKED_AGAIN_AFTER
    if retirement.deadline_from_begin:
        if retirement.begun_at is None:
            return False  # its turn may never come
        if ended_at is not None and now >= ended_at + TERMINATED_WITHIN:
            return False  # it has left the instance, and maybe pods that budgets blocked
    return begins is None or retirement.noticed_at >= begins


def about_impairment(
    seen: ObservedImpairment,
    retirement: Retirement | None,
    policy: Policy,
    place: EventOrigin,
    now: datetime,
    dry_run: bool = False,
) -> Lost | None:
    """Decide about an instance whose status checks fail: once for each time that they begin to."""
    since = seen.failing_since(policy.checks)
    if since is None or now < since + policy.tolerates:
        return None
    if retirement is not None and _serves_an_impairment(retirement, since, now, dry_run):
        return None
    attempt = retirement.attempt if retirement else 0
    about = f"impaired-{seen.instance}-{int(since.timestamp())}-{attempt}"
    failed = sorted(seen.since.keys() & policy.checks)
    event = place.impaired_status(about, now, seen.instance, failed)
    why = f"EC2's {' and '.join(failed)} status checks fail since {since:%Y-%m-%d %H:%M:%S} UTC"
    return Lost(seen.instance, event, why)


def _serves_an_impairment(
    retirement: Retirement, since: datetime, now: datetime, dry_run: bool
) -> bool:
    if retirement.phase in {Phase.UNDOING, Phase.UNDONE}:
        return False
    if retirement.phase is Phase.FINISHED:
        if retirement.had_no_effect and not dry_run:
            ended_at = retirement.ended_at
            return ended_at is not None and now < ended_at + ASKED_AGAIN_AFTER
        return retirement.noticed_at >= since
    if retirement.kind in VOLUNTARY - {NoticeKind.IMPAIRED_STATUS}:
        return retirement.begun_at is not None or retirement.replacement_intent is not None
    return True


def about_recovery(
    retirement: Retirement,
    seen: Collection[ObservedImpairment],
    policy: Policy,
    place: EventOrigin,
    now: datetime,
) -> Lost | None:
    """Decide about a retirement that waits for its turn since status checks failed: they may pass
    again by now. `seen` are all instances of which some fail."""
    waits = retirement.kind is NoticeKind.IMPAIRED_STATUS and retirement.phase is Phase.NOTICED
    fails = any(
        one.instance == retirement.instance and one.failing_since(policy.checks) is not None
        for one in seen
    )
    if not waits or fails or now < retirement.noticed_at + PATIENCE:
        return None
    about = f"recovered-{retirement.instance}-{retirement.attempt}"
    event = place.impaired_status(about, now, retirement.instance, (), over=True)
    return Lost(retirement.instance, event, "its status checks pass again")


def about_called_off(
    retirement: Retirement,
    changes: Collection[ObservedChange],
    policy: Policy,
    place: EventOrigin,
    now: datetime,
) -> Lost | None:
    """Decide about a retirement that waits for its turn since a change was announced: that may be
    called off, or come later, by now. `changes` are all that EC2 has scheduled, or had of late."""
    waits = retirement.kind is NoticeKind.SCHEDULED_CHANGE and retirement.phase is Phase.NOTICED
    if not waits or not _is_called_off(retirement, changes, policy, now):
        return None
    event = place.scheduled_change(
        f"called-off-{retirement.instance}-{retirement.event}-{retirement.attempt}",
        now,
        retirement.instance,
        retirement.event,
        now,
        called_off=True,
    )
    return Lost(retirement.instance, event, "what it waits for is called off, or comes later")


def _is_called_off(
    retirement: Retirement, changes: Collection[ObservedChange], policy: Policy, now: datetime
) -> bool:
    if not retirement.event.startswith(CHANGE_PREFIX):
        # Told of by AWS Health, whose ids are not EC2's: by its time EC2 may know it.
        starts_at = retirement.deadline + SAFETY_MARGIN if retirement.deadline else None
        return starts_at is not None and is_over(changes, retirement.instance, starts_at)
    to_come = {
        one.event
        for one in changes
        if one.instance == retirement.instance
        and not one.over
        and ((begins := _begins(one, policy)) is None or begins <= now)
    }
    return retirement.event not in to_come


def is_detached_too_long(record: Retirement, now: datetime) -> bool:
    """Whether it is time to look for an instance that Leeway's own record says it detached, and did
    not end: twice as long after each failure."""
    if (
        record.phase not in OVER
        or not record.needs_termination
        or record.replacement_intent is None
    ):
        return False
    waits = TERMINATED_WITHIN * 2**record.replacement_intent.failures
    return record.ended_at is None or now >= record.ended_at + waits


def about_detached(
    record: Retirement, state: str | None, place: EventOrigin, now: datetime
) -> Lost | None:
    """Decide about an instance that Leeway's own record says it detached, and did not end: nobody
    else does. `state` is a fresh read, None where EC2 knows no such instance any more."""
    if not is_detached_too_long(record, now):
        return None
    about = f"detached-{record.instance}-{record.attempt}"
    if state is None or state in GONE:
        event = place.state_change(about, now, record.instance, state or "terminated")
        why = "it was detached from its group, and it has ended by now"
    elif state == "running":
        event = place.rebalance(about, now, record.instance)
        why = "it was detached from its group to be drained and terminated, and it still runs"
    else:
        return None
    return Lost(record.instance, event, why, begun=Action.RETIRE)


def about_start(record: Retirement | Admission, now: datetime) -> LostStart | None:
    """Decide about a record whose execution may never have begun."""
    hurries = isinstance(record, Retirement) and record.kind in _ENDS_SURELY
    begins = record.phase in {Phase.NOTICED, Phase.UNDOING}
    since = LOST_START_IN_HASTE if hurries else LOST_START
    if not begins or not since <= now - record.noticed_at < LOST_START_UNTIL:
        return None
    return LostStart(
        record.instance,
        record.facts.cluster,
        record.attempt,
        isinstance(record, Admission),
        "it is on record and has done nothing yet: its start may have been lost",
    )


def about_retirement(
    record: Retirement, state: str | None, place: EventOrigin, now: datetime, dry_run: bool = False
) -> Lost | None:
    """Decide about a retirement that has not ended, or that has and left its group one larger.
    `state` is its instance's, None where EC2 lists it no more."""
    if record.phase in OVER and not record.must_restore_capacity:
        return None
    if now < latest_end(record) + OVERDUE or (dry_run and record.phase in OVER):
        return None
    about = f"dead-retirement-{record.instance}-{record.attempt}"
    if state is None or state in GONE:
        event = place.state_change(about, now, record.instance, state or "terminated")
    elif record.phase in {Phase.UNDOING, Phase.UNDONE}:
        event = place.state_change(about, now, record.instance, "running")
    elif record.hooks:
        event = place.lifecycle_action(
            about, now, record.instance, record.hooks[-1], launching=False
        )
    elif record.kind is NoticeKind.IMPAIRED_STATUS:
        event = place.impaired_status(about, now, record.instance, ())
    elif record.kind in VOLUNTARY:
        event = place.rebalance(about, now, record.instance)
    elif record.kind is NoticeKind.STATE_CHANGE:
        event = place.state_change(about, now, record.instance, "stopping")
    else:
        action = InterruptionAction.STOP if record.stops else InterruptionAction.TERMINATE
        event = place.interruption(about, now, record.instance, action)
    left = "it left its group one larger, which is to be as large as before"
    why = left if record.phase in OVER else _died(latest_end(record))
    begun = Action.RETIRE if record.must_restore_capacity else record.action
    return Lost(record.instance, event, why, begun=begun)


def about_arrival(
    record: Admission, state: str | None, place: EventOrigin, now: datetime
) -> Lost | None:
    """Decide about an admission that has not ended, for which a hook may still wait."""
    if now < record.deadline + OVERDUE or state is None or state in GONE or not record.hooks:
        return None
    about = f"dead-admission-{record.instance}-{record.attempt}"
    event = place.lifecycle_action(about, now, record.instance, record.hooks[-1], launching=True)
    return Lost(record.instance, event, _died(record.deadline))


def _died(deadline: datetime) -> str:
    return f"its work should have ended by {deadline:%H:%M:%S} UTC: the execution has died"
