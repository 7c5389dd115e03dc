"""`leeway schedule`: shows the replicas of cron windows as change points or a week's calendar."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

WEEK = timedelta(days=7)
LONGEST = timedelta(days=366)
YEARS = range(1970, 9000)
"""The years of --from and --to. The windows around a time must be valid times too."""


def schedule(
    files: FilesOption = None,
    name: Annotated[
        str, typer.Option(help="Select one schedule: the name of a manifest, or HEADROOM/BUFFER.")
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


def _schedules(written: "Iterable[Written]") -> "dict[str, Schedule]":
    """Return the schedules of the manifests, by name."""
    from leeway.manifests.headroom import Headroom
    from leeway.manifests.scaled_object import ScaledObject

    found: dict[str, Schedule] = {}
    for one in written:
        manifest = one.manifest
        if isinstance(manifest, ScaledObject):
            found[one.name] = manifest.schedule()
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
    from leeway_cli.headroom.calendar import lay_out
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
