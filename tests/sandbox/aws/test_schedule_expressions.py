"""Schedule expressions and their next due times."""

from datetime import UTC, datetime, timedelta

import pytest
from leeway_sandbox.aws.schedule_clock import BadExpressionError, parse_expression

NOW = datetime(2026, 11, 21, 11, 30, 20, tzinfo=UTC)  # a Saturday


@pytest.mark.parametrize(
    ("text", "zone", "due"),
    [
        ("rate(1 minute)", None, NOW + timedelta(minutes=1)),
        ("rate(6 hours)", None, NOW + timedelta(hours=6)),
        ("at(2026-11-21T12:00:00)", None, datetime(2026, 11, 21, 12, tzinfo=UTC)),
        ("at(2026-11-21T12:00:00)", "Asia/Seoul", None),
        ("at(2026-11-21T13:00:00)", "Europe/Berlin", datetime(2026, 11, 21, 12, tzinfo=UTC)),
    ],
)
def test_an_expression_returns_its_next_due_time(
    text: str, zone: str | None, due: datetime | None
) -> None:
    assert parse_expression(text, zone).next(NOW) == due


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("every minute", None),
        ("rate(0 minutes)", None),
        ("rate(1 week)", None),
        ("at(tomorrow)", None),
        ("cron(0 8 * * ? *)", None),
        ("rate(1 minute)", "Mars/Olympus"),
    ],
)
def test_an_invalid_or_unsupported_expression_is_refused(text: str, zone: str | None) -> None:
    with pytest.raises(BadExpressionError, match="Invalid Schedule Expression"):
        parse_expression(text, zone)
