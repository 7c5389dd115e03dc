"""`leeway schedule`: shows the replicas of cron windows as change points or as a calendar."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from leeway_cli.errors import BadInputError
from leeway_cli.manifests.files import FilesOption, read_files
from leeway_cli.output import (
    Format,
    FormatOption,
    print_json,
    stderr_console,
    stdout_console,
    table,
    write_page,
)

if TYPE_CHECKING:
    from leeway.headroom.windows import ChangePoint, Schedule
    from leeway.manifests.reading import Written

    from leeway_cli.report.chart import Figure, Shape

WEEK = timedelta(days=7)
LONGEST = timedelta(days=366)
YEARS = range(1970, 9000)
"""The years of --from and --to. The windows around a time must be valid times too."""


def schedule(
    files: FilesOption = None,
    name: Annotated[
        str,
        typer.Option(
            help="Select one schedule: the name of a manifest, HEADROOM/BUFFER, or NAMESPACE/NAME "
            "if several ScaledObjects have the name."
        ),
    ] = "",
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Set the start (RFC 3339; default: now).")
    ] = "",
    end: Annotated[
        str,
        typer.Option(
            "--to", metavar="TIME", help="Set the end (RFC 3339; default: a week after --from)."
        ),
    ] = "",
    calendar: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a calendar of the week from --from on (HTML)."),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show when the cron windows of ScaledObjects and Headrooms change their replicas.

    Times without an offset are in UTC. The result does not contain replicas in proportion to the
    cluster, or the lead time of pods before a window.
    """
    begin = _time("--from", start) if start else datetime.now(UTC).replace(microsecond=0)
    until = _time("--to", end) if end else begin + WEEK
    if not begin < until <= begin + LONGEST:
        raise BadInputError("--to: expected a time after --from, at most a year later.")
    schedules = _select(_schedules(read_files(files or ()).written), name)
    if calendar is not None:
        _write_calendar(calendar, schedules, begin)
    if output is Format.JSON:
        _print_json(schedules, begin, until)
    elif calendar is None:
        _print_table(schedules, begin, until)


def _time(option: str, text: str) -> datetime:
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise BadInputError(
            f"{option}: expected a time such as 2026-11-20T09:00:00+09:00, got {text!r}."
        ) from None
    if given.year not in YEARS:
        raise BadInputError(
            f"{option}: expected a time from {YEARS[0]} to {YEARS[-1]}, got {text!r}."
        )
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def _schedules(written: "Sequence[Written]") -> "dict[str, Schedule]":
    """Return the schedules of the manifests, by name. ScaledObjects of several namespaces with one
    name have their namespace before it."""
    from leeway.manifests.headroom import Headroom
    from leeway.manifests.scaled_object import ScaledObject

    names = Counter(one.name for one in written if isinstance(one.manifest, ScaledObject))
    found: dict[str, Schedule] = {}
    for one in written:
        manifest = one.manifest
        if isinstance(manifest, ScaledObject):
            name = one.name if names[one.name] == 1 else f"{one.namespace}/{one.name}"
            found[name] = manifest.schedule()
        elif isinstance(manifest, Headroom):
            for spec, buffer in zip(manifest.spec.buffers, manifest.buffers(), strict=True):
                if buffer.schedule is not None:
                    least = buffer.at_least
                    most = max(buffer.schedule.maximum, least)
                    bounded = replace(buffer.schedule, minimum=least, maximum=most)
                    found[f"{one.name}/{spec.name}"] = bounded
    if not found:
        raise BadInputError("--filename: expected a ScaledObject or a Headroom with windows.")
    return found


def _select(schedules: "dict[str, Schedule]", name: str) -> "dict[str, Schedule]":
    if not name:
        return schedules
    if name not in schedules:
        raise BadInputError(f"--name: expected one of {', '.join(schedules)}, got {name!r}.")
    return {name: schedules[name]}


def _print_json(schedules: "Mapping[str, Schedule]", begin: datetime, until: datetime) -> None:
    if len(schedules) > 1:
        raise BadInputError(f"--name: expected one of {', '.join(schedules)} with -o json.")
    (only,) = schedules.values()
    points = _points(only, begin, until)
    changes = [{"at": _rfc3339(one.at), "replicas": one.size.replicas} for one in points]
    print_json({"changes": changes})


def _points(schedule: "Schedule", begin: datetime, until: datetime) -> "list[ChangePoint]":
    from leeway.headroom.windows import change_points

    return change_points(schedule, begin, until)


def _rfc3339(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _print_table(schedules: "Mapping[str, Schedule]", begin: datetime, until: datetime) -> None:
    rows = table("SCHEDULE", "AT", "REPLICAS", "REASON")
    for name, schedule in schedules.items():
        for point in _points(schedule, begin, until):
            size = point.size
            rows.add_row(name, _rfc3339(point.at), str(size.replicas), size.reason.message)
    stdout_console().print(rows)


def _write_calendar(path: Path, schedules: "Mapping[str, Schedule]", begin: datetime) -> None:
    from leeway_cli.report.page import Page, render_page

    week = Page(
        headline="A week of headroom",
        lede=f"From {begin:%A, %-d %B %Y} on: the replicas of each schedule, in its own time zone.",
        sections=[lay_out(name, schedule, begin) for name, schedule in schedules.items()],
        source="The sizes are those of the windows, without the lead time of pods.",
        run=f"leeway schedule --from {begin.isoformat()}",
    )
    write_page(path, render_page(week))
    stderr_console().print(f"The calendar of the week from {begin:%Y-%m-%d} on: {path}")


GUTTER = 132.0  # the column of the days
TOP = 26.0
ROW = 58.0
AREA = 40.0  # the height of the largest size in a row
DAYS = 7
_DAY = timedelta(days=1)


def lay_out(name: str, schedule: "Schedule", start: datetime) -> "Figure":
    """Draw a week from the day of `start` on, in the time zone of the schedule's windows, or in UTC
    if they have several."""
    from leeway.headroom.windows import change_points
    from leeway.reasons import counted

    from leeway_cli.report import chart
    from leeway_cli.report.chart import WIDTH, Figure

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
    points: "Sequence[ChangePoint]", begin: datetime, end: datetime
) -> "list[tuple[datetime, datetime, ChangePoint]]":
    """Return the parts of one day: begin, end and change point."""
    ends = [point.at for point in points[1:]] + [end]
    return [
        (max(point.at, begin), min(until, end), point)
        for point, until in zip(points, ends, strict=True)
        if point.at < end and until > begin
    ]


def _bars(
    parts: "Sequence[tuple[datetime, datetime, ChangePoint]]",
    zone: ZoneInfo,
    day: date,
    base: float,
    largest: int,
) -> "Iterator[Shape]":
    from leeway_cli.report import chart

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
    from leeway_cli.report.chart import WIDTH

    return round(GUTTER + min(hours, 24.0) / 24 * (WIDTH - GUTTER), 1)
