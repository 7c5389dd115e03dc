"""Retirements and admissions whose execution did not start or died."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import OVERDUE, Phase
from leeway.notices import InterruptionAction, NoticeKind
from leeway.notices.parse import parse_notice
from leeway.policy.rules import DEFAULTS, Action, OnBlocked, Replacement, Ruling, rule
from leeway.reconciliation.lost_events import (
    LostEvent,
    LostReturn,
    LostStart,
    check_detached_instance,
    check_overdue_admission,
    check_overdue_retirement,
    check_start,
)
from leeway.retirement.attempts import apply_notice, apply_return, return_again, undo
from leeway.retirement.reasons import NODE_KEPT, SUCCESSOR_FOUND
from leeway.retirement.record import (
    NODE_DELETED,
    ReplacementIntent,
    Retirement,
    ReturnTerms,
    latest_end,
)

from tests.admission.admission_records import LAUNCH_HOOK, admission
from tests.reconciliation.lost_notices import (
    MINUTE,
    ORIGIN,
    context,
    left_running,
    notice_of,
    terminating,
)
from tests.retirement.retirements import FACTS, HOOK, NOTICED, at, interrupted, take


def test_a_lost_start_is_found() -> None:
    noticed = take(None, NoticeKind.REBALANCE, "n-1").record
    assert check_start(noticed, NOTICED + MINUTE) is None
    assert isinstance(check_start(noticed, NOTICED + 2 * MINUTE), LostStart)
    urgent = interrupted(Phase.NOTICED)
    assert check_start(urgent, NOTICED + MINUTE / 3) is None
    assert isinstance(check_start(urgent, NOTICED + MINUTE), LostStart)
    assert check_start(interrupted(), NOTICED + 2 * MINUTE) is None
    assert check_start(noticed, NOTICED + 10 * MINUTE) is None, "it waits for the disruption budget"
    undoing = interrupted().model_copy(update={"phase": Phase.UNDOING})
    assert isinstance(check_start(undoing, NOTICED + 2 * MINUTE), LostStart)
    started = check_start(admission(Phase.NOTICED), NOTICED + 2 * MINUTE)
    assert isinstance(started, LostStart)
    assert started.is_admission


def test_an_instance_without_a_node_may_wait_for_its_15_minutes() -> None:
    record = take(None, NoticeKind.CAPACITY_RETURN, "n-1").record
    waiting = record.model_copy(update={"terms": ReturnTerms(cause=NODE_DELETED)})
    assert all(check_start(waiting, NOTICED + n * MINUTE) is None for n in range(17))
    assert isinstance(check_start(waiting, NOTICED + 17 * MINUTE), LostStart)


def overdue(record: Retirement, state: str | None, **more: Any) -> Any:
    assert record.deadline is not None
    at = record.deadline + OVERDUE + MINUTE
    return check_overdue_retirement(record.model_copy(update=more), state, context(at))


def test_an_overdue_retirement_is_repeated_with_its_kind_of_notice() -> None:
    assert notice_of(overdue(interrupted(), "running")).kind is NoticeKind.SPOT_INTERRUPTION
    assert notice_of(overdue(terminating(), "running")).hook == HOOK
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    started = {"phase": Phase.RUNNING, "drain_began_at": NOTICED}
    assert notice_of(overdue(rebalance, "running", **started)).kind is NoticeKind.REBALANCE
    for kind in (NoticeKind.IMPAIRED_STATUS, NoticeKind.UNHEALTHY_NODE):
        record = at(take(None, kind, "n-1").record, Phase.RUNNING)
        late = context(latest_end(record) + OVERDUE)
        repeated = notice_of(check_overdue_retirement(record, "running", late))
        assert (repeated.kind, repeated.over) == (kind, frozenset())
    ends = interrupted().deadline
    assert ends is not None
    assert check_overdue_retirement(interrupted(), "running", context(ends)) is None


TERMS = ReturnTerms(cause="Drifted", optional=True, forced=True, saving=0.25)


def returned(**changes: Any) -> Retirement:
    """A node of a group that drifted, with 20 minutes for its drain, which has begun."""
    ruling = Ruling(
        Action.RETIRE,
        NOTICED + 20 * MINUTE,
        Replacement.BEFORE,
        OnBlocked.DELETE,
        NODE_KEPT("It drifted."),
    )
    record = apply_return(None, FACTS, ruling, TERMS, NOTICED).record
    began = NOTICED + 5 * MINUTE
    usual = {"phase": Phase.RUNNING, "drain_began_at": began, "deadline": began + 20 * MINUTE}
    return record.model_copy(update=usual | changes)


def test_an_overdue_return_of_capacity_is_repeated_on_its_own_terms() -> None:
    record = returned()
    late = latest_end(record) + OVERDUE
    assert check_overdue_retirement(record, "running", context(late - MINUTE)) is None
    finding = check_overdue_retirement(record, "running", context(late))
    assert isinstance(finding, LostReturn)
    assert finding.reason.code == "ExecutionOverdue"
    assert finding.record is record
    change = return_again(record, finding.terms, late)
    again = change.record
    assert (change.write, change.start, again.attempt) == (True, True, 2)
    assert (again.kind, again.terms) == (NoticeKind.CAPACITY_RETURN, TERMS)
    assert again.deadline == late + 20 * MINUTE, "the time of its drain, and not of a rebalance"
    assert (again.on_blocked, again.replacement) == (OnBlocked.DELETE, Replacement.BEFORE)
    assert again.reason == record.reason


def test_a_return_that_waited_gets_the_time_of_its_drain_and_one_without_a_limit_none() -> None:
    late = NOTICED + timedelta(days=8)
    waiting = returned(drain_began_at=None, deadline=NOTICED + 20 * MINUTE)
    assert return_again(waiting, TERMS, late).record.deadline == late + 20 * MINUTE
    assert return_again(returned(deadline=None), TERMS, late).record.deadline is None


def test_a_drain_that_outlasts_its_execution_keeps_its_deadline() -> None:
    began, deadline = NOTICED + MINUTE, NOTICED + timedelta(days=30)
    record = returned(drain_began_at=began, deadline=deadline)
    late = latest_end(record) + OVERDUE
    assert late < deadline
    again = return_again(record, TERMS, late).record
    assert (again.attempt, again.deadline) == (2, deadline)


def test_a_return_whose_instance_has_ended_is_repeated_as_its_end() -> None:
    late = latest_end(returned()) + OVERDUE
    ended = check_overdue_retirement(returned(), "terminated", context(late))
    assert notice_of(ended).state == "terminated"


def test_a_retirement_that_waits_or_is_being_undone_is_not_overdue() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    assert overdue(rebalance, "running") is None
    turn = NOTICED + timedelta(hours=1)
    running = rebalance.model_copy(update={"phase": Phase.RUNNING, "replacement_began_at": turn})
    assert check_overdue_retirement(running, "running", context(turn + 9 * MINUTE)) is None
    assert overdue(interrupted(), "running", phase=Phase.UNDOING) is None


def test_a_retirement_without_deadline_and_one_that_is_being_undone_can_be_overdue() -> None:
    endless = interrupted().model_copy(update={"deadline": None})
    late = NOTICED + timedelta(days=8)
    assert check_overdue_retirement(endless, "running", context(late - timedelta(days=2))) is None
    assert notice_of(check_overdue_retirement(endless, "running", context(late)))
    undoing = interrupted().model_copy(update={"phase": Phase.UNDOING})
    finding = check_overdue_retirement(undoing, "running", context(NOTICED + 71 * MINUTE))
    notice = notice_of(finding)
    assert (notice.kind, notice.state) == (NoticeKind.STATE_CHANGE, "running")
    again = undo(undoing, notice)
    assert again is not None
    assert again.record.attempt == 2


def test_an_ended_retirement_that_must_restore_capacity_is_found_except_under_a_dry_run() -> None:
    asked = ReplacementIntent(
        method="launch-successor",
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=NOTICED,
        to_restore=True,
    )
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    changes = {"replacement_intent": asked, "drain_began_at": NOTICED, "action": Action.CORDON}
    left = at(rebalance, Phase.FINISHED).model_copy(update=changes)
    late = latest_end(left) + OVERDUE
    assert check_overdue_retirement(left, "running", context(late - MINUTE)) is None
    assert check_overdue_retirement(left, "running", context(late, dry_run=True)) is None
    finding = check_overdue_retirement(left, "running", context(late))
    assert notice_of(finding).kind is NoticeKind.REBALANCE
    assert isinstance(finding, LostEvent)
    assert finding.begun is Action.RETIRE
    assert finding.reason.code == "StateDiffers"
    assert (
        notice_of(check_overdue_retirement(left, "terminated", context(late))).state == "terminated"
    )
    undone = left.model_copy(update={"phase": Phase.UNDONE})
    restart = notice_of(
        check_overdue_retirement(undone, "running", context(NOTICED + timedelta(hours=2)))
    )
    assert restart.state == "running"
    again = undo(undone, restart)
    assert again is not None
    assert again.record.phase is Phase.UNDOING


def test_an_overdue_retirement_continues_its_action_even_if_the_policy_has_changed() -> None:
    stopping = interrupted().model_copy(update={"stops": True})
    assert notice_of(overdue(stopping, "running")).action is InterruptionAction.STOP
    finding = overdue(
        take(None, NoticeKind.STATE_CHANGE, "n-1", state="stopping").record, "stopping"
    )
    assert finding.begun is Action.RETIRE


@pytest.mark.parametrize("state", [None, "terminated", "shutting-down"])
def test_an_overdue_retirement_of_a_terminated_instance_is_repeated_as_its_end(
    state: str | None,
) -> None:
    notice = notice_of(overdue(terminating(), state))
    assert (notice.kind, notice.state) == (NoticeKind.STATE_CHANGE, state or "terminated")


def test_an_overdue_admission_is_repeated_while_a_hook_may_wait() -> None:
    record = admission()
    late = record.deadline + OVERDUE + MINUTE
    assert notice_of(check_overdue_admission(record, "running", context(late))).hook == LAUNCH_HOOK
    assert check_overdue_admission(record, "running", context(record.deadline)) is None
    assert check_overdue_admission(record, "terminated", context(late)) is None
    assert (
        check_overdue_admission(record.model_copy(update={"hooks": ()}), "running", context(late))
        is None
    )


def test_a_repeated_finding_raises_the_attempt_of_an_overdue_retirement_once() -> None:
    stored = interrupted()
    notice = notice_of(overdue(stored, "running"))
    after = (notice.time - NOTICED).total_seconds()
    again = take(stored, notice.kind, notice.id, after=after, action=notice.action)
    assert (again.record.attempt, again.start) == (2, True)
    repeated = take(again.record, notice.kind, notice.id, after=after, action=notice.action)
    assert repeated.record.attempt == 2


def detached(record: Retirement, state: str | None = "running") -> Any:
    return check_detached_instance(record, state, context(NOTICED))


def test_a_detached_instance_that_still_runs_after_its_retirement_is_retired_again() -> None:
    found = detached(left_running())
    assert notice_of(found).kind is NoticeKind.REBALANCE
    assert found.begun is Action.RETIRE, "even if the policy has changed"


def test_only_instances_that_the_record_calls_detached_are_found() -> None:
    intent = left_running().replacement_intent
    assert intent is not None
    for other in (
        None,
        intent.model_copy(update={"to_terminate": False}),
        intent.model_copy(update={"settled": True}),
    ):
        record = left_running(replacement_intent=other)
        assert detached(record) is None
        assert not record.is_open


def test_a_detached_instance_is_not_found_just_after_the_end_of_its_retirement() -> None:
    assert detached(left_running(ended_at=NOTICED - MINUTE / 2)) is None
    assert detached(left_running(ended_at=NOTICED - MINUTE))


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_the_time_until_a_detached_instance_is_found_doubles_after_each_failure(
    failures: int,
) -> None:
    waits = 2**failures * MINUTE
    assert detached(left_running(failures, ended_at=NOTICED - waits + MINUTE / 60)) is None
    assert detached(left_running(failures, ended_at=NOTICED - waits))


def test_a_detached_instance_that_is_being_retired_or_is_stopped_is_not_found() -> None:
    assert detached(left_running(phase=Phase.RUNNING)) is None
    assert detached(left_running(), "stopped") is None


@pytest.mark.parametrize("state", [None, "shutting-down", "terminated"])
def test_the_record_of_a_detached_instance_that_has_ended_is_closed(
    state: str | None,
) -> None:
    record = left_running()
    notice = notice_of(detached(record, state))
    assert notice.state == (state or "terminated")
    change = apply_notice(record, notice, rule(notice, DEFAULTS[notice.kind]), record.facts)
    assert (change.start, change.record.attempt) == (True, 2)


def test_a_termination_that_a_retirement_requested_starts_no_other_attempt() -> None:
    record = left_running(ended_at=NOTICED)
    event = ORIGIN.state_change("its end", NOTICED + MINUTE / 6, record.instance, "shutting-down")
    notice = parse_notice(event)
    change = apply_notice(record, notice, rule(notice, DEFAULTS[notice.kind]), record.facts)
    assert (change.write, change.start) == (False, False)


def test_a_retirement_that_must_terminate_its_detached_instance_is_not_overdue() -> None:
    long_after = NOTICED + timedelta(days=2)
    assert check_overdue_retirement(left_running(), "running", context(long_after)) is None
