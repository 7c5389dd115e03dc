"""Decides how a notice changes the retirement record, and when it begins a new attempt.

A repeated or less urgent notice begins no attempt. A more urgent notice does, and so does a notice
after which the instance stays.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from leeway.execution.attempt import OVERDUE, Phase, RecordChange, append_notice_id
from leeway.instances.facts import InstanceFacts
from leeway.notices import InstanceId, InterruptionAction, Notice, NoticeKind
from leeway.policy.rules import SPOT_WARNING, VOLUNTARY, Action, Ruling
from leeway.reasons import Reason
from leeway.retirement import reasons
from leeway.retirement.hooks import LONGEST_TIMEOUT
from leeway.retirement.record import (
    INTERRUPTIONS,
    TERMINATED_WITHIN,
    Retirement,
    ReturnTerms,
    latest_end,
)

MIN_DEADLINE_GAIN = timedelta(seconds=5)
"""How much earlier the deadline of a second notice must be to begin a new attempt: AWS may announce
the same event twice, some seconds apart."""

# Which notice takes precedence. Capacity is given back if nothing else happens to the node. An
# interruption cannot be stopped; a lifecycle hook waits for an answer; a scheduled change can be
# cancelled and status checks can pass again; a rebalance recommendation announces no end.
_PRECEDENCE = {
    NoticeKind.CAPACITY_RETURN: 0,
    NoticeKind.REBALANCE: 1,
    NoticeKind.SCHEDULED_CHANGE: 2,
    NoticeKind.IMPAIRED_STATUS: 2,
    NoticeKind.UNHEALTHY_NODE: 2,
    NoticeKind.TERMINATE_HOOK: 3,
    NoticeKind.STATE_CHANGE: 4,
    NoticeKind.SPOT_INTERRUPTION: 4,
    NoticeKind.CAPACITY_RESERVATION: 4,
}

_CANCELLABLE = frozenset({NoticeKind.SCHEDULED_CHANGE, NoticeKind.IMPAIRED_STATUS})
"""Notices that a later notice can cancel."""

END_WITHIN = timedelta(minutes=10)
"""How long after the end of its retirement an instance begins to stop or terminate because of it.
An instance that stops later has kept running, and may have pods again."""

CLOCK_TOLERANCE = timedelta(seconds=30)
"""How far the times of an interruption and of a later start may be in the wrong order: events have
whole seconds, from the clocks of several services. From a warning to a start it takes longer."""


def apply_notice(
    stored: Retirement | None, notice: Notice, ruling: Ruling, facts: InstanceFacts
) -> RecordChange[Retirement]:
    """Decide how a notice that requests a retirement changes the record of the instance.

    A repeated or less urgent notice begins no attempt. If the start of the attempt may be lost, it
    is repeated: Lambda starts an execution name once.
    """
    if stored is None:
        return RecordChange(
            _first(notice, ruling, facts),
            True,
            True,
            reasons.RETIREMENT_STARTED("The notice starts the first retirement of the instance."),
        )
    if notice.id in stored.notices:
        again = stored.phase is Phase.NOTICED
        reason = (
            reasons.RETIREMENT_EXISTS(
                "The notice was received before; retire_node is started again "
                "in case the start was lost."
            )
            if again
            else reasons.RETIREMENT_EXISTS("The notice was received before.")
        )
        return RecordChange(stored, False, again, reason)
    newer = _why_new_attempt(stored, notice, ruling)
    if newer is None:
        kept = _with_notice(stored, notice) if _has_new_hook(stored, notice) else stored
        start = stored.phase is Phase.NOTICED
        return RecordChange(
            kept, kept is not stored, start, reasons.RETIREMENT_EXISTS("It covers this notice.")
        )
    return RecordChange(_next_attempt(stored, notice, ruling, facts), True, True, newer)


def apply_return(
    stored: Retirement | None,
    facts: InstanceFacts,
    ruling: Ruling,
    terms: ReturnTerms,
    now: datetime,
) -> RecordChange[Retirement]:
    """Decide how Leeway's decision to give an instance back changes the record of the instance."""
    notice = Notice(
        id=f"return-{facts.instance}-{now.isoformat()}",
        kind=NoticeKind.CAPACITY_RETURN,
        account="",
        region="",
        time=now,
        instances=(InstanceId(facts.instance),),
    )
    change = apply_notice(stored, notice, ruling, facts)
    if not change.write:
        return change
    return replace(change, record=change.record.model_copy(update={"terms": terms}))


