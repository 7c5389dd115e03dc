"""The requests of retirements for nodes, and the queue of provision_nodes, in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from leeway.aws.provision_queue import WAKES_APART
from leeway.capacity_requests import CapacityRequest
from leeway.ports.aws import CloudUnavailable
from leeway.table import RecordChanged


@dataclass
class CapacityRequestsInMemory:
    """The CapacityRequests Protocol. `down` says that the table is not available; `written` counts
    the writes."""

    stored: dict[tuple[str, str], CapacityRequest] = field(default_factory=dict)
    down: bool = False
    written: int = 0

    def of_cluster(self, cluster: str) -> list[CapacityRequest]:
        self._check()
        found = [one for one in self.stored.values() if one.cluster == cluster]
        return sorted(found, key=lambda one: one.instance)

    def of_instance(self, cluster: str, instance: str) -> CapacityRequest | None:
        self._check()
        return self.stored.get((cluster, instance))

    def write(self, request: CapacityRequest) -> None:
        self._check()
        known = self.stored.get((request.cluster, request.instance))
        if (known.version if known else 0) != request.version - 1:
            raise RecordChanged(request.instance)
        self.stored[request.cluster, request.instance] = request
        self.written += 1

    def _check(self) -> None:
        if self.down:
            raise CloudUnavailable("ThrottlingException: Throughput exceeds the current capacity")


@dataclass
class ProvisionQueueInMemory:
    """The ProvisionNodes Protocol. `wakes` are the calls for now, `later` the times of the others,
    each once; `down` says that SQS is not available; `on_wake` is called with the cluster of each
    call for now."""

    wakes: list[tuple[str, str]] = field(default_factory=list)
    later: list[datetime] = field(default_factory=list)
    down: bool = False
    on_wake: Callable[[str], None] = lambda _: None

    def wake(self, cluster: str, why: str, at: datetime | None = None) -> None:
        if self.down:
            raise CloudUnavailable("ServiceUnavailable: sqs")
        if at is not None:
            slot = datetime.fromtimestamp(-(-at.timestamp() // WAKES_APART) * WAKES_APART, UTC)
            self.later += [slot] if slot not in self.later else []
            return
        self.wakes.append((cluster, why))
        self.on_wake(cluster)
