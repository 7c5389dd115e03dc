"""Notices of different kinds about one instance at the same time."""

from datetime import datetime, timedelta
from typing import Any

from leeway.execution.attempt import Phase
from leeway.interruption.receive_notice import NoticeResult
from leeway.notices import NoticeKind
from leeway.policy.rules import OnBlocked, Replacement

from tests.interruption.receiving import CHANGE_AT, FIRST, LEAD, SECOND, Receiver
from tests.notices.events import event, health

THIRD = "i-0def5678"
AT_LEAD = f"{LEAD:%Y-%m-%dT%H:%M:%SZ}"


def rebalance(time: str, instance: str = FIRST) -> dict[str, Any]:
    kind = "EC2 Instance Rebalance Recommendation"
    body = event(detail={"instance-id": instance}, time=time, id=f"rebalance-{instance}")
    return body | {"detail-type": kind}


def interruption(time: str, action: str = "terminate") -> dict[str, Any]:
    detail = {"instance-id": FIRST, "instance-action": action}
    return event(detail=detail, time=time, id=f"{action}-{time}")


def reservation(time: str, ends: datetime) -> dict[str, Any]:
    kind = "EC2 Capacity Reservation Instance Interruption Warning"
    detail = {"instance-id": FIRST, "instance-termination-time": f"{ends:%Y-%m-%d %H:%M:%S UTC}"}
    return event(detail=detail, time=time, id=f"reservation-{time}") | {"detail-type": kind}


def hook(time: str) -> dict[str, Any]:
    kind = {"source": "aws.autoscaling", "detail-type": "EC2 Instance-terminate Lifecycle Action"}
    names = {"AutoScalingGroupName": "ng", "LifecycleHookName": "leeway-drain"}
    return event(**kind, detail={**names, "EC2InstanceId": FIRST}, time=time, id=f"hook-{time}")


def running(receiver: Receiver, instance: str, **more: Any) -> None:
    stored = receiver.stored[instance]
    receiver.stored[instance] = stored.model_copy(update={"phase": Phase.RUNNING, **more})


def test_a_change_of_three_instances_starts_only_the_one_that_does_not_retire_yet() -> None:
    receiver = Receiver(now_=LEAD)
    receiver.receive(interruption(AT_LEAD))
    running(receiver, FIRST)
    receiver.receive(rebalance(AT_LEAD, SECOND))
    running(receiver, SECOND, drain_began_at=LEAD)
    before, receiver.started = dict(receiver.stored), []
    entities = [{"entityValue": one} for one in (FIRST, SECOND, THIRD)]
    results = receiver.results(health(affectedEntities=entities))
    assert results == [NoticeResult.KNOWN, NoticeResult.KNOWN, NoticeResult.STARTED]
    assert receiver.started == [f"{THIRD}-1"]
    assert {name: receiver.stored[name] for name in before} == before


def test_an_interruption_takes_precedence_over_the_undo_of_a_cancelled_change() -> None:
    receiver = Receiver(now_=LEAD)
    receiver.receive(health())
    off = health(statusCode="closed", affectedEntities=[{"entityValue": FIRST}])
    off |= {"id": "called-off", "time": f"{LEAD + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"}
    receiver.now_ = LEAD + timedelta(minutes=2)
    assert receiver.results(off) == [NoticeResult.UNDOING]
    assert receiver.results(interruption(f"{receiver.now_:%Y-%m-%dT%H:%M:%SZ}")) == [
        NoticeResult.STARTED
    ]
    taken = receiver.stored[FIRST]
    assert (taken.kind, taken.attempt) == (NoticeKind.SPOT_INTERRUPTION, 3)
    assert (taken.replacement, taken.on_blocked) == (Replacement.WITH, OnBlocked.DELETE)
    assert receiver.results(off | {"id": "repeated"}) == [NoticeResult.IGNORED]
    assert receiver.stored[FIRST] == taken


def test_hibernation_takes_precedence_over_a_rebalance_and_leaves_no_time() -> None:
    receiver = Receiver(now_=LEAD)
    receiver.receive(rebalance(AT_LEAD))
    running(receiver, FIRST, drain_began_at=LEAD)
    receiver.now_ = LEAD + timedelta(minutes=9)
    assert receiver.results(interruption(f"{receiver.now_:%Y-%m-%dT%H:%M:%SZ}", "hibernate")) == [
        NoticeResult.STARTED
    ]
    record = receiver.stored[FIRST]
    assert (record.deadline, record.on_blocked, record.stops) == (
        receiver.now_,
        OnBlocked.DELETE,
        True,
    )
    assert record.drain_began_at is None


def test_a_reservation_shortens_the_deadline_of_a_terminate_hook_and_keeps_the_hook() -> None:
    ends = LEAD + timedelta(minutes=10)
    both = [hook(AT_LEAD), reservation(AT_LEAD, ends)]
    for events in (both, both[::-1]):
        receiver = Receiver(now_=LEAD)
        for body in events:
            receiver.receive(body)
            running(receiver, FIRST)
        record = receiver.stored[FIRST]
        assert record.kind is NoticeKind.CAPACITY_RESERVATION
        assert record.deadline == ends - timedelta(seconds=5)
        assert [one.name for one in record.hooks] == ["leeway-drain"]


def test_a_rebalance_and_a_scheduled_change_do_not_restart_each_other() -> None:
    receiver = Receiver(now_=LEAD)
    receiver.receive(health(affectedEntities=[{"entityValue": FIRST}]))
    running(receiver, FIRST, drain_began_at=LEAD)
    assert receiver.results(rebalance(AT_LEAD)) == [NoticeResult.KNOWN]
    assert receiver.stored[FIRST].deadline == CHANGE_AT - timedelta(seconds=5)
    receiver.finished()
    again = rebalance(f"{LEAD + timedelta(minutes=30):%Y-%m-%dT%H:%M:%SZ}") | {"id": "later"}
    receiver.now_ = LEAD + timedelta(minutes=30)
    assert receiver.results(again) == [NoticeResult.STARTED], "the instance still runs"
