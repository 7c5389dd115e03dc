"""All that a retirement meets, and its record in the midst of it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Protocol

from leeway.clock import Clock
from leeway.cloud.ports import Announcements, CloudRefused, CloudUnavailable, GroupInstances, Groups
from leeway.cloud.stores import (
    ClusterPolicies,
    DrainStates,
    Ledgers,
    RecordChanged,
    Records,
    UnavailableOfferings,
)
from leeway.cluster.ports import Cluster, ClusterRefused, ClusterUnavailable, Node
from leeway.execution.orders import Order
from leeway.records.retirement import Retirement
from leeway.retirement.outcome import Outcome
from leeway.retirement.recollection import Recollection

PATIENCE = timedelta(seconds=5)
"""How long a step tries again by itself when the API server or AWS does not answer. After that
the next part has its turn: a dead API server must not hold up the replacement."""

RETRY_EVERY = 0.5
LONGEST_RETRY = 5.0
"""Seconds between two tries, the first and the longest."""

LOCK_TRIES = 6

# What the outside may answer. A refusal counts as trouble too: somebody may be mending the rights
# while the two minutes run, and the other parts of a retirement can do without this one.
TROUBLE = (ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused)


class Telemetry(Protocol):
    """Where it is written down for the people who run Leeway."""

    def waiting(self, record: Retirement, reason: str) -> None:
        """Log that a retirement waits for its turn."""
        ...

    def retired(self, outcome: Outcome) -> None:
        """Log and measure a retirement that has ended."""
        ...

    def not_told(self, outcome: Outcome, problem: str) -> None:
        """Log that somebody did not take the news of a retirement."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that a retirement meets. `cluster_named` opens a cluster's API."""

    records: Records
    ledgers: Ledgers
    policies: ClusterPolicies
    groups: Groups
    recollection: Recollection
    instances: GroupInstances
    announcements: Announcements
    cluster_named: Callable[[str], Cluster]
    drains: DrainStates
    telemetry: Telemetry
    clock: Clock
    offerings: UnavailableOfferings
    region: str

    def current(self, order: Order) -> Retirement | None:
        """Read the record; None where a newer generation has taken over."""
        record = self.records.retirement(order.instance)
        if record is None or record.generation != order.generation:
            return None
        return record

    def is_current(self, order: Order) -> bool:
        """Whether no newer generation has taken over. What can't be read is not held against it:
        in a storm it is the table that throttles."""
        try:
            return self.current(order) is not None
        except (CloudUnavailable, CloudRefused):
            return True

    def write[T](
        self,
        order: Order,
        record: Retirement,
        change: Callable[[Retirement], tuple[Retirement, T]],
    ) -> tuple[Retirement, T] | None:
        """Change the record, decided anew on what others wrote meanwhile; None where a newer
        generation has taken over."""
        for _ in range(LOCK_TRIES):
            changed, said = change(record)
            written = changed.model_copy(update={"version": record.version + 1})
            try:
                self.records.write(written)
            except RecordChanged:
                fresh = self.current(order)
                if fresh is None:
                    return None
                record = fresh
            else:
                return written, said
        raise CloudUnavailable(f"{order.instance}: its record changed {LOCK_TRIES} times in a row")

    def patiently[T](self, work: Callable[[], T]) -> T:
        """Do something again while the other side does not answer, for as long as PATIENCE."""
        until = self.clock.now() + PATIENCE
        while True:
            try:
                return work()
            except (ClusterUnavailable, CloudUnavailable):
                if self.clock.now() >= until:
                    raise
                self.clock.sleep(RETRY_EVERY)

    def read_patiently(self, order: Order) -> Retirement | None:
        """Read the record, again while the table does not answer."""
        return self.patiently(partial(self.current, order))

    def node_of(self, record: Retirement, by_name: bool = False) -> tuple[Cluster, Node | None]:
        """Open the cluster and look for the instance's node: by the names that it may have, and,
        unless `by_name` alone, among all nodes."""
        cluster = self.cluster_named(record.facts.cluster)
        names = tuple(n for n in (record.facts.private_dns_name, record.instance) if n)
        if not by_name:
            return cluster, cluster.node_of(record.instance, names)
        named = map(cluster.node, names)
        return cluster, next((n for n in named if n and n.runs_on(record.instance)), None)
