"""Logs and measures provisioning."""

from collections import Counter
from dataclasses import dataclass

from aws_lambda_powertools.metrics import MetricUnit

from leeway.provisioning.report import ProvisioningReport
from leeway.provisioning.status import MOST_NAMES, grouped
from leeway.reasons import Reason
from leeway.telemetry import Telemetry

MOST_UNREADABLE = 50
"""Objects that one run logs: whoever may create pods may create thousands that can't be read."""


@dataclass(frozen=True, slots=True)
class ProvisioningTelemetry(Telemetry):
    """Logs and measures provisioning."""

    def provisioned(self, report: ProvisioningReport) -> None:
        """Log a run with its launches, its problems, the objects that can't be read and the groups
        of pods without a node, and measure it."""
        cluster = {"cluster": report.cluster}
        self.logger.info(
            report.result.message,
            extra={
                **cluster,
                "code": report.result.code,
                "why": report.why,
                "pods": report.pods,
                "launched": [one.instance.instance for one in report.launched],
                "without_node": len(report.without_node),
                "seconds": round(report.seconds, 3),
            },
        )
        for reason in report.ahead:
            self.logger.info(reason.message, extra={**cluster, "code": reason.code})
        for reason in report.launch_problems:
            self.logger.warning(reason.message, extra={**cluster, "code": reason.code})
        for reason in report.unreadable[:MOST_UNREADABLE]:
            self.logger.warning(reason.message, extra={**cluster, "code": reason.code})
        if len(report.unreadable) > MOST_UNREADABLE:
            text = f"Leeway can't read {len(report.unreadable) - MOST_UNREADABLE} further objects."
            self.logger.warning(text, extra={**cluster, "most_shown": MOST_UNREADABLE})
        for reason in report.failures:
            self.logger.error(reason.message, extra={**cluster, "code": reason.code})
        for reason in (*report.returned.begun, *report.returned.rehearsed):
            self.logger.info(reason.message, extra={**cluster, "code": reason.code})
        for reason in report.returned.problems:
            self.logger.warning(reason.message, extra={**cluster, "code": reason.code})
        groups, others = grouped(report.without_node)
        for group in groups:
            facts = {"code": group.reason.code, "count": group.count, "pods": list(group.some)}
            self.logger.warning(group.reason.message, extra={**cluster, **facts})
        if others:
            text = f"{others} further pods get no node, for other reasons."
            self.logger.warning(text, extra={**cluster, "most_shown": MOST_NAMES})
        self._measure(report)

    def _measure(self, report: ProvisioningReport) -> None:
        # Without a cluster dimension: one alarm covers all clusters, CloudWatch charges for each
        # metric of each cluster, and the log lines name the cluster.
        launched = Counter(one.instance.capacity_type for one in report.launched)
        for capacity_type, count in launched.items():
            self.metrics.add_dimension("CapacityType", capacity_type)
            self.metrics.add_metric("NodesLaunched", MetricUnit.Count, count)
            self.metrics.flush_metrics()
        self.metrics.add_metric("PodsWithoutNode", MetricUnit.Count, len(report.without_node))
        self.metrics.add_metric("CapacityReturns", MetricUnit.Count, len(report.returned.begun))
        self.metrics.add_metric("LaunchesCapped", MetricUnit.Count, int(report.capped))
        self.metrics.add_metric("ProvisioningProblems", MetricUnit.Count, len(report.failures))
        self.metrics.add_metric("ProvisioningSeconds", MetricUnit.Seconds, report.seconds)
        self.metrics.flush_metrics()

    def dropped(self, reason: Reason) -> None:
        """Log and count a message that is dropped."""
        self.logger.error(reason.message, extra={"code": reason.code})
        self.metrics.add_metric("ProvisioningProblems", MetricUnit.Count, 1)
        self.metrics.flush_metrics()
