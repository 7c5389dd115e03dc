"""Notices of different kinds that tell of one instance at the same time."""

from datetime import datetime, timedelta
from typing import Any

from leeway.execution.attempt import Phase
from leeway.interruption.outcome import NoticeResult
from leeway.notices import NoticeKind
from leeway.policy.rules import OnBlocked, Replacement

from tests.interruption.desk import CHANGE_AT, FIRST, LEAD, SECOND, Desk
from tests.notices.events import event, health

THIRD = "i-0def5678"
AT_LEAD = f"{LEAD:%Y-%m-%dT%H:%M:%SZ}"


def rebalance(time: str, instance: str = FIRST) -> dict[str, Any]:
    kind = "EC2 Instance Rebalance Recommendation"
    told = event(detail={"instance-id": instance}, time=time, id=f"rebalance-{instance}")
    return told | {"detail-type": kind}


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


def running(desk: Desk, instance: str, **more: Any) -> None:
    stored = desk.stored[instance]
    desk.stored[instance] = stored.model_copy(update={"phase": Phase.RUNNING, **more})


def test_a_change_of_three_instances_leaves_those_alone_that_are_on_their_way_out() -> None:
    desk = Desk(now_=LEAD)
    desk.receive(interruption(AT_LEAD))
    running(desk, FIRST)
    desk.receive(rebalance(AT_LEAD, SECOND))
    running(desk, SECOND, begun_at=LEAD)
    before, desk.started = dict(desk.stored), []
    entities = [{"entityValue": one} for one in (FIRST, SECOND, THIRD)]
    results = desk.results(health(affectedEntities=entities))
    assert results == [NoticeResult.KNOWN, NoticeResult.KNOWN, NoticeResult.STARTED]
    assert desk.started == [f"{THIRD}-1"]
    assert {name: desk.stored[name] for name in before} == before


def test_an_interruption_while_a_change_that_was_called_off_is_undone_has_the_last_word() -> None:
    desk = Desk(now_=LEAD)
    desk.receive(health())
    off = health(statusCode="closed", affectedEntities=[{"entityValue": FIRST}])
    off |= {"id": "called-off", "time": f"{LEAD + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"}
    desk.now_ = LEAD + timedelta(minutes=2)
    assert desk.results(off) == [NoticeResult.UNDOING]
    assert desk.results(interruption(f"{desk.now_:%Y-%m-%dT%H:%M:%SZ}")) == [NoticeResult.STARTED]
    taken = desk.stored[FIRST]
    assert (taken.kind, taken.attempt) == (NoticeKind.SPOT_INTERRUPTION, 3)
    assert (taken.replacement, taken.on_blocked) == (Replacement.WITH, OnBlocked.DELETE)
    assert desk.results(off | {"id": "once more"}) == [NoticeResult.IGNORED]
    assert desk.stored[FIRST] == taken


def test_hibernation_takes_over_from_a_rebalance_and_leaves_no_time() -> None:
    desk = Desk(now_=LEAD)
    desk.receive(rebalance(AT_LEAD))
    running(desk, FIRST, begun_at=LEAD)
    desk.now_ = LEAD + timedelta(minutes=9)
    assert desk.results(interruption(f"{desk.now_:%Y-%m-%dT%H:%M:%SZ}", "hibernate")) == [
        NoticeResult.STARTED
    ]
    record = desk.stored[FIRST]
    assert (record.deadline, record.on_blocked, record.stops) == (
        desk.now_,
        OnBlocked.DELETE,
        True,
    )
    assert record.begun_at is None


def test_a_reservation_that_ends_hurries_a_terminate_hook_which_is_answered_all_the_same() -> None:
    ends = LEAD + timedelta(minutes=10)
    both = [hook(AT_LEAD), reservation(AT_LEAD, ends)]
    for events in (both, both[::-1]):
        desk = Desk(now_=LEAD)
        for told in events:
            desk.receive(told)
            running(desk, FIRST)
        record = desk.stored[FIRST]
        assert record.kind is NoticeKind.CAPACITY_RESERVATION
        assert record.deadline == ends - timedelta(seconds=5)
        assert [one.name for one in record.hooks] == ["leeway-drain"]


def test_a_rebalance_that_has_begun_and_a_change_do_not_start_each_other_again() -> None:
    desk = Desk(now_=LEAD)
    desk.receive(health(affectedEntities=[{"entityValue": FIRST}]))
    running(desk, FIRST, begun_at=LEAD)
    assert desk.results(rebalance(AT_LEAD)) == [NoticeResult.KNOWN]
    assert desk.stored[FIRST].deadline == CHANGE_AT - timedelta(seconds=5)
    desk.finished()
    again = rebalance(f"{LEAD + timedelta(minutes=30):%Y-%m-%dT%H:%M:%SZ}") | {"id": "later"}
    desk.now_ = LEAD + timedelta(minutes=30)
    assert desk.results(again) == [NoticeResult.STARTED], "the instance is still there"
