"""Counts in the record of a pool which of its instances joined and were ready for pods."""

from collections.abc import Callable
from contextlib import suppress

from leeway.admission.readiness import (
    Readiness,
)
from leeway.admission.record import Admission, AdmissionResult, Launch
from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS, Conflicts
from leeway.pool_pauses import (
    JOIN_TIME,
    POOL,
    FailedInstance,
    JoinTime,
    PoolRecord,
    after_admission,
    after_failure,
    after_join,
    after_not_ready,
)
from leeway.table import Table


class PoolResults:
    """Writes what became of the instances of a launch to the record of their pool."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock

    def count_join(self, record: Admission, launch: Launch) -> bool:
        """Write that an instance of this launch has joined; False if the table does not take it."""

        def join(stored: PoolRecord | None) -> PoolRecord | None:
            return after_join(stored, record.facts.cluster, launch.pool, launch.at)

        try:
            self._write(record, launch, join)
        except API_ERRORS:
            return False
        return True

    def count_never_joined(self, record: Admission, launch: Launch) -> PoolRecord | None:
        """Count the failure; returns the record of the pool if this instance paused the pool."""

        def fail(stored: PoolRecord | None) -> PoolRecord | None:
            failure, now = _failure(record, launch), self._clock.now()
            return after_failure(stored, record.facts.cluster, launch.pool, failure, now)

        return self._write(record, launch, fail)

    def count_readiness(
        self, record: Admission, launch: Launch, verdict: Readiness
    ) -> PoolRecord | None:
        """Count whether a launched node that has joined is ready for pods; returns the record of
        the pool if this node paused it. A table that does not take that a node is ready delays
        nothing: the pool is paused earlier at most."""
        cluster, pool = record.facts.cluster, launch.pool

        def admit(stored: PoolRecord | None) -> PoolRecord | None:
            return after_admission(stored, cluster, pool, launch.at)

        def fail(stored: PoolRecord | None) -> PoolRecord | None:
            failure, now = _failure(record, launch), self._clock.now()
            return after_not_ready(stored, cluster, pool, failure, verdict.reason, now)

        if verdict.result is AdmissionResult.ADMITTED:
            with suppress(*API_ERRORS):
                return self._write(record, launch, admit)
        if verdict.result is AdmissionResult.NOT_READY:
            return self._write(record, launch, fail)
        return None

    def measure_join(self, record: Admission, launch: Launch) -> None:
        """Write how long the node took to be ready for pods. The time of an admission that began
        again, after its execution had died, is not that of the node. Without the table, launches
        ahead of cron windows use older times."""
        if record.attempt > 1:
            return
        took = (self._clock.now() - launch.at).total_seconds()
        with suppress(*API_ERRORS):
            self._table.put(
                JOIN_TIME,
                JoinTime(
                    cluster=record.facts.cluster,
                    pool=launch.pool,
                    instance=record.instance,
                    seconds=max(0.0, took),
                ),
            )

    def _write(
        self,
        record: Admission,
        launch: Launch,
        decide: Callable[[PoolRecord | None], PoolRecord | None],
    ) -> PoolRecord | None:
        """Write the record of the pool if `decide` changes it; return it if this instance has
        paused the pool."""
        conflicts = Conflicts(f"the record of pool {launch.pool}")
        while True:
            with conflicts:
                stored = self._table.get(POOL, cluster=record.cluster, pool=launch.pool)
                changed = decide(stored)
                if changed is not None:
                    self._table.put(POOL, changed)
                found = changed or stored
                by_this_one = found is not None and found.paused_by == record.instance
                return found if by_this_one else None


def _failure(record: Admission, launch: Launch) -> FailedInstance:
    return FailedInstance(instance=record.instance, launched_at=launch.at)
