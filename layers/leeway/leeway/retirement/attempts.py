"""How notices change a retirement's record, and when they raise its attempt: what is repeated or
less urgent does not, what outranks it does, and so does that by which the instance stays."""

from datetime import datetime, timedelta
from typing import Any

from leeway.execution.attempt import OVERDUE, Phase, RecordChange, remembered
from leeway.instances.facts import InstanceFacts
from leeway.lifecycle_hooks.held_hooks import LONGEST_TIMEOUT
from leeway.notices import InterruptionAction, Notice, NoticeKind
from leeway.policy.rules import SPOT_WARNING, VOLUNTARY, Action, Ruling
from leeway.retirement.record import INTERRUPTIONS, TERMINATED_WITHIN, Retirement, latest_end

MATTERS = timedelta(seconds=5)
"""How much less time a second notice must leave to be worth starting again for: the same thing may
be told of twice, some seconds apart."""

# How surely the instance ends at its deadline. EC2 takes an interrupted one whatever happens; a
# group waits for its hook; what is scheduled may be called off, and failed checks may pass again; a
# recommendation is one.
_HARDNESS = {
    NoticeKind.REBALANCE: 1,
    NoticeKind.SCHEDULED_CHANGE: 2,
    NoticeKind.IMPAIRED_STATUS: 2,
    NoticeKind.TERMINATE_HOOK: 3,
    NoticeKind.STATE_CHANGE: 4,
    NoticeKind.SPOT_INTERRUPTION: 4,
    NoticeKind.CAPACITY_RESERVATION: 4,
}

_CALLED_OFF = frozenset({NoticeKind.SCHEDULED_CHANGE, NoticeKind.IMPAIRED_STATUS})
"""Notices that may be taken back."""

LIVED_ON = timedelta(minutes=10)
"""How long after its retirement an instance that somebody ends has begun to end. One that stops
later has lived on meanwhile, and may have pods again."""

CLOCKS = timedelta(seconds=30)
"""How far the times of an interruption and of a restart may be the wrong way round: events count
whole seconds, by clocks of several services. From a warning to a restart it takes longer."""


def receive(
    stored: Retirement | None, notice: Notice, ruling: Ruling, facts: InstanceFacts
) -> RecordChange[Retirement]:
    """Decide what a notice that asks for a retirement does to the instance's record.

    A repeated notice and one that is less urgent raise no attempt; a start that may have
    been lost is made again, which does no harm since executions are named by attempt.
    """
    if stored is None:
        return RecordChange(_first(notice, ruling, facts), True, True, "first notice")
    if notice.id in stored.notices:
        again = stored.phase is Phase.NOTICED
        reason = "seen before; starting it again in case that was lost" if again else "seen before"
        return RecordChange(stored, False, again, reason)
    newer = _why_newer(stored, notice, ruling)
    if newer is None:
        kept = _remember(stored, notice) if _has_new_hook(stored, notice) else stored
        start = stored.phase is Phase.NOTICED
        return RecordChange(kept, kept is not stored, start, "a retirement that serves it is known")
    return RecordChange(_raised(stored, notice, ruling, facts), True, True, newer)


def undo(stored: Retirement | None, notice: Notice) -> RecordChange[Retirement] | None:
    """Decide what a notice by which the instance stays does to its record: that a change is called
    off, or that the instance runs again. None where there is nothing to undo.

    What has begun is not undone: the successor is on its way, or pods have gone.
    """
    if stored is None or notice.time < stored.noticed_at:
        return None
    died = notice.time >= latest_end(stored) + OVERDUE
    if stored.phase is Phase.UNDOING and not died:
        # Started again, in case the start was lost.
        return RecordChange(stored, False, True, "its node is being freed")
    if stored.phase is Phase.UNDOING or (
        stored.phase is Phase.UNDONE and stored.must_restore_capacity
    ):
        reason = "it should long have been undone: its execution has died" if died else None
    else:
        reason = _why_undone(stored, notice)
    if reason is None:
        return None
    called_off = notice.kind in _CALLED_OFF
    # Its id is not remembered: a change that comes later is received again under the same.
    undoing = stored.model_copy(
        update={
            "attempt": stored.attempt + 1,
            "version": stored.version + 1,
            "phase": Phase.UNDOING,
            "stays_cordoned": stored.stays_cordoned and called_off,
            "answer": None,
            "noticed_at": notice.time,
            "reason": reason,
        }
    )
    return RecordChange(undoing, True, True, reason)


