"""Use case: reconcile the headroom of every cluster once a minute.

Sizes depend only on the time and on the current state of the cluster, so a run that is missed, late
or repeated does no harm.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from leeway.clock import Clock
from leeway.headroom.plan import (
    DEFAULT_JOIN_TIME,
    DesiredHeadroom,
    UpcomingNeed,
    Workloads,
    upcoming_needs,
)
from leeway.headroom.reasons import HEADROOM_NOT_RECONCILED
from leeway.headroom.reconciler import (
    ORIGINAL,
    STATUS,
    HeadroomReconciler,
    HeadroomStatus,
    OriginalScale,
)
from leeway.parallel import in_parallel
from leeway.reasons import Reason
from leeway.table import RecordChanged, Table
from leeway.telemetry import Telemetry, describe_error

CLUSTER_CONCURRENCY = 32
"""Clusters that are reconciled at the same time."""


@dataclass(frozen=True, slots=True)
class HeadroomReport:
    """The headroom of one cluster after a run.

    - `changed`: the statuses that changed; under a dry run, those that would have.
    - `problems`: the statuses with a problem.
    - `needs`: the capacity that is needed soon.
    - `replicas`: the pause pods of all buffers.
    - `problem`: why the cluster was not reconciled, None if it was.
    - `invalid_manifests`: the manifests of the cluster, of any kind, that have an error.
    """

    cluster: str
    changed: tuple[HeadroomStatus, ...] = ()
    problems: tuple[HeadroomStatus, ...] = ()
    needs: tuple[UpcomingNeed, ...] = ()
    replicas: int = 0
    problem: Reason | None = None
    paused: bool = False
    dry_run: bool = False
    invalid_manifests: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Render the function's answer about this cluster."""
        return {
            "cluster": self.cluster,
            "problem": _rendered(self.problem),
            "paused": self.paused,
            "dryRun": self.dry_run,
            "pauseReplicas": self.replicas,
            "invalidManifests": self.invalid_manifests,
            "changed": [
                {
                    "subject": status.subject,
                    "replicas": status.replicas,
                    "reason": _rendered(status.reason),
                }
                for status in self.changed
            ],
            "problems": [
                {
                    "subject": status.subject,
                    "source": status.source,
                    "problem": _rendered(status.problem),
                }
                for status in self.problems
            ],
            "needs": [
                {
                    "target": str(need.target),
                    "replicas": need.replicas,
                    "at": need.since.isoformat(),
                }
                for need in self.needs
            ],
        }


def _rendered(reason: Reason | None) -> dict[str, Any] | None:
    return None if reason is None else asdict(reason)


