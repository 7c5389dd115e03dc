"""The time by which an open retirement has ended, unless its execution died."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from leeway.execution.attempt import Phase
from leeway.notices import NoticeKind
from leeway.retirement.record import MAX_EXECUTION_TIME, latest_end

from tests.retirement.retirements import NOTICED, interrupted, take

HOUR = timedelta(hours=1)
DAY = 24 * HOUR
MINUTE = timedelta(minutes=1)


def test_every_phase_has_a_latest_end() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    assert latest_end(rebalance) == NOTICED + DAY + 40 * MINUTE, "budget, replacement, drain"
    turn = NOTICED + 20 * HOUR
    running = rebalance.model_copy(update={"phase": Phase.RUNNING, "replacement_began_at": turn})
    assert latest_end(running) == turn + 40 * MINUTE
    ends = turn + 39 * MINUTE
    begun = running.model_copy(update={"drain_began_at": turn + 9 * MINUTE, "deadline": ends})
    assert latest_end(begun) == ends
    assert latest_end(interrupted()) == interrupted().deadline
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", effective_at=NOTICED + 4 * HOUR).record
    assert latest_end(record) == record.deadline, "EC2 does not wait for the budget"
    undoing = interrupted().model_copy(update={"phase": Phase.UNDOING})
    assert latest_end(undoing) == NOTICED + HOUR


@given(
    st.sampled_from(Phase),
    st.sampled_from([NoticeKind.REBALANCE, NoticeKind.STATE_CHANGE]),
    st.none() | st.integers(1, 30),
)
def test_no_retirement_outlasts_its_execution(
    phase: Phase, kind: NoticeKind, days: int | None
) -> None:
    deadline = None if days is None else NOTICED + days * DAY
    long = take(None, kind, "n-1", state="stopping").record.model_copy(
        update={"deadline": deadline, "phase": phase}
    )
    assert latest_end(long) <= NOTICED + MAX_EXECUTION_TIME


def test_a_rebalance_that_waited_for_the_budget_is_not_dead_before_its_replacement_timeout() -> (
    None
):
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    turn = NOTICED + HOUR
    running = rebalance.model_copy(update={"phase": Phase.RUNNING, "replacement_began_at": turn})
    soon = take(running, NoticeKind.REBALANCE, "n-2", after=3660)
    assert not soon.start
    dead = take(running, NoticeKind.REBALANCE, "n-3", after=3600 + 51 * 60)
    assert dead.start
    assert dead.record.replacement_began_at is None
