"""Resumes a node pool that Leeway paused because its instances never joined."""

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from leeway_cli.errors import CannotBeDoneError, aws_errors
from leeway_cli.output import Format, print_json, stdout_console
from leeway_cli.stack import Stack

if TYPE_CHECKING:
    from leeway.pool_pauses.record import PoolRecord


def resume_pool(stack: Stack, cluster: str, pool: str, output: Format) -> None:
    """Clear the pause of a pool.

    Raises:
        CannotBeDoneError: the pool is not paused, or the table cannot be read or written.
    """
    from leeway.aws.pool_records import DynamoPoolRecords
    from leeway.clock import SystemClock
    from leeway.execution.retrying import retry_conflicts
    from leeway.pool_pauses.record import resumed
    from leeway.wiring.clients import client

    records = DynamoPoolRecords(partial(client, "dynamodb"), stack.table)

    def clear() -> "PoolRecord":
        stored = records.pool(cluster, pool)
        if stored is None or stored.paused is None:
            paused = [one.pool for one in records.pools_of(cluster) if one.paused is not None]
            known = ", ".join(paused) or "none"
            raise CannotBeDoneError(
                f"Pool {pool} of cluster {cluster} is not paused by Leeway; paused pools: {known}."
            )
        records.write_pool(resumed(stored, SystemClock().now()))
        return stored

    with aws_errors(stack.where):
        before = retry_conflicts(f"the record of pool {pool}", clear)
    if output is Format.JSON:
        reason = asdict(before.paused) if before.paused else None
        print_json({"cluster": cluster, "pool": pool, "paused": False, "pausedFor": reason})
    else:
        stdout_console().print(f"pool {pool} of cluster {cluster} resumed", markup=False)
