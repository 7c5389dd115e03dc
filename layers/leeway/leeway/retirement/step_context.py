"""What every step of a retirement needs: its record, its cluster and the time."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
    """The table's retirement records, the clusters' APIs (`open_cluster` takes a cluster's name),
    and the clock."""

    records: Records
    open_cluster: Callable[[str], Cluster]
    clock: Clock

    def current(self, order: AttemptId) -> Retirement | None:
        """Read the record; None if a newer attempt has superseded this one."""
        record = self.records.retirement(order.instance)
        if record is None or record.attempt != order.attempt:
            return None
        return record

    def is_current(self, order: AttemptId) -> bool:
        """Whether no newer attempt has superseded this one. An unreadable record counts as current:
        in a storm the table throttles, and the drain must go on."""
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
        """Change the record; return it as written with the result of `change`, None if a newer
        attempt has superseded this one.

        `change` runs again on a fresh read each time another writer was faster.

        Raises:
            CloudUnavailable: the record changed between read and write too many times.
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
        """Read the record as `current` does, and repeat while the table is unavailable."""
        return self.retry(partial(self.current, order))

    def node_of(self, record: Retirement, by_name: bool = False) -> tuple[Cluster, Node | None]:
        """Open the cluster and find the instance's node: by its possible names, and, unless
        `by_name` is set, among all nodes."""
        cluster = self.open_cluster(record.facts.cluster)
        names = tuple(n for n in (record.facts.private_dns_name, record.instance) if n)
        if not by_name:
            return cluster, cluster.node_of(record.instance, names)
        named = map(cluster.node, names)
        return cluster, next((n for n in named if n and n.runs_on(record.instance)), None)
