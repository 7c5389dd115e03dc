"""`leeway status`: shows retirements, admissions and headroom of clusters."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.output import Format, FormatOption, stdout_console
from leeway_cli.places import (
    AllOption,
    Place,
    ProfilesOption,
    RegionsOption,
    in_each,
    named_cluster,
    places,
    show,
)
from leeway_cli.stack import CLUSTERS, DEFAULT_STACK, Stack, StackOption, find_stack

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leeway_cli.status.view import ClusterStatus

REFRESH_EVERY = 2.0
"""Seconds between two reads of the table with --watch."""

SHOWN_AFTER = timedelta(minutes=1)
"""How long --watch shows a retirement after its end."""


def status(
    cluster: Annotated[
        str,
        typer.Option(metavar="NAME", envvar="LEEWAY_CLUSTER", help="Show only this cluster."),
    ] = "",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh the output until Ctrl-C.")
    ] = False,
    stack: StackOption = DEFAULT_STACK,
    profile: ProfilesOption = None,
    region: RegionsOption = None,
    every: AllOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what needs a person, then retirements with their pods, admissions, headroom, launches.

    The state of the pods is the last one that retire_node stored, some seconds ago at most.
    """
    if watch and output is Format.JSON:
        raise BadInputError("--output: expected table with --watch.")
    everywhere, cluster = places(profile, region), named_cluster(cluster, every=every)
    if watch:
        if len(everywhere) > 1:
            raise BadInputError("--watch: expected one profile and one region.")
        from leeway_cli.terminal import show_changes

        with everywhere[0].entered():
            show_changes(_views(*_asked(stack, cluster)), stdout_console())
        return

    from leeway_cli.status.view import as_data, as_view, read_cluster_status

    def read(_: Place) -> "list[ClusterStatus]":
        found, names = _asked(stack, cluster)
        return [read_cluster_status(found, name) for name in names]

    now = datetime.now(UTC)
    statuses = in_each(everywhere, read)
    show(statuses, output, lambda one: as_data(one, now), lambda one: as_view(one, now))


def _asked(stack: str, cluster: str) -> tuple[Stack, tuple[str, ...]]:
    found = find_stack(stack)
    names = (cluster,) if cluster else found.clusters
    if names is None:
        raise BadInputError(f"--cluster: expected a name, because {CLUSTERS} is not set.")
    if cluster:
        found.warn_if_unmanaged(cluster)
    return found, names


def _views(stack: Stack, names: Sequence[str]) -> Iterator["RenderableType"]:
    """Yield the status every two seconds, without end. An error is shown in place of the status."""
    from rich.text import Text

    from leeway_cli.status.view import as_view

    recent = RecentRetirements()
    yield as_view(recent.read(stack, names), datetime.now(UTC))
    while True:
        time.sleep(REFRESH_EVERY)
        try:
            yield as_view(recent.read(stack, names), datetime.now(UTC))
        except CannotBeDoneError as error:
            yield Text(str(error), style="red")


class RecentRetirements:
    """Keeps the retirements that were unfinished, so that their end is shown too."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, datetime]] = {}

    def read(self, stack: Stack, names: Sequence[str]) -> "list[ClusterStatus]":
        """Read the status of clusters, with the retirements that ended a short time ago.

        Raises:
            CannotBeDoneError: the table cannot be read.
        """
        from leeway.retirement.record import OVER

        from leeway_cli.status.view import read_cluster_status

        now = datetime.now(UTC)
        statuses = []
        for name in names:
            seen = {i: at for i, at in self._seen.get(name, {}).items() if now - at < SHOWN_AFTER}
            status = read_cluster_status(stack, name, seen)
            for one in status.retirements:
                if one.record.phase not in OVER:
                    seen[one.record.instance] = now
            self._seen[name] = seen
            statuses.append(status)
        return statuses
