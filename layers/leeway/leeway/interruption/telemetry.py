"""Logs the notices that receive_notice receives."""

from dataclasses import dataclass

from leeway.interruption.outcome import NoticeOutcome
from leeway.interruption.reasons import NOTICE_REJECTED
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class NoticeTelemetry(Telemetry):
    """Logs the notices that receive_notice receives."""

    def received(self, receipt: NoticeOutcome) -> None:
        """Log the outcome of a notice, one line per instance."""
        notice = receipt.notice
        for one in receipt.instances:
            self.logger.info(
                one.reason.message,
                extra={
                    "code": one.reason.code,
                    "notice": notice.id,
                    "kind": notice.kind,
                    "result": one.result,
                    "instance": one.instance,
                    "cluster": one.cluster,
                    "attempt": one.attempt,
                },
            )

    def rejected(self, event: object, error: Exception) -> None:
        """Log an event that is not a notice, or that could not be received for all instances."""
        fields = event if isinstance(event, dict) else {}
        reason = NOTICE_REJECTED(error=error)
        self.logger.error(
            reason.message,
            extra={
                "code": reason.code,
                "result": type(error).__name__,
                "notice": str(fields.get("id", ""))[:64],
                "detail_type": str(fields.get("detail-type", ""))[:128],
            },
        )