def return_again(stored: Retirement, terms: ReturnTerms, now: datetime) -> RecordChange[Retirement]:
    """Decide how the return of an instance begins again after its execution died: on the terms that
    it had, with as much time for the drain. A drain that outlasts an execution goes on until its
    deadline."""
    began, deadline = stored.drain_began_at or stored.noticed_at, stored.deadline
    outlasts = stored.drain_began_at is not None and deadline is not None and now < deadline
    if deadline is not None and not outlasts:
        deadline = now + (deadline - began)
    ruling = Ruling(
        action=Action.RETIRE,
        deadline=deadline,
        replacement=stored.replacement,
        on_blocked=stored.on_blocked,
        reason=stored.reason,
    )
    return apply_return(stored, stored.facts, ruling, terms, now)


def undo(stored: Retirement | None, notice: Notice) -> RecordChange[Retirement] | None:
    """Decide how a notice after which the instance stays changes its record: a change is cancelled,
    or the instance runs again, or returns to service. None if there is nothing to undo.

    A replacement that is requested and a drain that has begun are not undone.
    """
    if stored is None or notice.time < stored.noticed_at:
        return None
    died = notice.time >= latest_end(stored) + OVERDUE
    if stored.phase is Phase.UNDOING and not died:
        # The start is repeated, in case it was lost.
        return RecordChange(
            stored,
            False,
            True,
            reasons.RETIREMENT_CANCELLED(
                "The retirement is being undone: Leeway uncordons the node."
            ),
        )
    must_restore = stored.phase is Phase.UNDONE and stored.must_restore_capacity
    if stored.phase is Phase.UNDOING or must_restore:
        reason = _died(stored) if died else None
    else:
        reason = _why_undo(stored, notice)
    if reason is None:
        return None
    # The record does not keep the id of this notice: a postponed change has the same id again.
    undoing = _undoing(stored, reason, notice.time)
    stays_cordoned = stored.stays_cordoned and notice.kind in _CANCELLABLE
    undoing = undoing.model_copy(update={"stays_cordoned": stays_cordoned})
    return RecordChange(undoing, True, True, reason)


def undo_return(stored: Retirement, reason: Reason, now: datetime) -> Retirement | None:
    """Return the record of a node that stays because the cause of its return is over; None if its
    instance is about to end, or the return is undone already.

    A drain that has begun is undone too: evicted pods stay evicted, and the node takes new pods.
    """
    if stored.returns is None or stored.phase not in {Phase.NOTICED, Phase.RUNNING}:
        return None
    return _undoing(stored, reason, now)


def _undoing(stored: Retirement, reason: Reason, now: datetime) -> Retirement:
    """Return the record of the attempt that removes the marks from the node."""
    return stored.model_copy(
        update={
            "attempt": stored.attempt + 1,
            "version": stored.version + 1,
            "phase": Phase.UNDOING,
            "answer": None,
            "noticed_at": now,
            "reason": reason,
        }
    )


def _died(stored: Retirement) -> Reason:
    return reasons.EXECUTION_DIED(attempt=stored.attempt, time=latest_end(stored))


