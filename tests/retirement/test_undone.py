"""Retirements that are undone because their instance runs on, or runs again."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from leeway.execution.attempt import Phase
from leeway.notices import InterruptionAction, Notice, NoticeKind
from leeway.policy.rules import DEFAULTS, rule
from leeway.retirement.attempts import apply_notice, undo
from leeway.retirement.reasons import SUCCESSOR_FOUND
from leeway.retirement.record import ReplacementIntent, Retirement

from tests.retirement.retirements import ENDS, FACTS, NOTICED, STOP, at, interrupted, notice, take

HOUR = timedelta(hours=1)


def test_an_undo_whose_execution_died_gets_another_attempt() -> None:
    undoing = interrupted().model_copy(update={"phase": Phase.UNDOING})
    again = undo(undoing, notice(NoticeKind.STATE_CHANGE, "n-2", after=60, state="running"))
    assert again is not None
    assert (again.start, again.record.attempt) == (True, 1)
    dead = undo(undoing, notice(NoticeKind.STATE_CHANGE, "n-3", after=4300, state="running"))
    assert dead is not None
    assert (dead.start, dead.record.attempt, dead.record.phase) == (True, 2, Phase.UNDOING)


def after_notice(stored: Retirement | None, new: Notice) -> Retirement | None:
    """The record after a notice."""
    if new.state == "running":
        undone = undo(stored, new)
        return undone.record if undone else stored
    return apply_notice(stored, new, rule(new, DEFAULTS[new.kind]), FACTS).record


RUNS_AGAIN = 200


def stop_and_start(stop: bool) -> list[Notice]:
    """An interruption that stops the instance, and its next start."""
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
def test_in_any_order_the_second_interruption_of_a_restarted_instance_is_applied(
    stop: bool, after: int, data: st.DataObject
) -> None:
    again = notice(NoticeKind.SPOT_INTERRUPTION, "n-5", after=RUNS_AGAIN + after, **STOP)
    stored: Retirement | None = None
    for new in data.draw(st.permutations([*stop_and_start(stop), again])):
        stored = after_notice(stored, new)
        if stored is not None and stored.phase in ENDS and data.draw(st.booleans()):
            stored = at(stored, ENDS[stored.phase])
    assert stored is not None
    assert stored.phase not in {Phase.UNDOING, Phase.UNDONE}
    assert (stored.kind, stored.noticed_at) == (NoticeKind.SPOT_INTERRUPTION, again.time)


@given(st.booleans(), st.data())
def test_in_any_order_a_restarted_instance_is_released(stop: bool, data: st.DataObject) -> None:
    interruption, *later = stop_and_start(stop)
    stored = after_notice(None, interruption)
    for new in data.draw(st.permutations(later)):
        stored = after_notice(stored, new)
        if stored is not None and stored.phase in ENDS and data.draw(st.booleans()):
            stored = at(stored, ENDS[stored.phase])
    assert stored is not None
    assert stored.phase in {Phase.UNDOING, Phase.UNDONE}


def test_an_instance_that_keeps_running_after_a_scheduled_change_is_released() -> None:
    ahead = {"effective_at": NOTICED + 5 * HOUR, "event": "reboot"}
    new = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", **ahead).record
    drained = at(new, Phase.FINISHED)
    over = notice(NoticeKind.SCHEDULED_CHANGE, "n-2", after=6 * 3600, **ahead)
    change = undo(drained, over)
    assert change is not None
    assert (change.start, change.record.phase) == (True, Phase.UNDOING)
    declined = drained.model_copy(update={"answer": None})
    assert undo(declined, over) is None, "the retirement had no effect"
    intent = ReplacementIntent(
        method="detach",
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=NOTICED,
    )
    assert undo(drained.model_copy(update={"replacement_intent": intent}), over) is None, (
        "it is being replaced"
    )
    assert undo(at(new, Phase.RUNNING), over) is None, "the drain has begun"


def test_a_notice_about_another_scheduled_change_undoes_nothing() -> None:
    ahead = {"effective_at": NOTICED + 5 * HOUR}
    reboot = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", event="reboot", **ahead).record
    other = notice(NoticeKind.SCHEDULED_CHANGE, "n-2", event="retirement", after=60, **ahead)
    same = notice(NoticeKind.SCHEDULED_CHANGE, "n-3", event="reboot", after=60, **ahead)
    assert undo(reboot, other) is None
    assert undo(reboot, same) is not None
