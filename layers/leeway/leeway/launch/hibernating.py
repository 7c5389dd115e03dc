"""Which pools of a cluster hibernate now, and how long before a window their nodes are launched."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median_low

from leeway.headroom.plan import DEFAULT_JOIN_TIME, RUN_EVERY
from leeway.hibernation import Sleeping, hibernation, put_to_sleep, woken_until
from leeway.launch.intent import JOIN_WITHIN
from leeway.manifests.base import Manifest
from leeway.manifests.configuration import StoredManifests, deleted_pools
from leeway.manifests.node_pool import NodePool
from leeway.pool_pauses import JOIN_TIME, POOL, JoinTime, PoolRecord
from leeway.reasons import counted
from leeway.table import RecordChanged, Table


def read_sleeping(
    table: Table, cluster: str, manifests: Iterable[Manifest], now: datetime
) -> Sleeping:
    """Read which pools hibernate. The table is read only if a pool has a schedule.

    Raises:
        CloudUnavailable, CloudRefused: the table cannot be read.
    """
    pools = [one for one in manifests if isinstance(one, NodePool) and one.windows()]
    found = read_pools(table, cluster) if pools else ()
    return sleeping_pools(pools, found, now)


def read_pools(table: Table, cluster: str) -> tuple[PoolRecord | JoinTime, ...]:
    """Read for how long pools are woken, and how long their nodes take to join.

    Raises:
        CloudUnavailable, CloudRefused: the table cannot be read.
    """
    return table.list(POOL, JOIN_TIME, cluster=cluster)


def sleeping_pools(
    manifests: Iterable[Manifest], records: Sequence[PoolRecord | JoinTime], now: datetime
) -> Sleeping:
    """Return the pools that hibernate. `records` are those of the pools, and their join times."""
    woken = woken_until([one for one in records if isinstance(one, PoolRecord)])
    times = measured(one for one in records if isinstance(one, JoinTime))
    pools = [one for one in manifests if isinstance(one, NodePool)]
    found = (
        hibernation(name, windows, now, lead_of([name], times).time, woken.get(name))
        for one in pools
        if (windows := one.windows()) and (name := one.metadata.name)
    )
    return {one.pool: one for one in found if one is not None}


def end_wakes_of_deleted(table: Table, cluster: str) -> None:
    """End the wakes of pools that were deleted since: a pool that is created later and has the same
    name sleeps by its own schedule.

    Raises:
        CloudUnavailable, CloudRefused: the table failed.
    """
    deleted = deleted_pools(StoredManifests(table), cluster)
    for one in table.list(POOL, cluster=cluster):
        ended = deleted.get(one.pool)
        if ended is not None and one.woken_at is not None and one.woken_at <= ended:
            with suppress(RecordChanged):  # the next run repeats it
                table.put(POOL, put_to_sleep(one))


@dataclass(frozen=True, slots=True)
class Lead:
    """The time before a window, and why."""

    time: timedelta
    why: str


LONGEST_LEAD = JOIN_WITHIN + RUN_EVERY
"""The longest lead: a node that takes longer to join counts as one that never joins."""


def measured(join_times: Iterable[JoinTime]) -> Mapping[str, tuple[timedelta, ...]]:
    """Return join times by pool."""
    found: dict[str, tuple[timedelta, ...]] = {}
    for one in join_times:
        found[one.pool] = (*found.get(one.pool, ()), timedelta(seconds=one.seconds))
    return found


def lead_of(pools: Iterable[str], join_times: Mapping[str, tuple[timedelta, ...]]) -> Lead:
    """Return the lead of pods that these pools have nodes for: the median of the join times of the
    slowest pool, and one run more, since the next one would be too late by a minute.

    A pool without a join time counts with the default.
    """
    found = [_of_pool(pool, join_times.get(pool, ())) for pool in pools]
    slowest = max(found, key=lambda one: one.time, default=_of_pool("", ()))
    return Lead(min(slowest.time + RUN_EVERY, LONGEST_LEAD), slowest.why)


def _of_pool(pool: str, times: tuple[timedelta, ...]) -> Lead:
    if not times:
        seconds = round(DEFAULT_JOIN_TIME.total_seconds())
        why = (
            "Leeway has admitted no node of these pools yet, and assumes "
            f"{seconds} s until a node is ready for pods."
        )
        return Lead(DEFAULT_JOIN_TIME, why)
    median = median_low(times)
    seconds = round(median.total_seconds())
    latest = f"The median of the last {counted(len(times), 'node')} of pool {pool}"
    return Lead(median, f"{latest} was ready for pods {seconds} s after its launch.")