def _why_undo(stored: Retirement, notice: Notice) -> Reason | None:
    if stored.phase is Phase.UNDONE:
        return None
    if notice.kind is NoticeKind.LAUNCH_HOOK:
        # Auto Scaling replaces the root volume of an instance, or takes it back from a warm pool,
        # without a stop. Source: EC2 Auto Scaling user guide, "Replace root volumes", lifecycle
        # events.
        drained = stored.kind is NoticeKind.TERMINATE_HOOK and stored.phase is Phase.FINISHED
        returns = reasons.RETIREMENT_STARTED("The instance returns to service after its hook.")
        return returns if drained else None
    if stored.kind in INTERRUPTIONS and notice.time < stored.noticed_at + CLOCK_TOLERANCE:
        return None  # the notice says that the instance ran before it was interrupted
    if notice.kind is NoticeKind.IMPAIRED_STATUS:
        waits = stored.kind is notice.kind and stored.phase is Phase.NOTICED
        can_stop = waits and stored.replacement_intent is None
        return (
            reasons.RETIREMENT_CANCELLED("The status checks of the instance pass again.")
            if can_stop
            else None
        )
    if notice.kind is NoticeKind.SCHEDULED_CHANGE:
        same = stored.kind is notice.kind and stored.event in {"", notice.event}
        if not same or stored.replacement_intent is not None:
            return None
        drained = stored.phase is Phase.FINISHED and not stored.had_no_effect
        return (
            reasons.RETIREMENT_CANCELLED(
                "The scheduled change is cancelled, completed or postponed."
            )
            if drained or stored.phase is Phase.NOTICED
            else None
        )
    if stored.stops or stored.phase is Phase.FINISHED:
        return reasons.RETIREMENT_STARTED("The instance was stopped and has been started again.")
    return None


def _first(notice: Notice, ruling: Ruling, facts: InstanceFacts) -> Retirement:
    return Retirement(
        facts=facts,
        attempt=1,
        phase=Phase.NOTICED,
        notices=(notice.id,),
        hooks=(notice.hook,) if notice.hook else (),
        **_requested(notice, ruling),
    )


def _requested(notice: Notice, ruling: Ruling) -> dict[str, Any]:
    """Return the record's fields that a notice and its ruling set."""
    return {
        "kind": notice.kind,
        "noticed_at": notice.time,
        "deadline": ruling.deadline,
        "on_blocked": ruling.on_blocked,
        "replacement": ruling.replacement,
        "reason": ruling.reason,
        "action": ruling.action,
        "stops": _only_stops(notice),
        "event": notice.event,
    }


def _only_stops(notice: Notice) -> bool:
    if notice.action is not None:
        return notice.action is not InterruptionAction.TERMINATE
    return notice.state in {"stopping", "stopped"}


def _why_new_attempt(stored: Retirement, notice: Notice, ruling: Ruling) -> Reason | None:
    """Return why the notice needs a new attempt; None if the stored retirement covers it."""
    if stored.phase in {Phase.UNDOING, Phase.UNDONE}:
        tolerance = CLOCK_TOLERANCE if notice.kind in INTERRUPTIONS else timedelta(0)
        before = notice.time < stored.noticed_at - tolerance
        return (
            None
            if before
            else reasons.RETIREMENT_STARTED("The previous retirement of the instance was undone.")
        )
    if stored.phase is Phase.FINISHED:
        if notice.hook is not None and _has_new_hook(stored, notice):
            return reasons.RETIREMENT_STARTED(
                f"Lifecycle hook {notice.hook.name} of group "
                f"{notice.hook.group} waits for an answer."
            )
        return _why_after_end(stored, notice, ruling)
    if _is_after_restart(stored, notice):
        return reasons.RETIREMENT_STARTED("The instance was stopped and has been started again.")
    if notice.time >= latest_end(stored) + OVERDUE:
        return _died(stored)
    return _why_more_urgent(stored, notice, ruling)


def _is_after_restart(stored: Retirement, notice: Notice) -> bool:
    """Return whether the notice interrupts an instance that has stopped and started again since the
    stored retirement."""
    stopped = stored.stops and _is_stopped_by(stored.kind, stored.noticed_at, notice.time)
    return stopped and notice.kind in INTERRUPTIONS


