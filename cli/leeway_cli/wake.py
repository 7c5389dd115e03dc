"""`leeway wake`: keeps a node pool awake outside of the windows of its schedule, for a time."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError, aws_errors
from leeway_cli.options import parse_duration
from leeway_cli.output import Format, FormatOption, print_json, stdout_console
from leeway_cli.stack import DEFAULT_STACK, ClusterOption, Stack, StackOption, caller, find_stack

if TYPE_CHECKING:
    from leeway.pool_pauses import PoolRecord


def wake(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Name the node pool.")],
    cluster: ClusterOption,
    duration: Annotated[
        str,
        typer.Argument(
            metavar="DURATION", help="Keep it awake for this time from now on, at most 168h: 2h."
        ),
    ] = "",
    end: Annotated[bool, typer.Option("--end", help="Let its schedule apply again now.")] = False,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Wake a node pool that hibernates, for a time. It takes effect within a minute.

    A pool hibernates outside of the windows of its annotation leeway.sh/schedule. The time ends by
    itself. To wake a pool again extends the time, and never shortens it: --end does.

    \b
    leeway wake dev 2h --cluster prod
    leeway wake dev --end --cluster prod
    """
    from leeway.hibernation import LONGEST_WAKE

    if bool(duration) == end:
        raise BadInputError("DURATION: expected either a time such as 2h, or --end.")
    time = parse_duration("DURATION", duration) if duration else timedelta(0)
    if duration and not timedelta(0) < time <= LONGEST_WAKE:
        most = f"{LONGEST_WAKE // timedelta(hours=1)}h"
        raise BadInputError(f"DURATION: expected more than 0s and at most {most}, got {duration}.")
    found = find_stack(stack)
    _check_pool(found, cluster, pool)
    stored = _write(found, cluster, pool, time)
    until = stored.woken_until if stored is not None else None
    if output is Format.JSON:
        print_json({"cluster": cluster, "pool": pool, "awakeUntil": until and until.isoformat()})
    elif until is None:
        stdout_console().print(f"pool {pool} of cluster {cluster}: its schedule applies")
    else:
        stdout_console().print(
            f"pool {pool} of cluster {cluster}: awake until {until:%Y-%m-%d %H:%M} UTC"
        )


def _check_pool(stack: Stack, cluster: str, name: str) -> None:
    """Raise CannotBeDoneError unless the cluster has this pool, and it has a schedule."""
    from leeway.manifests.base import near_miss
    from leeway.manifests.configuration import POOL
    from leeway.manifests.node_pool import SCHEDULE, NodePool
    from leeway.manifests.reading import read_stored

    with aws_errors(stack.where):
        stored = [one for one in stack.manifests().of(cluster) if one.resource == POOL]
    bodies = {one.name: one for one in stored}
    if name not in bodies:
        guess = near_miss(name, bodies)
        raise CannotBeDoneError(f"Cluster {cluster} has no NodePool {name}{guess}.")
    written = read_stored(bodies[name].body, bodies[name].title).written
    for one in written:
        if isinstance(one.manifest, NodePool) and one.manifest.windows():
            return
    raise CannotBeDoneError(
        f"NodePool {name} of cluster {cluster} has no valid annotation {SCHEDULE}, so it never "
        "hibernates."
    )


def _write(stack: Stack, cluster: str, pool: str, time: timedelta) -> "PoolRecord | None":
    """Write for how long a pool is woken; no time ends it. Return the record."""
    from leeway.clock import SystemClock
    from leeway.execution.retrying import Conflicts
    from leeway.hibernation import put_to_sleep, woken
    from leeway.pool_pauses import POOL
    from leeway.wiring.clients import table

    records, by = table(name=stack.table), caller() if time else ""
    conflicts = Conflicts(f"the record of pool {pool}")
    with aws_errors(stack.where):
        while True:
            with conflicts:
                now: datetime = SystemClock().now()
                stored = records.get(POOL, cluster=cluster, pool=pool)
                if not time and (stored is None or stored.woken_until is None):
                    return stored
                if time or stored is None:
                    changed = woken(stored, cluster, pool, time, now, by)
                else:
                    changed = put_to_sleep(stored)
                records.put(POOL, changed)
                return changed
