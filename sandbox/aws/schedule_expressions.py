"""Reads schedule expressions, `rate(…)`, `cron(…)` and `at(…)`, and says when they are due.

Syntax: "Schedule types in EventBridge Scheduler" in its user guide. `L`, `W` and `#` in a cron
expression are not read.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

_FORM = re.compile(r"(rate|cron|at)\((.+)\)")
_RATE = re.compile(r"([1-9]\d*) (minute|hour|day)s?")
_STEP = re.compile(r"(?:(\*|\d+)(?:-(\d+))?)(?:/(\d+))?")
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_FIRST_YEAR, _LAST_YEAR = 1970, 2199
_LOOKED_AHEAD = 366 * 8 + 1  # days: the 29th of February comes at least that often


class BadExpressionError(ValueError):
    """An expression that EventBridge would not take, or that the sandbox does not read."""


@dataclass(frozen=True)
class Rate:
    """Every so often."""

    period: timedelta

    def next(self, after: datetime) -> datetime | None:
        """When it is due after this time."""
        return after + self.period


@dataclass(frozen=True)
class At:
    """Once."""

    moment: datetime

    def next(self, after: datetime) -> datetime | None:
        """Its moment, until that has passed."""
        return self.moment if self.moment > after else None


@dataclass(frozen=True)
class Cron:
    """At the minutes of a calendar; weekdays are numbered from Sunday, 1."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    years: frozenset[int]
    zone: tzinfo

    def next(self, after: datetime) -> datetime | None:
        """When it is due after this time, within eight years; hours that a zone skips are not."""
        day = after.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0)
        for _ in range(_LOOKED_AHEAD):
            if self._takes(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        due = day.replace(hour=hour, minute=minute).astimezone(UTC)
                        if due > after and due.astimezone(self.zone).hour == hour:
                            return due
            day += timedelta(days=1)
        return None

    def _takes(self, day: datetime) -> bool:
        return (
            day.year in self.years
            and day.month in self.months
            and day.day in self.days
            and day.isoweekday() % 7 + 1 in self.weekdays
        )


Expression = Rate | At | Cron


def parse(text: str, zone: str | None = None) -> Expression:
    """Read an expression; `zone` is an IANA name, UTC when None.

    Raises:
        BadExpressionError: it is none, or its time zone is none.
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
        return _cron(content, place)
    except ValueError as error:
        raise BadExpressionError(f"Invalid Schedule Expression {text}. {error}".strip()) from error


def _rate(text: str) -> Rate:
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError("Expected a number and minutes, hours or days.")
    number, unit = found.groups()
    return Rate(timedelta(**{f"{unit}s": int(number)}))


def _cron(text: str, zone: tzinfo) -> Cron:
    fields = text.split()
    if len(fields) != 6:
        raise ValueError("A cron expression has six fields.")
    minutes, hours, days, months, weekdays, years = fields
    if (days == "?") == (weekdays == "?"):
        raise ValueError("One of day-of-month and day-of-week is a question mark, and not both.")
    return Cron(
        tuple(sorted(_field(minutes, 0, 59))),
        tuple(sorted(_field(hours, 0, 23))),
        _field("*" if days == "?" else days, 1, 31),
        _field(months, 1, 12, _MONTHS),
        _field("*" if weekdays == "?" else weekdays, 1, 7, _DAYS),
        _field(years, _FIRST_YEAR, _LAST_YEAR),
        zone,
    )


def _field(text: str, least: int, most: int, names: list[str] | None = None) -> frozenset[int]:
    for number, name in enumerate(names or [], start=least):
        text = text.upper().replace(name, str(number))
    chosen: set[int] = set()
    for part in text.split(","):
        found = _STEP.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is not understood.")
        first, last, step = found.groups()
        start = least if first == "*" else int(first)
        end = most if first == "*" or (step and not last) else int(last or first)
        if not (least <= start <= end <= most) or step == "0":
            raise ValueError(f"{part!r} is not within {least} to {most}.")
        chosen.update(range(start, end + 1, int(step or 1)))
    return frozenset(chosen)
