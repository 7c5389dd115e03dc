"""The record of a pool: its nodes that never joined, and whether it is paused.

"In a row" follows the order of launches, not of results: a node joins after one minute, and a
failure is known after fifteen. A failure counts unless an instance of the pool that was launched at
the same time or later has joined. So a broken bootstrap pauses the pool after three instances, of
one launch or of several, and bad hosts among nodes that join do not. Nodes that join and are not
ready for pods in time are a row of their own, which a node that is admitted resets.
"""

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from leeway.pool_pauses.reasons import NODES_NEVER_JOINED, NODES_NEVER_READY
from leeway.reasons import Reason

MOST_FAILURES = 3
"""Instances in a row that never joined, or whose nodes were never ready, after which their pool is
paused."""


class NeverJoined(BaseModel):
    """An instance that never joined, or whose node was never ready. `launched_at` is the time of
    its launch intent."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    instance: str
    launched_at: AwareDatetime


class PoolRecord(BaseModel):
    """The latest launches of a pool.

    - `counted_from`: failures of launches up to this time do not count: an instance that was
      launched then has joined, or the pool was resumed then.
    - `failures`: the instances in a row that never joined.
    - `ready_from`, `unready`: the same about instances that joined, and nodes that were admitted.
    - `paused`: why nothing is launched from the pool; None if it is not paused.
    - `paused_at`, `paused_by`: when it was paused, and by the failure of which instance.
    - `version`: counts writes (the optimistic lock).
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: str
    pool: str
    version: Annotated[int, Field(ge=1)] = 1
    counted_from: AwareDatetime | None = None
    failures: tuple[NeverJoined, ...] = ()
    ready_from: AwareDatetime | None = None
    unready: tuple[NeverJoined, ...] = ()
    paused: Reason | None = None
    paused_at: AwareDatetime | None = None
    paused_by: str = ""

    def counts(self, launched_at: datetime) -> bool:
        """Whether a failure of an instance of this launch counts."""
        return self.counted_from is None or launched_at > self.counted_from

    def counts_unready(self, launched_at: datetime) -> bool:
        """Whether a node of this launch that was never ready counts."""
        return self.ready_from is None or launched_at > self.ready_from

    def changed(self, **fields: object) -> "PoolRecord":
        """Return the record with these fields, as the next version."""
        return self.model_copy(update={**fields, "version": self.version + 1})


def after_join(
    stored: PoolRecord | None, cluster: str, pool: str, launched_at: datetime
) -> PoolRecord | None:
    """Return the record after an instance of a launch has joined; None if it does not change.
    A pause stays: a person ends it, who knows whether the cause is gone."""
    if stored is None:
        return PoolRecord(cluster=cluster, pool=pool, counted_from=launched_at)
    if not stored.counts(launched_at):
        return None
    later = tuple(one for one in stored.failures if one.launched_at > launched_at)
    return stored.changed(counted_from=launched_at, failures=later)


def after_failure(
    stored: PoolRecord | None, cluster: str, pool: str, failure: NeverJoined, now: datetime
) -> PoolRecord | None:
    """Return the record after an instance never joined; None if it does not change."""
    record = stored or PoolRecord(cluster=cluster, pool=pool, version=1)
    known = {one.instance for one in record.failures}
    if record.paused or failure.instance in known or not record.counts(failure.launched_at):
        return None
    failures = (*record.failures, failure)
    fields: dict[str, object] = {"failures": failures}
    if len(failures) >= MOST_FAILURES:
        reason = NODES_NEVER_JOINED(
            cluster=cluster, pool=pool, count=len(failures), instances=_names(failures)
        )
        fields |= _pause(reason, failure, now)
    return record.model_copy(update=fields) if stored is None else record.changed(**fields)


def after_admission(
    stored: PoolRecord | None, cluster: str, pool: str, launched_at: datetime
) -> PoolRecord | None:
    """Return the record after a node of a launch was admitted; None if it does not change."""
    if stored is None:
        return PoolRecord(cluster=cluster, pool=pool, ready_from=launched_at)
    if not stored.counts_unready(launched_at):
        return None
    later = tuple(one for one in stored.unready if one.launched_at > launched_at)
    return stored.changed(ready_from=launched_at, unready=later)


def after_not_ready(
    stored: PoolRecord | None,
    cluster: str,
    pool: str,
    failure: NeverJoined,
    why: Reason,
    now: datetime,
) -> PoolRecord | None:
    """Return the record after the node of an instance joined and was not ready in time; None if it
    does not change. `why` is what the node lacks.

    Pods get no place on such a node, and each run would launch the next one.
    """
    record = stored or PoolRecord(cluster=cluster, pool=pool, version=1)
    known = {one.instance for one in record.unready}
    if record.paused or failure.instance in known or not record.counts_unready(failure.launched_at):
        return None
    unready = (*record.unready, failure)
    fields: dict[str, object] = {"unready": unready}
    if len(unready) >= MOST_FAILURES:
        reason = NODES_NEVER_READY(
            cluster=cluster,
            pool=pool,
            count=len(unready),
            instances=_names(unready),
            why=why.message,
        )
        fields |= _pause(reason, failure, now)
    return record.model_copy(update=fields) if stored is None else record.changed(**fields)


def _names(failures: tuple[NeverJoined, ...]) -> str:
    return ", ".join(one.instance for one in failures)


def _pause(reason: Reason, failure: NeverJoined, now: datetime) -> dict[str, object]:
    return {"paused": reason, "paused_at": now, "paused_by": failure.instance}


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
