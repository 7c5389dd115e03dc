"""Logs and measures admissions."""

from dataclasses import dataclass

from leeway.admission.outcome import AdmissionOutcome
from leeway.pool_pauses import PoolRecord
from leeway.reasons import Reason
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class AdmissionTelemetry(Telemetry):
    """Logs and measures admissions."""

    def admitted(self, outcome: AdmissionOutcome) -> None:
        """Log and measure an admission that has ended."""
        log = self.logger.warning if outcome.needs_attention else self.logger.info
        log(
            outcome.message,
            extra={
                "code": outcome.reason.code,
                "result": outcome.result,
                "instance": outcome.instance,
                "cluster": outcome.cluster,
                "node": outcome.node,
                "attempt": outcome.attempt,
                "hooks": list(outcome.hooks),
                "seconds": max(0.0, outcome.duration_seconds),
            },
        )
        if outcome.needs_attention:
            self.count("LaunchProblems", 1)

    def pool_paused(self, record: PoolRecord, reason: Reason) -> None:
        """Log that a pool is paused, or why that was not reported."""
        extra = {"code": reason.code, "cluster": record.cluster, "pool": record.pool}
        self.logger.error(reason.message, extra=extra)

    def admission_not_reported(self, outcome: AdmissionOutcome, problem: Reason) -> None:
        """Log that a report of an admission was not delivered."""
        self.logger.warning(
            problem.message,
            extra={
                "code": problem.code,
                "cluster": outcome.cluster,
                "node": outcome.node,
                "instance": outcome.instance,
                "attempt": outcome.attempt,
            },
        )
