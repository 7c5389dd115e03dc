"""Cron expressions: which are accepted, the error of the others, and their times."""

from contextlib import suppress
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.headroom.windows import BadCron, parse_cron


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("-30 * * * *", "minute ''"),
        ("60 * * * *", "minute 60: expected 0 to 59"),
        ("0 24 * * *", "hour 24: expected 0 to 23"),
        ("0 0 0 * *", "day of month 0: expected 1 to 31"),
        ("0 0 * 13 *", "month 13: expected 1 to 12, jan to dec"),
        ("0 0 * * 7", "day of week 7: expected 0 to 6, sun to sat; Sunday is 0"),
        ("0 0 * * someday", "day of week 'someday'"),
        ("5-1 * * * *", "minute '5-1': expected a range whose end is not before its start"),
        ("*/0 * * * *", "minute '*/0': expected a step of 1 or more"),
        ("1,,2 * * * *", "minute ''"),
        ("0 0 0 * * *", "has 6 fields: expected five"),
        ("0 0 * *", "has 4 fields: expected five"),
        ("", "has 0 fields"),
        ("@daily", "expected five fields rather than a descriptor"),
        ("TZ=UTC 0 0 * * *", "has 6 fields"),
        ("0 0 31 2 *", "expected a day that exists"),
        ("0 0 L * *", "day of month 'L'"),
        ("0 0 * * 1#2", "day of week '1#2'"),
        ("٣ * * * *", "minute"),
    ],
)
def test_an_invalid_expression_is_refused_with_the_name_of_its_field(
    expression: str, error: str
) -> None:
    with pytest.raises(BadCron) as refused:
        parse_cron(expression)
    assert error in str(refused.value)


@pytest.mark.parametrize(
    ("expression", "after", "fires"),
    [
        ("0 22 * * *", "2026-11-20T22:00", "2026-11-21T22:00"),
        ("30-33 * * * *", "2026-11-20T22:31", "2026-11-20T22:32"),
        ("0 0 * * Thu", "2026-11-20T00:00", "2026-11-26T00:00"),
        ("0 0 29 feb ?", "2026-11-20T00:00", "2028-02-29T00:00"),
        ("5/20 * * * *", "2026-11-20T22:06", "2026-11-20T22:25"),
        ("0 0 1 * mon", "2026-11-20T00:00", "2026-11-23T00:00"),
        ("0 0 */20 * mon", "2026-11-20T00:00", "2026-11-21T00:00"),
        ("0 0 * * mon", "2026-11-20T00:00", "2026-11-23T00:00"),
        ("0 0 */1 * mon", "2026-11-20T00:00", "2026-11-23T00:00"),
        ("0 0 1,* * mon", "2026-11-20T00:00", "2026-11-23T00:00"),
        ("0 0 1-31 * mon", "2026-11-20T00:00", "2026-11-21T00:00"),
    ],
)
def test_the_next_time_is_strictly_later(expression: str, after: str, fires: str) -> None:
    cron = parse_cron(expression)
    assert cron.next(datetime.fromisoformat(after)) == datetime.fromisoformat(fires)


@given(st.text(alphabet="0123456789*/,-? LW#@monsu\t\n٣", max_size=24))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    after = datetime(2026, 11, 20)  # noqa: DTZ001 (local time)
    with suppress(BadCron):
        assert parse_cron(text).next(after) > after
