"""The Protocols of capacity requests. Every method may raise CloudUnavailable or CloudRefused."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from leeway.capacity_requests.request import CapacityRequest


class CapacityRequests(Protocol):
    """The table's capacity requests."""

    def of_cluster(self, cluster: str) -> Sequence[CapacityRequest]:
        """Read the requests of a cluster consistently, also those that have ended."""
        ...

    def of_instance(self, cluster: str, instance: str) -> CapacityRequest | None:
        """Read the request of a retiring instance consistently; None if there is none."""
        ...

    def write(self, request: CapacityRequest) -> None:
        """Write a request whose `version` is one above the stored one (1: there is none).

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...


class ProvisionNodes(Protocol):
    """The queue of the function provision_nodes."""

    def wake(self, cluster: str, why: str, at: datetime | None = None) -> None:
        """Request a run for a cluster, asynchronously, at this time (aware) or up to three seconds
        later, or now. `why` is for the log of the run: the run itself reads what is to do. One run
        may serve several calls."""
        ...
