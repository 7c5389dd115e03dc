"""Schedules: the size that several cron windows set at an instant, and when the size changes."""

import heapq
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from leeway.headroom.reasons import NO_WINDOW_OPEN, WINDOW_OPEN, WINDOW_SIZE_LIMITED
from leeway.headroom.windows import Window
from leeway.reasons import Reason


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cron windows and the bounds of the size.

    `idle` is the size while no window is open; None means `minimum`.
    """

    windows: tuple[Window, ...]
    minimum: int = 0
    maximum: int = 100
    idle: int | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """A number of replicas, and why."""

    replicas: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """`size` applies from `at` on (aware, UTC)."""

    at: datetime
    size: Size


def size_at(schedule: Schedule, at: datetime) -> Size:
    """Return the size at an aware instant: the largest of the open windows, within the bounds."""
    open_now = [window for window in schedule.windows if window.is_open(at)]
    if not open_now:
        if schedule.idle is not None:
            return Size(schedule.idle, NO_WINDOW_OPEN(bound="idle size"))
        return Size(schedule.minimum, NO_WINDOW_OPEN(bound="minimum"))
    largest = max(open_now, key=lambda window: window.replicas)
    start, end, replicas = largest.start.expression, largest.end.expression, largest.replicas
    bounded = max(min(replicas, schedule.maximum), schedule.minimum)
    if bounded == replicas:
        return Size(replicas, WINDOW_OPEN(start=start, end=end))
    bound = "minimum" if bounded > replicas else "maximum"
    return Size(bounded, WINDOW_SIZE_LIMITED(start=start, end=end, bound=bound, replicas=replicas))


def change_points(schedule: Schedule, start: datetime, end: datetime) -> list[ChangePoint]:
    """List the sizes over [start, end): the first at `start`, then each that differs from the one
    before."""
    points = [ChangePoint(start.astimezone(UTC), size_at(schedule, start))]
    last = start
    for at in heapq.merge(*(window.moments(start, end) for window in schedule.windows)):
        if at == last:
            continue
        last = at
        size = size_at(schedule, at)
        if size.replicas != points[-1].size.replicas:
            points.append(ChangePoint(at, size))
    return points


def largest_size_within(schedule: Schedule, at: datetime, lead: timedelta) -> ChangePoint:
    """Return the largest size from `at` until `lead` later, with the first instant that needs it.

    Nodes that take `lead` to join must be requested now.
    """
    # The window that starts exactly at the end of the lead counts too.
    until = at + lead + timedelta(microseconds=1)
    return max(change_points(schedule, at, until), key=lambda point: point.size.replicas)
