"""Logs and counts the results of reconcile."""

from collections.abc import Iterable
from dataclasses import dataclass

from aws_lambda_powertools.metrics import MetricUnit

from leeway.reconciliation.reasons import LAUNCH_TEMPLATES_DELETED
from leeway.reconciliation.report import ClusterReport
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class ReconciliationTelemetry(Telemetry):
    """Logs and counts the results of reconcile."""

    def reconciled(self, reports: Iterable[ClusterReport], *, all_clusters: bool) -> None:
        """Log a line for each finding, clean-up and problem of a run, and count them. Only a run of
        `all_clusters` counts findings: without this metric, no such run has ended."""
        problems = findings = paused = 0
        for report in reports:
            self._log(report)
            problems += len(report.problems)
            findings += len(report.findings)
            paused += len(report.paused_pools)
            if report.instances is not None:
                self.metrics.add_dimension("Cluster", report.cluster)
                self.metrics.add_metric("Instances", MetricUnit.Count, report.instances)
                self.metrics.flush_metrics()
        # Without a cluster dimension: one alarm covers all clusters, CloudWatch charges for each
        # metric of each cluster, and the log lines name the cluster.
        if all_clusters:
            self.metrics.add_metric("NoticesFound", MetricUnit.Count, findings)
            self.metrics.add_metric("PausedPools", MetricUnit.Count, paused)
        self.metrics.add_metric("ReconcileProblems", MetricUnit.Count, problems)
        self.metrics.flush_metrics()

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
