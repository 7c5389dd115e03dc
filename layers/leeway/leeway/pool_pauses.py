"""The record of a pool: its nodes that never joined, and whether it is paused.

"In a row" follows the order of launches, not of results: a node joins after one minute, and a
failure is known after fifteen. A failure counts unless an instance of the pool that was launched at
the same time or later has joined. So a broken bootstrap pauses the pool after three instances, of
one launch or of several, and bad hosts among nodes that join do not. Nodes that join and are not
ready for pods in time are a row of their own, which a node that is admitted resets.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated
from zlib import crc32

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.reasons import Reason, ReasonCode
from leeway.table import Record

NODES_NEVER_JOINED = ReasonCode(
    "NodesNeverJoined",
    "Leeway paused pool {pool} of cluster {cluster}: {count} of its instances in a row never "
    "joined ({instances}). Check its user data, its AMI, its security groups, and the access entry "
    "of its node role. Then run `leeway resume {cluster} --pool {pool}`.",
    "a-pool-is-paused",
)

NODES_NEVER_READY = ReasonCode(
    "NodesNeverReady",
    "Leeway paused pool {pool} of cluster {cluster}: {count} of its instances in a row joined and "
    "were not ready for pods in time ({instances}). {why} Correct the cause, then run "
    "`leeway resume {cluster} --pool {pool}`.",
    "a-pool-is-paused",
)

MOST_FAILURES = 3
"""Instances in a row that never joined, or whose nodes were never ready, after which their pool is
paused."""


class FailedInstance(BaseModel):
    """An instance that never joined, or whose node was never ready. `launched_at` is the time of
    its launch intent."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    instance: str
    launched_at: AwareDatetime


@dataclass(frozen=True, slots=True)
class FailuresInARow:
    """The failures of a pool since an instance succeeded. Launches up to `counted_from` do not
    count."""

    counted_from: datetime | None
    failures: tuple[FailedInstance, ...]

    @property
    def instances(self) -> str:
        """The ids of the instances that failed."""
        return ", ".join(one.instance for one in self.failures)

    def after_success(self, launched_at: datetime) -> "FailuresInARow | None":
        """Return the row after an instance of a launch succeeded; None if it does not change."""
        if not self._counts(launched_at):
            return None
        later = tuple(one for one in self.failures if one.launched_at > launched_at)
        return FailuresInARow(launched_at, later)

    def after_failure(self, failure: FailedInstance) -> "FailuresInARow | None":
        """Return the row with one more failure; None if it does not count, or is known."""
        known = any(one.instance == failure.instance for one in self.failures)
        if known or not self._counts(failure.launched_at):
            return None
        return FailuresInARow(self.counted_from, (*self.failures, failure))

    def _counts(self, launched_at: datetime) -> bool:
        return self.counted_from is None or launched_at > self.counted_from


