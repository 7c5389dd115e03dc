"""The dependencies that every step of a retirement has: its record, its cluster, the clock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from leeway.clock import Clock
from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import retry_conflicts, retry_while_unavailable
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes import Cluster
from leeway.ports.kubernetes_objects import Node
from leeway.retirement.ports import Records
from leeway.retirement.record import Retirement


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