def _why_undone(stored: Retirement, notice: Notice) -> str | None:
    if stored.phase is Phase.UNDONE:
        return None
    if stored.kind in INTERRUPTIONS and notice.time < stored.noticed_at + CLOCKS:
        return None  # it ran before it was interrupted
    if notice.kind is NoticeKind.IMPAIRED_STATUS:
        waits = stored.kind is notice.kind and stored.phase is Phase.NOTICED
        return (
            "the status checks pass again" if waits and stored.replacement_intent is None else None
        )
    if notice.kind is NoticeKind.SCHEDULED_CHANGE:
        same = stored.kind is notice.kind and stored.event in {"", notice.event}
        if not same or stored.replacement_intent is not None:
            return None
        if stored.phase is Phase.NOTICED:
            return "the scheduled change is called off, or comes later"
        if stored.phase is Phase.FINISHED and not stored.had_no_effect:
            return "the scheduled change is over or comes later, and nothing succeeds the instance"
        return None
    if stored.stops or stored.phase is Phase.FINISHED:
        return "the instance was stopped and runs again"
    return None


def _first(notice: Notice, ruling: Ruling, facts: InstanceFacts) -> Retirement:
    return Retirement(
        facts=facts,
        attempt=1,
        phase=Phase.NOTICED,
        notices=(notice.id,),
        hooks=(notice.hook,) if notice.hook else (),
        **_asked(notice, ruling),
    )


def _asked(notice: Notice, ruling: Ruling) -> dict[str, Any]:
    """Render what a notice and the ruling on it ask for, as a record's fields."""
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


def _why_newer(stored: Retirement, notice: Notice, ruling: Ruling) -> str | None:
    """Say why this notice needs a retirement of its own, or None where the stored one serves."""
    if stored.phase in {Phase.UNDOING, Phase.UNDONE}:
        since = stored.noticed_at - (CLOCKS if notice.kind in INTERRUPTIONS else timedelta(0))
        return None if notice.time < since else "what was before it has been undone"
    if stored.phase is Phase.FINISHED:
        if _has_new_hook(stored, notice):
            return "its lifecycle hook still waits for an answer"
        return _after_the_end(stored, notice, ruling)
    if _is_of_a_later_life(stored, notice):
        return "the instance was interrupted before, and has run again since"
    if notice.time >= latest_end(stored) + OVERDUE:
        return "the retirement before it should long have ended: its execution has died"
    return _why_more_urgent(stored, notice, ruling)


def _is_of_a_later_life(stored: Retirement, notice: Notice) -> bool:
    """Whether an instance is interrupted that must have stopped, and run again, since."""
    stopped = stored.stops and _is_stopped_by(stored.kind, stored.noticed_at, notice.time)
    return stopped and notice.kind in INTERRUPTIONS


def _is_of_an_earlier_life(stored: Retirement, notice: Notice) -> bool:
    """Whether the instance must have stopped, and run again, before it was interrupted, or
    recommended to go: only of running ones that is told."""
    stopped = _only_stops(notice) and _is_stopped_by(notice.kind, notice.time, stored.noticed_at)
    told_of_running = {NoticeKind.REBALANCE, NoticeKind.IMPAIRED_STATUS}
    return stopped and stored.kind in INTERRUPTIONS | told_of_running


def _is_about_to_go(stored: Retirement, notice: Notice) -> bool:
    """Whether EC2 is taking the instance, and has had no time to: to recommend anything about it
    would have its node released."""
    gone = _is_stopped_by(stored.kind, stored.noticed_at, notice.time)
    return stored.kind in INTERRUPTIONS and not gone


def _is_stopped_by(kind: NoticeKind, told: datetime, now: datetime) -> bool:
    warned = SPOT_WARNING if kind in INTERRUPTIONS else timedelta(0)
    return told + warned + CLOCKS < now


def _why_more_urgent(stored: Retirement, notice: Notice, ruling: Ruling) -> str | None:
    """Compare with the retirement that is on: first by how hard its end is, then by when it is."""
    if _is_its_own_doing(stored, notice) or _is_of_an_earlier_life(stored, notice):
        return None
    if notice.kind in VOLUNTARY and stored.begun_at is not None:
        # What waits for nobody serves it already; another turn would stop the drain that is on.
        return None
    harder = _HARDNESS[notice.kind] - _HARDNESS[stored.kind]
    if harder > 0:
        return f"a {notice.kind} outranks a {stored.kind}"
    if harder == 0 and ruling.action is Action.RETIRE and stored.action is Action.CORDON:
        return "the one before it only cordons"
    if harder == 0 and _is_earlier(ruling.deadline, stored.deadline):
        return "it leaves less time"
    return None


