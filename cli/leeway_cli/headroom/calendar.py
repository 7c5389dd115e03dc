"""Lays a schedule out as a week: a row for each day, bars as high as the replicas."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from leeway.headroom.windows import ChangePoint, Schedule, change_points

WIDTH = 1120.0
GUTTER = 132.0  # the column of the days
TOP = 26.0
ROW = 58.0
AREA = 40.0  # the height of the largest size in a row
DAYS = 7
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Bar:
    """A part of a day with one size. `label` is empty if it does not fit."""

    x: float
    y: float
    width: float
    height: float
    label: str
    title: str


@dataclass(frozen=True)
class Day:
    """The row of a day. `base` is the bottom of its bars."""

    y: float
    base: float
    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Hour:
    """The line of an hour."""

    x: float
    label: str


@dataclass(frozen=True)
class Calendar:
    """The week of a schedule in one time zone."""

    name: str
    zone: str
    largest: int
    width: float
    height: float
    left: float
    right: float
    hours: tuple[Hour, ...]
    days: tuple[Day, ...]


def lay_out(name: str, schedule: Schedule, start: datetime) -> Calendar:
    """Lay out a week from the day of `start` on, in the time zone of the schedule's windows, or in
    UTC if they have several."""
    zones = {window.timezone.key for window in schedule.windows}
    zone = ZoneInfo(zones.pop()) if len(zones) == 1 else ZoneInfo("UTC")
    first = start.astimezone(zone).date()
    days = [first + n * _DAY for n in range(DAYS + 1)]
    midnights = [datetime.combine(day, time(), zone).astimezone(UTC) for day in days]
    points = change_points(schedule, midnights[0], midnights[-1])
    largest = max(point.size.replicas for point in points)
    rows = []
    for number, (begin, end) in enumerate(pairwise(midnights)):
        y = TOP + number * ROW
        bars = _bars(_within(points, begin, end), zone, days[number], y, max(largest, 1))
        rows.append(Day(y, y + ROW - 8, f"{days[number]:%a %-d %b}", tuple(bars)))
    return Calendar(
        name=name,
        zone=zone.key,
        largest=largest,
        width=WIDTH,
        height=TOP + DAYS * ROW + 4,
        left=GUTTER,
        right=WIDTH,
        hours=tuple(Hour(_x(h), f"{h:02d}:00" if h < 24 else "") for h in range(0, 25, 3)),
        days=tuple(rows),
    )


def _within(
    points: Sequence[ChangePoint], begin: datetime, end: datetime
) -> list[tuple[datetime, datetime, ChangePoint]]:
    """Return the parts of one day: begin, end and change point."""
    ends = [point.at for point in points[1:]] + [end]
    return [
        (max(point.at, begin), min(until, end), point)
        for point, until in zip(points, ends, strict=True)
        if point.at < end and until > begin
    ]


def _bars(
    parts: Sequence[tuple[datetime, datetime, ChangePoint]],
    zone: ZoneInfo,
    day: date,
    y: float,
    largest: int,
) -> list[Bar]:
    bars = []
    for begin, end, point in parts:
        replicas = point.size.replicas
        if not replicas:
            continue
        since, until = begin.astimezone(zone), end.astimezone(zone)
        left = _x(_local_hours(since, day))
        width = max(round(_x(_local_hours(until, day)) - left, 1), 1.5)
        height = round(AREA * replicas / largest, 1)
        title = f"{since:%H:%M} to {until:%H:%M}: {replicas} ({point.size.reason})"
        label = str(replicas) if width > 7 * len(str(replicas)) + 6 else ""
        bars.append(Bar(left, round(y + ROW - 8 - height, 1), width, height, label, title))
    return bars


def _local_hours(at: datetime, day: date) -> float:
    """Return the local hours since the start of a day; the next midnight is 24."""
    since = at.replace(tzinfo=None) - datetime.combine(day, time())
    return since / timedelta(hours=1)


def _x(hours: float) -> float:
    return round(GUTTER + min(hours, 24.0) / 24 * (WIDTH - GUTTER), 1)
