"""The offset of the local clock, measured from the dates of responses."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.clock import ClockOffset, CorrectedClock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def respond(
    offset: ClockOffset, theirs: datetime, ahead: timedelta, there: float, back: float
) -> None:
    """Observe a response of a server whose clock is ahead, at this time of the server."""
    date = format_datetime(theirs, usegmt=True)
    offset.observe(date, theirs - ahead - seconds(there), theirs - ahead + seconds(back))


TRANSIT = st.floats(0, 30)
MOMENTS = st.integers(0, 10_000_000).map(lambda ms: NOON + timedelta(milliseconds=ms))


@given(st.lists(st.tuples(MOMENTS, TRANSIT, TRANSIT), max_size=10))
def test_slow_responses_do_not_change_a_correct_clock(
    answers: list[tuple[datetime, float, float]],
) -> None:
    offset = ClockOffset()
    for theirs, there, back in answers:
        respond(offset, theirs, timedelta(0), there, back)
    assert offset.ahead == timedelta(0)


@given(
    st.floats(-120, 120),
    MOMENTS,
    st.floats(0, 0.5),
    st.lists(st.tuples(MOMENTS, TRANSIT, TRANSIT), max_size=10),
)
def test_one_quick_response_gives_the_offset_to_a_second_and_slow_ones_do_not_change_it(
    ahead: float, theirs: datetime, back: float, later: list[tuple[datetime, float, float]]
) -> None:
    offset = ClockOffset()
    respond(offset, theirs, seconds(ahead), 0.1, back)
    for answer in later:
        respond(offset, answer[0], seconds(ahead), *answer[1:])
    assert abs(offset.ahead - seconds(ahead)) < seconds(1.7)


def test_the_offset_follows_a_clock_that_is_corrected() -> None:
    offset = ClockOffset()
    respond(offset, NOON, seconds(60), 0.01, 0.01)
    respond(offset, NOON + seconds(90), seconds(0), 0.01, 0.01)
    assert abs(offset.ahead) < seconds(1.1)


@pytest.mark.parametrize(
    "date",
    [
        "",
        "yesterday",
        "Sat, 21 Nov 2026 12:00:00 -0000",
        "Sat, 21 Nov 99999999999 12:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Sat, 21 Nov 2026 12:00:00 +99999999999999",
        "Fri, 20 Nov 2026 12:00:00 GMT",
        "Sun, 22 Nov 2026 12:00:00 GMT",
    ],
)
def test_an_invalid_or_impossible_date_is_ignored(date: str) -> None:
    offset = ClockOffset()
    offset.observe(date, NOON + seconds(50), NOON + seconds(51))
    assert offset.ahead == timedelta(0)


class Stopped:
    """A clock that does not advance."""

    def now(self) -> datetime:
        return NOON

    def sleep(self, seconds: float) -> None: ...


def test_a_corrected_clock_returns_the_time_of_the_servers() -> None:
    clock = CorrectedClock(Stopped())
    clock.offset.observe(format_datetime(NOON + seconds(60), usegmt=True), NOON, NOON)
    assert clock.now() == NOON + seconds(60)
