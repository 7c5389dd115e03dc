"""Logs and measures headroom."""

from dataclasses import dataclass

from aws_lambda_powertools.metrics import MetricUnit

from leeway.headroom.keep_headroom import HeadroomReport
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class HeadroomTelemetry(Telemetry):
    """Logs and measures headroom."""

    def headroom_kept(self, report: HeadroomReport) -> None:
        """Log what changed about a cluster's headroom and what is wrong with it, and measure it."""
        about = {"cluster": report.cluster, "dry_run": report.dry_run}
        if report.problem:
            self.logger.error(report.problem, extra=about)
        for kept in report.changed:
            if not kept.problem:
                told = {"subject": kept.subject, "source": kept.source, "replicas": kept.replicas}
                self.logger.info(kept.reason, extra={**about, **told})
        for kept in report.problems:
            told = {"subject": kept.subject, "source": kept.source}
            self.logger.warning(kept.problem, extra={**about, **told})
        # A cluster without headroom says nothing: CloudWatch charges for each metric of each.
        if report.replicas or report.changed:
            self.metrics.add_dimension("Cluster", report.cluster)
            self.metrics.add_metric("HeadroomReplicas", MetricUnit.Count, report.replicas)
            self.metrics.flush_metrics()
        troubles = len(report.problems) + bool(report.problem)
        if troubles or report.faulty:
            # By no cluster, so that one alarm sees all of them.
            self.metrics.add_metric("HeadroomProblems", MetricUnit.Count, troubles)
            self.metrics.add_metric("ManifestProblems", MetricUnit.Count, report.faulty)
            self.metrics.flush_metrics()
