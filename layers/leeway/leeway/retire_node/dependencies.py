"""The ports that retire_node is built from, by the part that calls them."""

from dataclasses import dataclass
from typing import Protocol

from leeway.drain.ports import DrainStates
from leeway.execution.shared_cache import SharedCache
from leeway.policy.ports import ClusterPolicies
from leeway.ports.aws import GroupInstances, Groups, LeewayEvents
from leeway.ports.table import UnavailableOfferings
from leeway.retire_node.outcome import Outcome
from leeway.retirement.ports import DisruptionLedgers
from leeway.retirement.record import Retirement
from leeway.retirement.step_context import StepContext


class Telemetry(Protocol):
    """Where it is written down for the people who run Leeway."""

    def waiting(self, record: Retirement, reason: str) -> None:
        """Log that a retirement waits for its turn."""
        ...

    def retired(self, outcome: Outcome) -> None:
        """Log and measure a retirement that has ended."""
        ...

    def retirement_not_reported(self, outcome: Outcome, problem: str) -> None:
        """Log that somebody did not take the news of a retirement."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the steps need beside the `context` that all of them share."""

    context: StepContext
    policies: ClusterPolicies
    ledgers: DisruptionLedgers
    groups: Groups
    instances: GroupInstances
    offerings: UnavailableOfferings
    region: str
    cache: SharedCache
    drains: DrainStates
    announcements: LeewayEvents
    telemetry: Telemetry
