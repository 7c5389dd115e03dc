"""Scheduled changes, weeks ahead: kept as schedules, moved, called off, begun."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from leeway.execution.attempt import Phase
from leeway.instances.observed import ObservedChange
from leeway.interruption.outcome import NoticeResult
from leeway.interruption.reasons import RESERVATION_EMPTY
from leeway.notices import NoticeKind
from leeway.policy.rules import DEFAULTS

from tests.interruption.desk import CHANGE_AT, FIRST, LEAD, SECOND, Desk, policy
from tests.notices.events import event, health
from tests.stand_ins import OnePolicy


def test_a_scheduled_change_in_two_weeks_waits_in_a_schedule_for_each_of_its_instances() -> None:
    desk = Desk()
    assert desk.results(health()) == [NoticeResult.SCHEDULED] * 2
    assert desk.started == []
    assert [at for at, _ in desk.schedules.due.values()] == [LEAD, LEAD]
    assert [told["resources"] for _, told in desk.schedules.due.values()] == [[FIRST], [SECOND]]


def test_a_repeat_another_page_and_a_new_time_find_the_schedules_that_are_there() -> None:
    desk = Desk()
    desk.receive(health())
    names = set(desk.schedules.due)
    desk.receive(health())
    later = health(startTime="Sat, 05 Dec 2026 02:00:00 GMT")
    desk.receive(later)
    third = health(affectedEntities=[{"entityValue": "i-0def5678"}], page="2")
    desk.receive(third)
    assert names < set(desk.schedules.due)
    assert len(desk.schedules.due) == 3
    assert sorted({at for at, _ in desk.schedules.due.values()}) == [LEAD, LEAD + timedelta(days=1)]


def test_another_change_of_the_same_instance_has_a_schedule_of_its_own() -> None:
    desk = Desk()
    desk.receive(health())
    desk.receive(health(eventArn="arn:aws:health:eu-west-1::event/EC2/REBOOT/REBOOT_2"))
    assert len(desk.schedules.due) == 4


def test_names_of_schedules_are_ones_that_eventbridge_takes() -> None:
    desk = Desk()
    desk.receive(health())
    assert desk.schedules.due
    assert all(len(name) <= 64 and name.replace("-", "").isalnum() for name in desk.schedules.due)


def test_at_its_lead_it_is_received_again_and_retired_by_the_announced_time() -> None:
    desk = Desk()
    desk.receive(health())
    (_, told), _ = desk.schedules.due.values()
    desk.now_ = LEAD + timedelta(seconds=20)
    assert desk.results(dict(told)) == [NoticeResult.STARTED]
    record = desk.stored[FIRST]
    assert record.noticed_at == LEAD, "what it waits for is counted from then"
    assert record.deadline == CHANGE_AT - timedelta(seconds=5)
    assert desk.results(dict(told)) == [NoticeResult.STARTED], "again, in case the start was lost"
    assert desk.started == [f"{FIRST}-1"] * 2
    assert len(desk.stored) == 1


def test_what_is_announced_within_its_lead_begins_at_once() -> None:
    desk = Desk(now_=CHANGE_AT - timedelta(hours=1))
    told = health()
    told["time"] = "2026-12-04T01:00:00Z"
    assert desk.results(told) == [NoticeResult.STARTED] * 2
    assert desk.schedules.due == {}


def test_a_change_that_is_called_off_weeks_ahead_takes_its_schedules_with_it() -> None:
    desk = Desk()
    desk.receive(health())
    assert desk.results(health(statusCode="closed")) == [NoticeResult.IGNORED] * 2
    assert desk.schedules.due == {}
    assert desk.started == []


def test_one_instance_that_is_resolved_is_called_off_alone() -> None:
    desk = Desk()
    desk.receive(health())
    entities = [{"entityValue": FIRST, "status": "RESOLVED"}, {"entityValue": SECOND}]
    assert desk.results(health(affectedEntities=entities)) == [
        NoticeResult.IGNORED,
        NoticeResult.SCHEDULED,
    ]
    assert [told["resources"] for _, told in desk.schedules.due.values()] == [[SECOND]]


def called_off(hours: int) -> dict[str, Any]:
    told = health(statusCode="closed", affectedEntities=[{"entityValue": FIRST}])
    return told | {"id": "called-off", "time": f"2026-12-03T{hours}:00:00Z"}


def test_a_change_that_is_called_off_while_it_waits_for_its_turn_is_undone() -> None:
    desk = Desk(now_=LEAD)
    desk.receive(health())
    (received,) = desk.receive(called_off(23)).instances
    assert (received.result, received.attempt) == (NoticeResult.UNDOING, 2)
    assert desk.stored[FIRST].phase is Phase.UNDOING
    assert desk.started[-1] == f"{FIRST}-2"


def test_a_change_that_is_called_off_when_its_successor_is_asked_for_goes_on() -> None:
    desk = Desk(now_=LEAD)
    desk.receive(health())
    record = desk.stored[FIRST]
    desk.stored[FIRST] = record.model_copy(update={"phase": Phase.RUNNING})
    assert desk.results(called_off(23)) == [NoticeResult.IGNORED]
    assert desk.stored[FIRST].phase is Phase.RUNNING


def test_a_change_that_moves_while_it_waits_for_its_turn_is_undone_and_comes_again() -> None:
    desk = Desk(now_=LEAD)
    one = [{"entityValue": FIRST}]
    desk.receive(health(affectedEntities=one))
    moved = health(startTime="Sat, 05 Dec 2026 02:00:00 GMT", affectedEntities=one)
    moved |= {"id": "moved", "time": "2026-12-03T23:00:00Z"}
    assert desk.results(moved) == [NoticeResult.UNDOING]
    ((at, told),) = desk.schedules.due.values()
    assert at == LEAD + timedelta(days=1)
    desk.now_ = at
    assert desk.results(dict(told)) == [NoticeResult.STARTED]
    assert desk.stored[FIRST].attempt == 3


def test_a_policy_may_say_how_long_ahead_a_scheduled_change_begins() -> None:
    change = replace(DEFAULTS[NoticeKind.SCHEDULED_CHANGE], lead=timedelta(days=1))
    desk = Desk(policies=OnePolicy(policy(scheduled_change=change)))
    desk.receive(health())
    assert {at for at, _ in desk.schedules.due.values()} == {CHANGE_AT - timedelta(days=1)}


def due_now() -> tuple[Desk, dict[str, Any]]:
    """A change that AWS Health announced weeks ago, and whose schedule has just come."""
    desk = Desk()
    desk.receive(health())
    (_, told), _ = desk.schedules.due.values()
    desk.now_ = LEAD + timedelta(seconds=20)
    return desk, dict(told)


SCHEDULED = ObservedChange(FIRST, "instance-event-0abc", "instance-retirement", CHANGE_AT)
OVER = replace(SCHEDULED, over=True)


def test_what_ec2_has_called_off_is_not_begun_though_the_news_of_it_got_lost() -> None:
    desk, told = due_now()
    desk.changes = [OVER, replace(OVER, instance=SECOND)]
    assert desk.results(told) == [NoticeResult.IGNORED]
    assert desk.started == []


def test_what_ec2_does_not_call_off_is_begun_whatever_else_it_tells_or_does_not() -> None:
    at_another_time = replace(OVER, starts_at=CHANGE_AT + timedelta(days=1))
    for changes in ([], [SCHEDULED], [OVER, SCHEDULED], [at_another_time]):
        desk, told = due_now()
        desk.changes = changes
        assert desk.results(told) == [NoticeResult.STARTED]
    desk, told = due_now()
    desk.ec2_fails, desk.changes = True, [OVER]
    assert desk.results(told) == [NoticeResult.STARTED], "its time is near, whoever does not answer"


def test_what_waits_for_its_turn_is_undone_when_ec2_calls_it_off() -> None:
    desk, told = due_now()
    assert desk.results(told) == [NoticeResult.STARTED]
    desk.changes = [OVER]
    assert desk.results(told) == [NoticeResult.UNDOING]
    assert desk.stored[FIRST].phase is Phase.UNDOING


def expiration() -> dict[str, Any]:
    detail = {"capacity-reservation-id": "cr-0a1b", "end-date": "2026-11-20T10:25:00Z"}
    return event(detail=detail) | {"detail-type": "Capacity Block Expiration Warning"}


def test_the_instances_of_a_capacity_block_are_retired_before_it_closes() -> None:
    desk = Desk(reserved={"cr-0a1b": [FIRST, SECOND]})
    assert desk.results(expiration()) == [NoticeResult.STARTED, NoticeResult.STARTED]
    for instance in (FIRST, SECOND):
        record = desk.stored[instance]
        assert record.kind is NoticeKind.CAPACITY_RESERVATION
        assert f"{record.deadline:%H:%M:%S}" == "09:54:55"


def test_a_capacity_block_in_which_nothing_runs_is_ignored_with_that_reason() -> None:
    (received,) = Desk().receive(expiration()).instances
    assert received.result is NoticeResult.IGNORED
    assert received.reason == RESERVATION_EMPTY(reservation="cr-0a1b")