class KeepHeadroom:
    """Reconciles headroom. `desired` returns the headroom that the manifests of a cluster define,
    `count_invalid` how many of its manifests, of any kind, have an error, and `workloads_in` its
    workloads."""

    def __init__(
        self,
        desired: Callable[[str], DesiredHeadroom],
        count_invalid: Callable[[str], int],
        table: Table,
        workloads_in: Callable[[str], Workloads],
        report: Callable[[HeadroomReport], None],
        clock: Clock,
    ) -> None:
        self._desired = desired
        self._count_invalid = count_invalid
        self._table = table
        self._workloads_in = workloads_in
        self._report = report
        self._clock = clock

    def run(self, clusters: Iterable[str]) -> tuple[HeadroomReport, ...]:
        """Reconcile these clusters; a cluster that fails does not delay the others."""
        reports = tuple(in_parallel(self._run_one, list(clusters), CLUSTER_CONCURRENCY))
        for report in reports:
            self._report(report)
        return reports

    def _run_one(self, cluster: str) -> HeadroomReport:
        try:
            report = self._reconcile(cluster, self._desired(cluster))
        except Exception as error:  # noqa: BLE001 (reported and counted; the other clusters go on)
            report = _failed(cluster, error)
        # Counted for a cluster that failed, too: its alarm about manifests must not end.
        try:
            return replace(report, invalid_manifests=self._count_invalid(cluster))
        except Exception as error:  # noqa: BLE001 (as above)
            return _failed(cluster, error)

    def _reconcile(self, cluster: str, desired: DesiredHeadroom) -> HeadroomReport:
        if desired.policy.paused:
            return HeadroomReport(cluster, paused=True)
        found = self._table.list(STATUS, ORIGINAL, cluster=cluster)
        stored = {one.subject: one for one in found if isinstance(one, HeadroomStatus)}
        originals = [one for one in found if isinstance(one, OriginalScale)]
        if desired.is_empty and not stored:
            return HeadroomReport(cluster)
        reconciler = HeadroomReconciler(
            self._workloads_in(cluster),
            stored,
            originals,
            partial(self._table.put, STATUS, cluster=cluster),
            partial(self._keep_original, cluster),
            self._clock,
            desired.policy.dry_run,
        )
        reconciler.reconcile(desired)
        if not desired.policy.dry_run:
            for one in originals:
                if one.subject in reconciler.removed:
                    self._table.delete(ORIGINAL, cluster=cluster, subject=one.subject, uid=one.uid)
        return self._store(cluster, desired, stored, reconciler)

    def _keep_original(self, cluster: str, original: OriginalScale) -> None:
        with suppress(RecordChanged):
            self._table.put(ORIGINAL, original, replaces=0, cluster=cluster)

    def _store(
        self,
        cluster: str,
        desired: DesiredHeadroom,
        stored: dict[str, HeadroomStatus],
        reconciler: HeadroomReconciler,
    ) -> HeadroomReport:
        """Write the statuses that differ. A different number of Ready pods is stored for `leeway
        status`, and is not reported as a change."""
        differing = [
            status for status in reconciler.statuses if stored.get(status.subject) != status
        ]
        if not desired.policy.dry_run:
            for status in differing:
                self._table.put(STATUS, status, cluster=cluster)
            for subject in reconciler.removed:
                self._table.delete(STATUS, cluster=cluster, subject=subject)
        return HeadroomReport(
            cluster,
            changed=tuple(
                status
                for status in differing
                if not _differs_in_ready_only(stored.get(status.subject), status)
            ),
            problems=tuple(status for status in reconciler.statuses if status.problem is not None),
            needs=upcoming_needs(desired.targets, reconciler.at, DEFAULT_JOIN_TIME),
            replicas=sum(s.replicas or 0 for s in reconciler.statuses if s.target is None),
            dry_run=desired.policy.dry_run,
        )


def _differs_in_ready_only(before: HeadroomStatus | None, now: HeadroomStatus) -> bool:
    return before is not None and replace(before, ready=now.ready) == now


def _failed(cluster: str, error: Exception) -> HeadroomReport:
    problem = HEADROOM_NOT_RECONCILED(cluster=cluster, error=describe_error(error))
    return HeadroomReport(cluster, problem=problem)


@dataclass(frozen=True, slots=True)
class HeadroomTelemetry(Telemetry):
    """Logs and measures headroom."""

    def headroom_reconciled(self, report: HeadroomReport) -> None:
        """Log the changes and the problems of a cluster's headroom, and count the latter."""
        cluster = {"cluster": report.cluster, "dry_run": report.dry_run}
        if report.problem is not None:
            self.logger.error(
                report.problem.message, extra={**cluster, "code": report.problem.code}
            )
        for status in report.changed:
            if status.problem is None and status.reason is not None:
                facts = {
                    "code": status.reason.code,
                    "subject": status.subject,
                    "source": status.source,
                    "replicas": status.replicas,
                }
                self.logger.info(status.reason.message, extra={**cluster, **facts})
        for status in report.problems:
            if status.problem is not None:
                facts = {
                    "code": status.problem.code,
                    "subject": status.subject,
                    "source": status.source,
                }
                self.logger.warning(status.problem.message, extra={**cluster, **facts})
        problems = len(report.problems) + (report.problem is not None)
        self.count("MinorProblems", problems + report.invalid_manifests)