def _is_before_restart(stored: Retirement, notice: Notice) -> bool:
    """Return whether the notice reports a stop after which the instance has started again: the
    stored retirement is for a notice that AWS sends for running instances only."""
    stopped = _only_stops(notice) and _is_stopped_by(notice.kind, notice.time, stored.noticed_at)
    only_running = INTERRUPTIONS | {
        NoticeKind.REBALANCE,
        NoticeKind.IMPAIRED_STATUS,
        NoticeKind.UNHEALTHY_NODE,
    }
    return stopped and stored.kind in only_running


def _is_being_interrupted(stored: Retirement, notice: Notice) -> bool:
    """Return whether EC2 interrupts the instance and has not had the time to: a voluntary
    retirement that is declined now would uncordon the node."""
    gone = _is_stopped_by(stored.kind, stored.noticed_at, notice.time)
    return stored.kind in INTERRUPTIONS and not gone


def _is_stopped_by(kind: NoticeKind, noticed_at: datetime, now: datetime) -> bool:
    warned = SPOT_WARNING if kind in INTERRUPTIONS else timedelta(0)
    return noticed_at + warned + CLOCK_TOLERANCE < now


def _why_more_urgent(stored: Retirement, notice: Notice, ruling: Ruling) -> Reason | None:
    """Compare the notice with the open retirement: first the precedence, then the deadline."""
    if _is_own_termination(stored, notice) or _is_before_restart(stored, notice):
        return None
    if notice.kind in VOLUNTARY and is_drained_in_time(stored, notice.kind):
        # The drain has begun; a new attempt would wait for the disruption budget again.
        return None
    precedence = _PRECEDENCE[notice.kind] - _PRECEDENCE[stored.kind]
    if precedence > 0:
        return reasons.RETIREMENT_STARTED(
            f"A {notice.kind} notice takes precedence over a {stored.kind} notice."
        )
    if precedence == 0 and ruling.action is Action.RETIRE and stored.action is Action.CORDON:
        return reasons.RETIREMENT_STARTED(
            "The previous notice only cordoned the node; this notice drains it."
        )
    if precedence == 0 and _is_earlier(ruling.deadline, stored.deadline):
        return reasons.RETIREMENT_STARTED(
            "The notice has an earlier deadline than the current attempt."
        )
    return None


def is_drained_in_time(stored: Retirement, kind: NoticeKind) -> bool:
    """Whether the drain of an open retirement has begun, and may end for a notice of this kind. The
    drain of an unhealthy node may never end without a deadline, and Leeway decides again about a
    node that it gives back only to bound its drain."""
    bounds = {NoticeKind.UNHEALTHY_NODE, NoticeKind.CAPACITY_RETURN}
    bounded = stored.deadline is not None or kind not in bounds
    return stored.drain_began_at is not None and bounded


def _is_own_termination(stored: Retirement, notice: Notice) -> bool:
    """Return whether the notice reports the termination that the retirement itself requested from
    the group: as a lifecycle action, or as a state change if no hook holds the instance."""
    intent = stored.replacement_intent
    if notice.kind is NoticeKind.STATE_CHANGE and stored.kind in VOLUNTARY:
        return intent is not None and intent.ending
    return stored.group_terminates and notice.kind is NoticeKind.TERMINATE_HOOK


def _has_new_hook(stored: Retirement, notice: Notice) -> bool:
    return notice.hook is not None and notice.hook not in stored.hooks


