"""Logs and measures retirements."""

from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from leeway.reasons import Reason
from leeway.retire_node.outcome import Outcome
from leeway.retirement.record import Retirement
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class RetirementTelemetry(Telemetry):
    """Logs and measures retirements."""

    def waiting(self, record: Retirement, reason: Reason) -> None:
        """Log that a retirement waits for the disruption budget."""
        self.logger.info(reason.message, extra=_about(record, reason))

    def capacity_problem(self, record: Retirement, reason: Reason) -> None:
        """Log that a request for nodes could not be written, read or announced."""
        self.logger.warning(reason.message, extra=_about(record, reason))

    def retired(self, outcome: Outcome) -> None:
        """Log and measure a retirement that has ended."""
        level = self.logger.warning if outcome.needs_attention else self.logger.info
        summary = outcome.summary
        level(
            summary.message,
            extra={
                "code": summary.code,
                "reason": outcome.reason.code,
                "result": outcome.result,
                "kind": outcome.kind,
                "instance": outcome.instance,
                "cluster": outcome.cluster,
                "node": outcome.node,
                "attempt": outcome.attempt,
                "replacement": outcome.replacement,
                "replacement_code": outcome.replacement_reason.code,
                "replacement_reason": outcome.replacement_reason.message,
                "hooks": list(outcome.hooks),
                "terminated": outcome.terminated,
                "left_behind": [f"{pod.pod}: {pod.reason}" for pod in outcome.failed],
            },
        )
        self.metrics.add_dimension("Cluster", outcome.cluster)
        self.metrics.add_dimension("Kind", outcome.kind)
        if outcome.retired:
            self._count_retired(outcome)
        else:
            self.metrics.add_dimension("Result", outcome.result)
            self.metrics.add_metric("NodesNotRetired", MetricUnit.Count, 1)
        self.metrics.flush_metrics()
        if outcome.needs_attention:
            # Without the dimension Cluster, so that one alarm covers all clusters.
            self.metrics.add_metric("RetirementProblems", MetricUnit.Count, 1)
            never = int(outcome.never_cordoned)
            self.metrics.add_metric("NodesNotCordoned", MetricUnit.Count, never)
            self.metrics.flush_metrics()

    def _count_retired(self, outcome: Outcome) -> None:
        self.metrics.add_metric("NodesRetired", MetricUnit.Count, 1)
        self.metrics.add_metric("PodsEvicted", MetricUnit.Count, outcome.evicted)
        if outcome.deleted:
            self.metrics.add_metric("PodsDeletedPastBudget", MetricUnit.Count, outcome.deleted)
        if outcome.failed:
            self.metrics.add_metric("PodsLeftBehind", MetricUnit.Count, len(outcome.failed))
        if outcome.seconds_to_cordon is not None:
            self.metrics.add_metric(
                "TimeToCordon", MetricUnit.Seconds, max(0.0, outcome.seconds_to_cordon)
            )
        if outcome.seconds_to_end is not None:
            self.metrics.add_metric(
                "TimeToRetire", MetricUnit.Seconds, max(0.0, outcome.seconds_to_end)
            )

    def retirement_not_reported(self, outcome: Outcome, reason: Reason) -> None:
        """Log that the Leeway event or the Kubernetes Event of a retirement was not accepted."""
        self.logger.warning(
            reason.message,
            extra={
                "code": reason.code,
                "cluster": outcome.cluster,
                "node": outcome.node,
                "instance": outcome.instance,
                "attempt": outcome.attempt,
            },
        )


def _about(record: Retirement, reason: Reason) -> dict[str, Any]:
    return {
        "code": reason.code,
        "kind": record.kind,
        "instance": record.instance,
        "cluster": record.facts.cluster,
        "attempt": record.attempt,
    }
