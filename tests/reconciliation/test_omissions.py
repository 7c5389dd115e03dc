"""What events did not tell: the notice that should have come, and when there is none."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from leeway.hooks import HookResult
from leeway.notices import InterruptionAction, LifecycleHook, Notice, NoticeKind
from leeway.notices.parse import parse_notice
from leeway.notices.synthetic import Place
from leeway.owners import Owner, OwnerKind
from leeway.policies import DEFAULTS, Action, Policy
from leeway.reconciliation.omissions import (
    Lost,
    LostAnswer,
    LostStart,
    about_arrival,
    about_called_off,
    about_change,
    about_detached,
    about_eks_hook,
    about_hook,
    about_interruption,
    about_retirement,
    about_return,
    about_start,
    about_state,
)
from leeway.records.arrival import Arrival
from leeway.records.generations import undo
from leeway.records.retirement import OVERDUE, Phase, ReplacementIntent, Retirement, due
from leeway.sightings import SeenChange, SeenHook, SeenInstance, SeenInterruption

from tests.records.arrivals import LAUNCH_HOOK, arriving
from tests.records.retirements import FACTS, HOOK, NOTICED, at, interrupted, take

PLACE = Place("123456789012", "us-east-1")
MINUTE = timedelta(minutes=1)
I = FACTS.instance  # noqa: E741


def terminating(phase: Phase = Phase.RUNNING, hook: LifecycleHook = HOOK) -> Retirement:
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=hook).record
    return at(record, phase)


def told(omission: Any) -> Notice:
    """The notice that an omission is made good by."""
    assert isinstance(omission, Lost)
    return parse_notice(omission.event)


def about_waiting(
    record: Retirement | Arrival | None, hook: LifecycleHook = HOOK, dry_run: bool = False
) -> Any:
    launching = hook == LAUNCH_HOOK
    seen = SeenHook(I, hook, launching)
    retirement = record if isinstance(record, Retirement) else None
    arrival = record if isinstance(record, Arrival) else None
    return about_hook(seen, retirement, arrival, PLACE, NOTICED, dry_run)


def test_a_hook_that_waits_and_that_nobody_told_of_is_told_of() -> None:
    notice = told(about_waiting(None))
    assert (notice.kind, notice.hook, notice.instances) == (NoticeKind.TERMINATE_HOOK, HOOK, (I,))
    notice = told(about_waiting(None, LAUNCH_HOOK))
    assert (notice.kind, notice.hook) == (NoticeKind.LAUNCH_HOOK, LAUNCH_HOOK)


def test_the_same_omission_has_the_same_id_and_one_after_another_retirement_has_another() -> None:
    first = told(about_waiting(None)).id
    assert told(about_waiting(None)).id == first
    other = terminating(Phase.FINISHED, LifecycleHook("ng", "another"))
    assert told(about_waiting(other)).id != first


def test_a_hook_that_is_worked_on_is_left_alone() -> None:
    assert about_waiting(terminating()) is None
    assert about_waiting(arriving(), LAUNCH_HOOK) is None


def test_a_hook_whose_work_has_ended_is_answered() -> None:
    omission = about_waiting(terminating(Phase.FINISHED))
    assert omission == LostAnswer(I, HOOK, HookResult.CONTINUE, omission.reason)


def rehearsed(record: Retirement) -> Retirement:
    return record.model_copy(update={"phase": Phase.FINISHED, "answer": None})


def test_a_rehearsals_end_is_no_answer_to_a_hook_but_a_reason_to_retire_for_real() -> None:
    ended = rehearsed(terminating())
    assert about_waiting(ended, dry_run=True) is None, "it would be rehearsed once a minute"
    notice = told(about_waiting(ended))
    assert notice.hook == HOOK
    again = take(ended, notice.kind, notice.id, hook=notice.hook)
    assert (again.start, again.record.generation) == (True, 2)


def test_a_hook_of_ekss_own_that_was_only_rehearsed_is_drained_beside_it_later() -> None:
    ended, seen = rehearsed(terminating()), SeenHook(I, HOOK, launching=False)
    assert about_eks_hook(seen, ended, PLACE, NOTICED, dry_run=True) is None
    assert told(about_eks_hook(seen, ended, PLACE, NOTICED)).hook == HOOK
    assert about_eks_hook(seen, terminating(Phase.FINISHED), PLACE, NOTICED) is None


def test_an_interruption_that_was_only_rehearsed_is_told_again() -> None:
    ended = rehearsed(interrupted())
    assert about_marked(ended, 60, dry_run=True) is None
    notice = told(about_marked(ended, 60))
    assert take(ended, notice.kind, notice.id, action=notice.action).start


def test_a_hook_of_a_life_that_was_undone_is_told_of_anew() -> None:
    undone = terminating().model_copy(update={"phase": Phase.UNDONE})
    assert told(about_waiting(undone)).hook == HOOK


@pytest.mark.parametrize("answer", [HookResult.CONTINUE, HookResult.ABANDON])
def test_a_launch_hook_gets_the_answer_that_its_admission_came_to(answer: HookResult) -> None:
    ended = arriving(Phase.FINISHED).model_copy(update={"answer": answer})
    assert about_waiting(ended, LAUNCH_HOOK).result is answer


def test_an_admission_that_came_to_no_answer_gives_none_later_either() -> None:
    assert about_waiting(arriving(Phase.FINISHED), LAUNCH_HOOK) is None


def about_marked(
    record: Retirement | None,
    seconds: int,
    marked: int = 0,
    dry_run: bool = False,
    launched: int = -3600,
) -> Any:
    marked_at = NOTICED + timedelta(seconds=marked)
    seen = SeenInterruption(I, InterruptionAction.STOP, marked_at)
    now = NOTICED + timedelta(seconds=seconds)
    launched_at = NOTICED + timedelta(seconds=launched)
    return about_interruption(seen, launched_at, record, PLACE, now, dry_run)


def test_an_interruption_whose_warning_never_came_is_told_with_the_time_that_it_began() -> None:
    notice = told(about_marked(None, 60))
    assert (notice.kind, notice.time) == (NoticeKind.SPOT_INTERRUPTION, NOTICED)
    assert notice.action is InterruptionAction.STOP


def test_a_warning_that_may_still_come_is_waited_for() -> None:
    assert about_marked(None, 2) is None
    assert told(about_marked(None, 4)), "a minute later, half of its time is over"


def test_an_interruption_that_is_being_or_was_worked_on_is_not_told_again() -> None:
    assert about_marked(interrupted(), 60) is None
    assert about_marked(interrupted(Phase.FINISHED), 60) is None


def test_a_mark_that_came_after_its_warning_is_of_the_same_interruption() -> None:
    assert about_marked(interrupted(Phase.FINISHED), 170, marked=100) is None
    assert about_marked(interrupted(Phase.FINISHED), 1000, marked=200)


def test_what_ended_an_instances_life_before_serves_no_interruption_of_the_next() -> None:
    assert told(about_marked(interrupted(Phase.FINISHED), 180, marked=170, launched=150))
    for phase in (Phase.UNDOING, Phase.UNDONE):
        assert told(about_marked(interrupted(phase), 60, marked=40))


def test_an_interruption_is_told_though_something_softer_or_older_is_on_record() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    assert told(about_marked(rebalance, 60))
    assert told(about_marked(interrupted(Phase.FINISHED), 7200, marked=7000))


def detached(record: Retirement | None, state: str = "running") -> Any:
    facts = FACTS.model_copy(update={"owner": Owner(OwnerKind.DETACHED, "ng")})
    return about_detached(SeenInstance(facts, state, NOTICED), record, PLACE, NOTICED)


def test_a_detached_instance_that_still_runs_after_its_retirement_is_retired_again() -> None:
    notice = told(detached(interrupted(Phase.FINISHED)))
    assert notice.kind is NoticeKind.REBALANCE
    assert told(detached(None)).kind is NoticeKind.REBALANCE


def test_a_detached_instance_is_retired_to_its_end_whatever_the_policy_says_by_now() -> None:
    assert detached(interrupted(Phase.FINISHED)).begun is Action.RETIRE


def test_a_detached_instance_whose_retirement_has_just_been_closed_is_about_to_be_terminated() -> (
    None
):
    closed = interrupted(Phase.FINISHED).model_copy(update={"ended_at": NOTICED - MINUTE / 2})
    assert detached(closed) is None
    assert detached(closed.model_copy(update={"ended_at": NOTICED - MINUTE}))


def test_a_detached_instance_that_is_being_retired_or_ends_is_left_alone() -> None:
    assert detached(interrupted()) is None
    assert detached(interrupted(Phase.FINISHED), "shutting-down") is None
    assert detached(None, "stopped") is None


STOPPED = take(None, NoticeKind.STATE_CHANGE, "n-1", state="stopped").record


def in_state(state: str, record: Retirement | None) -> Any:
    return about_state(SeenInstance(FACTS, state, NOTICED), record, PLACE, NOTICED + MINUTE)


def kind_of(kind: NoticeKind, phase: Phase = Phase.RUNNING, **more: Any) -> Retirement:
    """A retirement for a kind of notice, in a phase."""
    return at(take(None, kind, "n-1").record, phase).model_copy(update=more)


def test_an_end_that_nobody_told_of_is_told_of_once() -> None:
    notice = told(in_state("shutting-down", None))
    assert (notice.kind, notice.state) == (NoticeKind.STATE_CHANGE, "shutting-down")
    again = take(None, notice.kind, notice.id, after=60, state="shutting-down").record
    assert in_state("shutting-down", again) is None
    for state in ("pending", "running", "terminated"):
        assert in_state(state, None) is None


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (interrupted(), False),
        (interrupted(Phase.FINISHED), False),
        (kind_of(NoticeKind.REBALANCE, Phase.FINISHED), False),
        (kind_of(NoticeKind.REBALANCE, Phase.FINISHED, answer=None), True),
        (kind_of(NoticeKind.REBALANCE), True),
        (terminating(), True),
        (interrupted(Phase.UNDONE), True),
        (interrupted(Phase.UNDOING), True),
        (kind_of(NoticeKind.REBALANCE, Phase.FINISHED, ended_at=NOTICED - 9 * MINUTE), False),
        (kind_of(NoticeKind.REBALANCE, Phase.FINISHED, ended_at=NOTICED - 10 * MINUTE), True),
        (interrupted(Phase.FINISHED).model_copy(update={"ended_at": NOTICED - 99 * MINUTE}), False),
        (kind_of(NoticeKind.REBALANCE, Phase.FINISHED, action=Action.CORDON), True),
        (interrupted(Phase.FINISHED).model_copy(update={"action": Action.CORDON}), True),
        (at(STOPPED, Phase.FINISHED).model_copy(update={"action": Action.CORDON}), False),
    ],
)
def test_an_end_is_told_of_where_what_is_on_record_does_not_serve_it(
    record: Retirement, found: bool
) -> None:
    omission = in_state("stopping", record)
    assert (omission is not None) is found
    if found:
        notice = told(omission)
        at = (notice.time - NOTICED).total_seconds()
        assert take(record, notice.kind, notice.id, after=at, state=notice.state).start


def back(record: Retirement | None, launched: int, after: int = 600, state: str = "running") -> Any:
    seen = SeenInstance(FACTS, state, NOTICED + timedelta(seconds=launched))
    return about_return(seen, record, PLACE, NOTICED + timedelta(seconds=after))


def test_an_instance_that_was_started_after_it_was_retired_is_freed() -> None:
    for phase in (Phase.RUNNING, Phase.FINISHED):
        record = STOPPED.model_copy(update={"phase": phase})
        notice = told(back(record, launched=300))
        assert notice.state == "running"
        undone = undo(record, notice)
        assert undone is not None
        assert undone.start


def test_an_instance_that_was_not_started_since_or_is_freed_already_is_left_alone() -> None:
    ended = STOPPED.model_copy(update={"phase": Phase.FINISHED})
    assert back(ended, launched=-300) is None, "EC2 has not stopped it yet"
    assert back(ended, launched=300, state="stopped") is None
    assert back(ended, launched=300, after=305) is None, "its event may still come"
    assert back(None, launched=300) is None
    assert back(interrupted(), launched=300) is None, "it is interrupted in its second life"
    for phase in (Phase.UNDOING, Phase.UNDONE):
        assert back(STOPPED.model_copy(update={"phase": phase}), launched=300) is None


CHANGE_AT = NOTICED + timedelta(hours=6)
LEAD = CHANGE_AT - timedelta(hours=4)
ANNOUNCED = SeenChange(I, "instance-event-0abc", "instance-retirement", CHANGE_AT)


def announced(record: Retirement | None, at: datetime, policy: Policy | None = None) -> Any:
    policy = policy or DEFAULTS[NoticeKind.SCHEDULED_CHANGE]
    return about_change(ANNOUNCED, record, policy, PLACE, at)


def test_a_change_that_ec2_announces_is_told_of_when_its_schedule_has_had_time() -> None:
    assert announced(None, LEAD + MINUTE) is None
    notice = told(announced(None, LEAD + 2 * MINUTE))
    assert (notice.kind, notice.effective_at) == (NoticeKind.SCHEDULED_CHANGE, CHANGE_AT)
    assert (notice.event, notice.over) == ("instance-event-0abc", frozenset())
    at_once = replace(DEFAULTS[NoticeKind.SCHEDULED_CHANGE], lead=None)
    assert told(announced(None, NOTICED, at_once))


def test_a_change_that_is_or_was_served_is_not_told_of_again() -> None:
    after = (LEAD - NOTICED).total_seconds()
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", after=after).record
    for phase in (Phase.NOTICED, Phase.RUNNING, Phase.FINISHED):
        assert announced(at(record, phase), LEAD + 9 * MINUTE) is None
    undone = record.model_copy(update={"phase": Phase.UNDONE})
    assert announced(undone, LEAD + 9 * MINUTE)
    earlier = at(record, Phase.FINISHED).model_copy(update={"noticed_at": NOTICED})
    assert announced(earlier, LEAD + 9 * MINUTE), "that was another"
    waiting = take(None, NoticeKind.REBALANCE, "n-1", after=after).record
    assert announced(waiting, LEAD + 9 * MINUTE), "its turn may never come"
    begun = waiting.model_copy(update={"begun_at": LEAD})
    assert announced(begun, LEAD + 9 * MINUTE) is None
    over = at(begun, Phase.FINISHED).model_copy(update={"ended_at": LEAD + 40 * MINUTE})
    assert announced(over, LEAD + 41 * MINUTE - MINUTE / 6) is None, "it may be about to end"
    left = told(announced(over, LEAD + 41 * MINUTE))
    later = (left.time - NOTICED).total_seconds()
    assert take(over, left.kind, left.id, after=later, event=left.event).start


def test_a_change_that_was_declined_or_rehearsed_is_told_of_again_after_a_while() -> None:
    after = (LEAD - NOTICED).total_seconds()
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", after=after).record
    more = {"phase": Phase.FINISHED, "ended_at": LEAD + 3 * MINUTE}
    declined = record.model_copy(update=more)
    assert announced(declined, LEAD + 30 * MINUTE) is None
    omission = announced(declined, LEAD + 63 * MINUTE)
    notice = told(omission)
    later = (notice.time - NOTICED).total_seconds()
    assert take(declined, notice.kind, notice.id, after=later, event=notice.event).start


def off(record: Retirement, *changes: SeenChange) -> Any:
    policy = DEFAULTS[NoticeKind.SCHEDULED_CHANGE]
    return about_called_off(record, changes, policy, PLACE, LEAD + 9 * MINUTE)


def test_a_change_that_ec2_announces_no_more_or_for_later_is_called_off_where_it_waits() -> None:
    notice = told(announced(None, LEAD + 2 * MINUTE))
    after = (notice.time - NOTICED).total_seconds()
    more = {"after": after, "event": notice.event, "effective_at": CHANGE_AT}
    record = take(None, notice.kind, notice.id, **more).record
    assert off(record, ANNOUNCED) is None
    later = replace(ANNOUNCED, starts_at=CHANGE_AT + timedelta(days=1))
    another = replace(ANNOUNCED, instance="i-0abc1234")
    over = replace(ANNOUNCED, over=True)
    for changes in ((), (later,), (another,), (over,)):
        called_off = told(off(record, *changes))
        assert called_off.over == {I}
        undone = undo(record, called_off)
        assert undone is not None
        assert undone.start
    running = record.model_copy(update={"phase": Phase.RUNNING})
    assert off(running) is None, "its successor is asked for"


def test_what_health_announced_is_called_off_where_ec2_says_so_of_that_very_time() -> None:
    told_by_health = {"event": "arn:aws:health:::event/EC2/1", "effective_at": CHANGE_AT}
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", **told_by_health).record
    assert off(record) is None, "Health may know of more than EC2 tells"
    assert off(record, ANNOUNCED) is None
    over = replace(ANNOUNCED, over=True)
    another_time = replace(over, starts_at=CHANGE_AT + timedelta(hours=1))
    assert off(record, another_time) is None
    assert off(record, replace(over, instance="i-0abc1234")) is None
    assert off(record, over, ANNOUNCED) is None, "it was only announced anew"
    called_off = told(off(record, over, another_time))
    assert called_off.over == {I}
    assert called_off.event == record.event
    undone = undo(record, called_off)
    assert undone is not None
    assert undone.start


def test_a_start_that_was_lost_is_made_again() -> None:
    noticed = take(None, NoticeKind.REBALANCE, "n-1").record
    assert about_start(noticed, NOTICED + MINUTE) is None
    assert isinstance(about_start(noticed, NOTICED + 2 * MINUTE), LostStart)
    in_haste = interrupted(Phase.NOTICED)
    assert about_start(in_haste, NOTICED + MINUTE / 3) is None
    assert isinstance(about_start(in_haste, NOTICED + MINUTE), LostStart)
    assert about_start(interrupted(), NOTICED + 2 * MINUTE) is None
    assert about_start(noticed, NOTICED + 10 * MINUTE) is None, "it waits for its turn"
    undoing = interrupted().model_copy(update={"phase": Phase.UNDOING})
    assert isinstance(about_start(undoing, NOTICED + 2 * MINUTE), LostStart)
    admission = about_start(arriving(Phase.NOTICED), NOTICED + 2 * MINUTE)
    assert isinstance(admission, LostStart)
    assert admission.admission


def dead(record: Retirement, state: str | None, **more: Any) -> Any:
    assert record.deadline is not None
    at = record.deadline + OVERDUE + MINUTE
    return about_retirement(record.model_copy(update=more), state, PLACE, at)


def test_a_retirement_that_should_long_have_ended_is_asked_for_again_as_it_was() -> None:
    assert told(dead(interrupted(), "running")).kind is NoticeKind.SPOT_INTERRUPTION
    assert told(dead(terminating(), "running")).hook == HOOK
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    started = {"phase": Phase.RUNNING, "begun_at": NOTICED}
    assert told(dead(rebalance, "running", **started)).kind is NoticeKind.REBALANCE
    at = interrupted().deadline
    assert at is not None
    assert about_retirement(interrupted(), "running", PLACE, at) is None


def test_what_waits_for_its_turn_or_its_successor_or_is_undone_is_not_dead() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    assert dead(rebalance, "running") is None
    turn = NOTICED + timedelta(hours=1)
    running = rebalance.model_copy(update={"phase": Phase.RUNNING, "running_at": turn})
    assert about_retirement(running, "running", PLACE, turn + 9 * MINUTE) is None
    assert dead(interrupted(), "running", phase=Phase.UNDOING) is None


def test_one_that_has_no_deadline_and_one_that_is_undone_are_found_dead_too() -> None:
    endless = interrupted().model_copy(update={"deadline": None})
    late = NOTICED + timedelta(days=8)
    assert about_retirement(endless, "running", PLACE, late - timedelta(days=2)) is None
    assert told(about_retirement(endless, "running", PLACE, late))
    undoing = interrupted().model_copy(update={"phase": Phase.UNDOING})
    omission = about_retirement(undoing, "running", PLACE, NOTICED + 71 * MINUTE)
    notice = told(omission)
    assert (notice.kind, notice.state) == (NoticeKind.STATE_CHANGE, "running")
    again = undo(undoing, notice)
    assert again is not None
    assert again.record.generation == 2


def test_what_left_its_group_one_larger_is_found_though_it_ended_and_not_rehearsed() -> None:
    asked = ReplacementIntent(method="launch-successor", reason="", asked_at=NOTICED, owed=True)
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    changes = {"replaced": asked, "begun_at": NOTICED, "action": Action.CORDON}
    left = at(rebalance, Phase.FINISHED).model_copy(update=changes)
    late = due(left) + OVERDUE
    assert about_retirement(left, "running", PLACE, late - MINUTE) is None
    assert about_retirement(left, "running", PLACE, late, dry_run=True) is None
    omission = about_retirement(left, "running", PLACE, late)
    assert told(omission).kind is NoticeKind.REBALANCE
    assert omission is not None
    assert omission.begun is Action.RETIRE
    assert "one larger" in omission.reason
    assert told(about_retirement(left, "terminated", PLACE, late)).state == "terminated"
    undone = left.model_copy(update={"phase": Phase.UNDONE})
    back = told(about_retirement(undone, "running", PLACE, NOTICED + timedelta(hours=2)))
    assert back.state == "running"
    again = undo(undone, back)
    assert again is not None
    assert again.record.phase is Phase.UNDOING


def test_what_died_goes_on_as_it_was_begun_whatever_the_policy_says_by_now() -> None:
    stopping = interrupted().model_copy(update={"stops": True})
    assert told(dead(stopping, "running")).action is InterruptionAction.STOP
    omission = dead(take(None, NoticeKind.STATE_CHANGE, "n-1", state="stopping").record, "stopping")
    assert omission.begun is Action.RETIRE


@pytest.mark.parametrize("state", [None, "terminated", "shutting-down"])
def test_a_dead_retirement_of_an_instance_that_is_gone_is_asked_for_as_of_one_that_ends(
    state: str | None,
) -> None:
    notice = told(dead(terminating(), state))
    assert (notice.kind, notice.state) == (NoticeKind.STATE_CHANGE, state or "terminated")


def test_a_dead_admission_is_asked_for_again_while_its_hook_can_wait() -> None:
    record = arriving()
    late = record.deadline + OVERDUE + MINUTE
    assert told(about_arrival(record, "running", PLACE, late)).hook == LAUNCH_HOOK
    assert about_arrival(record, "running", PLACE, record.deadline) is None
    assert about_arrival(record, "terminated", PLACE, late) is None
    assert about_arrival(record.model_copy(update={"hooks": ()}), "running", PLACE, late) is None


def test_an_event_that_was_made_up_raises_a_dead_retirements_generation_once() -> None:
    stored = interrupted()
    notice = told(dead(stored, "running"))
    after = (notice.time - NOTICED).total_seconds()
    again = take(stored, notice.kind, notice.id, after=after, action=notice.action)
    assert (again.record.generation, again.start) == (2, True)
    repeated = take(again.record, notice.kind, notice.id, after=after, action=notice.action)
    assert repeated.record.generation == 2
