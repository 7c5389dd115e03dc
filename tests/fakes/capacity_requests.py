"""Capacity requests in memory."""

from dataclasses import dataclass, field

from leeway.capacity_requests.request import CapacityRequest
from leeway.ports.table import RecordChanged


@dataclass
class CapacityRequestsInMemory:
    """The CapacityRequests Protocol."""

    stored: dict[str, CapacityRequest] = field(default_factory=dict)

    def of_cluster(self, cluster: str) -> list[CapacityRequest]:
        found = [one for one in self.stored.values() if one.cluster == cluster]
        return sorted(found, key=lambda one: one.instance)

    def of_instance(self, cluster: str, instance: str) -> CapacityRequest | None:
        found = self.stored.get(instance)
        return found if found is not None and found.cluster == cluster else None

    def write(self, request: CapacityRequest) -> None:
        known = self.stored.get(request.instance)
        if (known.version if known else 0) != request.version - 1:
            raise RecordChanged(request.instance)
        self.stored[request.instance] = request
