"""Policies: what each notice comes to by default, and by when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.notices import InstanceId, InterruptionAction, Notice, NoticeKind
from leeway.policies import DEFAULTS, Action, OnBlocked, Replacement, rule

NOTICED = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def notice(kind: NoticeKind, **more: Any) -> Notice:
    return Notice("n-1", kind, "123456789012", "eu-west-1", NOTICED, (InstanceId("i-1"),), **more)


def ruling(kind: NoticeKind, **more: Any) -> Any:
    return rule(notice(kind, **more), DEFAULTS[kind])


def test_every_kind_of_notice_has_a_default() -> None:
    assert set(DEFAULTS) == set(NoticeKind)


def test_an_interruption_leaves_two_minutes_less_the_margin_from_the_events_own_time() -> None:
    found = ruling(NoticeKind.SPOT_INTERRUPTION, action=InterruptionAction.TERMINATE)
    assert found.deadline == NOTICED + timedelta(seconds=115)
    assert found.on_blocked is OnBlocked.DELETE
    assert found.replacement is Replacement.WITH


def test_hibernation_begins_with_its_warning() -> None:
    found = ruling(NoticeKind.SPOT_INTERRUPTION, action=InterruptionAction.HIBERNATE)
    assert found.deadline == NOTICED


def test_a_reservations_own_termination_time_is_the_deadline() -> None:
    at = NOTICED + timedelta(minutes=10)
    found = ruling(NoticeKind.CAPACITY_RESERVATION, effective_at=at)
    assert found.deadline == at - timedelta(seconds=5)


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
def test_an_instance_on_its_way_out_is_retired(state: str) -> None:
    assert ruling(NoticeKind.STATE_CHANGE, state=state).action is Action.RETIRE


@pytest.mark.parametrize("state", ["pending", "running"])
def test_an_instance_that_runs_is_not(state: str) -> None:
    found = ruling(NoticeKind.STATE_CHANGE, state=state)
    assert found.action is Action.IGNORE
    assert state in found.reason


def test_what_asks_for_nothing_says_so() -> None:
    found = ruling(NoticeKind.TEST_NOTIFICATION)
    assert found.action is Action.IGNORE
    assert found.reason


def test_an_instance_whose_launch_waits_is_admitted_within_a_quarter_of_an_hour() -> None:
    found = ruling(NoticeKind.LAUNCH_HOOK)
    assert found.action is Action.ADMIT
    assert found.deadline == NOTICED + timedelta(minutes=15)
