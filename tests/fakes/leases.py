"""The lease of the pod watches in memory."""

from dataclasses import dataclass

from leeway.pod_watch.lease import Lease
from leeway.table import RecordChanged


@dataclass
class LeaseInMemory:
    """The Leases Protocol; `error` is raised by every call."""

    stored: Lease | None = None
    error: Exception | None = None

    def read(self) -> Lease | None:
        if self.error is not None:
            raise self.error
        return self.stored

    def write(self, lease: Lease) -> None:
        if self.error is not None:
            raise self.error
        if (self.stored.version if self.stored else 0) != lease.version - 1:
            raise RecordChanged(lease.holder)
        self.stored = lease