def _why_after_end(stored: Retirement, notice: Notice, ruling: Ruling) -> Reason | None:
    """Return why a notice begins a new attempt of a finished retirement; None if the retirement
    covers it.

    A finished retirement covers earlier notices. One without effect, or with work left, covers
    voluntary notices only.
    """
    if stored.had_no_effect and notice.kind not in VOLUNTARY:
        return reasons.RETIREMENT_STARTED(
            "The previous retirement of the instance was declined, undone or a dry run."
        )
    intent = stored.replacement_intent
    if intent is not None and stored.must_restore_capacity and notice.kind not in VOLUNTARY:
        return reasons.RETIREMENT_STARTED(
            "The previous retirement did not lower the desired capacity of "
            f"group {intent.group} again."
        )
    if stored.needs_termination and notice.kind is NoticeKind.STATE_CHANGE:
        # EC2 reports the termination that Leeway requests within seconds.
        late = stored.ended_at is not None and notice.time >= stored.ended_at + TERMINATED_WITHIN
        return (
            reasons.RETIREMENT_STARTED(
                "The previous retirement had to terminate the instance and did not."
            )
            if late
            else None
        )
    if notice.kind in VOLUNTARY and _is_being_interrupted(stored, notice):
        return None
    if _only_cordoned_before(stored, notice, ruling):
        return reasons.RETIREMENT_STARTED(
            "The previous notice only cordoned the node; this notice drains it."
        )
    if notice.kind is NoticeKind.STATE_CHANGE:
        kept_running = notice.state != "terminated" and has_kept_running(stored, notice.time)
        return (
            reasons.RETIREMENT_STARTED(
                "The instance kept running after its retirement ended, and may have pods again."
            )
            if kept_running
            else None
        )
    return (
        None
        if notice.time <= stored.noticed_at
        else reasons.RETIREMENT_STARTED("The previous retirement of the instance has ended.")
    )


def has_kept_running(stored: Retirement, now: datetime) -> bool:
    """Return whether an instance that stops or terminates now does so for another reason than its
    retirement, which ended too long ago."""
    return stored.ended_at is not None and now > stored.ended_at + END_WITHIN


def _only_cordoned_before(stored: Retirement, notice: Notice, ruling: Ruling) -> bool:
    """Return whether a policy only cordoned the node before, this notice drains it, and the
    instance has not been restarted in between."""
    if notice.kind in VOLUNTARY or _is_stopped_by(notice.kind, notice.time, stored.noticed_at):
        return False
    return stored.action is Action.CORDON and ruling.action is Action.RETIRE


def _is_earlier(deadline: datetime | None, stored: datetime | None) -> bool:
    if deadline is None:
        return False
    return stored is None or deadline < stored - MIN_DEADLINE_GAIN


def _with_notice(stored: Retirement, notice: Notice) -> Retirement:
    hooks = stored.hooks
    if notice.hook and _has_new_hook(stored, notice):
        hooks = (*hooks, notice.hook)
    return stored.model_copy(
        update={
            "notices": append_notice_id(stored.notices, notice.id),
            "hooks": hooks,
            "version": stored.version + 1,
        }
    )


def _are_hooks_over(stored: Retirement, now: datetime) -> bool:
    """Return whether all lifecycle actions of the finished retirement have ended by now: a later
    action of the same hook is another one."""
    if stored.answer is None or stored.ended_at is None:
        return False
    return now >= stored.ended_at + timedelta(seconds=LONGEST_TIMEOUT)


def _next_attempt(
    stored: Retirement, notice: Notice, ruling: Ruling, facts: InstanceFacts
) -> Retirement:
    undone = stored.phase in {Phase.UNDOING, Phase.UNDONE}
    reset: dict[str, Any] = {}
    if undone or _are_hooks_over(stored, notice.time):
        reset["hooks"] = ()
    if undone and not (stored.must_restore_capacity or stored.needs_termination):
        reset["replacement_intent"] = None
    if stored.action is Action.CORDON and not undone:
        reset["stays_cordoned"] = True
    return _with_notice(stored.model_copy(update=reset), notice).model_copy(
        update={
            "facts": facts,
            "attempt": stored.attempt + 1,
            "phase": Phase.NOTICED,
            "replacement_began_at": None,
            "drain_began_at": None,
            "node_is_empty": stored.node_is_empty and stored.needs_termination,
            "answer": None,
            **_requested(notice, ruling),
        }
    )
