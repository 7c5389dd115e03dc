"""Late notices apply if EC2 confirms them; replayed events are ignored."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from leeway.instances.facts import CurrentInstance, ObservedChange
from leeway.interruption.receive_notice import (
    LATE_AFTER,
    REBALANCE_VALID_FOR,
    NotAllInstancesReceived,
    NoticeResult,
    is_late,
    why_outdated,
)
from leeway.notices.parse import parse_notice
from leeway.policy.rules import NOTICE_IGNORED

from tests.interruption.receiving import CHANGE_AT, FIRST, RUNS, Receiver, state, warning
from tests.notices.events import event, health

SENT = "2026-11-20T09:45:00Z"
SENT_AT = datetime.fromisoformat(SENT)
DAYS_LATER = SENT_AT + timedelta(days=10)


def rebalance() -> dict[str, Any]:
    body = event(detail={"instance-id": FIRST}, time=SENT)
    return body | {"detail-type": "EC2 Instance Rebalance Recommendation"}


def hook(verb: str) -> dict[str, Any]:
    detail = {
        "EC2InstanceId": FIRST,
        "AutoScalingGroupName": "ng",
        "LifecycleHookName": "leeway",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
    }
    body = event(source="aws.autoscaling", detail=detail, time=SENT)
    return body | {"detail-type": f"EC2 Instance-{verb} Lifecycle Action"}


def reservation() -> dict[str, Any]:
    detail = {"instance-id": FIRST, "instance-termination-time": "2026-11-20T09:47:00Z"}
    body = event(detail=detail, time=SENT)
    return body | {"detail-type": "EC2 Capacity Reservation Instance Interruption Warning"}


ALL = {
    "stopping": state("stopping", SENT),
    "terminated": state("terminated", SENT),
    "interruption": warning(SENT),
    "hibernate": warning(SENT, "hibernate"),
    "rebalance": rebalance(),
    "terminate hook": hook("terminate"),
    "launch hook": hook("launch"),
    "reservation": reservation(),
}


@pytest.mark.parametrize("body", ALL.values(), ids=ALL.keys())
def test_a_notice_of_ten_days_ago_does_not_change_a_running_instance(
    body: dict[str, Any],
) -> None:
    receiver = Receiver(now_=DAYS_LATER)
    (received,) = receiver.receive(body).instances
    assert received.result is NoticeResult.IGNORED
    assert "it is late and does not apply any more" in received.reason.message
    assert not receiver.started
    assert not receiver.stored
    assert not receiver.admissions.started
    assert not receiver.clean_ups.started


@pytest.mark.parametrize("body", ALL.values(), ids=ALL.keys())
def test_an_event_that_an_archive_replays_is_ignored(body: dict[str, Any]) -> None:
    receiver = Receiver(now_=SENT_AT)
    (received,) = receiver.receive({**body, "replay-name": "yesterday"}).instances
    assert received.result is NoticeResult.IGNORED
    assert "the replay yesterday of an EventBridge archive" in received.reason.message
    assert not receiver.started


@pytest.mark.parametrize("elsewhere", [{"account": "210987654321"}, {"region": "us-west-2"}])
def test_an_event_of_another_account_or_region_is_ignored(elsewhere: dict[str, str]) -> None:
    receiver = Receiver(now_=SENT_AT)
    (received,) = receiver.receive(warning(SENT) | elsewhere).instances
    assert received.result is NoticeResult.IGNORED
    assert f"from account {elsewhere.get('account', '123456789012')}" in received.reason.message
    assert not receiver.started


@pytest.mark.parametrize("name", ["stopping", "stopped", "shutting-down", "terminated"])
def test_a_late_notice_applies_to_an_instance_that_stops_or_terminates(name: str) -> None:
    receiver = Receiver(now_=SENT_AT + timedelta(minutes=11), current=replace(RUNS, state=name))
    assert receiver.results(state(name, SENT)) == [NoticeResult.STARTED]


def test_a_late_interruption_applies_while_the_spot_request_confirms_it() -> None:
    receiver = Receiver(
        now_=SENT_AT + timedelta(minutes=11), current=replace(RUNS, interrupted=True)
    )
    assert receiver.results(warning(SENT)) == [NoticeResult.STARTED]


def test_a_notice_from_before_the_last_start_is_ignored() -> None:
    started = CurrentInstance("stopped", SENT_AT + timedelta(days=1), interrupted=True)
    receiver = Receiver(now_=DAYS_LATER, current=started)
    for body in (state("stopping", SENT), warning(SENT, "stop")):
        (received,) = receiver.receive(body).instances
        assert "started again at 2026-11-21" in received.reason.message
    assert not receiver.started


def test_a_late_notice_about_an_unknown_instance_is_ignored() -> None:
    receiver = Receiver(now_=DAYS_LATER, current=None)
    (received,) = receiver.receive(state("stopping", SENT)).instances
    assert received.reason == NOTICE_IGNORED(
        "it is late and does not apply any more: EC2 has no such instance"
    )


def test_a_late_notice_fails_while_ec2_does_not_answer() -> None:
    receiver = Receiver(now_=DAYS_LATER, ec2_fails=True)
    with pytest.raises(NotAllInstancesReceived):
        receiver.receive(state("stopping", SENT))
    assert not receiver.started


def test_a_notice_in_time_makes_no_call_to_ec2() -> None:
    receiver = Receiver(now_=SENT_AT + LATE_AFTER, ec2_fails=True)
    assert receiver.results(warning(SENT)) == [NoticeResult.STARTED]


def test_a_rebalance_recommendation_applies_for_two_hours() -> None:
    within = Receiver(now_=SENT_AT + REBALANCE_VALID_FOR)
    assert within.results(rebalance()) == [NoticeResult.STARTED]
    after = Receiver(now_=SENT_AT + REBALANCE_VALID_FOR + timedelta(seconds=1))
    assert after.results(rebalance()) == [NoticeResult.IGNORED]


def test_a_future_change_is_not_late_even_if_its_notice_is_old() -> None:
    assert not is_late(parse_notice(health()), CHANGE_AT)


def test_a_past_change_applies_only_while_ec2_has_it_scheduled() -> None:
    long_after = CHANGE_AT + timedelta(days=30)
    body = health(affectedEntities=[{"entityValue": FIRST}])
    receiver = Receiver(now_=long_after)
    (received,) = receiver.receive(body).instances
    assert "EC2 has no change scheduled" in received.reason.message
    one = ObservedChange(FIRST, "instance-event-1", "instance-retirement", CHANGE_AT)
    assert Receiver(now_=long_after, changes=[one]).results(body) == [NoticeResult.STARTED]
    done = Receiver(now_=long_after, changes=[replace(one, over=True)])
    assert done.results(body) == [NoticeResult.IGNORED]


def test_a_cancellation_is_late_by_its_own_time() -> None:
    notice = parse_notice(health(statusCode="closed"))
    assert not is_late(notice, notice.time + LATE_AFTER)
    assert why_outdated(notice, FIRST, RUNS, [], notice.time + timedelta(days=1)) == ""


def test_an_old_cancellation_of_a_change_that_ec2_has_scheduled_again_is_ignored() -> None:
    """AWS Health uses the same ARN for both: the schedule of the new change must stay."""
    closed = health(statusCode="closed", affectedEntities=[{"entityValue": FIRST}])
    again = ObservedChange(FIRST, "instance-event-1", "instance-retirement", CHANGE_AT)
    late = parse_notice(closed).time + LATE_AFTER + timedelta(seconds=1)
    receiver = Receiver(now_=late, changes=[again])
    assert receiver.results(health(affectedEntities=[{"entityValue": FIRST}])) == [
        NoticeResult.SCHEDULED
    ]
    (received,) = receiver.receive(closed).instances
    assert received.reason == NOTICE_IGNORED(
        "it is late and does not apply any more: EC2 still has the change scheduled"
    )
    assert receiver.schedules.due
    cancelled = Receiver(now_=late, changes=[replace(again, over=True)])
    (withdrawn,) = cancelled.receive(closed).instances
    assert "the announced event is cancelled" in withdrawn.reason.message
