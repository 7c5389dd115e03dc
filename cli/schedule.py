"""`leeway schedule`: the replicas that cron windows give: change points, or a picture of a week."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import BadInputError, unreadable
from cli.manifest_files import FilesOption, read_files
from cli.output import Format, FormatOption, messages, print_json, results

if TYPE_CHECKING:
    from leeway.headroom.schedule import ChangePoint, Schedule
    from leeway.manifests.interpreting import Written

WEEK = timedelta(days=7)
LONGEST = timedelta(days=366)
YEARS = range(1970, 9000)
"""Of times that are asked for: windows around them have to be times too."""


def schedule(
    files: FilesOption = None,
    name: Annotated[
        str, typer.Option(help="One of several schedules: the manifest's name, or HEADROOM/BUFFER.")
    ] = "",
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="RFC 3339; default: now.")
    ] = "",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="RFC 3339; default: a week later.")
    ] = "",
    calendar: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the week from --from on as a picture (HTML)."),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show when the cron windows of ScaledObjects and Headrooms change their size.

    Times without an offset are in UTC. A size in proportion to the cluster is not in it, nor is
    the time that pods come ahead of a window.
    """
    begin = _time("--from", start) if start else datetime.now(UTC).replace(microsecond=0)
    until = _time("--to", end) if end else begin + WEEK
    if not begin < until <= begin + LONGEST:
        raise BadInputError("--to: expected a time after --from, a year later at the most")
    schedules = _chosen(_schedules(read_files(files or ()).written), name)
    if calendar is not None:
        _draw(calendar, schedules, begin)
    if output is Format.JSON:
        _print_points(schedules, begin, until)
    elif calendar is None:
        _show(schedules, begin, until)


def _time(option: str, text: str) -> datetime:
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise BadInputError(
            f"{option}: expected a time such as 2026-11-20T09:00:00+09:00, got {text!r}"
        ) from None
    if given.year not in YEARS:
        raise BadInputError(
            f"{option}: expected a time from {YEARS[0]} to {YEARS[-1]}, got {text!r}"
        )
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def _schedules(written: "Iterable[Written]") -> "dict[str, Schedule]":
    """The schedules of the manifests that have one, by name."""
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
        raise BadInputError("--filename: expected a ScaledObject or a Headroom with windows")
    return found


def _chosen(schedules: "dict[str, Schedule]", name: str) -> "dict[str, Schedule]":
    if not name:
        return schedules
    if name not in schedules:
        raise BadInputError(f"--name: expected one of {', '.join(schedules)}, got {name!r}")
    return {name: schedules[name]}


def _print_points(schedules: "Mapping[str, Schedule]", begin: datetime, until: datetime) -> None:
    if len(schedules) > 1:
        raise BadInputError(f"--name: expected one of {', '.join(schedules)} with -o json")
    (only,) = schedules.values()
    print_json(
        [
            {"at": _rfc3339(point.at), "replicas": point.size.replicas}
            for point in _points(only, begin, until)
        ]
    )


def _points(schedule: "Schedule", begin: datetime, until: datetime) -> "list[ChangePoint]":
    from leeway.headroom.schedule import change_points

    return change_points(schedule, begin, until)


def _rfc3339(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _show(schedules: "Mapping[str, Schedule]", begin: datetime, until: datetime) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("SCHEDULE", "AT", "REPLICAS", "WHY"):
        table.add_column(title, overflow="fold")
    for name, schedule in schedules.items():
        for point in _points(schedule, begin, until):
            size = point.size
            table.add_row(name, _rfc3339(point.at), str(size.replicas), size.reason.message)
    results().print(table)


def _draw(path: Path, schedules: "Mapping[str, Schedule]", begin: datetime) -> None:
    from cli.calendar import lay_out
    from cli.pages import environment

    calendars = [lay_out(name, schedule, begin) for name, schedule in schedules.items()]
    page = environment().get_template("calendar.html.j2").render(calendars=calendars, start=begin)
    try:
        path.write_text(page)
    except OSError as error:
        raise unreadable(path, error) from error
    messages().print(f"{path} has the week from {begin:%Y-%m-%d} on")
