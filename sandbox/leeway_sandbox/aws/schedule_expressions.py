"""Parses schedule expressions, `rate(…)` and `at(…)`, and computes when they are due.

Syntax: "Schedule types in EventBridge Scheduler" in its user guide. `cron(…)` is not supported: no
schedule of Leeway uses it.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

_FORM = re.compile(r"(rate|cron|at)\((.+)\)")
_RATE = re.compile(r"([1-9]\d*) (minute|hour|day)s?")


class BadExpressionError(ValueError):
    """An expression that EventBridge refuses, or that the sandbox does not support."""


@dataclass(frozen=True)
class Rate:
    """A schedule that repeats after each period."""

    period: timedelta

    def next(self, after: datetime) -> datetime | None:
        """Return the first time after `after` at which the schedule is due."""
        return after + self.period


@dataclass(frozen=True)
class At:
    """A one-time schedule."""

    moment: datetime

    def next(self, after: datetime) -> datetime | None:
        """Return the moment of the schedule; None if it is not after `after`."""
        return self.moment if self.moment > after else None


Expression = Rate | At


def parse(text: str, zone: str | None = None) -> Expression:
    """Parse an expression; `zone` is an IANA time zone name, UTC when None.

    Raises:
        BadExpressionError: the expression or the time zone is not valid, or it is cron.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise BadExpressionError(f"Invalid Schedule Expression {text}.")
    try:
        place: tzinfo = ZoneInfo(zone) if zone else UTC
    except (KeyError, ValueError, OSError):
        raise BadExpressionError(f"Invalid Schedule Expression Timezone {zone}.") from None
    kind, content = form.groups()
    try:
        if kind == "rate":
            return _rate(content)
        if kind == "at":
            return At(datetime.strptime(content, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=place))
    except ValueError as error:
        raise BadExpressionError(f"Invalid Schedule Expression {text}. {error}".strip()) from error
    raise BadExpressionError(
        f"Invalid Schedule Expression {text}. The sandbox supports rate and at, not cron."
    )


def _rate(text: str) -> Rate:
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError("Expected a number and minutes, hours or days.")
    number, unit = found.groups()
    return Rate(timedelta(**{f"{unit}s": int(number)}))
