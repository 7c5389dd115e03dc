"""Scheduled changes weeks ahead: schedules, postponements, cancellations, begins."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from leeway.execution.attempt import Phase
from leeway.instances.facts import ObservedChange
from leeway.interruption.receive_notice import NoticeResult
from leeway.notices import NoticeKind
from leeway.policy.rules import DEFAULTS, NOTICE_IGNORED

from tests.fakes.policies import OnePolicy
from tests.interruption.receiving import CHANGE_AT, FIRST, LEAD, SECOND, Receiver, policy
from tests.notices.events import event, health


def test_a_scheduled_change_in_two_weeks_creates_a_schedule_for_each_instance() -> None:
    receiver = Receiver()
    assert receiver.results(health()) == [NoticeResult.SCHEDULED] * 2
    assert receiver.started == []
    assert [at for at, _ in receiver.schedules.due.values()] == [LEAD, LEAD]
    assert [body["resources"] for _, body in receiver.schedules.due.values()] == [[FIRST], [SECOND]]


def test_repeats_pages_and_new_times_update_the_same_schedules() -> None:
    receiver = Receiver()
    receiver.receive(health())
    names = set(receiver.schedules.due)
    receiver.receive(health())
    later = health(startTime="Sat, 05 Dec 2026 02:00:00 GMT")
    receiver.receive(later)
    third = health(affectedEntities=[{"entityValue": "i-0def5678"}], page="2")
    receiver.receive(third)
    assert names < set(receiver.schedules.due)
    assert len(receiver.schedules.due) == 3
    assert sorted({at for at, _ in receiver.schedules.due.values()}) == [
        LEAD,
        LEAD + timedelta(days=1),
    ]


def test_another_change_of_the_same_instance_has_its_own_schedule() -> None:
    receiver = Receiver()
    receiver.receive(health())
    receiver.receive(health(eventArn="arn:aws:health:eu-west-1::event/EC2/REBOOT/REBOOT_2"))
    assert len(receiver.schedules.due) == 4


def test_eventbridge_accepts_the_names_of_the_schedules() -> None:
    receiver = Receiver()
    receiver.receive(health())
    assert receiver.schedules.due
    assert all(
        len(name) <= 64 and name.replace("-", "").isalnum() for name in receiver.schedules.due
    )


def test_at_the_lead_time_the_retirement_starts_with_the_announced_deadline() -> None:
    receiver = Receiver()
    receiver.receive(health())
    (_, body), _ = receiver.schedules.due.values()
    receiver.now_ = LEAD + timedelta(seconds=20)
    assert receiver.results(dict(body)) == [NoticeResult.STARTED]
    record = receiver.stored[FIRST]
    assert record.noticed_at == LEAD, "its timeouts count from the lead time"
    assert record.deadline == CHANGE_AT - timedelta(seconds=5)
    assert receiver.results(dict(body)) == [NoticeResult.STARTED], "the start is repeated"
    assert receiver.started == [f"{FIRST}-1"] * 2
    assert len(receiver.stored) == 1


def test_a_change_within_its_lead_time_begins_at_once() -> None:
    receiver = Receiver(now_=CHANGE_AT - timedelta(hours=1))
    body = health()
    body["time"] = "2026-12-04T01:00:00Z"
    assert receiver.results(body) == [NoticeResult.STARTED] * 2
    assert receiver.schedules.due == {}


def test_a_cancelled_change_removes_its_schedules() -> None:
    receiver = Receiver()
    receiver.receive(health())
    assert receiver.results(health(statusCode="closed")) == [NoticeResult.IGNORED] * 2
    assert receiver.schedules.due == {}
    assert receiver.started == []


def test_a_resolved_entity_cancels_only_its_own_instance() -> None:
    receiver = Receiver()
    receiver.receive(health())
    entities = [{"entityValue": FIRST, "status": "RESOLVED"}, {"entityValue": SECOND}]
    assert receiver.results(health(affectedEntities=entities)) == [
        NoticeResult.IGNORED,
        NoticeResult.SCHEDULED,
    ]
    assert [body["resources"] for _, body in receiver.schedules.due.values()] == [[SECOND]]


def cancelled(hours: int) -> dict[str, Any]:
    body = health(statusCode="closed", affectedEntities=[{"entityValue": FIRST}])
    return body | {"id": "cancelled", "time": f"2026-12-03T{hours}:00:00Z"}


def test_a_cancelled_change_is_undone_before_the_replacement_is_requested() -> None:
    receiver = Receiver(now_=LEAD)
    receiver.receive(health())
    (received,) = receiver.receive(cancelled(23)).instances
    assert (received.result, received.attempt) == (NoticeResult.UNDOING, 2)
    assert receiver.stored[FIRST].phase is Phase.UNDOING
    assert receiver.started[-1] == f"{FIRST}-2"


def test_a_cancelled_change_continues_after_the_replacement_is_requested() -> None:
    receiver = Receiver(now_=LEAD)
    receiver.receive(health())
    record = receiver.stored[FIRST]
    receiver.stored[FIRST] = record.model_copy(update={"phase": Phase.RUNNING})
    assert receiver.results(cancelled(23)) == [NoticeResult.IGNORED]
    assert receiver.stored[FIRST].phase is Phase.RUNNING


def test_a_postponed_change_is_undone_and_starts_again_later() -> None:
    receiver = Receiver(now_=LEAD)
    one = [{"entityValue": FIRST}]
    receiver.receive(health(affectedEntities=one))
    moved = health(startTime="Sat, 05 Dec 2026 02:00:00 GMT", affectedEntities=one)
    moved |= {"id": "moved", "time": "2026-12-03T23:00:00Z"}
    assert receiver.results(moved) == [NoticeResult.UNDOING]
    ((at, body),) = receiver.schedules.due.values()
    assert at == LEAD + timedelta(days=1)
    receiver.now_ = at
    assert receiver.results(dict(body)) == [NoticeResult.STARTED]
    assert receiver.stored[FIRST].attempt == 3


def test_the_policy_sets_the_lead_time_of_a_scheduled_change() -> None:
    change = replace(DEFAULTS[NoticeKind.SCHEDULED_CHANGE], lead=timedelta(days=1))
    receiver = Receiver(policies=OnePolicy(policy(scheduled_change=change)))
    receiver.receive(health())
    assert {at for at, _ in receiver.schedules.due.values()} == {CHANGE_AT - timedelta(days=1)}


def due_change() -> tuple[Receiver, dict[str, Any]]:
    """A change that AWS Health announced weeks ago, and whose schedule has just fired."""
    receiver = Receiver()
    receiver.receive(health())
    (_, body), _ = receiver.schedules.due.values()
    receiver.now_ = LEAD + timedelta(seconds=20)
    return receiver, dict(body)


SCHEDULED = ObservedChange(FIRST, "instance-event-0abc", "instance-retirement", CHANGE_AT)
OVER = replace(SCHEDULED, over=True)


def test_a_change_that_ec2_has_cancelled_does_not_begin_even_if_the_event_is_lost() -> None:
    receiver, body = due_change()
    receiver.changes = [OVER, replace(OVER, instance=SECOND)]
    assert receiver.results(body) == [NoticeResult.IGNORED]
    assert receiver.started == []


def test_a_change_that_ec2_does_not_cancel_begins_even_if_ec2_cannot_be_read() -> None:
    at_another_time = replace(OVER, starts_at=CHANGE_AT + timedelta(days=1))
    for changes in ([], [SCHEDULED], [OVER, SCHEDULED], [at_another_time]):
        receiver, body = due_change()
        receiver.changes = changes
        assert receiver.results(body) == [NoticeResult.STARTED]
    receiver, body = due_change()
    receiver.ec2_fails, receiver.changes = True, [OVER]
    assert receiver.results(body) == [NoticeResult.STARTED], "EC2 does not answer"


def test_a_retirement_that_waits_is_undone_when_ec2_cancels_the_change() -> None:
    receiver, body = due_change()
    assert receiver.results(body) == [NoticeResult.STARTED]
    receiver.changes = [OVER]
    assert receiver.results(body) == [NoticeResult.UNDOING]
    assert receiver.stored[FIRST].phase is Phase.UNDOING


def expiration() -> dict[str, Any]:
    detail = {"capacity-reservation-id": "cr-0a1b", "end-date": "2026-11-20T10:25:00Z"}
    return event(detail=detail) | {"detail-type": "Capacity Block Expiration Warning"}


def test_the_instances_of_a_capacity_block_are_retired_before_it_ends() -> None:
    receiver = Receiver(reservations={"cr-0a1b": [FIRST, SECOND]})
    assert receiver.results(expiration()) == [NoticeResult.STARTED, NoticeResult.STARTED]
    for instance in (FIRST, SECOND):
        record = receiver.stored[instance]
        assert record.kind is NoticeKind.CAPACITY_RESERVATION
        assert f"{record.deadline:%H:%M:%S}" == "09:54:55"


def test_a_capacity_block_without_instances_is_ignored_with_a_reason() -> None:
    (received,) = Receiver().receive(expiration()).instances
    assert received.result is NoticeResult.IGNORED
    assert received.reason == NOTICE_IGNORED("no instance runs in capacity reservation cr-0a1b")
