"""The ports that retire_node is built from."""

from dataclasses import dataclass
from typing import Protocol

from leeway.capacity_requests import CapacityRequests, ProvisionNodes
from leeway.drain.ports import DrainStates
from leeway.execution.shared_cache import SharedCache
from leeway.policy.ports import ClusterPolicies
from leeway.ports.aws import GroupInstances, Groups, LeewayEvents
from leeway.ports.table import UnavailableOfferings
from leeway.reasons import Reason
from leeway.retire_node.outcome import Outcome
from leeway.retirement.ports import DisruptionLedgers
from leeway.retirement.record import Retirement
from leeway.retirement.step_context import StepContext


class Telemetry(Protocol):
    """The log lines and metrics of retirements."""

    def waiting(self, record: Retirement, reason: Reason) -> None:
        """Log that a retirement waits for the disruption budget."""
        ...

    def capacity_problem(self, record: Retirement, reason: Reason) -> None:
        """Log that a request for nodes could not be written, read or announced."""
        ...

    def retired(self, outcome: Outcome) -> None:
        """Log and measure a retirement that has ended."""
        ...

    def retirement_not_reported(self, outcome: Outcome, reason: Reason) -> None:
        """Log that the Leeway event or the Kubernetes Event of a retirement was not accepted."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The ports of the steps, besides the `context` that all of them share. Without
    `provision_nodes` the function of this name is not woken, and finds requests by itself."""

    context: StepContext
    policies: ClusterPolicies
    ledgers: DisruptionLedgers
    groups: Groups
    instances: GroupInstances
    offerings: UnavailableOfferings
    region: str
    cache: SharedCache
    drains: DrainStates
    events: LeewayEvents
    capacity_requests: CapacityRequests
    provision_nodes: ProvisionNodes | None
    telemetry: Telemetry
