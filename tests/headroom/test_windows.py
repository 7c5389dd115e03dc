"""Cron windows and schedules, also across changes of daylight saving time."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.headroom.windows import (
    Schedule,
    Window,
    change_points,
    largest_size_within,
    parse_cron,
    size_at,
)

SEOUL = ZoneInfo("Asia/Seoul")
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")  # its offset changes by half an hour
CAIRO = ZoneInfo("Africa/Cairo")  # its offset changes at midnight
MINUTE = timedelta(minutes=1)


def window(start: str, end: str, replicas: int = 5, zone: ZoneInfo = SEOUL) -> Window:
    return Window(zone, parse_cron(start), parse_cron(end), replicas)


def minutes_open(of: Window, begin: datetime, minutes: int = 60) -> set[int]:
    return {minute for minute in range(minutes) if of.is_open(begin + minute * MINUTE)}


HOUR = datetime(2026, 11, 20, 3, tzinfo=SEOUL)


@pytest.mark.parametrize(
    ("start", "end", "minutes"),
    [
        (
            "00,15,30,45 * * * *",
            "05,20,35,50 * * * *",
            {*range(5), *range(15, 20), *range(30, 35), *range(45, 50)},
        ),
        ("30-33 * * * *", "45 * * * *", set(range(33, 45))),
        ("30 * * * *", "45-50 * * * *", set(range(30, 50))),
        ("0 */2 * * *", "0 * * * *", set(range(60))),
    ],
)
def test_a_window_is_open_in_these_minutes_of_an_hour(
    start: str, end: str, minutes: set[int]
) -> None:
    assert minutes_open(window(start, end), HOUR) == minutes


def test_a_window_over_midnight_is_open_from_22_until_before_6() -> None:
    night = window("0 22 * * *", "0 6 * * *")
    day = HOUR.replace(hour=0)
    assert minutes_open(night, day, 1440) == {*range(6 * 60), *range(22 * 60, 1440)}


def test_a_window_of_a_weekday_leaves_out_the_minute_of_its_end() -> None:
    thursday = window("0 0 * * Thu", "59 23 * * Thu")
    begin = datetime(2026, 11, 26, tzinfo=SEOUL)
    assert minutes_open(thursday, begin - timedelta(days=1), 3 * 1440) == set(
        range(1440, 1440 + 23 * 60 + 59)
    )


def test_the_start_is_inside_a_window_and_the_end_is_not() -> None:
    night = window("0 22 * * *", "0 6 * * *")
    start = datetime(2026, 11, 20, 22, tzinfo=SEOUL)
    end = datetime(2026, 11, 21, 6, tzinfo=SEOUL)
    instant = timedelta(microseconds=1)
    assert not night.is_open(start - instant)
    assert night.is_open(start)
    assert night.is_open(end - instant)
    assert not night.is_open(end)


def test_a_start_in_the_skipped_hour_opens_the_window_after_the_change() -> None:
    # On 2026-03-29 Berlin's clock goes from 01:59:59 to 03:00.
    morning = window("30 2 * * *", "0 5 * * *", zone=BERLIN)
    jump = datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert minutes_open(morning, jump - 60 * MINUTE, 240) == set(range(60, 180))


def test_an_end_in_the_skipped_hour_closes_the_window_after_the_change() -> None:
    late = window("0 22 * * *", "30 2 * * *", zone=BERLIN)
    jump = datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert minutes_open(late, jump - 60 * MINUTE, 120) == set(range(60))


def test_a_window_within_the_doubled_hour_is_open_twice() -> None:
    # On 2026-10-25 Berlin's clock goes from 02:59:59 back to 02:00.
    short = window("10 2 * * *", "20 2 * * *", zone=BERLIN)
    two = datetime(2026, 10, 25, 0, tzinfo=UTC)
    assert minutes_open(short, two, 120) == {*range(10, 20), *range(70, 80)}


def test_a_window_to_midnight_ends_after_the_change_of_a_clock_that_skips_midnight() -> None:
    # On 2026-04-24 Cairo's clock goes from 23:59:59 to 01:00.
    evening = window("0 22 * * *", "0 0 * * *", zone=CAIRO)
    jump = datetime(2026, 4, 23, 22, tzinfo=UTC)
    assert minutes_open(evening, jump - 60 * MINUTE, 180) == set(range(60))


def test_a_window_from_midnight_begins_at_a_midnight_that_the_clock_shows() -> None:
    # On 2026-10-29 Cairo's clock goes from 23:59:59 back to 23:00.
    night = window("0 0 * * *", "0 6 * * *", zone=CAIRO)
    evening = window("30 22 * * *", "30 23 * * *", zone=CAIRO)
    back = datetime(2026, 10, 29, 21, tzinfo=UTC)
    assert minutes_open(night, back - 60 * MINUTE, 180) == set(range(120, 180))
    # The clock shows 23:30, goes back to 23:00, and shows 23:30 again.
    assert minutes_open(evening, back - 60 * MINUTE, 180) == {*range(30), *range(60, 90)}


FIELD = st.sampled_from(["*", "0", "30", "*/7", "15-40", "5,50", "0-10/2"])
HOURS = st.sampled_from(["*", "0", "2", "1-3", "*/5", "22"])
CRONS = st.builds(lambda minute, hour: f"{minute} {hour} * * *", FIELD, HOURS)
ZONES = st.sampled_from([SEOUL, BERLIN, NEW_YORK, LORD_HOWE, CAIRO])
# Days with a change of the clock in each zone, and one without.
BEGINS = st.sampled_from(
    [
        datetime(2026, 3, 29, tzinfo=UTC),
        datetime(2026, 10, 24, 22, 17, 31, tzinfo=UTC),
        datetime(2026, 3, 8, 5, tzinfo=UTC),
        datetime(2026, 11, 1, 3, tzinfo=UTC),
        datetime(2026, 4, 4, 12, tzinfo=UTC),
        datetime(2026, 10, 3, 12, tzinfo=UTC),
        datetime(2026, 4, 23, 19, tzinfo=UTC),
        datetime(2026, 10, 29, 18, tzinfo=UTC),
        datetime(2026, 6, 1, 0, 30, tzinfo=UTC),
    ]
)
SCHEDULES = st.builds(
    Schedule,
    windows=st.lists(
        st.builds(window, CRONS, CRONS, st.integers(1, 9), ZONES), min_size=1, max_size=3
    ).map(tuple),
    minimum=st.integers(0, 3),
    maximum=st.integers(3, 8),
    idle=st.none(),
)


def firings(expression: str, first: datetime, days: int) -> set[datetime]:
    """The times of that many days from a naive local minute on."""
    times = parse_cron(expression).times(first - timedelta(seconds=1))
    return set(takewhile(lambda at: at < first + timedelta(days=days), times))


@settings(max_examples=12)
@given(CRONS, CRONS, ZONES, BEGINS)
def test_a_window_opens_at_a_start_and_closes_at_an_end_of_the_wall_clock(
    start: str, end: str, zone: ZoneInfo, begin: datetime
) -> None:
    """The first start or end after an instant decides; if both are at the same time, the end."""
    tested = window(start, end, zone=zone)
    at = begin.replace(second=0)
    for _ in range(8):
        at += 13 * MINUTE
        later = at.astimezone(zone).replace(tzinfo=None) + MINUTE
        starts, ends = firings(start, later, 2), firings(end, later, 2)
        assert tested.is_open(at) == (min(starts | ends) in ends)


@settings(max_examples=60)
@given(CRONS, CRONS)
def test_a_trap_is_a_start_that_opens_nothing_or_an_end_that_closes_nothing(
    start: str, end: str
) -> None:
    tested = window(start, end, zone=ZoneInfo("UTC"))
    day = datetime(2026, 6, 2)  # noqa: DTZ001 (local time)
    starts, ends = firings(start, day, 1), firings(end, day, 1)
    # A window can close only at one of its ends.
    open_at = {at: tested.is_open(at.replace(tzinfo=UTC)) for at in starts | ends}
    assert tested.never_closes() == all(open_at.values())
    ordinary = (
        not tested.never_closes()
        and all(open_at[at] for at in starts)
        and not any(open_at[at] for at in ends - starts)
    )
    assert (tested.trap() is None) == ordinary


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ("0 8 * * 1-5", "0 18 * * 1-5", None),
        ("0 22 * * 5", "0 6 * * 1", None),
        ("0 8 1 * *", "0 18 15 * *", None),
        ("0 0 29 2 *", "0 0 1 3 *", None),
        ("0 8 * * 1-5", "0 18 * * *", "stays open until the last"),
        ("0 8 * * 1-5", "0 18 * * 5", "only the last time before an end opens"),
        ("0 8 * * *", "0 8 * 1-3 *", "only the last time before an end opens"),
        ("0 8 29 2 *", "0 8 28-31 * *", "never closes"),
        ("0 8 13 * 5", "0 8 * * *", "never closes"),
        ("0 8 * * *", "0 8 13 * 5", "only the last time before an end opens"),
    ],
)
def test_a_trap_of_several_days_is_found(start: str, end: str, said: str | None) -> None:
    found = window(start, end).trap()
    assert (found is None) if said is None else (found is not None and said in found)


@settings(max_examples=25)
@given(SCHEDULES, BEGINS)
def test_change_points_give_the_size_of_every_minute(schedule: Schedule, begin: datetime) -> None:
    points = change_points(schedule, begin, begin + timedelta(hours=8))
    assert points[0].at == begin
    assert all(a.size.replicas != b.size.replicas for a, b in pairwise(points))
    for minutes in range(0, 480, 7):
        at = begin + minutes * MINUTE
        current = max((point for point in points if point.at <= at), key=lambda point: point.at)
        assert current.size.replicas == size_at(schedule, at).replicas


@settings(max_examples=25)
@given(SCHEDULES, BEGINS, st.integers(0, 90))
def test_the_largest_size_within_a_lead_is_not_below_any_size_until_then(
    schedule: Schedule, begin: datetime, minutes: int
) -> None:
    sizes = [size_at(schedule, begin + n * MINUTE).replicas for n in range(minutes + 1)]
    ahead = largest_size_within(schedule, begin, minutes * MINUTE)
    assert ahead.size.replicas >= max(sizes)
    assert begin <= ahead.at <= begin + minutes * MINUTE


def test_the_largest_of_several_windows_applies_within_the_bounds() -> None:
    hours = Schedule((window("0 9 * * *", "0 18 * * *", 3), window("0 12 * * *", "0 13 * * *", 9)))
    day = datetime(2026, 11, 20, tzinfo=SEOUL)
    sizes = [
        (p.at.astimezone(SEOUL).hour, p.size.replicas)
        for p in change_points(hours, day, day + timedelta(days=1))
    ]
    assert sizes == [(0, 0), (9, 3), (12, 9), (13, 3), (18, 0)]
    capped = Schedule(hours.windows, minimum=1, maximum=4)
    assert size_at(capped, day.replace(hour=12)).replicas == 4
    assert size_at(capped, day).replicas == 1
    assert size_at(Schedule(hours.windows, minimum=2, idle=0), day).replicas == 0


def test_a_window_is_requested_its_lead_ahead_of_its_start() -> None:
    morning = Schedule((window("0 9 * * *", "0 18 * * *", 3),))
    start = datetime(2026, 11, 20, 9, tzinfo=SEOUL)
    lead = timedelta(minutes=2)
    assert largest_size_within(morning, start - lead - MINUTE, lead).size.replicas == 0
    assert largest_size_within(morning, start - lead, lead).size.replicas == 3
