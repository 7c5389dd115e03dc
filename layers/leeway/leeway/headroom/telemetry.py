"""Logs and measures headroom."""

from dataclasses import dataclass

from aws_lambda_powertools.metrics import MetricUnit

from leeway.headroom.keep_headroom import HeadroomReport
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class HeadroomTelemetry(Telemetry):
    """Logs and measures headroom."""

    def headroom_reconciled(self, report: HeadroomReport) -> None:
        """Log the changes and the problems of a cluster's headroom, and measure it."""
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
        # CloudWatch charges for each metric of each cluster: none for a cluster without headroom.
        if report.replicas or report.changed:
            self.metrics.add_dimension("Cluster", report.cluster)
            self.metrics.add_metric("HeadroomReplicas", MetricUnit.Count, report.replicas)
            self.metrics.flush_metrics()
        problems = len(report.problems) + (report.problem is not None)
        if problems or report.invalid_manifests:
            # Without a cluster dimension: one alarm covers all clusters.
            self.metrics.add_metric("HeadroomProblems", MetricUnit.Count, problems)
            self.metrics.add_metric("ManifestProblems", MetricUnit.Count, report.invalid_manifests)
            self.metrics.flush_metrics()
