"""Runs schedules when they are due: in real time, faster, or on command.

moto only stores them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from leeway_sandbox.aws.cloud import Cloud, Timer
from leeway_sandbox.errors import NotFoundError

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


def parse_expression(text: str, zone: str | None = None) -> Expression:
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


# Invokes the target once for the given time; returns the functions that it invokes.
Fire = Callable[[datetime], list[str]]


@dataclass(eq=False)
class ScheduledTarget:
    """An enabled schedule.

    `seen` is the time up to which it has run; with another speed this is not the real time.
    `on_finished` is called when it is never due again.
    """

    name: str
    arn: str
    text: str
    expression: Expression
    fire: Fire
    seen: datetime
    since: datetime | None = None
    on_finished: Callable[[], None] | None = None
    due: datetime | None = None
    timer: Timer | None = None


class ScheduleClock:
    """All enabled schedules, by ARN. The caller of a method holds the cloud's lock."""

    def __init__(self, cloud: Cloud, speed: float):
        self._cloud = cloud
        self._targets: dict[str, ScheduledTarget] = {}
        self.speed = speed

    def add(self, entry: ScheduledTarget) -> None:
        """Add a schedule, or replace the one with this ARN."""
        self.remove(entry.arn)
        self._targets[entry.arn] = entry
        self._schedule_next(entry, _next(entry))

    def remove(self, arn: str) -> None:
        """Remove a schedule, if it exists."""
        entry = self._targets.pop(arn, None)
        if entry and entry.timer:
            entry.timer.cancel()

    def set_speed(self, speed: float) -> None:
        """Run all schedules at this speed from now on; 0 stops them."""
        self.speed = speed
        now = datetime.now(UTC)
        for entry in list(self._targets.values()):
            entry.seen = now
            self._schedule_next(entry, _next(entry))

    def fire(self, name: str) -> list[str]:
        """Run a schedule now, by name or ARN; return the functions. A one-time schedule then ends.

        Raises:
            NotFoundError: no enabled schedule has that name or ARN.
        """
        found = [c for c in self._targets.values() if name in {c.name, c.arn}]
        if not found:
            raise NotFoundError(
                f"No enabled schedule has the name or ARN {name}. List the schedules with `leeway "
                "sandbox schedules`."
            )
        now = datetime.now(UTC)
        return [function for entry in found for function in self._fire(entry, now)]

    def show(self) -> list[dict[str, Any]]:
        """Return the schedules with the next due time of each."""
        return [
            {
                "name": entry.name,
                "arn": entry.arn,
                "expression": entry.text,
                "due": entry.due.isoformat() if entry.due else None,
            }
            for entry in self._targets.values()
        ]

    def _schedule_next(self, entry: ScheduledTarget, due: datetime | None) -> None:
        if entry.timer:
            entry.timer.cancel()
        entry.due = due
        if due is None:
            self._end(entry)
        elif self.speed > 0:
            left = (due - entry.seen).total_seconds() / self.speed
            entry.timer = self._cloud.timers.after(left, self._is_due, entry, due)

    def _is_due(self, entry: ScheduledTarget, due: datetime) -> None:
        entry.seen = due
        self._fire(entry, due)
        if self._targets.get(entry.arn) is entry:
            self._schedule_next(entry, entry.expression.next(due))

    def _fire(self, entry: ScheduledTarget, at: datetime) -> list[str]:
        functions = entry.fire(at)
        self._cloud.journal.add("schedule-fired", schedule=entry.name, functions=functions)
        if isinstance(entry.expression, At):
            self._end(entry)
        return functions

    def _end(self, entry: ScheduledTarget) -> None:
        self.remove(entry.arn)
        if entry.on_finished:
            entry.on_finished()


def _next(entry: ScheduledTarget) -> datetime | None:
    if entry.since and entry.since >= entry.seen:
        return entry.since
    due = entry.expression.next(entry.seen)
    if due is None and isinstance(entry.expression, At):
        return entry.seen  # a one-time schedule in the past is due at once
    return due
