"""What events did not tell: the notice that should have come, and when there is none."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from leeway.admission.record import Admission
from leeway.execution.attempt import OVERDUE, Phase
from leeway.instances.observed import (
    ObservedChange,
    ObservedHook,
    ObservedInstance,
    ObservedInterruption,
)
from leeway.notices import InterruptionAction, LifecycleHook, Notice, NoticeKind
from leeway.notices.parse import parse_notice
from leeway.notices.synthetic import EventOrigin
from leeway.policy.rules import DEFAULTS, Action, Policy, rule
from leeway.ports.aws import HookResult
from leeway.reconciliation.lost_events import (
    Lost,
    LostAnswer,
    LostStart,
    about_arrival,
    about_called_off,
    about_change,
    about_change_over,
    about_detached,
    about_eks_hook,
    about_hook,
    about_interruption,
    about_retirement,
    about_return,
    about_start,
    about_state,
)
from leeway.retirement.attempts import receive, undo
from leeway.retirement.record import Retirement, latest_end
from leeway.retirement.replacement_intent import Method, ReplacementIntent

from tests.admission.admissions import LAUNCH_HOOK, arriving, ask
from tests.retirement.retirements import FACTS, HOOK, NOTICED, at, interrupted, take

PLACE = EventOrigin("123456789012", "us-east-1")
MINUTE = timedelta(minutes=1)
I = FACTS.instance  # noqa: E741


def terminating(phase: Phase = Phase.RUNNING, hook: LifecycleHook = HOOK) -> Retirement:
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=hook).record
    ended_at = NOTICED if phase is Phase.FINISHED else None
    return at(record, phase).model_copy(update={"ended_at": ended_at})


def admitted(answer: HookResult = HookResult.CONTINUE, **changes: Any) -> Admission:
    """An admission that has ended."""
    ended = {"answer": answer, "ended_at": NOTICED}
    return arriving(Phase.FINISHED).model_copy(update=ended | changes)


def told(omission: Any) -> Notice:
    """The notice that an omission is made good by."""
    assert isinstance(omission, Lost)
    return parse_notice(omission.event)


def about_waiting(
    record: Retirement | Admission | None,
    hook: LifecycleHook = HOOK,
    dry_run: bool = False,
    after: timedelta = timedelta(0),
    beside: Retirement | Admission | None = None,
) -> Any:
    seen = ObservedHook(I, hook, hook == LAUNCH_HOOK, timeout=300)
    known = (record, beside)
    retirement = next((one for one in known if isinstance(one, Retirement)), None)
    arrival = next((one for one in known if isinstance(one, Admission)), None)
    return about_hook(seen, retirement, arrival, PLACE, NOTICED + after, dry_run)


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
    assert (again.start, again.record.attempt) == (True, 2)


def test_a_hook_of_ekss_own_that_was_only_rehearsed_is_drained_beside_it_later() -> None:
    ended, seen = rehearsed(terminating()), ObservedHook(I, HOOK, launching=False)
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
    assert about_waiting(admitted(answer), LAUNCH_HOOK).result is answer


ENDED = [(terminating(Phase.FINISHED), HOOK), (admitted(), LAUNCH_HOOK)]


@pytest.mark.parametrize(("record", "hook"), ENDED)
def test_an_answer_is_repeated_until_its_hooks_timeout_and_not_after(
    record: Retirement | Admission, hook: LifecycleHook
) -> None:
    timeout = timedelta(seconds=300)
    last = about_waiting(record, hook, after=timeout - timedelta(seconds=1))
    assert isinstance(last, LostAnswer)
    for after in (timeout, timedelta(days=3)):
        notice = told(about_waiting(record, hook, after=after))
        assert notice.hook == hook


def test_an_instance_that_comes_out_of_a_warm_pool_is_looked_at_again() -> None:
    pooled = admitted(into_pool=True)
    notice = told(about_waiting(pooled, LAUNCH_HOOK, after=MINUTE))
    assert notice.kind is NoticeKind.LAUNCH_HOOK
    again = ask(pooled, notice.id, after=60)
    assert (again.start, again.record.attempt, again.record.into_pool) == (True, 2, False)


def test_an_instance_that_came_in_again_is_drained_again_before_its_hook_is_answered() -> None:
    """From a warm pool, for example, within the timeout of the hook that let it in there."""
    ended, back = terminating(Phase.FINISHED), admitted(noticed_at=NOTICED + MINUTE)
    assert isinstance(about_waiting(ended, beside=admitted()), LostAnswer)
    notice = told(about_waiting(ended, after=2 * MINUTE, beside=back))
    again = take(ended, notice.kind, notice.id, hook=notice.hook, after=120)
    assert (again.start, again.record.attempt) == (True, 2)


def test_an_instance_that_was_to_go_since_its_admission_is_admitted_again() -> None:
    left = terminating(Phase.FINISHED).model_copy(update={"noticed_at": NOTICED + MINUTE})
    notice = told(about_waiting(admitted(), LAUNCH_HOOK, after=2 * MINUTE, beside=left))
    assert ask(admitted(), notice.id, after=120).start


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
    seen = ObservedInterruption(I, InterruptionAction.STOP, marked_at)
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


def left_running(failures: int = 0, **changes: Any) -> Retirement:
    """A retirement that detached its instance, and ended without terminating it."""
    intent = ReplacementIntent(
        method=Method.DETACH,
        reason="no hook",
        asked_at=NOTICED,
        group="ng",
        detached=True,
        failures=failures,
    )
    ended = interrupted(Phase.FINISHED).model_copy(
        update={"replacement_intent": intent, "ended_at": NOTICED - MINUTE}
    )
    return ended.model_copy(update=changes)


def detached(record: Retirement, state: str | None = "running") -> Any:
    return about_detached(record, state, PLACE, NOTICED)


def test_a_detached_instance_that_still_runs_after_its_retirement_is_retired_again() -> None:
    assert told(detached(left_running())).kind is NoticeKind.REBALANCE


def test_a_detached_instance_is_retired_to_its_end_whatever_the_policy_says_by_now() -> None:
    assert detached(left_running()).begun is Action.RETIRE


def test_only_leeways_own_record_says_that_an_instance_was_detached() -> None:
    intent = left_running().replacement_intent
    assert intent is not None
    for other in (
        None,
        intent.model_copy(update={"detached": False}),
        intent.model_copy(update={"settled": True}),
    ):
        record = left_running(replacement_intent=other)
        assert detached(record) is None
        assert not record.is_open


def test_a_detached_instance_whose_retirement_has_just_been_closed_is_about_to_be_terminated() -> (
    None
):
    assert detached(left_running(ended_at=NOTICED - MINUTE / 2)) is None
    assert detached(left_running(ended_at=NOTICED - MINUTE))


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_a_detached_instance_that_did_not_end_is_tried_again_after_twice_as_long(
    failures: int,
) -> None:
    waits = 2**failures * MINUTE
    assert detached(left_running(failures, ended_at=NOTICED - waits + MINUTE / 60)) is None
    assert detached(left_running(failures, ended_at=NOTICED - waits))


def test_a_detached_instance_that_is_being_retired_or_is_stopped_is_left_alone() -> None:
    assert detached(left_running(phase=Phase.RUNNING)) is None
    assert detached(left_running(), "stopped") is None


@pytest.mark.parametrize("state", [None, "shutting-down", "terminated"])
def test_the_record_of_a_detached_instance_that_ended_by_itself_is_closed(
    state: str | None,
) -> None:
    record = left_running()
    notice = told(detached(record, state))
    assert notice.state == (state or "terminated")
    change = receive(record, notice, rule(notice, DEFAULTS[notice.kind]), record.facts)
    assert (change.start, change.record.attempt) == (True, 2)


def test_the_end_that_a_retirement_asked_for_begins_no_other() -> None:
    record = left_running(ended_at=NOTICED)
    event = PLACE.state_change("its end", NOTICED + MINUTE / 6, record.instance, "shutting-down")
    notice = parse_notice(event)
    change = receive(record, notice, rule(notice, DEFAULTS[notice.kind]), record.facts)
    assert (change.write, change.start) == (False, False)


def test_a_detached_instance_that_is_to_be_terminated_is_no_dead_retirement() -> None:
    long_after = NOTICED + timedelta(days=2)
    assert about_retirement(left_running(), "running", PLACE, long_after) is None


STOPPED = take(None, NoticeKind.STATE_CHANGE, "n-1", state="stopped").record


def in_state(state: str, record: Retirement | None) -> Any:
    return about_state(ObservedInstance(FACTS, state, NOTICED), record, PLACE, NOTICED + MINUTE)


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
    seen = ObservedInstance(FACTS, state, NOTICED + timedelta(seconds=launched))
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
ANNOUNCED = ObservedChange(I, "instance-event-0abc", "instance-retirement", CHANGE_AT)


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


def off(record: Retirement, *changes: ObservedChange) -> Any:
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
    assert again.record.attempt == 2


def test_what_left_its_group_one_larger_is_found_though_it_ended_and_not_rehearsed() -> None:
    asked = ReplacementIntent(
        method="launch-successor", reason="", asked_at=NOTICED, to_restore=True
    )
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    changes = {"replacement_intent": asked, "begun_at": NOTICED, "action": Action.CORDON}
    left = at(rebalance, Phase.FINISHED).model_copy(update=changes)
    late = latest_end(left) + OVERDUE
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


def test_an_event_that_was_made_up_raises_a_dead_retirements_attempt_once() -> None:
    stored = interrupted()
    notice = told(dead(stored, "running"))
    after = (notice.time - NOTICED).total_seconds()
    again = take(stored, notice.kind, notice.id, after=after, action=notice.action)
    assert (again.record.attempt, again.start) == (2, True)
    repeated = take(again.record, notice.kind, notice.id, after=after, action=notice.action)
    assert repeated.record.attempt == 2


def came_through(
    event: str, *changes: ObservedChange, after: timedelta = timedelta(0), **more: Any
) -> Any:
    """Look at a running instance whose node is marked, after its scheduled change has begun."""
    told_of = {"event": event, "effective_at": CHANGE_AT}
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", **told_of).record
    drained = at(record, Phase.FINISHED).model_copy(update=more)
    seen = ObservedInstance(FACTS, "running", NOTICED - timedelta(days=9))
    policy = DEFAULTS[NoticeKind.SCHEDULED_CHANGE]
    return about_change_over(seen, drained, changes, policy, PLACE, CHANGE_AT + after)


HEALTH = "arn:aws:health:us-east-1::event/EC2/REBOOT/1"
REBOOTED = replace(ANNOUNCED, over=True)


@pytest.mark.parametrize("event", [ANNOUNCED.event, HEALTH])
def test_a_node_that_came_through_its_reboot_is_freed_though_the_last_event_is_lost(
    event: str,
) -> None:
    notice = told(came_through(event, REBOOTED, after=MINUTE))
    assert notice.event == event
    assert notice.over == {I}
    told_of = {"event": event, "effective_at": CHANGE_AT}
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", **told_of).record
    undone = undo(at(record, Phase.FINISHED), notice)
    assert undone is not None
    assert undone.record.phase is Phase.UNDOING


@pytest.mark.parametrize("event", [ANNOUNCED.event, HEALTH])
def test_a_node_whose_change_is_still_to_come_stays_cordoned(event: str) -> None:
    assert came_through(event, ANNOUNCED, after=MINUTE) is None
    assert came_through(event, ANNOUNCED, after=timedelta(days=9)) is None


def test_a_change_that_only_health_knows_of_is_over_a_day_after_its_time() -> None:
    day = timedelta(days=1)
    assert came_through(HEALTH, after=day - MINUTE) is None
    assert told(came_through(HEALTH, after=day))
    other = replace(ANNOUNCED, event="instance-event-0def", starts_at=CHANGE_AT + 3 * day)
    assert came_through(HEALTH, other, after=day) is None, "EC2 has another change to come"


def test_a_node_that_something_succeeds_or_that_was_not_drained_is_not_freed() -> None:
    for more in (
        {"replacement_intent": left_running().replacement_intent},
        {"phase": Phase.RUNNING},
        {"phase": Phase.UNDONE},
        {"answer": None},
        {"kind": NoticeKind.REBALANCE},
    ):
        assert came_through(HEALTH, REBOOTED, after=MINUTE, **more) is None