class PoolRecord(BaseModel):
    """The latest launches of a pool.

    - `counted_from`: failures of launches up to this time do not count: an instance that was
      launched then has joined, or the pool was resumed then.
    - `failures`: the instances in a row that never joined.
    - `ready_from`, `unready`: the same about instances that joined, and nodes that were admitted.
    - `paused`: why nothing is launched from the pool; None if it is not paused.
    - `paused_at`, `paused_by`: when it was paused, and by the failure of which instance.
    - `woken_until`: until when the pool is awake outside of its windows. `woken_at`, `woken_by`:
      when a person woke it, and who.
    - `version`: counts writes (the optimistic lock).
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: str
    pool: str
    version: Annotated[int, Field(ge=1)] = 1
    counted_from: AwareDatetime | None = None
    failures: tuple[FailedInstance, ...] = ()
    ready_from: AwareDatetime | None = None
    unready: tuple[FailedInstance, ...] = ()
    paused: Reason | None = None
    paused_at: AwareDatetime | None = None
    paused_by: str = ""
    woken_until: AwareDatetime | None = None
    woken_at: AwareDatetime | None = None
    woken_by: str = ""

    @property
    def joins(self) -> FailuresInARow:
        """The instances in a row that never joined."""
        return FailuresInARow(self.counted_from, self.failures)

    @property
    def admissions(self) -> FailuresInARow:
        """The nodes in a row that joined and were never ready."""
        return FailuresInARow(self.ready_from, self.unready)

    def changed(self, **fields: object) -> "PoolRecord":
        """Return the record with these fields, as the next version."""
        return self.model_copy(update={**fields, "version": self.version + 1})


def after_join(
    stored: PoolRecord | None, cluster: str, pool: str, launched_at: datetime
) -> PoolRecord | None:
    """Return the record after an instance of a launch has joined; None if it does not change.
    A pause stays: a person ends it, who knows whether the cause is gone."""
    record = stored or _unwritten(cluster, pool)
    row = record.joins.after_success(launched_at)
    if row is None:
        return None
    return record.changed(counted_from=row.counted_from, failures=row.failures)


def after_failure(
    stored: PoolRecord | None, cluster: str, pool: str, failure: FailedInstance, now: datetime
) -> PoolRecord | None:
    """Return the record after an instance never joined; None if it does not change."""
    record = stored or _unwritten(cluster, pool)
    row = record.joins.after_failure(failure)
    if record.paused or row is None:
        return None
    reason = NODES_NEVER_JOINED(
        cluster=cluster, pool=pool, count=len(row.failures), instances=row.instances
    )
    return record.changed(failures=row.failures, **_pause(row, reason, now))


def after_admission(
    stored: PoolRecord | None, cluster: str, pool: str, launched_at: datetime
) -> PoolRecord | None:
    """Return the record after a node of a launch was admitted; None if it does not change."""
    record = stored or _unwritten(cluster, pool)
    row = record.admissions.after_success(launched_at)
    if row is None:
        return None
    return record.changed(ready_from=row.counted_from, unready=row.failures)


def after_not_ready(
    stored: PoolRecord | None,
    cluster: str,
    pool: str,
    failure: FailedInstance,
    why: Reason,
    now: datetime,
) -> PoolRecord | None:
    """Return the record after the node of an instance joined and was not ready in time; None if it
    does not change. `why` is what the node lacks.

    Pods get no place on such a node, and each run would launch the next one.
    """
    record = stored or _unwritten(cluster, pool)
    row = record.admissions.after_failure(failure)
    if record.paused or row is None:
        return None
    reason = NODES_NEVER_READY(
        cluster=cluster,
        pool=pool,
        count=len(row.failures),
        instances=row.instances,
        why=why.message,
    )
    return record.changed(unready=row.failures, **_pause(row, reason, now))


def _unwritten(cluster: str, pool: str) -> PoolRecord:
    """Return the record of a pool that has none: its first change is version 1."""
    return PoolRecord(cluster=cluster, pool=pool).model_copy(update={"version": 0})


def _pause(row: FailuresInARow, reason: Reason, now: datetime) -> dict[str, object]:
    """Return the fields of a pause, which begins with the latest failure; none before the row is
    full."""
    if len(row.failures) < MOST_FAILURES:
        return {}
    return {"paused": reason, "paused_at": now, "paused_by": row.failures[-1].instance}


def resumed(stored: PoolRecord, now: datetime) -> PoolRecord:
    """Return the record of a pool that is resumed: failures of earlier launches do not count."""
    return stored.changed(
        counted_from=now,
        failures=(),
        ready_from=now,
        unready=(),
        paused=None,
        paused_at=None,
        paused_by="",
    )


KEPT_FOR = timedelta(days=30)
"""How long a join time, and the record of a pool that is not paused, is kept after its write."""

POOL = Record(
    PoolRecord,
    "POOLS#{cluster}",
    "POOL#{pool}",
    versioned=True,
    kept_for=lambda pool: KEPT_FOR if pool.paused is None else None,
)

KEPT = 16
"""The join times of a pool that the table keeps at most."""


class JoinTime(BaseModel):
    """The seconds from the launch intent of an instance until Leeway admitted its node."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: str
    pool: str
    instance: str
    seconds: Annotated[float, Field(ge=0)]

    @property
    def slot(self) -> int:
        """Which of the KEPT join times of its pool this one replaces. The instance decides: many
        nodes of one launch are written at the same time, and no write waits for another one."""
        return crc32(self.instance.encode()) % KEPT


JOIN_TIME = Record(JoinTime, "POOLS#{cluster}", "JOIN#{pool}#{slot}", kept_for=KEPT_FOR)
