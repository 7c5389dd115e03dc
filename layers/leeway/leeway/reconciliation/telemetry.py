"""Logs and counts what reconcile finds."""

from collections.abc import Iterable
from dataclasses import dataclass

from aws_lambda_powertools.metrics import MetricUnit

from leeway.reconciliation.reconcile import ClusterReport
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class ReconciliationTelemetry(Telemetry):
    """Logs and counts what reconcile finds."""

    def reconciled(self, reports: Iterable[ClusterReport], *, of_all: bool) -> None:
        """Log what a run found, a line for each finding and each problem, and count them. Only one
        `of_all` clusters counts what was found: where there is no count, none has come to its end.
        """
        problems = found_in_all = 0
        for report in reports:
            here = {"cluster": report.cluster}
            for found in report.found:
                said = {**here, "instance": found.instance, "done": found.done}
                self.logger.warning(found.reason, extra=said)
            for cleaned in report.cleaned:
                self.logger.info(
                    cleaned.reason,
                    extra={
                        **here,
                        "instance": cleaned.instance,
                        "result": cleaned.result,
                        "node": cleaned.node,
                        "freed": list(cleaned.freed),
                    },
                )
            for problem in report.problems:
                self.logger.error(problem, extra=here)
            problems += len(report.problems)
            found_in_all += len(report.found)
            if report.instances is not None:
                self.metrics.add_dimension("Cluster", report.cluster)
                self.metrics.add_metric("Instances", MetricUnit.Count, report.instances)
                self.metrics.flush_metrics()
        # By no cluster, so that one alarm sees all of them. CloudWatch charges for each metric of
        # each cluster, and the lines above name the clusters.
        if of_all:
            self.metrics.add_metric("NoticesFound", MetricUnit.Count, found_in_all)
        self.metrics.add_metric("ReconcileProblems", MetricUnit.Count, problems)
        self.metrics.flush_metrics()
