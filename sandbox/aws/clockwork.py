"""Fires what is scheduled when it is due: in real time, quicker, or only when told to.

Stands in for the clock of EventBridge's schedules and scheduled rules, which moto only stores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sandbox.aws.cloud import Cloud
from sandbox.aws.schedule_expressions import At, Expression, Rate
from sandbox.aws.timers import Timer
from sandbox.control import UnknownError

# Fires once for the given time and returns the functions it reached.
Fire = Callable[[datetime], list[str]]


class UnknownSchedule(UnknownError):
    """There is no such schedule."""


@dataclass(eq=False)
class Clock:
    """One schedule or scheduled rule that is enabled; `over` is called once it is never due again.

    `seen` is the time up to which it was fired, on a clock of its own that `speed` may hurry.
    """

    name: str
    arn: str
    text: str
    expression: Expression
    fire: Fire
    seen: datetime
    since: datetime | None = None
    until: datetime | None = None
    over: Callable[[], None] | None = None
    due: datetime | None = None
    timer: Timer | None = None


class Clockwork:
    """All clocks, by ARN. Every method is called under the cloud's lock."""

    def __init__(self, cloud: Cloud, speed: float):
        self._cloud = cloud
        self._clocks: dict[str, Clock] = {}
        self.speed = speed

    def arm(self, clock: Clock) -> None:
        """Start a clock, in place of the one that the ARN had."""
        self.disarm(clock.arn)
        self._clocks[clock.arn] = clock
        self._wind(clock, _next(clock))

    def disarm(self, arn: str) -> None:
        """Stop a clock, if there is one."""
        clock = self._clocks.pop(arn, None)
        if clock and clock.timer:
            clock.timer.cancel()

    def hurry(self, speed: float) -> None:
        """Let all clocks run so many times as fast from now on; 0 stops them."""
        self.speed = speed
        now = datetime.now(UTC)
        for clock in list(self._clocks.values()):
            clock.seen = now
            self._wind(clock, _next(clock))

    def fire(self, name: str) -> list[str]:
        """Fire now, by name or ARN; a one-time schedule is over with that. The functions reached.

        Raises:
            UnknownSchedule: there is none of that name, or it is disabled.
        """
        found = [c for c in self._clocks.values() if name in {c.name, c.arn}]
        if not found:
            raise UnknownSchedule(f"no schedule {name}")
        now = datetime.now(UTC)
        return [function for clock in found for function in self._strike(clock, now)]

    def show(self) -> list[dict[str, Any]]:
        """The clocks, with the time at which each is due next if nothing changes."""
        return [
            {
                "name": clock.name,
                "arn": clock.arn,
                "expression": clock.text,
                "due": clock.due.isoformat() if clock.due else None,
            }
            for clock in self._clocks.values()
        ]

    def _wind(self, clock: Clock, due: datetime | None) -> None:
        if clock.timer:
            clock.timer.cancel()
        clock.due = due
        if due is None or (clock.until and due > clock.until):
            self._end(clock)
        elif self.speed > 0:
            left = (due - clock.seen).total_seconds() / self.speed
            clock.timer = self._cloud.timers.after(left, self._is_due, clock, due)

    def _is_due(self, clock: Clock, due: datetime) -> None:
        clock.seen = due
        self._strike(clock, due)
        if self._clocks.get(clock.arn) is clock:
            self._wind(clock, clock.expression.next(due))

    def _strike(self, clock: Clock, at: datetime) -> list[str]:
        functions = clock.fire(at)
        self._cloud.journal.add("schedule-fired", schedule=clock.name, functions=functions)
        if isinstance(clock.expression, At):
            self._end(clock)
        return functions

    def _end(self, clock: Clock) -> None:
        self.disarm(clock.arn)
        if clock.over:
            clock.over()


def _next(clock: Clock) -> datetime | None:
    if clock.since and clock.since >= clock.seen:
        first = isinstance(clock.expression, Rate)
        return clock.since if first else clock.expression.next(clock.since)
    due = clock.expression.next(clock.seen)
    if due is None and isinstance(clock.expression, At):
        return clock.seen  # what was to be once and lies in the past is made up for
    return due
