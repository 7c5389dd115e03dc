"""The context of a retirement's steps: its record, its cluster, the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from leeway.capacity_requests.ports import CapacityRequests, ProvisionNodes
from leeway.catalog.unavailable import UnavailableOfferings
from leeway.clock import Clock
from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import retry_conflicts, retry_while_unavailable
from leeway.execution.shared_cache import SharedCache
from leeway.policy.ports import ClusterPolicies
from leeway.ports.aws import CloudRefused, CloudUnavailable, GroupInstances, Groups, LeewayEvents
from leeway.ports.kubernetes import Cluster
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import Reason
from leeway.retirement.record import Records, Retirement

if TYPE_CHECKING:
    from leeway.retirement.disruption_budget import DisruptionLedgers
    from leeway.retirement.drain import DrainStates
    from leeway.retirement.outcome import Outcome


@dataclass(frozen=True, slots=True)
class StepContext:
    """The retirement records, the clusters and the clock. `open_cluster` returns the API of the
    cluster with the given name."""

    records: Records
    open_cluster: Callable[[str], Cluster]
    clock: Clock

    def current(self, order: AttemptId) -> Retirement | None:
        """Read the record; None if a newer attempt has superseded this attempt."""
        record = self.records.retirement(order.instance)
        if record is None or record.attempt != order.attempt:
            return None
        return record

    def is_current(self, order: AttemptId) -> bool:
        """Return whether no newer attempt has superseded this attempt. True if the record cannot be
        read: the table may throttle during a storm, and the drain must continue."""
        try:
            return self.current(order) is not None
        except (CloudUnavailable, CloudRefused):
            return True

    def write[T](
        self,
        order: AttemptId,
        record: Retirement,
        change: Callable[[Retirement], tuple[Retirement, T]],
    ) -> tuple[Retirement, T] | None:
        """Change the record; return the written record and the result of `change`, None if a newer
        attempt has superseded this attempt.

        If another writer was faster, `change` runs again on a fresh read.

        Raises:
            CloudUnavailable: the table is not available, or every write conflicted.
        """
        latest = [record]

        def read_and_write() -> tuple[Retirement, T] | None:
            read = latest.pop() if latest else self.current(order)
            if read is None:
                return None
            changed, result = change(read)
            written = changed.model_copy(update={"version": read.version + 1})
            self.records.write(written)
            return written, result

        return retry_conflicts(f"the retirement record of {order.instance}", read_and_write)

    def retry[T](self, work: Callable[[], T]) -> T:
        """Repeat `work` while AWS or the API server is unavailable, for RETRY_TIMEOUT at most."""
        return retry_while_unavailable(self.clock, work)

    def read(self, order: AttemptId) -> Retirement | None:
        """Read the record as `current` does; retry while the table is unavailable."""
        return self.retry(partial(self.current, order))

    def node_of(self, record: Retirement, by_name: bool = False) -> tuple[Cluster, Node | None]:
        """Open the cluster and find the node of the instance: by its possible names, then, unless
        `by_name` is set, among all nodes."""
        cluster = self.open_cluster(record.facts.cluster)
        names = tuple(n for n in (record.facts.private_dns_name, record.instance) if n)
        if not by_name:
            return cluster, cluster.node_of(record.instance, names)
        named = map(cluster.node, names)
        return cluster, next((n for n in named if n and n.runs_on(record.instance)), None)


def with_intent(fields: Mapping[str, Any], record: Retirement) -> tuple[Retirement, None]:
    """Change fields of the intent of a record, if it has one; an update for `StepContext.write`."""
    intent = record.replacement_intent
    changed = intent.model_copy(update=fields) if intent else None
    return record.model_copy(update={"replacement_intent": changed}), None


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
