"""The retirement record: duplicates change nothing, urgency raises an attempt."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from leeway.execution.attempt import NOTICES_REMEMBERED, Phase
from leeway.notices import InterruptionAction, Notice, NoticeKind
from leeway.policy.rules import DEFAULTS, Action, OnBlocked, rule
from leeway.ports.aws import HookResult
from leeway.retirement.attempts import receive, undo
from leeway.retirement.record import LONGEST, Retirement, latest_end
from leeway.retirement.replacement_intent import Method, ReplacementIntent

from tests.retirement.retirements import FACTS, HOOK, NOTICED, at, interrupted, notice, take

HOUR = timedelta(hours=1)


def test_hooks_whose_answers_have_run_out_are_forgotten_and_younger_ones_are_not() -> None:
    """An answer of another attempt would else go to an action that waits by then."""
    first = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    ended = at(first, Phase.FINISHED).model_copy(update={"ended_at": NOTICED})
    soon = take(ended, NoticeKind.REBALANCE, "n-2", after=7199).record
    late = take(ended, NoticeKind.REBALANCE, "n-2", after=7200).record
    assert (soon.hooks, late.hooks) == ((HOOK,), ())
    again = take(ended, NoticeKind.TERMINATE_HOOK, "n-2", hook=HOOK, after=7200).record
    assert again.hooks == (HOOK,)


def test_the_first_notice_starts_the_first_attempt() -> None:
    reception = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1")
    assert (reception.write, reception.start) == (True, True)
    assert (reception.record.attempt, reception.record.version) == (1, 1)


def test_the_same_notice_again_changes_nothing() -> None:
    reception = take(interrupted(), NoticeKind.SPOT_INTERRUPTION, "n-1")
    assert (reception.write, reception.start) == (False, False)


def test_a_start_that_may_have_been_lost_is_made_again() -> None:
    reception = take(interrupted(Phase.NOTICED), NoticeKind.SPOT_INTERRUPTION, "n-1")
    assert (reception.write, reception.start) == (False, True)
    assert reception.record.attempt == 1


def test_a_recommendation_that_comes_after_an_interruption_was_served_starts_nothing() -> None:
    served = interrupted(Phase.FINISHED)
    assert not take(served, NoticeKind.REBALANCE, "n-2", after=40).write
    assert take(served, NoticeKind.REBALANCE, "n-3", after=600).start, "the instance lives on"
    assert take(served, NoticeKind.SPOT_INTERRUPTION, "n-4", after=40).start


def test_a_less_urgent_notice_changes_nothing() -> None:
    stored = interrupted()
    reception = take(stored, NoticeKind.REBALANCE, "n-2")
    assert (reception.write, reception.start) == (False, False)
    assert reception.record == stored


def test_an_interruption_takes_over_from_a_rebalance_recommendation() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    running = rebalance.model_copy(update={"phase": Phase.RUNNING})
    reception = take(running, NoticeKind.SPOT_INTERRUPTION, "n-2", after=60)
    assert (reception.record.attempt, reception.start) == (2, True)
    assert reception.record.deadline == NOTICED + timedelta(seconds=60 + 115)
    assert reception.record.phase is Phase.NOTICED


def test_a_hook_that_is_announced_during_a_retirement_is_remembered_for_its_end() -> None:
    reception = take(interrupted(), NoticeKind.TERMINATE_HOOK, "n-2", hook=HOOK)
    assert (reception.record.hooks, reception.start) == ((HOOK,), False)


def test_a_hook_that_is_announced_after_the_end_gets_a_attempt_that_answers_it() -> None:
    reception = take(interrupted(Phase.FINISHED), NoticeKind.TERMINATE_HOOK, "n-2", hook=HOOK)
    assert (reception.record.attempt, reception.start) == (2, True)
    assert reception.record.hooks == (HOOK,)


def test_what_only_came_to_a_rehearsal_or_was_declined_serves_nothing_that_ec2_does() -> None:
    rehearsed = interrupted(Phase.FINISHED).model_copy(update={"answer": None, "hooks": (HOOK,)})
    again = take(rehearsed, NoticeKind.SPOT_INTERRUPTION, "n-2")
    assert (again.start, again.record.attempt) == (True, 2)
    hook = take(rehearsed, NoticeKind.TERMINATE_HOOK, "n-3", hook=HOOK)
    assert (hook.start, hook.record.hooks) == (True, (HOOK,))
    stopping = take(rehearsed, NoticeKind.STATE_CHANGE, "n-4", after=5, state="stopping")
    assert stopping.start
    assert not take(rehearsed, NoticeKind.REBALANCE, "n-5").start


def test_a_attempt_that_begins_anew_has_no_answer_yet() -> None:
    ended = at(take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record, Phase.FINISHED)
    assert ended.answer is HookResult.CONTINUE
    assert take(ended, NoticeKind.SPOT_INTERRUPTION, "n-2", after=60).record.answer is None
    runs = undo(ended, notice(NoticeKind.STATE_CHANGE, "n-3", after=60, state="running"))
    assert runs is not None
    assert runs.record.answer is None


def test_the_terminated_state_after_the_end_starts_nothing() -> None:
    ended = interrupted(Phase.FINISHED)
    reception = take(ended, NoticeKind.STATE_CHANGE, "n-2", after=120, state="terminated")
    assert reception.start is False


def test_an_instance_that_is_interrupted_again_later_is_retired_again() -> None:
    reception = take(interrupted(Phase.FINISHED), NoticeKind.SPOT_INTERRUPTION, "n-9", after=9000)
    assert (reception.record.attempt, reception.start) == (2, True)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([NoticeKind.SPOT_INTERRUPTION, NoticeKind.REBALANCE]),
            st.integers(0, 80),
            st.integers(-300, 300),
        ),
        max_size=120,
    )
)
def test_in_any_order_deadlines_only_come_nearer_and_every_write_is_one_version_up(
    notices: list[tuple[NoticeKind, int, int]],
) -> None:
    stored: Retirement | None = None
    for kind, number, after in notices:
        reception = take(stored, kind, f"n-{number}", after=after)
        record = reception.record
        if stored is not None:
            assert record.version == stored.version + reception.write
            assert stored.deadline is not None
            assert record.deadline is not None
            assert record.deadline <= stored.deadline
            assert record.attempt - stored.attempt in (0, 1)
        assert len(record.notices) <= NOTICES_REMEMBERED
        assert Retirement.model_validate_json(record.model_dump_json()) == record
        stored = record


LIVES: list[tuple[NoticeKind, dict[str, Any]]] = [
    (NoticeKind.SPOT_INTERRUPTION, {"action": InterruptionAction.TERMINATE}),
    (NoticeKind.SPOT_INTERRUPTION, {"action": InterruptionAction.STOP}),
    (NoticeKind.REBALANCE, {}),
    (NoticeKind.SCHEDULED_CHANGE, {"effective_at": NOTICED + timedelta(hours=4)}),
    (NoticeKind.TERMINATE_HOOK, {"hook": HOOK}),
    (NoticeKind.STATE_CHANGE, {"state": "stopping"}),
    (NoticeKind.STATE_CHANGE, {"state": "running"}),
]
ENDS = {Phase.NOTICED: Phase.RUNNING, Phase.RUNNING: Phase.FINISHED, Phase.UNDOING: Phase.UNDONE}


@given(
    st.lists(
        st.tuples(st.sampled_from(LIVES), st.integers(0, 9), st.integers(0, 7200), st.booleans()),
        max_size=60,
    )
)
def test_whatever_is_told_and_undone_a_start_is_for_the_newest_attempt_and_never_while_over(
    told: list[tuple[tuple[NoticeKind, dict[str, Any]], int, int, bool]],
) -> None:
    stored: Retirement | None = None
    for (kind, said), number, after, goes_on in told:
        runs = said.get("state") == "running"
        told_of = notice(kind, f"n-{number}", after=after, **said)
        reception = (
            undo(stored, told_of)
            if runs
            else take(stored, kind, f"n-{number}", after=after, **said)
        )
        if reception is not None:
            record = reception.record
            before = stored.attempt if stored else 0
            assert record.attempt - before in (0, 1)
            assert record.version == (stored.version if stored else 0) + reception.write
            if reception.start:
                assert record.phase in {Phase.NOTICED, Phase.UNDOING}
            if record.attempt > before:
                assert reception.start
                assert reception.write
            assert Retirement.model_validate_json(record.model_dump_json()) == record
            stored = record
        if stored is not None and goes_on and stored.phase in ENDS:
            stored = stored.model_copy(
                update={"phase": ENDS[stored.phase], "version": stored.version + 1}
            )


def test_a_notice_long_after_an_unfinished_retirements_deadline_starts_another() -> None:
    reception = take(interrupted(), NoticeKind.SPOT_INTERRUPTION, "n-9", after=5 * 86400)
    assert (reception.record.attempt, reception.start) == (2, True)
    assert "died" in reception.reason


def test_an_interruption_takes_over_from_a_rebalance_that_had_less_time_left() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    reception = take(rebalance, NoticeKind.SPOT_INTERRUPTION, "n-2", after=29 * 60)
    assert reception.start
    assert reception.record.on_blocked is OnBlocked.DELETE


def test_a_recommendation_does_not_soften_a_terminate_hook() -> None:
    hooked = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    reception = take(hooked, NoticeKind.REBALANCE, "n-2", after=5)
    assert reception.record == hooked


def test_the_hook_of_a_termination_that_was_asked_for_is_only_remembered() -> None:
    asked = ReplacementIntent(method="terminate-in-group", reason="it has a hook", asked_at=NOTICED)
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    running = rebalance.model_copy(update={"phase": Phase.RUNNING, "replacement_intent": asked})
    reception = take(running, NoticeKind.TERMINATE_HOOK, "n-2", hook=HOOK, after=2)
    assert (reception.write, reception.start) == (True, False)
    assert reception.record.hooks == (HOOK,)
    assert take(running, NoticeKind.SPOT_INTERRUPTION, "n-3", after=2).start, "that leaves less"
    raised = asked.model_copy(update={"method": Method.LAUNCH, "to_restore": True})
    for replaced in (None, raised, asked.model_copy(update={"method": Method.DETACH})):
        other = running.model_copy(update={"replacement_intent": replaced})
        by_its_group = take(other, NoticeKind.TERMINATE_HOOK, "n-4", hook=HOOK, after=2)
        assert by_its_group.start, "nobody asked for that"


def test_the_same_thing_told_of_twice_some_seconds_apart_starts_nothing_again() -> None:
    stored = interrupted()
    assert take(stored, NoticeKind.SPOT_INTERRUPTION, "n-2", after=-4).record == stored
    sooner = take(stored, NoticeKind.SPOT_INTERRUPTION, "n-3", after=-60)
    assert sooner.start
    assert sooner.reason == "it leaves less time"


def test_what_waits_for_nobody_does_not_stop_a_drain_that_has_begun_of_choice() -> None:
    change = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", effective_at=NOTICED + 5 * HOUR).record
    begun = change.model_copy(update={"phase": Phase.RUNNING, "begun_at": NOTICED})
    reception = take(begun, NoticeKind.REBALANCE, "n-2", after=60)
    assert (reception.start, reception.record.attempt) == (False, begun.attempt)
    assert take(begun, NoticeKind.SPOT_INTERRUPTION, "n-3", after=60).start


def test_what_comes_anyway_outranks_a_recommendation_that_may_be_declined() -> None:
    ahead = {"effective_at": NOTICED + 4 * HOUR}
    waiting = take(None, NoticeKind.REBALANCE, "n-1").record
    change = take(waiting, NoticeKind.SCHEDULED_CHANGE, "n-2", after=60, **ahead)
    assert (change.start, change.record.kind) == (True, NoticeKind.SCHEDULED_CHANGE)
    assert not take(change.record, NoticeKind.REBALANCE, "n-3", after=90).write
    begun = waiting.model_copy(update={"phase": Phase.RUNNING, "begun_at": NOTICED})
    assert not take(begun, NoticeKind.SCHEDULED_CHANGE, "n-2", after=60, **ahead).start


DAY = 24 * HOUR
MINUTE = timedelta(minutes=1)


def test_every_phase_has_its_latest_moment() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    assert latest_end(rebalance) == NOTICED + DAY + 40 * MINUTE, "its turn, its successor, its pods"
    turn = NOTICED + 20 * HOUR
    running = rebalance.model_copy(update={"phase": Phase.RUNNING, "running_at": turn})
    assert latest_end(running) == turn + 40 * MINUTE
    ends = turn + 39 * MINUTE
    begun = running.model_copy(update={"begun_at": turn + 9 * MINUTE, "deadline": ends})
    assert latest_end(begun) == ends
    assert latest_end(interrupted()) == interrupted().deadline
    change = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", effective_at=NOTICED + 4 * HOUR).record
    assert latest_end(change) == change.deadline, "EC2 does not wait for its turn"
    undoing = interrupted().model_copy(update={"phase": Phase.UNDOING})
    assert latest_end(undoing) == NOTICED + HOUR


@given(st.sampled_from(Phase), st.sampled_from([NoticeKind.REBALANCE, NoticeKind.STATE_CHANGE]))
def test_what_has_no_deadline_is_due_all_the_same(phase: Phase, kind: NoticeKind) -> None:
    endless = take(None, kind, "n-1", state="stopping").record.model_copy(
        update={"deadline": None, "phase": phase}
    )
    assert latest_end(endless) <= NOTICED + LONGEST


def test_a_rebalance_that_waited_long_for_its_turn_is_not_dead_before_its_successor_is() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    turn = NOTICED + HOUR
    running = rebalance.model_copy(update={"phase": Phase.RUNNING, "running_at": turn})
    soon = take(running, NoticeKind.REBALANCE, "n-2", after=3660)
    assert not soon.start
    dead = take(running, NoticeKind.REBALANCE, "n-3", after=3600 + 51 * 60)
    assert dead.start
    assert dead.record.running_at is None


def test_an_undoing_whose_execution_died_gets_another_attempt() -> None:
    undoing = interrupted().model_copy(update={"phase": Phase.UNDOING})
    again = undo(undoing, notice(NoticeKind.STATE_CHANGE, "n-2", after=60, state="running"))
    assert again is not None
    assert (again.start, again.record.attempt) == (True, 1)
    dead = undo(undoing, notice(NoticeKind.STATE_CHANGE, "n-3", after=4300, state="running"))
    assert dead is not None
    assert (dead.start, dead.record.attempt, dead.record.phase) == (True, 2, Phase.UNDOING)


def heard(stored: Retirement | None, told: Notice) -> Retirement | None:
    """The record after a notice, as whoever receives notices has it."""
    if told.state == "running":
        undone = undo(stored, told)
        return undone.record if undone else stored
    return receive(stored, told, rule(told, DEFAULTS[told.kind]), FACTS).record


STOP = {"action": InterruptionAction.STOP}
RUNS_AGAIN = 200


def first_life(stop: bool) -> list[Notice]:
    """An interruption, as of which the instance stops and is started again."""
    action = InterruptionAction.STOP if stop else InterruptionAction.HIBERNATE
    return [
        notice(NoticeKind.SPOT_INTERRUPTION, "n-1", action=action),
        notice(NoticeKind.STATE_CHANGE, "n-2", after=120, state="stopping"),
        notice(NoticeKind.STATE_CHANGE, "n-3", after=150, state="stopped"),
        notice(NoticeKind.STATE_CHANGE, "n-4", after=RUNS_AGAIN, state="running"),
    ]


@given(
    st.booleans(),
    st.integers(-5, 90),
    st.data(),
)
def test_in_whatever_order_it_is_told_of_the_second_interruption_of_a_restarted_instance_is_served(
    stop: bool, after: int, data: st.DataObject
) -> None:
    again = notice(NoticeKind.SPOT_INTERRUPTION, "n-5", after=RUNS_AGAIN + after, **STOP)
    stored: Retirement | None = None
    for told in data.draw(st.permutations([*first_life(stop), again])):
        stored = heard(stored, told)
        if stored is not None and stored.phase in ENDS and data.draw(st.booleans()):
            stored = at(stored, ENDS[stored.phase])
    assert stored is not None
    assert stored.phase not in {Phase.UNDOING, Phase.UNDONE}
    assert (stored.kind, stored.noticed_at) == (NoticeKind.SPOT_INTERRUPTION, again.time)


@given(st.booleans(), st.data())
def test_in_whatever_order_it_is_told_of_a_restarted_instance_is_freed(
    stop: bool, data: st.DataObject
) -> None:
    interruption, *later = first_life(stop)
    stored = heard(None, interruption)
    for told in data.draw(st.permutations(later)):
        stored = heard(stored, told)
        if stored is not None and stored.phase in ENDS and data.draw(st.booleans()):
            stored = at(stored, ENDS[stored.phase])
    assert stored is not None
    assert stored.phase in {Phase.UNDOING, Phase.UNDONE}


def test_who_came_through_a_scheduled_change_and_has_no_successor_is_freed() -> None:
    ahead = {"effective_at": NOTICED + 5 * HOUR, "event": "reboot"}
    told = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", **ahead).record
    drained = at(told, Phase.FINISHED)
    over = notice(NoticeKind.SCHEDULED_CHANGE, "n-2", after=6 * 3600, **ahead)
    change = undo(drained, over)
    assert change is not None
    assert (change.start, change.record.phase) == (True, Phase.UNDOING)
    declined = drained.model_copy(update={"answer": None})
    assert undo(declined, over) is None, "nothing was done to it"
    asked = ReplacementIntent(method="detach", reason="", asked_at=NOTICED)
    assert undo(drained.model_copy(update={"replacement_intent": asked}), over) is None, (
        "it is to end"
    )
    assert undo(at(told, Phase.RUNNING), over) is None, "its pods are going"


def test_news_of_another_scheduled_change_undoes_nothing() -> None:
    ahead = {"effective_at": NOTICED + 5 * HOUR}
    reboot = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", event="reboot", **ahead).record
    other = notice(NoticeKind.SCHEDULED_CHANGE, "n-2", event="retirement", after=60, **ahead)
    same = notice(NoticeKind.SCHEDULED_CHANGE, "n-3", event="reboot", after=60, **ahead)
    assert undo(reboot, other) is None
    assert undo(reboot, same) is not None


def ended(kind: NoticeKind, **more: Any) -> Retirement:
    """A retirement that has ended half a minute after its notice, and left its instance."""
    closed = at(take(None, kind, "n-1", **more).record, Phase.FINISHED)
    return closed.model_copy(update={"ended_at": NOTICED + MINUTE / 2})


def test_an_instance_that_outlives_its_retirement_and_stops_later_is_retired_again() -> None:
    for kind in (NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE, NoticeKind.SPOT_INTERRUPTION):
        stored = ended(kind)
        for state in ("stopping", "shutting-down"):
            soon = take(stored, NoticeKind.STATE_CHANGE, "n-2", after=600, state=state)
            assert not soon.start, "that was its own doing"
            later = take(stored, NoticeKind.STATE_CHANGE, "n-3", after=631, state=state)
            assert (later.start, later.record.kind) == (True, NoticeKind.STATE_CHANGE)
        gone = take(stored, NoticeKind.STATE_CHANGE, "n-4", after=9000, state="terminated")
        assert not gone.start, "it has no pods any more"


def test_what_was_only_cordoned_is_retired_by_the_next_notice_that_leaves_no_choice() -> None:
    marked = ended(NoticeKind.REBALANCE).model_copy(update={"action": Action.CORDON})
    at_once = take(marked, NoticeKind.SPOT_INTERRUPTION, "n-2", after=-1)
    assert (at_once.start, at_once.reason) == (True, "the one before it only cordoned")
    assert take(marked, NoticeKind.STATE_CHANGE, "n-3", after=60, state="stopping").start
    life_before = take(marked, NoticeKind.SPOT_INTERRUPTION, "n-4", after=-160)
    assert not life_before.start, "it must have stopped, and started again, before it was marked"
    assert not take(marked, NoticeKind.REBALANCE, "n-5").start
    ends = notice(NoticeKind.STATE_CHANGE, "n-6", after=60, state="stopping")
    cordons = replace(DEFAULTS[NoticeKind.STATE_CHANGE], action=Action.CORDON)
    assert not receive(marked, ends, rule(ends, cordons), FACTS).start, "nor are its pods to go now"


def test_news_of_a_stop_that_are_late_by_a_life_retire_nothing() -> None:
    stopped = {"state": "stopped"}
    for kind in (NoticeKind.REBALANCE, NoticeKind.SPOT_INTERRUPTION):
        stored = at(take(None, kind, "n-1").record, Phase.RUNNING)
        assert not take(stored, NoticeKind.STATE_CHANGE, "n-2", after=-40, **stopped).start
        assert not take(stored, NoticeKind.SPOT_INTERRUPTION, "n-3", after=-160, **STOP).start
        assert take(stored, NoticeKind.SPOT_INTERRUPTION, "n-4", after=-60, **STOP).start
    hooked = at(take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record, Phase.RUNNING)
    assert take(hooked, NoticeKind.STATE_CHANGE, "n-2", after=-40, **stopped).start, "for that"


def test_the_stop_that_an_interruption_announced_is_no_other_life() -> None:
    stored = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1", **STOP).record
    stored = at(stored, Phase.RUNNING)
    assert not take(stored, NoticeKind.STATE_CHANGE, "n-2", after=200, state="stopped").start
    assert take(stored, NoticeKind.SPOT_INTERRUPTION, "n-3", after=200, **STOP).start


def test_a_policy_that_retires_by_now_takes_over_from_one_that_only_cordoned() -> None:
    marked = at(take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record, Phase.RUNNING)
    marked = marked.model_copy(update={"action": Action.CORDON})
    again = take(marked, NoticeKind.SPOT_INTERRUPTION, "n-2")
    assert (again.start, again.reason) == (True, "the one before it only cordons")
    assert not take(marked, NoticeKind.REBALANCE, "n-3").start, "less urgent all the same"
    told = notice(NoticeKind.SPOT_INTERRUPTION, "n-4")
    cordons = replace(DEFAULTS[told.kind], action=Action.CORDON)
    assert not receive(marked, told, rule(told, cordons), FACTS).start


def test_what_was_told_before_an_undoing_begins_nothing_but_clocks_differ_for_an_interruption() -> (
    None
):
    for phase in (Phase.UNDOING, Phase.UNDONE):
        stored = interrupted(phase)
        assert take(stored, NoticeKind.SPOT_INTERRUPTION, "n-2", after=-29).start
        assert not take(stored, NoticeKind.SPOT_INTERRUPTION, "n-3", after=-31).start
        assert take(stored, NoticeKind.REBALANCE, "n-4", after=1).start
        assert not take(stored, NoticeKind.REBALANCE, "n-5", after=-1).start


def test_an_interruption_is_about_to_end_its_instance_for_two_minutes_and_a_half() -> None:
    served = interrupted(Phase.FINISHED)
    assert not take(served, NoticeKind.REBALANCE, "n-2", after=149).start
    assert take(served, NoticeKind.REBALANCE, "n-3", after=151).start
    recommended = ended(NoticeKind.REBALANCE)
    ahead = {"effective_at": NOTICED + 4 * HOUR}
    assert take(recommended, NoticeKind.SCHEDULED_CHANGE, "n-4", after=10, **ahead).start


def test_what_a_group_is_still_owed_is_taken_up_by_what_tells_of_the_end_but_by_no_old_advice() -> (
    None
):
    asked = ReplacementIntent(
        method="launch-successor", reason="one more", asked_at=NOTICED, to_restore=True
    )
    kept = ended(NoticeKind.REBALANCE).model_copy(update={"replacement_intent": asked})
    assert take(kept, NoticeKind.STATE_CHANGE, "n-2", after=60, state="stopping").start
    assert not take(kept, NoticeKind.REBALANCE, "n-3", after=-5).start
    paid = kept.model_copy(
        update={"replacement_intent": asked.model_copy(update={"to_restore": False})}
    )
    assert not take(paid, NoticeKind.STATE_CHANGE, "n-4", after=60, state="stopping").start


def test_what_begins_after_an_undoing_knows_nothing_of_the_life_before_but_what_is_owed() -> None:
    asked = ReplacementIntent(method="launch-successor", reason="one more", asked_at=NOTICED)
    for owed in (False, True):
        before = interrupted(Phase.UNDONE).model_copy(
            update={
                "hooks": (HOOK,),
                "replacement_intent": asked.model_copy(update={"to_restore": owed}),
            }
        )
        anew = take(before, NoticeKind.SPOT_INTERRUPTION, "n-2", after=600).record
        assert anew.hooks == ()
        assert (anew.replacement_intent is not None) is owed
    hooked = at(take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record, Phase.RUNNING)
    taken = take(
        hooked.model_copy(update={"replacement_intent": asked}), NoticeKind.SPOT_INTERRUPTION, "n-2"
    )
    assert (taken.record.hooks, taken.record.replacement_intent) == ((HOOK,), asked)


def test_the_end_that_it_asked_its_group_for_begins_no_other_retirement() -> None:
    for ending, starts in ((False, True), (True, False)):
        asked = ReplacementIntent(
            method="launch-successor", reason="", asked_at=NOTICED, to_restore=True, ending=ending
        )
        stored = take(None, NoticeKind.REBALANCE, "n-1").record
        stored = stored.model_copy(update={"phase": Phase.RUNNING, "replacement_intent": asked})
        told = take(stored, NoticeKind.STATE_CHANGE, "n-2", after=60, state="shutting-down")
        assert told.start is starts
