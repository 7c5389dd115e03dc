"""Logs and measures headroom."""

from dataclasses import dataclass

from leeway.headroom.keep_headroom import HeadroomReport
from leeway.telemetry import Telemetry


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
