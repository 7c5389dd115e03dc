"""The queue of provision_nodes in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from leeway.aws.provision_queue import WAKES_APART
from leeway.ports.aws import CloudUnavailable


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
