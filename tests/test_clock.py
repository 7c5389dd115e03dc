"""Whose clock is right, by the dates of answers."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.clock import ClockOffset, CorrectedClock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def learn(lead: ClockOffset, theirs: datetime, ahead: timedelta, there: float, back: float) -> None:
    """Let somebody whose clock is so far ahead answer at this moment of theirs."""
    date = format_datetime(theirs, usegmt=True)
    lead.observe(date, theirs - ahead - seconds(there), theirs - ahead + seconds(back))


TRANSIT = st.floats(0, 30)
MOMENTS = st.integers(0, 10_000_000).map(lambda ms: NOON + timedelta(milliseconds=ms))


@given(st.lists(st.tuples(MOMENTS, TRANSIT, TRANSIT), max_size=10))
def test_slow_answers_never_put_a_clock_wrong_that_is_right(
    answers: list[tuple[datetime, float, float]],
) -> None:
    lead = ClockOffset()
    for theirs, there, back in answers:
        learn(lead, theirs, timedelta(0), there, back)
    assert lead.ahead == timedelta(0)


@given(
    st.floats(-120, 120),
    MOMENTS,
    st.floats(0, 0.5),
    st.lists(st.tuples(MOMENTS, TRANSIT, TRANSIT), max_size=10),
)
def test_one_quick_answer_tells_the_difference_to_its_second_and_slow_ones_spoil_nothing(
    ahead: float, theirs: datetime, back: float, later: list[tuple[datetime, float, float]]
) -> None:
    lead = ClockOffset()
    learn(lead, theirs, seconds(ahead), 0.1, back)
    for answer in later:
        learn(lead, answer[0], seconds(ahead), *answer[1:])
    assert abs(lead.ahead - seconds(ahead)) < seconds(1.7)


def test_a_clock_that_was_set_right_meanwhile_is_believed_again() -> None:
    lead = ClockOffset()
    learn(lead, NOON, seconds(60), 0.01, 0.01)
    learn(lead, NOON + seconds(90), seconds(0), 0.01, 0.01)
    assert abs(lead.ahead) < seconds(1.1)


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
def test_a_date_that_says_nothing_or_cannot_be_true_teaches_nothing(date: str) -> None:
    lead = ClockOffset()
    lead.observe(date, NOON + seconds(50), NOON + seconds(51))
    assert lead.ahead == timedelta(0)


class Stopped:
    """A clock that stands still."""

    def now(self) -> datetime:
        return NOON

    def sleep(self, seconds: float) -> None: ...


def test_a_guided_clock_shows_the_others_time() -> None:
    clock = CorrectedClock(Stopped())
    clock.offset.observe(format_datetime(NOON + seconds(60), usegmt=True), NOON, NOON)
    assert clock.now() == NOON + seconds(60)
