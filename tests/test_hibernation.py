"""Windows outside of which a node pool hibernates, and the time for which a person woke it."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.headroom.windows import Window, parse_cron
from leeway.hibernation import LONGEST_WAKE, hibernation, put_to_sleep, woken
from leeway.pool_pauses import PoolRecord

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def window(start: str, end: str, zone: ZoneInfo = BERLIN) -> Window:
    return Window(zone, parse_cron(start), parse_cron(end), 1)


OFFICE = window("30 7 * * 1-5", "0 19 * * 1-5")
THURSDAY = datetime(2026, 11, 19, tzinfo=BERLIN)
FRIDAY = datetime(2026, 11, 20, tzinfo=BERLIN)


def test_a_pool_is_awake_inside_its_windows_and_hibernates_outside_of_them() -> None:
    assert hibernation("dev", [OFFICE], THURSDAY.replace(hour=7, minute=30)) is None
    assert hibernation("dev", [OFFICE], THURSDAY.replace(hour=18, minute=59)) is None
    found = hibernation("dev", [OFFICE], THURSDAY.replace(hour=19))
    assert found is not None
    assert found.until == "07:30 Europe/Berlin"
    assert "hibernates until 07:30 Europe/Berlin" in found.reason.message


def test_a_pool_that_hibernates_for_days_says_the_day() -> None:
    found = hibernation("dev", [OFFICE], FRIDAY.replace(hour=19))
    assert found is not None
    assert found.until == "2026-11-23 07:30 Europe/Berlin"


def test_a_pool_without_windows_never_hibernates() -> None:
    assert hibernation("dev", [], THURSDAY) is None


def test_a_pool_is_awake_as_long_before_a_window_as_its_nodes_need_to_join() -> None:
    lead = 3 * MINUTE
    early = THURSDAY.replace(hour=7, minute=26)
    assert hibernation("dev", [OFFICE], early, lead) is not None
    assert hibernation("dev", [OFFICE], early + MINUTE, lead) is None


def test_the_first_window_of_several_zones_ends_it_and_names_its_zone() -> None:
    american = window("0 8 * * 1-5", "0 18 * * 1-5", NEW_YORK)
    assert hibernation("dev", [OFFICE, american], THURSDAY.replace(hour=20)) is None
    found = hibernation("dev", [american], THURSDAY.replace(hour=7))
    assert found is not None
    assert found.until == "08:00 America/New_York"


@pytest.mark.parametrize(
    ("at", "opens"),
    [
        # 02:30 does not exist on the day when clocks go forward: the window opens at 03:00.
        (datetime(2026, 3, 29, 0, 0, tzinfo=UTC), datetime(2026, 3, 29, 1, 0, tzinfo=UTC)),
        (datetime(2026, 10, 24, 12, 0, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
    ],
)
def test_windows_open_as_those_of_headroom_when_clocks_change(
    at: datetime, opens: datetime
) -> None:
    found = hibernation("dev", [window("30 2 * * *", "0 6 * * *")], at)
    assert found is not None
    assert found.opens == opens


def test_a_window_on_a_leap_day_is_found_years_ahead() -> None:
    found = hibernation("dev", [window("0 0 29 2 *", "0 12 29 2 *")], THURSDAY)
    assert found is not None
    assert found.until == "2028-02-29 00:00 Europe/Berlin"


def test_a_woken_pool_is_awake_until_the_time_ends_by_itself() -> None:
    now = THURSDAY.replace(hour=22)
    until = now + 2 * HOUR
    assert hibernation("dev", [OFFICE], until - MINUTE, woken_until=until) is None
    assert hibernation("dev", [OFFICE], until, woken_until=until) is not None


def test_to_wake_a_pool_twice_extends_the_time_and_does_not_double_it() -> None:
    now = THURSDAY.replace(hour=22)
    first = woken(None, "prod", "dev", 2 * HOUR, now, "alice")
    assert (first.woken_until, first.woken_at, first.woken_by) == (now + 2 * HOUR, now, "alice")
    again = woken(first, "prod", "dev", 2 * HOUR, now + MINUTE, "bob")
    assert again.woken_until == now + 2 * HOUR + MINUTE
    assert (again.woken_by, again.version) == ("bob", 2)
    shorter = woken(again, "prod", "dev", HOUR, now + MINUTE, "eve")
    assert shorter.woken_until == again.woken_until
    assert put_to_sleep(shorter).woken_until is None


def test_a_pool_is_woken_for_a_week_at_most_and_stays_paused() -> None:
    paused = PoolRecord(cluster="prod", pool="dev", paused_by="i-1")
    found = woken(paused, "prod", "dev", timedelta(days=30), THURSDAY, "alice")
    assert found.woken_until == THURSDAY + LONGEST_WAKE
    assert found.paused_by == "i-1"


ZONES = [
    BERLIN,
    NEW_YORK,
    ZoneInfo("Asia/Kolkata"),
    ZoneInfo("Australia/Lord_Howe"),
    ZoneInfo("UTC"),
]
DAYS = ["*", "1-5", "0,6", "3"]
CHANGES = [
    datetime(2026, 3, 28, 20, tzinfo=UTC),
    datetime(2026, 10, 24, 20, tzinfo=UTC),
    datetime(2026, 11, 1, 0, tzinfo=UTC),
    datetime(2026, 4, 4, 10, tzinfo=UTC),
    datetime(2026, 11, 20, 12, tzinfo=UTC),
]


@st.composite
def windows(draw: st.DrawFn) -> tuple[Window, set[tuple[int, int, int]], set[tuple[int, int, int]]]:
    """A window, and the minutes of a week (weekday, hour, minute) at which it starts and ends."""
    zone = draw(st.sampled_from(ZONES))
    made = []
    for _ in range(2):
        hours = draw(st.lists(st.integers(0, 23), min_size=1, max_size=2, unique=True))
        minute, days = draw(st.sampled_from([0, 30, 59])), draw(st.sampled_from(DAYS))
        listed = {"*": range(7), "1-5": range(1, 6), "0,6": (0, 6), "3": (3,)}[days]
        cron = f"{minute} {','.join(map(str, hours))} * * {days}"
        made.append((cron, {(day, hour, minute) for day in listed for hour in hours}))
    (start, starts), (end, ends) = made
    return window(start, end, zone), starts, ends


def is_open(one: Window, starts: set[object], ends: set[object], at: datetime) -> bool:
    """Walk over the minutes of the wall clock to the next start or end: open if an end is first."""
    local = at.astimezone(one.timezone).replace(tzinfo=None)
    while True:
        local += MINUTE
        minute = (local.isoweekday() % 7, local.hour, local.minute)
        if minute in ends:
            return True
        if minute in starts:
            return False


@settings(max_examples=40, deadline=None)
@given(
    st.lists(windows(), min_size=1, max_size=2),
    st.sampled_from(CHANGES),
    st.integers(0, 24 * 60),
    st.sampled_from([0, 3, 90]),
)
def test_the_decision_agrees_with_a_walk_over_the_minutes(
    given_windows: list[tuple[Window, set[object], set[object]]],
    begin: datetime,
    minutes: int,
    lead: int,
) -> None:
    at = begin + minutes * MINUTE

    def awake(when: datetime) -> bool:
        return any(is_open(one, starts, ends, when) for one, starts, ends in given_windows)

    found = hibernation("dev", [one for one, _, _ in given_windows], at, lead * MINUTE)
    walked = (at + n * MINUTE for n in range(24 * 60))
    opens = next((one for one in walked if awake(one)), None)
    if opens is not None and opens - at <= lead * MINUTE:
        assert found is None
    else:
        assert found is not None
        assert opens is None or found.opens == opens
