"""Deadlines of warnings that are late or have a time in the future."""

from datetime import datetime, timedelta

from leeway.interruption.receive_notice import NoticeResult

from tests.interruption.receiving import FIRST, Receiver, warning

NOON = datetime.fromisoformat("2026-11-21T12:00:00Z")


def test_a_time_in_the_future_is_clamped_to_now() -> None:
    receiver = Receiver(now_=NOON)
    receiver.receive(warning("2026-11-21T12:01:00Z"))
    record = receiver.stored[FIRST]
    assert (record.noticed_at, record.deadline) == (NOON, NOON + timedelta(seconds=115))


def test_a_late_warning_counts_from_its_own_time() -> None:
    receiver = Receiver(now_=NOON)
    receiver.receive(warning("2026-11-21T11:58:03Z"))
    assert receiver.stored[FIRST].deadline == NOON - timedelta(seconds=2)


def test_a_warning_whose_end_is_past_leaves_fifteen_seconds() -> None:
    receiver = Receiver(now_=NOON)
    receiver.receive(warning("2026-11-21T11:57:00Z"))
    assert receiver.stored[FIRST].deadline == NOON + timedelta(seconds=15)
    receiver.now_ += timedelta(seconds=10)
    assert receiver.results(warning("2026-11-21T11:57:00Z", id="again")) == [NoticeResult.STARTED]
    assert receiver.stored[FIRST].deadline == NOON + timedelta(seconds=15), "not extended again"
    assert receiver.stored[FIRST].attempt == 1


def test_a_late_warning_of_hibernation_leaves_no_time() -> None:
    receiver = Receiver(now_=NOON)
    receiver.receive(warning("2026-11-21T11:57:00Z", action="hibernate"))
    assert receiver.stored[FIRST].deadline == NOON - timedelta(minutes=3)
