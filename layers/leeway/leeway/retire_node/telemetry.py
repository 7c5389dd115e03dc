"""Logs and measures retirements."""

from dataclasses import dataclass
from typing import Any

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
                "evicted": outcome.evicted,
                "deleted_past_budget": outcome.deleted,
                "seconds_to_cordon": outcome.seconds_to_cordon,
                "seconds_to_end": outcome.seconds_to_end,
                "left_behind": [f"{pod.pod}: {pod.reason}" for pod in outcome.failed],
            },
        )
        self.count("RetirementProblems", int(outcome.needs_attention))
        self.count("NodesNotCordoned", int(outcome.needs_attention and outcome.never_cordoned))

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
