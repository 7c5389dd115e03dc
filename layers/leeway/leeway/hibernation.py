"""Whether a node pool hibernates: by the windows of its schedule, and the time for which a person
woke it.

Pure: the time is a value. A pool is awake while a window is open, for the time that its nodes need
to join before one opens, and while it is woken. Nothing is launched from a pool that hibernates,
and its nodes are given back.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime, BaseModel, ConfigDict

from leeway.headroom.windows import Window
from leeway.pool_pauses import PoolRecord
from leeway.reasons import Reason, ReasonCode
from leeway.table import Record

POOL_HIBERNATES = ReasonCode(
    "PoolHibernates",
    "Pool {pool} hibernates until {until}: outside the windows of its schedule Leeway launches no "
    "node of it and gives its nodes back. `leeway wake {pool} 2h` wakes it.",
)

HIBERNATION = "Hibernation"
"""The cause for which nodes of such a pool are given back."""

_DAY = timedelta(days=1)

LONGEST_WAKE = timedelta(days=7)
"""How long a pool can be woken for at most. A longer time is a change of its schedule."""


@dataclass(frozen=True, slots=True)
class Hibernation:
    """A pool that hibernates at the time `now`. `opens` is when its next window opens (UTC), whose
    time zone is `zone`; None if that is years ahead."""

    pool: str
    now: datetime
    opens: datetime | None
    zone: ZoneInfo

    @property
    def until(self) -> str:
        """When it ends: `07:30 Europe/Berlin`, with the day if that is more than a day ahead."""
        if self.opens is None:
            return "somebody wakes it"
        local = self.opens.astimezone(self.zone)
        day = f"{local:%Y-%m-%d} " if self.opens - self.now >= _DAY else ""
        return f"{day}{local:%H:%M} {self.zone}"

    @property
    def reason(self) -> Reason:
        """Why nothing is launched from the pool."""
        return POOL_HIBERNATES(pool=self.pool, until=self.until)


def hibernation(
    pool: str,
    windows: Collection[Window],
    now: datetime,
    lead: timedelta = timedelta(0),
    woken_until: datetime | None = None,
) -> Hibernation | None:
    """Decide whether a pool hibernates at an aware instant; None if it is awake. Without windows it
    is awake at all times. `lead` is how long before a window its nodes are launched."""
    if not windows or (woken_until is not None and now < woken_until):
        return None
    if any(window.is_open(now) for window in windows):
        return None
    now = now.astimezone(UTC)  # Python subtracts two times of one zone by their wall clocks.
    coming = [(at, one.timezone) for one in windows if (at := one.next_opening(now)) is not None]
    opens, zone = min(coming, key=lambda one: one[0], default=(None, ZoneInfo("UTC")))
    if opens is not None and opens - now <= lead:
        return None
    return Hibernation(pool, now, opens, zone)


def woken(
    stored: PoolRecord | None,
    cluster: str,
    pool: str,
    time: timedelta,
    now: datetime,
    by: str,
) -> PoolRecord:
    """Return the record of a pool that a person wakes for a time from now on. A pool that is woken
    for longer already stays so: two requests do not add up."""
    before = stored.woken_until if stored is not None else None
    until = max(now + min(time, LONGEST_WAKE), before or now)
    fields: dict[str, object] = {"woken_until": until, "woken_at": now, "woken_by": by}
    if stored is None:
        return PoolRecord(cluster=cluster, pool=pool, **fields)
    return stored.changed(**fields)


def put_to_sleep(stored: PoolRecord) -> PoolRecord:
    """Return the record of a pool of which a person ends the time for which it was woken."""
    return stored.changed(woken_until=None, woken_at=None, woken_by="")


class SleepingPool(BaseModel):
    """A pool that hibernates: until when (`until` in words), and when its window opens."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    pool: str
    until: str
    opens: AwareDatetime | None = None


class SleepingPools(BaseModel):
    """The pools of a cluster that hibernate, as the last run of provision_nodes found them."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    pools: tuple[SleepingPool, ...] = ()

    def at(self, now: datetime) -> tuple[SleepingPool, ...]:
        """Return those that still sleep at a time: the last run may have been long ago."""
        return tuple(one for one in self.pools if one.opens is None or now < one.opens)

    @classmethod
    def of(cls, found: Iterable[Hibernation]) -> "SleepingPools":
        """Return what is stored of these, in the order of their names."""
        ordered = sorted(found, key=lambda one: one.pool)[:MOST_STORED]
        return cls(
            pools=tuple(
                SleepingPool(pool=one.pool, until=one.until, opens=one.opens) for one in ordered
            )
        )


MOST_STORED = 300

SLEEPING = Record(SleepingPools, "PROVISIONING#{cluster}", "SLEEPING")


type Sleeping = Mapping[str, Hibernation]
"""The pools that hibernate, by name."""


def stopped_pools(records: Iterable[PoolRecord], sleeping: Sleeping) -> dict[str, Reason]:
    """Return which pools are paused or hibernate, and why nothing is launched from them."""
    paused = {one.pool: one.paused for one in records if one.paused is not None}
    return {**paused, **{name: one.reason for name, one in sleeping.items()}}


def woken_until(records: Sequence[PoolRecord]) -> dict[str, datetime]:
    """Return until when pools are woken, by name."""
    return {one.pool: one.woken_until for one in records if one.woken_until is not None}
