"""How long before a cron window nodes are launched for its pods, and why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from statistics import median_low

from leeway.headroom.plan import DEFAULT_JOIN_TIME, RUN_EVERY
from leeway.launch.intent import JOIN_WITHIN
from leeway.pool_pauses.join_times import JoinTime
from leeway.provisioning.reasons import JOIN_TIME_MEASURED, JOIN_TIME_UNKNOWN
from leeway.reasons import Reason

LONGEST_LEAD = JOIN_WITHIN + RUN_EVERY
"""The longest lead: a node that takes longer to join counts as one that never joins."""


@dataclass(frozen=True, slots=True)
class Lead:
    """The time before a window, and its reason."""

    time: timedelta
    reason: Reason


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
    return Lead(min(slowest.time + RUN_EVERY, LONGEST_LEAD), slowest.reason)


def _of_pool(pool: str, times: tuple[timedelta, ...]) -> Lead:
    if not times:
        seconds = round(DEFAULT_JOIN_TIME.total_seconds())
        return Lead(DEFAULT_JOIN_TIME, JOIN_TIME_UNKNOWN(seconds=seconds))
    median = median_low(times)
    seconds = round(median.total_seconds())
    return Lead(median, JOIN_TIME_MEASURED(count=len(times), pool=pool, seconds=seconds))
