"""From when a warning counts that comes late, or from the future."""

from datetime import datetime, timedelta

from leeway.interruption.outcome import NoticeResult

from tests.interruption.desk import FIRST, Desk, warning

NOON = datetime.fromisoformat("2026-11-21T12:00:00Z")


def test_a_warning_from_the_future_counts_from_its_arrival() -> None:
    desk = Desk(now_=NOON)
    desk.receive(warning("2026-11-21T12:01:00Z"))
    record = desk.stored[FIRST]
    assert (record.noticed_at, record.deadline) == (NOON, NOON + timedelta(seconds=115))


def test_a_warning_that_is_late_counts_from_its_own_time() -> None:
    desk = Desk(now_=NOON)
    desk.receive(warning("2026-11-21T11:58:03Z"))
    assert desk.stored[FIRST].deadline == NOON - timedelta(seconds=2)


def test_pods_are_given_some_seconds_where_ec2_should_have_taken_the_instance_already() -> None:
    desk = Desk(now_=NOON)
    desk.receive(warning("2026-11-21T11:57:00Z"))
    assert desk.stored[FIRST].deadline == NOON + timedelta(seconds=15)
    desk.now_ += timedelta(seconds=10)
    assert desk.results(warning("2026-11-21T11:57:00Z", id="again")) == [NoticeResult.STARTED]
    assert desk.stored[FIRST].deadline == NOON + timedelta(seconds=15), "once, not again and again"
    assert desk.stored[FIRST].attempt == 1


def test_hibernation_that_has_begun_leaves_no_seconds() -> None:
    desk = Desk(now_=NOON)
    desk.receive(warning("2026-11-21T11:57:00Z", action="hibernate"))
    assert desk.stored[FIRST].deadline == NOON - timedelta(minutes=3)
