"""Retirement records: duplicates change nothing, urgent notices begin attempts."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from leeway.execution.attempt import MAX_NOTICE_IDS, Phase
from leeway.notices import InterruptionAction, NoticeKind
from leeway.policy.rules import DEFAULTS, Action, OnBlocked, rule
from leeway.ports.aws import HookResult
from leeway.retirement.attempts import apply_notice, undo
from leeway.retirement.reasons import RETIREMENT_STARTED, SUCCESSOR_FOUND
from leeway.retirement.record import Method, ReplacementIntent, Retirement

from tests.retirement.retirements import (
    ENDS,
    FACTS,
    HOOK,
    NOTICED,
    STOP,
    at,
    interrupted,
    notice,
    take,
)

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def test_hooks_of_an_ended_retirement_are_dropped_after_the_longest_timeout() -> None:
    """The answer would go to a later lifecycle action of the same hook."""
    first = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    ended = at(first, Phase.FINISHED).model_copy(update={"ended_at": NOTICED})
    soon = take(ended, NoticeKind.REBALANCE, "n-2", after=7199).record
    late = take(ended, NoticeKind.REBALANCE, "n-2", after=7200).record
    assert (soon.hooks, late.hooks) == ((HOOK,), ())
    again = take(ended, NoticeKind.TERMINATE_HOOK, "n-2", hook=HOOK, after=7200).record
    assert again.hooks == (HOOK,)


def test_the_first_notice_starts_the_first_attempt() -> None:
    change = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1")
    assert (change.write, change.start) == (True, True)
    assert (change.record.attempt, change.record.version) == (1, 1)


def test_the_same_notice_again_changes_nothing() -> None:
    change = take(interrupted(), NoticeKind.SPOT_INTERRUPTION, "n-1")
    assert (change.write, change.start) == (False, False)


def test_a_start_that_may_be_lost_is_repeated() -> None:
    change = take(interrupted(Phase.NOTICED), NoticeKind.SPOT_INTERRUPTION, "n-1")
    assert (change.write, change.start) == (False, True)
    assert change.record.attempt == 1


def test_a_rebalance_recommendation_after_an_interruption_starts_nothing() -> None:
    served = interrupted(Phase.FINISHED)
    assert not take(served, NoticeKind.REBALANCE, "n-2", after=40).write
    assert take(served, NoticeKind.REBALANCE, "n-3", after=600).start, "the instance kept running"
    assert take(served, NoticeKind.SPOT_INTERRUPTION, "n-4", after=40).start


def test_a_less_urgent_notice_changes_nothing() -> None:
    stored = interrupted()
    change = take(stored, NoticeKind.REBALANCE, "n-2")
    assert (change.write, change.start) == (False, False)
    assert change.record == stored


def test_an_interruption_takes_precedence_over_a_rebalance_recommendation() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    running = rebalance.model_copy(update={"phase": Phase.RUNNING})
    change = take(running, NoticeKind.SPOT_INTERRUPTION, "n-2", after=60)
    assert (change.record.attempt, change.start) == (2, True)
    assert change.record.deadline == NOTICED + timedelta(seconds=60 + 115)
    assert change.record.phase is Phase.NOTICED


def test_a_hook_that_is_announced_during_a_retirement_is_stored() -> None:
    change = take(interrupted(), NoticeKind.TERMINATE_HOOK, "n-2", hook=HOOK)
    assert (change.record.hooks, change.start) == ((HOOK,), False)


def test_a_hook_that_is_announced_after_the_end_starts_an_attempt_that_answers_it() -> None:
    change = take(interrupted(Phase.FINISHED), NoticeKind.TERMINATE_HOOK, "n-2", hook=HOOK)
    assert (change.record.attempt, change.start) == (2, True)
    assert change.record.hooks == (HOOK,)


def test_a_retirement_without_effect_does_not_cover_involuntary_notices() -> None:
    rehearsed = interrupted(Phase.FINISHED).model_copy(update={"answer": None, "hooks": (HOOK,)})
    again = take(rehearsed, NoticeKind.SPOT_INTERRUPTION, "n-2")
    assert (again.start, again.record.attempt) == (True, 2)
    hook = take(rehearsed, NoticeKind.TERMINATE_HOOK, "n-3", hook=HOOK)
    assert (hook.start, hook.record.hooks) == (True, (HOOK,))
    stopping = take(rehearsed, NoticeKind.STATE_CHANGE, "n-4", after=5, state="stopping")
    assert stopping.start
    assert not take(rehearsed, NoticeKind.REBALANCE, "n-5").start


def test_a_new_attempt_has_no_answer() -> None:
    ended = at(take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record, Phase.FINISHED)
    assert ended.answer is HookResult.CONTINUE
    assert take(ended, NoticeKind.SPOT_INTERRUPTION, "n-2", after=60).record.answer is None
    runs = undo(ended, notice(NoticeKind.STATE_CHANGE, "n-3", after=60, state="running"))
    assert runs is not None
    assert runs.record.answer is None


def test_the_terminated_state_after_the_end_starts_nothing() -> None:
    ended = interrupted(Phase.FINISHED)
    change = take(ended, NoticeKind.STATE_CHANGE, "n-2", after=120, state="terminated")
    assert change.start is False


def test_an_instance_that_is_interrupted_again_later_is_retired_again() -> None:
    change = take(interrupted(Phase.FINISHED), NoticeKind.SPOT_INTERRUPTION, "n-9", after=9000)
    assert (change.record.attempt, change.start) == (2, True)


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
def test_in_any_order_deadlines_only_get_earlier_and_every_write_adds_one_version(
    notices: list[tuple[NoticeKind, int, int]],
) -> None:
    stored: Retirement | None = None
    for kind, number, after in notices:
        change = take(stored, kind, f"n-{number}", after=after)
        record = change.record
        if stored is not None:
            assert record.version == stored.version + change.write
            assert stored.deadline is not None
            assert record.deadline is not None
            assert record.deadline <= stored.deadline
            assert record.attempt - stored.attempt in (0, 1)
        assert len(record.notices) <= MAX_NOTICE_IDS
        assert Retirement.model_validate_json(record.model_dump_json()) == record
        stored = record


ANNOUNCEMENTS: list[tuple[NoticeKind, dict[str, Any]]] = [
    (NoticeKind.SPOT_INTERRUPTION, {"action": InterruptionAction.TERMINATE}),
    (NoticeKind.SPOT_INTERRUPTION, STOP),
    (NoticeKind.REBALANCE, {}),
    (NoticeKind.SCHEDULED_CHANGE, {"effective_at": NOTICED + timedelta(hours=4)}),
    (NoticeKind.TERMINATE_HOOK, {"hook": HOOK}),
    (NoticeKind.STATE_CHANGE, {"state": "stopping"}),
    (NoticeKind.STATE_CHANGE, {"state": "running"}),
]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(ANNOUNCEMENTS), st.integers(0, 9), st.integers(0, 7200), st.booleans()
        ),
        max_size=60,
    )
)
def test_in_any_order_only_the_newest_open_attempt_is_started(
    notices: list[tuple[tuple[NoticeKind, dict[str, Any]], int, int, bool]],
) -> None:
    stored: Retirement | None = None
    for (kind, fields), number, after, next_phase in notices:
        runs = fields.get("state") == "running"
        announced = notice(kind, f"n-{number}", after=after, **fields)
        change = (
            undo(stored, announced)
            if runs
            else take(stored, kind, f"n-{number}", after=after, **fields)
        )
        if change is not None:
            record = change.record
            before = stored.attempt if stored else 0
            assert record.attempt - before in (0, 1)
            assert record.version == (stored.version if stored else 0) + change.write
            if change.start:
                assert record.phase in {Phase.NOTICED, Phase.UNDOING}
            if record.attempt > before:
                assert change.start
                assert change.write
            assert Retirement.model_validate_json(record.model_dump_json()) == record
            stored = record
        if stored is not None and next_phase and stored.phase in ENDS:
            stored = stored.model_copy(
                update={"phase": ENDS[stored.phase], "version": stored.version + 1}
            )


def test_a_notice_long_after_the_latest_end_of_an_open_retirement_starts_an_attempt() -> None:
    change = take(interrupted(), NoticeKind.SPOT_INTERRUPTION, "n-9", after=5 * 86400)
    assert (change.record.attempt, change.start) == (2, True)
    assert change.reason.code == "ExecutionDied"


def test_an_interruption_takes_precedence_over_a_rebalance_with_less_time() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    change = take(rebalance, NoticeKind.SPOT_INTERRUPTION, "n-2", after=29 * 60)
    assert change.start
    assert change.record.on_blocked is OnBlocked.DELETE


def test_a_rebalance_recommendation_does_not_change_a_terminate_hook() -> None:
    hooked = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    change = take(hooked, NoticeKind.REBALANCE, "n-2", after=5)
    assert change.record == hooked


def test_the_hook_of_a_termination_that_the_retirement_requested_is_only_stored() -> None:
    intent = ReplacementIntent(
        method="terminate-in-group",
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=NOTICED,
    )
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    running = rebalance.model_copy(update={"phase": Phase.RUNNING, "replacement_intent": intent})
    change = take(running, NoticeKind.TERMINATE_HOOK, "n-2", hook=HOOK, after=2)
    assert (change.write, change.start) == (True, False)
    assert change.record.hooks == (HOOK,)
    assert take(running, NoticeKind.SPOT_INTERRUPTION, "n-3", after=2).start, (
        "it has an earlier deadline"
    )
    raised = intent.model_copy(update={"method": Method.LAUNCH, "to_restore": True})
    for replaced in (None, raised, intent.model_copy(update={"method": Method.DETACH})):
        other = running.model_copy(update={"replacement_intent": replaced})
        by_its_group = take(other, NoticeKind.TERMINATE_HOOK, "n-4", hook=HOOK, after=2)
        assert by_its_group.start, "the retirement did not request it"


def test_the_same_event_announced_twice_some_seconds_apart_starts_nothing() -> None:
    stored = interrupted()
    assert take(stored, NoticeKind.SPOT_INTERRUPTION, "n-2", after=-4).record == stored
    sooner = take(stored, NoticeKind.SPOT_INTERRUPTION, "n-3", after=-60)
    assert sooner.start
    assert sooner.reason == RETIREMENT_STARTED(
        "The notice has an earlier deadline than the current attempt."
    )


def test_a_voluntary_notice_does_not_restart_a_voluntary_drain() -> None:
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", effective_at=NOTICED + 5 * HOUR).record
    begun = record.model_copy(update={"phase": Phase.RUNNING, "drain_began_at": NOTICED})
    change = take(begun, NoticeKind.REBALANCE, "n-2", after=60)
    assert (change.start, change.record.attempt) == (False, begun.attempt)
    assert take(begun, NoticeKind.SPOT_INTERRUPTION, "n-3", after=60).start


def test_a_scheduled_change_takes_precedence_over_a_waiting_recommendation() -> None:
    ahead = {"effective_at": NOTICED + 4 * HOUR}
    waiting = take(None, NoticeKind.REBALANCE, "n-1").record
    change = take(waiting, NoticeKind.SCHEDULED_CHANGE, "n-2", after=60, **ahead)
    assert (change.start, change.record.kind) == (True, NoticeKind.SCHEDULED_CHANGE)
    assert not take(change.record, NoticeKind.REBALANCE, "n-3", after=90).write
    begun = waiting.model_copy(update={"phase": Phase.RUNNING, "drain_began_at": NOTICED})
    assert not take(begun, NoticeKind.SCHEDULED_CHANGE, "n-2", after=60, **ahead).start


def ended(kind: NoticeKind, **more: Any) -> Retirement:
    """A retirement that ended half a minute after its notice; its instance still runs."""
    closed = at(take(None, kind, "n-1", **more).record, Phase.FINISHED)
    return closed.model_copy(update={"ended_at": NOTICED + MINUTE / 2})


def test_an_instance_that_kept_running_and_stops_later_is_retired_again() -> None:
    for kind in (NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE, NoticeKind.SPOT_INTERRUPTION):
        stored = ended(kind)
        for state in ("stopping", "shutting-down"):
            soon = take(stored, NoticeKind.STATE_CHANGE, "n-2", after=600, state=state)
            assert not soon.start, "the retirement itself stopped it"
            later = take(stored, NoticeKind.STATE_CHANGE, "n-3", after=631, state=state)
            assert (later.start, later.record.kind) == (True, NoticeKind.STATE_CHANGE)
        gone = take(stored, NoticeKind.STATE_CHANGE, "n-4", after=9000, state="terminated")
        assert not gone.start, "it has no pods"


def test_a_node_that_was_only_cordoned_is_drained_by_the_next_involuntary_notice() -> None:
    marked = ended(NoticeKind.REBALANCE).model_copy(update={"action": Action.CORDON})
    at_once = take(marked, NoticeKind.SPOT_INTERRUPTION, "n-2", after=-1)
    assert (at_once.start, at_once.reason) == (
        True,
        RETIREMENT_STARTED("The previous notice only cordoned the node; this notice drains it."),
    )
    assert take(marked, NoticeKind.STATE_CHANGE, "n-3", after=60, state="stopping").start
    before_restart = take(marked, NoticeKind.SPOT_INTERRUPTION, "n-4", after=-160)
    assert not before_restart.start, "it must have stopped and started since"
    assert not take(marked, NoticeKind.REBALANCE, "n-5").start
    ends = notice(NoticeKind.STATE_CHANGE, "n-6", after=60, state="stopping")
    cordons = replace(DEFAULTS[NoticeKind.STATE_CHANGE], action=Action.CORDON)
    assert not apply_notice(marked, ends, rule(ends, cordons), FACTS).start, (
        "the policy only cordons"
    )


def test_a_stop_from_before_the_last_start_retires_nothing() -> None:
    stopped = {"state": "stopped"}
    for kind in (NoticeKind.REBALANCE, NoticeKind.SPOT_INTERRUPTION):
        stored = at(take(None, kind, "n-1").record, Phase.RUNNING)
        assert not take(stored, NoticeKind.STATE_CHANGE, "n-2", after=-40, **stopped).start
        assert not take(stored, NoticeKind.SPOT_INTERRUPTION, "n-3", after=-160, **STOP).start
        assert take(stored, NoticeKind.SPOT_INTERRUPTION, "n-4", after=-60, **STOP).start
    hooked = at(take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record, Phase.RUNNING)
    assert take(hooked, NoticeKind.STATE_CHANGE, "n-2", after=-40, **stopped).start, (
        "a hook does not need a running instance"
    )


def test_the_stop_that_an_interruption_announced_starts_nothing() -> None:
    stored = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1", **STOP).record
    stored = at(stored, Phase.RUNNING)
    assert not take(stored, NoticeKind.STATE_CHANGE, "n-2", after=200, state="stopped").start
    assert take(stored, NoticeKind.SPOT_INTERRUPTION, "n-3", after=200, **STOP).start


def test_a_policy_that_retires_takes_precedence_over_one_that_only_cordoned() -> None:
    marked = at(take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record, Phase.RUNNING)
    marked = marked.model_copy(update={"action": Action.CORDON})
    again = take(marked, NoticeKind.SPOT_INTERRUPTION, "n-2")
    assert (again.start, again.reason) == (
        True,
        RETIREMENT_STARTED("The previous notice only cordoned the node; this notice drains it."),
    )
    assert not take(marked, NoticeKind.REBALANCE, "n-3").start, "it is still less urgent"
    new = notice(NoticeKind.SPOT_INTERRUPTION, "n-4")
    cordons = replace(DEFAULTS[new.kind], action=Action.CORDON)
    assert not apply_notice(marked, new, rule(new, cordons), FACTS).start


def test_notices_from_before_an_undo_start_nothing_with_tolerance_for_interruptions() -> None:
    for phase in (Phase.UNDOING, Phase.UNDONE):
        stored = interrupted(phase)
        assert take(stored, NoticeKind.SPOT_INTERRUPTION, "n-2", after=-29).start
        assert not take(stored, NoticeKind.SPOT_INTERRUPTION, "n-3", after=-31).start
        assert take(stored, NoticeKind.REBALANCE, "n-4", after=1).start
        assert not take(stored, NoticeKind.REBALANCE, "n-5", after=-1).start


def test_voluntary_notices_are_ignored_for_150_seconds_after_an_interruption() -> None:
    served = interrupted(Phase.FINISHED)
    assert not take(served, NoticeKind.REBALANCE, "n-2", after=149).start
    assert take(served, NoticeKind.REBALANCE, "n-3", after=151).start
    recommended = ended(NoticeKind.REBALANCE)
    ahead = {"effective_at": NOTICED + 4 * HOUR}
    assert take(recommended, NoticeKind.SCHEDULED_CHANGE, "n-4", after=10, **ahead).start


def test_capacity_to_restore_is_restored_after_an_involuntary_notice_only() -> None:
    intent = ReplacementIntent(
        method="launch-successor",
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=NOTICED,
        to_restore=True,
    )
    kept = ended(NoticeKind.REBALANCE).model_copy(update={"replacement_intent": intent})
    assert take(kept, NoticeKind.STATE_CHANGE, "n-2", after=60, state="stopping").start
    assert not take(kept, NoticeKind.REBALANCE, "n-3", after=-5).start
    restored = kept.model_copy(
        update={"replacement_intent": intent.model_copy(update={"to_restore": False})}
    )
    assert not take(restored, NoticeKind.STATE_CHANGE, "n-4", after=60, state="stopping").start


def test_an_attempt_after_an_undo_keeps_only_the_capacity_to_restore() -> None:
    intent = ReplacementIntent(
        method="launch-successor",
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=NOTICED,
    )
    for to_restore in (False, True):
        before = interrupted(Phase.UNDONE).model_copy(
            update={
                "hooks": (HOOK,),
                "replacement_intent": intent.model_copy(update={"to_restore": to_restore}),
            }
        )
        anew = take(before, NoticeKind.SPOT_INTERRUPTION, "n-2", after=600).record
        assert anew.hooks == ()
        assert (anew.replacement_intent is not None) is to_restore
    hooked = at(take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record, Phase.RUNNING)
    interrupted_ = take(
        hooked.model_copy(update={"replacement_intent": intent}),
        NoticeKind.SPOT_INTERRUPTION,
        "n-2",
    )
    assert (interrupted_.record.hooks, interrupted_.record.replacement_intent) == ((HOOK,), intent)


def test_the_termination_that_the_retirement_requested_starts_nothing() -> None:
    for ending, starts in ((False, True), (True, False)):
        intent = ReplacementIntent(
            method="launch-successor",
            reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
            requested_at=NOTICED,
            to_restore=True,
            ending=ending,
        )
        stored = take(None, NoticeKind.REBALANCE, "n-1").record
        stored = stored.model_copy(update={"phase": Phase.RUNNING, "replacement_intent": intent})
        new = take(stored, NoticeKind.STATE_CHANGE, "n-2", after=60, state="shutting-down")
        assert new.start is starts
