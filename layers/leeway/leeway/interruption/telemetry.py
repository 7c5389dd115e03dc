"""Logs and counts the notices that receive_notice receives."""

from dataclasses import dataclass

from aws_lambda_powertools.metrics import MetricUnit

from leeway.interruption.receive_notice import NoticeOutcome
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class NoticeTelemetry(Telemetry):
    """Logs and counts the notices that receive_notice receives."""

    def received(self, receipt: NoticeOutcome) -> None:
        """Log what became of a notice, a line for each of its instances, and count it."""
        notice = receipt.notice
        for one in receipt.instances:
            self.logger.info(
                one.reason,
                extra={
                    "notice": notice.id,
                    "kind": notice.kind,
                    "result": one.result,
                    "instance": one.instance,
                    "cluster": one.cluster,
                    "attempt": one.attempt,
                },
            )
            self.metrics.add_dimension("Kind", notice.kind)
            self.metrics.add_dimension("Result", one.result)
            self.metrics.add_metric("NoticesReceived", MetricUnit.Count, 1)
            self.metrics.flush_metrics()

    def rejected(self, event: object, error: Exception) -> None:
        """Log an event that is not a notice, or that could not be seen to, under its own id."""
        said = event if isinstance(event, dict) else {}
        self.logger.error(
            str(error),
            extra={
                "result": type(error).__name__,
                "notice": str(said.get("id", ""))[:64],
                "detail_type": str(said.get("detail-type", ""))[:128],
            },
        )
