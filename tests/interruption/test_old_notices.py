"""A notice that comes late is obeyed where EC2 confirms it, and what is replayed is not obeyed."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from leeway.instances.observed import CurrentInstance, ObservedChange
from leeway.interruption.late import LATE_AFTER, REBALANCE_VALID_FOR, is_late, why_outdated
from leeway.interruption.outcome import NotAllInstancesReceived, NoticeResult
from leeway.interruption.reasons import (
    ANNOUNCEMENT_WITHDRAWN,
    EVENT_REPLAYED,
    NOTICE_OUTDATED,
    OTHER_ACCOUNT_OR_REGION,
)
from leeway.notices.parse import parse_notice

from tests.interruption.desk import CHANGE_AT, FIRST, RUNS, Desk, state, warning
from tests.notices.events import event, health

TOLD = "2026-11-20T09:45:00Z"
TOLD_AT = datetime.fromisoformat(TOLD)
DAYS_LATER = TOLD_AT + timedelta(days=10)


def rebalance() -> dict[str, Any]:
    told = event(detail={"instance-id": FIRST}, time=TOLD)
    return told | {"detail-type": "EC2 Instance Rebalance Recommendation"}


def hook(verb: str) -> dict[str, Any]:
    detail = {
        "EC2InstanceId": FIRST,
        "AutoScalingGroupName": "ng",
        "LifecycleHookName": "leeway",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
    }
    told = event(source="aws.autoscaling", detail=detail, time=TOLD)
    return told | {"detail-type": f"EC2 Instance-{verb} Lifecycle Action"}


def reservation() -> dict[str, Any]:
    detail = {"instance-id": FIRST, "instance-termination-time": "2026-11-20T09:47:00Z"}
    told = event(detail=detail, time=TOLD)
    return told | {"detail-type": "EC2 Capacity Reservation Instance Interruption Warning"}


ALL = {
    "stopping": state("stopping", TOLD),
    "terminated": state("terminated", TOLD),
    "interruption": warning(TOLD),
    "hibernate": warning(TOLD, "hibernate"),
    "rebalance": rebalance(),
    "terminate hook": hook("terminate"),
    "launch hook": hook("launch"),
    "reservation": reservation(),
}


@pytest.mark.parametrize("told", ALL.values(), ids=ALL.keys())
def test_a_notice_of_ten_days_ago_does_nothing_to_an_instance_that_runs(
    told: dict[str, Any],
) -> None:
    desk = Desk(now_=DAYS_LATER)
    (received,) = desk.receive(told).instances
    assert received.result is NoticeResult.IGNORED
    assert received.reason.code == NOTICE_OUTDATED.name
    assert not desk.started
    assert not desk.stored
    assert not desk.admissions.started
    assert not desk.cleaning.started


@pytest.mark.parametrize("told", ALL.values(), ids=ALL.keys())
def test_what_is_replayed_out_of_an_archive_is_ignored_at_once(told: dict[str, Any]) -> None:
    desk = Desk(now_=TOLD_AT)
    (received,) = desk.receive({**told, "replay-name": "yesterday"}).instances
    assert received.result is NoticeResult.IGNORED
    assert received.reason == EVENT_REPLAYED(replay="yesterday")
    assert not desk.started


@pytest.mark.parametrize("elsewhere", [{"account": "210987654321"}, {"region": "us-west-2"}])
def test_what_is_of_another_account_or_region_is_ignored(elsewhere: dict[str, str]) -> None:
    desk = Desk(now_=TOLD_AT)
    (received,) = desk.receive(warning(TOLD) | elsewhere).instances
    assert received.result is NoticeResult.IGNORED
    assert received.reason.code == OTHER_ACCOUNT_OR_REGION.name
    assert f"from account {elsewhere.get('account', '123456789012')}" in received.reason.message
    assert not desk.started


@pytest.mark.parametrize("name", ["stopping", "stopped", "shutting-down", "terminated"])
def test_a_late_notice_of_an_instance_that_is_on_its_way_out_is_obeyed(name: str) -> None:
    desk = Desk(now_=TOLD_AT + timedelta(minutes=11), now_at_ec2=replace(RUNS, state=name))
    assert desk.results(state(name, TOLD)) == [NoticeResult.STARTED]


def test_a_late_interruption_is_obeyed_while_its_spot_request_says_so() -> None:
    desk = Desk(now_=TOLD_AT + timedelta(minutes=11), now_at_ec2=replace(RUNS, interrupted=True))
    assert desk.results(warning(TOLD)) == [NoticeResult.STARTED]


def test_what_was_before_the_instances_last_start_is_not_obeyed() -> None:
    started = CurrentInstance("stopped", TOLD_AT + timedelta(days=1), interrupted=True)
    desk = Desk(now_=DAYS_LATER, now_at_ec2=started)
    for told in (state("stopping", TOLD), warning(TOLD, "stop")):
        (received,) = desk.receive(told).instances
        assert "started again at 2026-11-21" in received.reason.message
    assert not desk.started


def test_an_instance_that_ec2_does_not_know_is_left_alone() -> None:
    desk = Desk(now_=DAYS_LATER, now_at_ec2=None)
    (received,) = desk.receive(state("stopping", TOLD)).instances
    assert received.reason == NOTICE_OUTDATED(why="EC2 has no such instance")


def test_nothing_is_done_while_ec2_does_not_answer() -> None:
    desk = Desk(now_=DAYS_LATER, ec2_fails=True)
    with pytest.raises(NotAllInstancesReceived):
        desk.receive(state("stopping", TOLD))
    assert not desk.started


def test_a_notice_in_time_asks_ec2_nothing() -> None:
    desk = Desk(now_=TOLD_AT + LATE_AFTER, ec2_fails=True)
    assert desk.results(warning(TOLD)) == [NoticeResult.STARTED]


def test_a_recommendation_counts_for_two_hours() -> None:
    within = Desk(now_=TOLD_AT + REBALANCE_VALID_FOR)
    assert within.results(rebalance()) == [NoticeResult.STARTED]
    after = Desk(now_=TOLD_AT + REBALANCE_VALID_FOR + timedelta(seconds=1))
    assert after.results(rebalance()) == [NoticeResult.IGNORED]


def test_a_change_that_is_to_come_is_not_late_however_old_its_notice_is() -> None:
    assert not is_late(parse_notice(health()), CHANGE_AT)


def test_a_change_of_long_ago_counts_only_while_ec2_has_it_scheduled() -> None:
    long_after = CHANGE_AT + timedelta(days=30)
    told = health(affectedEntities=[{"entityValue": FIRST}])
    desk = Desk(now_=long_after)
    (received,) = desk.receive(told).instances
    assert "EC2 has no change scheduled" in received.reason.message
    one = ObservedChange(FIRST, "instance-event-1", "instance-retirement", CHANGE_AT)
    assert Desk(now_=long_after, changes=[one]).results(told) == [NoticeResult.STARTED]
    done = Desk(now_=long_after, changes=[replace(one, over=True)])
    assert done.results(told) == [NoticeResult.IGNORED]


def test_the_end_of_a_change_is_not_late_at_the_time_that_it_tells() -> None:
    notice = parse_notice(health(statusCode="closed"))
    assert not is_late(notice, notice.time + LATE_AFTER)
    assert why_outdated(notice, FIRST, RUNS, [], notice.time + timedelta(days=1)) == ""


def test_an_old_end_of_a_change_that_ec2_has_scheduled_again_calls_nothing_off() -> None:
    """AWS Health tells of it under the same ARN: its schedule would be removed."""
    closed = health(statusCode="closed", affectedEntities=[{"entityValue": FIRST}])
    again = ObservedChange(FIRST, "instance-event-1", "instance-retirement", CHANGE_AT)
    late = parse_notice(closed).time + LATE_AFTER + timedelta(seconds=1)
    desk = Desk(now_=late, changes=[again])
    assert desk.results(health(affectedEntities=[{"entityValue": FIRST}])) == [
        NoticeResult.SCHEDULED
    ]
    (received,) = desk.receive(closed).instances
    assert received.reason == NOTICE_OUTDATED(why="EC2 still has the change scheduled")
    assert desk.schedules.due
    called_off = Desk(now_=late, changes=[replace(again, over=True)])
    assert called_off.receive(closed).instances[0].reason == ANNOUNCEMENT_WITHDRAWN()
