"""Interruptions of Spot instances whose warning was lost."""

from datetime import timedelta
from typing import Any

from leeway.execution.attempt import Phase
from leeway.instances.facts import (
    ObservedInterruption,
)
from leeway.notices import InterruptionAction, NoticeKind
from leeway.reconciliation.lost_events import check_interruption
from leeway.retirement.record import Retirement

from tests.reconciliation.lost_notices import (
    I,
    context,
    notice_of,
    without_effect,
)
from tests.retirement.retirements import NOTICED, interrupted, take


def check_interruption_of(
    record: Retirement | None,
    seconds: int,
    marked: int = 0,
    dry_run: bool = False,
    launched: int = -3600,
) -> Any:
    marked_at = NOTICED + timedelta(seconds=marked)
    interruption = ObservedInterruption(I, InterruptionAction.STOP, marked_at)
    now = NOTICED + timedelta(seconds=seconds)
    launched_at = NOTICED + timedelta(seconds=launched)
    return check_interruption(interruption, launched_at, record, context(now, dry_run))


def test_a_lost_warning_is_found_with_the_time_when_the_interruption_began() -> None:
    notice = notice_of(check_interruption_of(None, 60))
    assert (notice.kind, notice.time) == (NoticeKind.SPOT_INTERRUPTION, NOTICED)
    assert notice.action is InterruptionAction.STOP


def test_an_interruption_is_not_found_while_its_warning_may_still_arrive() -> None:
    assert check_interruption_of(None, 2) is None
    assert notice_of(check_interruption_of(None, 4)), "half of its time is over a minute later"


def test_an_interruption_with_a_retirement_is_not_found() -> None:
    assert check_interruption_of(interrupted(), 60) is None
    assert check_interruption_of(interrupted(Phase.FINISHED), 60) is None


def test_a_status_shortly_after_a_warning_belongs_to_the_same_interruption() -> None:
    assert check_interruption_of(interrupted(Phase.FINISHED), 170, marked=100) is None
    assert check_interruption_of(interrupted(Phase.FINISHED), 1000, marked=200)


def test_an_interruption_after_a_restart_is_found_again() -> None:
    assert notice_of(
        check_interruption_of(interrupted(Phase.FINISHED), 180, marked=170, launched=150)
    )
    for phase in (Phase.UNDOING, Phase.UNDONE):
        assert notice_of(check_interruption_of(interrupted(phase), 60, marked=40))


def test_an_interruption_is_found_despite_a_rebalance_or_an_older_interruption() -> None:
    rebalance = take(None, NoticeKind.REBALANCE, "n-1").record
    assert notice_of(check_interruption_of(rebalance, 60))
    assert notice_of(check_interruption_of(interrupted(Phase.FINISHED), 7200, marked=7000))


def test_an_interruption_is_found_again_after_a_retirement_without_effect() -> None:
    ended = without_effect(interrupted())
    assert check_interruption_of(ended, 60, dry_run=True) is None
    notice = notice_of(check_interruption_of(ended, 60))
    assert take(ended, notice.kind, notice.id, action=notice.action).start
