"""Logs and measures admissions."""

from dataclasses import dataclass

from aws_lambda_powertools.metrics import MetricUnit

from leeway.admission.outcome import AdmissionOutcome
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class AdmissionTelemetry(Telemetry):
    """Logs and measures admissions."""

    def admitted(self, outcome: AdmissionOutcome) -> None:
        """Log and measure an admission that has ended."""
        level = self.logger.warning if outcome.troubled else self.logger.info
        level(
            outcome.sentence,
            extra={
                "result": outcome.result,
                "instance": outcome.instance,
                "cluster": outcome.cluster,
                "node": outcome.node,
                "attempt": outcome.attempt,
                "hooks": list(outcome.hooks),
            },
        )
        self.metrics.add_dimension("Cluster", outcome.cluster)
        self.metrics.add_dimension("Result", outcome.result)
        self.metrics.add_metric("NodesAdmitted", MetricUnit.Count, 1)
        self.metrics.add_metric("TimeToAdmit", MetricUnit.Seconds, max(0.0, outcome.seconds_to_end))
        self.metrics.flush_metrics()
        if outcome.troubled:
            self.metrics.add_metric("AdmissionProblems", MetricUnit.Count, 1)
            self.metrics.flush_metrics()

    def admission_not_reported(self, outcome: AdmissionOutcome, problem: str) -> None:
        """Log that somebody did not take the news of a retirement or an admission."""
        self.logger.warning(
            problem,
            extra={
                "cluster": outcome.cluster,
                "node": outcome.node,
                "instance": outcome.instance,
                "attempt": outcome.attempt,
            },
        )