def _is_its_own_doing(stored: Retirement, notice: Notice) -> bool:
    """Whether this tells of the termination that the retirement itself asked its group for: by the
    group's hook or, where none keeps the instance, by EC2."""
    asked = stored.replacement_intent
    if notice.kind is NoticeKind.STATE_CHANGE and stored.kind in VOLUNTARY:
        return asked is not None and asked.ending
    return stored.group_terminates and notice.kind is NoticeKind.TERMINATE_HOOK


def _has_new_hook(stored: Retirement, notice: Notice) -> bool:
    return notice.hook is not None and notice.hook not in stored.hooks


def _after_the_end(stored: Retirement, notice: Notice, ruling: Ruling) -> str | None:
    """A finished retirement stands for what came before it; only what came later begins anew. One
    that came to nothing, or left work, stands for nothing but recommendations."""
    if stored.had_no_effect and notice.kind not in VOLUNTARY:
        return "the retirement before it came to nothing"
    if stored.must_restore_capacity and notice.kind not in VOLUNTARY:
        return "the retirement before it left its group one larger"
    if stored.needs_termination and notice.kind is NoticeKind.STATE_CHANGE:
        # Its own end is told of within seconds of the request for it.
        late = stored.ended_at is not None and notice.time >= stored.ended_at + TERMINATED_WITHIN
        return "the retirement before it detached the instance and did not end it" if late else None
    if notice.kind in VOLUNTARY and _is_about_to_go(stored, notice):
        return None
    if _only_cordoned_before(stored, notice, ruling):
        return "the one before it only cordoned"
    if notice.kind is NoticeKind.STATE_CHANGE:
        ends = notice.state != "terminated" and has_lived_on(stored, notice.time)
        return "the instance has lived on since it was retired" if ends else None
    return None if notice.time <= stored.noticed_at else "the retirement before it has ended"


def has_lived_on(stored: Retirement, now: datetime) -> bool:
    """Whether an instance that ends or stops now does so for another reason than its retirement,
    which has ended."""
    return stored.ended_at is not None and now > stored.ended_at + LIVED_ON


def _only_cordoned_before(stored: Retirement, notice: Notice, ruling: Ruling) -> bool:
    """Whether pods were left on the instance by a policy, and are to go now, in the same life."""
    if notice.kind in VOLUNTARY or _is_stopped_by(notice.kind, notice.time, stored.noticed_at):
        return False
    return stored.action is Action.CORDON and ruling.action is Action.RETIRE


def _is_earlier(deadline: datetime | None, stored: datetime | None) -> bool:
    if deadline is None:
        return False
    return stored is None or deadline < stored - MATTERS


def _remember(stored: Retirement, notice: Notice) -> Retirement:
    hooks = stored.hooks
    if notice.hook and _has_new_hook(stored, notice):
        hooks = (*hooks, notice.hook)
    return stored.model_copy(
        update={
            "notices": remembered(stored.notices, notice.id),
            "hooks": hooks,
            "version": stored.version + 1,
        }
    )


def _are_hooks_over(stored: Retirement, now: datetime) -> bool:
    """Whether every action that was answered has ended by now, taken or timed out: an answer for
    one that comes later is another."""
    if stored.answer is None or stored.ended_at is None:
        return False
    return now >= stored.ended_at + timedelta(seconds=LONGEST_TIMEOUT)


def _raised(stored: Retirement, notice: Notice, ruling: Ruling, facts: InstanceFacts) -> Retirement:
    fresh = stored.phase in {Phase.UNDOING, Phase.UNDONE}
    over = fresh or _are_hooks_over(stored, notice.time)
    anew: dict[str, Any] = {"hooks": ()} if over else {}
    if fresh and not (stored.must_restore_capacity or stored.needs_termination):
        anew["replacement_intent"] = None
    if stored.action is Action.CORDON and not fresh:
        anew["stays_cordoned"] = True
    return _remember(stored.model_copy(update=anew), notice).model_copy(
        update={
            "facts": facts,
            "attempt": stored.attempt + 1,
            "phase": Phase.NOTICED,
            "running_at": None,
            "begun_at": None,
            "node_is_empty": stored.node_is_empty and stored.needs_termination,
            "answer": None,
            **_asked(notice, ruling),
        }
    )
