"""Schedules: how many replicas several cron windows want at an instant, and when that changes."""

import heapq
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from leeway.headroom.windows import Window


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cron windows and the bounds of their size.

    `idle` is the size while no window is open, where it is not `minimum`.
    """

    windows: tuple[Window, ...]
    minimum: int = 0
    maximum: int = 100
    idle: int | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """How many replicas, and why."""

    replicas: int
    reason: str


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """From `at` (aware, UTC) on, `size` is wanted."""

    at: datetime
    size: Size


def size_at(schedule: Schedule, at: datetime) -> Size:
    """Decide the size at an aware instant: the largest of the open windows, within bounds."""
    open_now = [window for window in schedule.windows if window.is_open(at)]
    if not open_now:
        if schedule.idle is not None:
            return Size(schedule.idle, "no window is open: idle")
        return Size(schedule.minimum, "no window is open: the minimum")
    widest = max(open_now, key=lambda window: window.replicas)
    said = f"the window from '{widest.start.expression}' to '{widest.end.expression}' is open"
    if widest.replicas > schedule.maximum:
        return Size(schedule.maximum, f"{said}: the maximum, since it wants {widest.replicas}")
    if widest.replicas < schedule.minimum:
        return Size(schedule.minimum, f"{said}: the minimum, since it wants {widest.replicas}")
    return Size(widest.replicas, said)


def change_points(schedule: Schedule, start: datetime, end: datetime) -> list[ChangePoint]:
    """List the sizes over [start, end): the first at `start`, then each where it differs."""
    points = [ChangePoint(start.astimezone(UTC), size_at(schedule, start))]
    seen = start
    for at in heapq.merge(*(window.moments(start, end) for window in schedule.windows)):
        if at == seen:
            continue
        seen = at
        size = size_at(schedule, at)
        if size.replicas != points[-1].size.replicas:
            points.append(ChangePoint(at, size))
    return points


def largest_ahead(schedule: Schedule, at: datetime, lead: timedelta) -> ChangePoint:
    """Return the largest size wanted from `at` until `lead` later, where it is wanted first.

    What takes `lead` to come has to be asked for now.
    """
    # A window that begins just as the lead ends is to be ready then.
    upto = at + lead + timedelta(microseconds=1)
    return max(change_points(schedule, at, upto), key=lambda point: point.size.replicas)
