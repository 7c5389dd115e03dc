"""Draws a schedule as a week: a row for each day, bars as high as the replicas."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from leeway.headroom.windows import ChangePoint, Schedule, change_points
from leeway.reasons import counted

from leeway_cli.report import chart
from leeway_cli.report.chart import WIDTH, Figure, Shape

GUTTER = 132.0  # the column of the days
TOP = 26.0
ROW = 58.0
AREA = 40.0  # the height of the largest size in a row
DAYS = 7
_DAY = timedelta(days=1)


def lay_out(name: str, schedule: Schedule, start: datetime) -> Figure:
    """Draw a week from the day of `start` on, in the time zone of the schedule's windows, or in UTC
    if they have several."""
    zones = {window.timezone.key for window in schedule.windows}
    zone = ZoneInfo(zones.pop()) if len(zones) == 1 else ZoneInfo("UTC")
    first = start.astimezone(zone).date()
    days = [first + n * _DAY for n in range(DAYS + 1)]
    midnights = [datetime.combine(day, time(), zone).astimezone(UTC) for day in days]
    points = change_points(schedule, midnights[0], midnights[-1])
    largest = max(point.size.replicas for point in points)
    height = TOP + DAYS * ROW + 4
    hours = ((_x(hour), f"{hour:02d}:00" if hour < 24 else "") for hour in range(0, 25, 3))
    shapes = chart.ticks(hours, height - 12)
    for number, (begin, end) in enumerate(pairwise(midnights)):
        base = TOP + (number + 1) * ROW - 8
        shapes.append(chart.label("day", 0, base - 8, f"{days[number]:%a %-d %b}"))
        shapes.append(chart.line("base", GUTTER, base, WIDTH, base))
        parts = _within(points, begin, end)
        shapes += _bars(parts, zone, days[number], base, max(largest, 1))
    legend = [("", zone.key), ("", f"{counted(largest, 'replica')} at most")]
    return Figure(name, f"Replicas of {name} in a week", legend, shapes, height)


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
    base: float,
    largest: int,
) -> Iterator[Shape]:
    for begin, end, point in parts:
        replicas = point.size.replicas
        if not replicas:
            continue
        since, until = begin.astimezone(zone), end.astimezone(zone)
        left = _x(_local_hours(since, day))
        width = max(round(_x(_local_hours(until, day)) - left, 1), 1.5)
        height = round(AREA * replicas / largest, 1)
        title = f"{since:%H:%M} to {until:%H:%M}: {replicas} ({point.size.reason})"
        top = round(base - height, 1)
        yield chart.rect("window", left, top, width, height, title)
        if width > 7 * len(str(replicas)) + 6:
            inside = top + 15 if height >= 18 else top - 4
            yield chart.label("size", left + 5, inside, str(replicas))


def _local_hours(at: datetime, day: date) -> float:
    """Return the local hours since the start of a day; the next midnight is 24."""
    since = at.replace(tzinfo=None) - datetime.combine(day, time())
    return since / timedelta(hours=1)


def _x(hours: float) -> float:
    return round(GUTTER + min(hours, 24.0) / 24 * (WIDTH - GUTTER), 1)
