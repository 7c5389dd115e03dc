"""The ports to which retire_node reports: its telemetry and the event bus."""

from dataclasses import dataclass, field

from leeway.ports.aws import CloudRefused
from leeway.reasons import Reason
from leeway.retirement.outcome import Outcome, RetirementTelemetry
from leeway.retirement.record import Retirement


class ReportLog(RetirementTelemetry):
    """The telemetry of retire_node. `reasons` are all reports, in order; FakeCluster adds its
    Kubernetes Events to them."""

    reasons: list[Reason]

    def __init__(self) -> None:
        object.__setattr__(self, "reasons", [])  # the base is frozen

    @property
    def codes(self) -> list[str]:
        return [reason.code for reason in self.reasons]

    def of(self, code: str) -> str:
        """Return the sentences of the reports with a code."""
        return " ".join(reason.message for reason in self.reasons if reason.code == code)

    def waiting(self, record: Retirement, reason: Reason) -> None:
        self.reasons.append(reason)

    def surged(self, record: Retirement, reason: Reason) -> None:
        self.reasons.append(reason)

    def capacity_problem(self, record: Retirement, reason: Reason) -> None:
        self.reasons.append(reason)

    def retired(self, outcome: Outcome) -> None:
        self.reasons.append(outcome.summary)

    def retirement_not_reported(self, outcome: Outcome, reason: Reason) -> None:
        self.reasons.append(reason)


@dataclass
class EventBusInMemory:
    """The LeewayEvents Protocol; `refuses` says that PutEvents is denied."""

    refuses: bool = False
    published: list[tuple[str, str]] = field(default_factory=list)

    def publish(self, detail_type: str, detail: str) -> None:
        if self.refuses:
            raise CloudRefused("AccessDenied: events:PutEvents")
        self.published.append((detail_type, detail))
