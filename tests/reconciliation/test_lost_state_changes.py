"""Instances that stopped, ended or started again, and whose event was lost."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.instances.facts import (
    ObservedInstance,
)
from leeway.notices import InterruptionAction, NoticeKind
from leeway.policy.rules import Action
from leeway.reconciliation.lost_events import check_restart, check_state
from leeway.retirement.attempts import undo
from leeway.retirement.record import Retirement

from tests.reconciliation.lost_notices import (
    MINUTE,
    context,
    kind_of,
    notice_of,
    terminating,
)
from tests.retirement.retirements import FACTS, NOTICED, at, interrupted, take

STOPPED = take(None, NoticeKind.STATE_CHANGE, "n-1", state="stopped").record


def in_state(state: str, record: Retirement | None) -> Any:
    return check_state(ObservedInstance(FACTS, state, NOTICED), record, context(NOTICED + MINUTE))


def test_a_lost_event_of_an_end_is_found_once() -> None:
    notice = notice_of(in_state("shutting-down", None))
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
def test_an_end_is_found_unless_a_retirement_serves_it(record: Retirement, found: bool) -> None:
    finding = in_state("stopping", record)
    assert (finding is not None) is found
    if found:
        notice = notice_of(finding)
        at = (notice.time - NOTICED).total_seconds()
        assert take(record, notice.kind, notice.id, after=at, state=notice.state).start


def restarted(
    record: Retirement | None, launched: int, after: int = 600, state: str = "running"
) -> Any:
    instance = ObservedInstance(FACTS, state, NOTICED + timedelta(seconds=launched))
    return check_restart(instance, record, context(NOTICED + timedelta(seconds=after)))


def test_a_restart_after_a_retirement_is_found() -> None:
    for phase in (Phase.RUNNING, Phase.FINISHED):
        record = STOPPED.model_copy(update={"phase": phase})
        notice = notice_of(restarted(record, launched=300))
        assert notice.state == "running"
        undone = undo(record, notice)
        assert undone is not None
        assert undone.start


def test_an_instance_without_a_restart_or_with_an_undone_retirement_is_not_found() -> None:
    ended = STOPPED.model_copy(update={"phase": Phase.FINISHED})
    assert restarted(ended, launched=-300) is None, "EC2 has not stopped it yet"
    assert restarted(ended, launched=300, state="stopped") is None
    assert restarted(ended, launched=300, after=305) is None, "its event may still arrive"
    assert restarted(None, launched=300) is None
    assert restarted(interrupted(), launched=300) is None, "it was interrupted after the restart"
    for phase in (Phase.UNDOING, Phase.UNDONE):
        assert restarted(STOPPED.model_copy(update={"phase": phase}), launched=300) is None


@pytest.mark.parametrize(
    ("action", "first_start", "restart"),
    [
        (InterruptionAction.TERMINATE, 119, 121),
        (InterruptionAction.STOP, 29, 200),
        (InterruptionAction.HIBERNATE, 29, 200),
    ],
)
def test_the_first_start_of_an_interrupted_instance_is_no_restart(
    action: InterruptionAction, first_start: int, restart: int
) -> None:
    record = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1", action=action).record
    drained = record.model_copy(update={"phase": Phase.FINISHED})
    assert restarted(drained, launched=first_start) is None, "its drain would be undone"
    assert restarted(drained, launched=restart) is not None
