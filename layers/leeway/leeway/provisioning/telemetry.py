"""Logs and measures provisioning."""

from dataclasses import dataclass

from leeway.provisioning.report import MOST_NAMES, ProvisioningReport, grouped
from leeway.reasons import Reason
from leeway.telemetry import Telemetry

MOST_UNREADABLE = 50
"""Objects that one run logs: whoever may create pods may create thousands that can't be read."""


@dataclass(frozen=True, slots=True)
class ProvisioningTelemetry(Telemetry):
    """Logs and measures provisioning."""

    def provisioned(self, report: ProvisioningReport) -> None:
        """Log a run with its launches, its problems, the objects that can't be read and the groups
        of pods without a node, and count the problems."""
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
        self.count("LaunchProblems", int(report.capped))
        self.count("ClusterProblems", len(report.failures))

    def dropped(self, reason: Reason) -> None:
        """Log and count a message that is dropped."""
        self.logger.error(reason.message, extra={"code": reason.code})
        self.count("ClusterProblems", 1)
