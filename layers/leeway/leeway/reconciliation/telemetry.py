"""Logs and counts the results of reconcile."""

from collections.abc import Iterable
from dataclasses import dataclass

from leeway.reconciliation.reasons import LAUNCH_TEMPLATES_DELETED
from leeway.reconciliation.report import ClusterReport
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class ReconciliationTelemetry(Telemetry):
    """Logs and counts the results of reconcile."""

    def reconciled(self, reports: Iterable[ClusterReport], *, all_clusters: bool) -> None:
        """Log a line for each finding, clean-up and problem of a run, and count them. Only a run of
        `all_clusters` counts findings and paused pools."""
        problems = findings = paused = 0
        for report in reports:
            self._log(report)
            problems += len(report.problems)
            findings += len(report.findings)
            paused += len(report.paused_pools)
        self.count("ClusterProblems", problems)
        if all_clusters:
            self.count("LaunchProblems", paused)
            self.count("MinorProblems", findings)

    def _log(self, report: ClusterReport) -> None:
        cluster = {"cluster": report.cluster}
        for finding in report.findings:
            self.logger.warning(
                finding.reason.message,
                extra={
                    **cluster,
                    "code": finding.reason.code,
                    "instance": finding.instance,
                    "done": finding.done.message,
                },
            )
        for outcome in report.clean_ups:
            self.logger.info(
                outcome.reason.message,
                extra={
                    **cluster,
                    "code": outcome.reason.code,
                    "instance": outcome.instance,
                    "result": outcome.result,
                    "node": outcome.node,
                    "detached": list(outcome.detached),
                },
            )
        if report.deleted_templates:
            deleted = LAUNCH_TEMPLATES_DELETED(names=", ".join(report.deleted_templates))
            self.logger.info(deleted.message, extra={**cluster, "code": deleted.code})
        for problem in report.problems:
            self.logger.error(problem.message, extra={**cluster, "code": problem.code})
