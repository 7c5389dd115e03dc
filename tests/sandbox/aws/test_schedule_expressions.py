"""When rate, cron and at expressions are due."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.aws.schedule_expressions import BadExpressionError, Cron, parse

NOW = datetime(2026, 11, 21, 11, 30, 20, tzinfo=UTC)  # a Saturday


@pytest.mark.parametrize(
    ("text", "zone", "due"),
    [
        ("rate(1 minute)", None, NOW + timedelta(minutes=1)),
        ("rate(6 hours)", None, NOW + timedelta(hours=6)),
        ("at(2026-11-21T12:00:00)", None, datetime(2026, 11, 21, 12, tzinfo=UTC)),
        ("at(2026-11-21T12:00:00)", "Asia/Seoul", None),
        ("cron(* * * * ? *)", None, datetime(2026, 11, 21, 11, 31, tzinfo=UTC)),
        ("cron(0 8 * * ? *)", None, datetime(2026, 11, 22, 8, tzinfo=UTC)),
        ("cron(0/15 9-17 ? * MON-FRI *)", None, datetime(2026, 11, 23, 9, tzinfo=UTC)),
        ("cron(30 4 1 1 ? 2027-2028)", None, datetime(2027, 1, 1, 4, 30, tzinfo=UTC)),
        ("cron(0 0 29 2 ? *)", None, datetime(2028, 2, 29, tzinfo=UTC)),
        ("cron(0 9 ? * 2 *)", "Europe/Berlin", datetime(2026, 11, 23, 8, tzinfo=UTC)),
        ("cron(30 11 21 11 ? 2026)", None, None),
    ],
)
def test_an_expression_is_due_next_at(text: str, zone: str | None, due: datetime | None) -> None:
    assert parse(text, zone).next(NOW) == due


def test_an_hour_that_the_zone_skips_is_not_due() -> None:
    nightly = parse("cron(30 2 * * ? *)", "Europe/Berlin")
    before = datetime(2027, 3, 27, 12, tzinfo=UTC)
    assert nightly.next(before) == datetime(2027, 3, 29, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("every minute", None),
        ("rate(0 minutes)", None),
        ("rate(1 week)", None),
        ("at(tomorrow)", None),
        ("cron(* * * * *)", None),
        ("cron(* * * * * *)", None),
        ("cron(* * ? * ? *)", None),
        ("cron(60 * * * ? *)", None),
        ("cron(0 0 L * ? *)", None),
        ("rate(1 minute)", "Mars/Olympus"),
    ],
)
def test_what_eventbridge_would_not_take_is_refused(text: str, zone: str | None) -> None:
    with pytest.raises(BadExpressionError, match="Invalid Schedule Expression"):
        parse(text, zone)


@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    weekday=st.integers(1, 7),
    since=st.integers(1_700_000_000, 1_900_000_000).map(lambda s: datetime.fromtimestamp(s, UTC)),
)
def test_a_weekly_time_is_due_within_a_week_on_that_day(
    minute: int, hour: int, weekday: int, since: datetime
) -> None:
    weekly = parse(f"cron({minute} {hour} ? * {weekday} *)")
    due = weekly.next(since)
    assert isinstance(weekly, Cron)
    assert due is not None
    assert since < due <= since + timedelta(days=7)
    assert (due.minute, due.hour, due.isoweekday() % 7 + 1) == (minute, hour, weekday)
