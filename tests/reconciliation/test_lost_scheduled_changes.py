"""Scheduled changes whose announcement, cancellation or end was lost."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.instances.facts import (
    ObservedChange,
    ObservedInstance,
)
from leeway.notices import NoticeKind
from leeway.policy.rules import DEFAULTS, Policy
from leeway.reconciliation.lost_events import (
    check_cancelled_change,
    check_completed_change,
    check_scheduled_change,
)
from leeway.retirement.attempts import undo
from leeway.retirement.record import Retirement

from tests.reconciliation.lost_notices import (
    MINUTE,
    I,
    context,
    left_running,
    notice_of,
)
from tests.retirement.retirements import FACTS, NOTICED, at, take

CHANGE_AT = NOTICED + timedelta(hours=6)
LEAD = CHANGE_AT - timedelta(hours=4)
ANNOUNCED = ObservedChange(I, "instance-event-0abc", "instance-retirement", CHANGE_AT)


def check_change(record: Retirement | None, at: datetime, policy: Policy | None = None) -> Any:
    policy = policy or DEFAULTS[NoticeKind.SCHEDULED_CHANGE]
    return check_scheduled_change(ANNOUNCED, record, policy, context(at))


def test_a_lost_event_of_a_change_is_found_after_the_delay_of_its_schedule() -> None:
    assert check_change(None, LEAD + MINUTE) is None
    notice = notice_of(check_change(None, LEAD + 2 * MINUTE))
    assert (notice.kind, notice.effective_at) == (NoticeKind.SCHEDULED_CHANGE, CHANGE_AT)
    assert (notice.event, notice.over) == ("instance-event-0abc", frozenset())
    at_once = replace(DEFAULTS[NoticeKind.SCHEDULED_CHANGE], lead=None)
    assert notice_of(check_change(None, NOTICED, at_once))


def test_a_change_is_not_found_if_a_retirement_serves_it() -> None:
    after = (LEAD - NOTICED).total_seconds()
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", after=after).record
    for phase in (Phase.NOTICED, Phase.RUNNING, Phase.FINISHED):
        assert check_change(at(record, phase), LEAD + 9 * MINUTE) is None
    undone = record.model_copy(update={"phase": Phase.UNDONE})
    assert check_change(undone, LEAD + 9 * MINUTE)
    earlier = at(record, Phase.FINISHED).model_copy(update={"noticed_at": NOTICED})
    assert check_change(earlier, LEAD + 9 * MINUTE), "that retirement was for another change"
    waiting = take(None, NoticeKind.REBALANCE, "n-1", after=after).record
    assert check_change(waiting, LEAD + 9 * MINUTE), "the disruption budget may never allow it"
    begun = waiting.model_copy(update={"drain_began_at": LEAD})
    assert check_change(begun, LEAD + 9 * MINUTE) is None
    over = at(begun, Phase.FINISHED).model_copy(update={"ended_at": LEAD + 40 * MINUTE})
    assert check_change(over, LEAD + 41 * MINUTE - MINUTE / 6) is None, "its instance may end now"
    left = notice_of(check_change(over, LEAD + 41 * MINUTE))
    later = (left.time - NOTICED).total_seconds()
    assert take(over, left.kind, left.id, after=later, event=left.event).start


def test_a_change_is_found_again_an_hour_after_a_retirement_without_effect() -> None:
    after = (LEAD - NOTICED).total_seconds()
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", after=after).record
    more = {"phase": Phase.FINISHED, "ended_at": LEAD + 3 * MINUTE}
    declined = record.model_copy(update=more)
    assert check_change(declined, LEAD + 30 * MINUTE) is None
    notice = notice_of(check_change(declined, LEAD + 63 * MINUTE))
    later = (notice.time - NOTICED).total_seconds()
    assert take(declined, notice.kind, notice.id, after=later, event=notice.event).start


def cancelled(record: Retirement, *changes: ObservedChange) -> Any:
    policy = DEFAULTS[NoticeKind.SCHEDULED_CHANGE]
    return check_cancelled_change(record, changes, policy, context(LEAD + 9 * MINUTE))


def test_a_waiting_retirement_is_undone_if_ec2_cancelled_or_postponed_its_change() -> None:
    notice = notice_of(check_change(None, LEAD + 2 * MINUTE))
    after = (notice.time - NOTICED).total_seconds()
    more = {"after": after, "event": notice.event, "effective_at": CHANGE_AT}
    record = take(None, notice.kind, notice.id, **more).record
    assert cancelled(record, ANNOUNCED) is None
    later = replace(ANNOUNCED, starts_at=CHANGE_AT + timedelta(days=1))
    another = replace(ANNOUNCED, instance="i-0abc1234")
    over = replace(ANNOUNCED, over=True)
    for changes in ((), (later,), (another,), (over,)):
        cancellation = notice_of(cancelled(record, *changes))
        assert cancellation.over == {I}
        undone = undo(record, cancellation)
        assert undone is not None
        assert undone.start
    running = record.model_copy(update={"phase": Phase.RUNNING})
    assert cancelled(running) is None, "its replacement is requested"


def test_a_change_of_aws_health_is_cancelled_by_the_change_of_ec2_at_the_same_time() -> None:
    by_health = {"event": "arn:aws:health:::event/EC2/1", "effective_at": CHANGE_AT}
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", **by_health).record
    assert cancelled(record) is None, "AWS Health announces changes that EC2 does not list"
    assert cancelled(record, ANNOUNCED) is None
    over = replace(ANNOUNCED, over=True)
    another_time = replace(over, starts_at=CHANGE_AT + timedelta(hours=1))
    assert cancelled(record, another_time) is None
    assert cancelled(record, replace(over, instance="i-0abc1234")) is None
    assert cancelled(record, over, ANNOUNCED) is None, "EC2 has announced it again"
    cancellation = notice_of(cancelled(record, over, another_time))
    assert cancellation.over == {I}
    assert cancellation.event == record.event
    undone = undo(record, cancellation)
    assert undone is not None
    assert undone.start


def completed(
    event: str, *changes: ObservedChange, after: timedelta = timedelta(0), **more: Any
) -> Any:
    """Check a running instance whose node is marked, after its scheduled change has begun."""
    announced = {"event": event, "effective_at": CHANGE_AT}
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", **announced).record
    drained = at(record, Phase.FINISHED).model_copy(update=more)
    instance = ObservedInstance(FACTS, "running", NOTICED - timedelta(days=9))
    policy = DEFAULTS[NoticeKind.SCHEDULED_CHANGE]
    return check_completed_change(instance, drained, changes, policy, context(CHANGE_AT + after))


HEALTH = "arn:aws:health:us-east-1::event/EC2/REBOOT/1"
REBOOTED = replace(ANNOUNCED, over=True)


@pytest.mark.parametrize("event", [ANNOUNCED.event, HEALTH])
def test_a_rebooted_node_is_released_if_the_last_event_was_lost(
    event: str,
) -> None:
    notice = notice_of(completed(event, REBOOTED, after=MINUTE))
    assert notice.event == event
    assert notice.over == {I}
    announced = {"event": event, "effective_at": CHANGE_AT}
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", **announced).record
    undone = undo(at(record, Phase.FINISHED), notice)
    assert undone is not None
    assert undone.record.phase is Phase.UNDOING


@pytest.mark.parametrize("event", [ANNOUNCED.event, HEALTH])
def test_a_node_with_a_pending_change_stays_cordoned(event: str) -> None:
    assert completed(event, ANNOUNCED, after=MINUTE) is None
    assert completed(event, ANNOUNCED, after=timedelta(days=9)) is None


def test_a_change_of_aws_health_that_ec2_does_not_list_is_over_a_day_after_its_time() -> None:
    day = timedelta(days=1)
    assert completed(HEALTH, after=day - MINUTE) is None
    assert notice_of(completed(HEALTH, after=day))
    other = replace(ANNOUNCED, event="instance-event-0def", starts_at=CHANGE_AT + 3 * day)
    assert completed(HEALTH, other, after=day) is None, "EC2 lists another pending change"


def test_a_node_with_a_replacement_or_without_a_drain_is_not_released() -> None:
    for more in (
        {"replacement_intent": left_running().replacement_intent},
        {"phase": Phase.RUNNING},
        {"phase": Phase.UNDONE},
        {"answer": None},
        {"kind": NoticeKind.REBALANCE},
    ):
        assert completed(HEALTH, REBOOTED, after=MINUTE, **more) is None
