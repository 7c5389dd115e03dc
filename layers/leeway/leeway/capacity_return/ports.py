"""The Protocols of giving capacity back. A method raises the errors of its service."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from leeway.admission.record import Admission
from leeway.capacity_requests import CapacityRequests, ProvisionNodes
from leeway.capacity_return.quiet_nodes import QuietRecords
from leeway.clock import Clock
from leeway.instances.facts import InstanceFacts
from leeway.launch.resolve_pools import NodeSources
from leeway.ports.functions import RetireNode
from leeway.ports.table import UnavailableOfferings
from leeway.reconciliation.ports import OpenRecords
from leeway.retirement.ports import DisruptionLedgers, Records


class ClusterInstances(Protocol):
    """The index of instances, which reconcile keeps."""

    def of_cluster(self, cluster: str) -> Mapping[str, InstanceFacts]:
        """Read the facts of a cluster's instances, by id. The result may be a minute old."""
        ...


class DeletedPools(Protocol):
    """The pools that users deleted."""

    def deleted_pools(self, cluster: str) -> Mapping[str, datetime]:
        """Return when pools were deleted that do not exist any more, by name: by a fresh read."""
        ...


class ReturnRecords(Records, Protocol):
    """The records of instances."""

    def admission(self, instance: str) -> Admission | None:
        """Read the record of an instance's admission consistently; None if there is none."""
        ...

    def open_records(self, cluster: str) -> OpenRecords:
        """Read the records of a cluster that are open. The result may be a second old."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The ports."""

    instances: ClusterInstances
    records: ReturnRecords
    ledgers: DisruptionLedgers
    offerings: UnavailableOfferings
    requests: CapacityRequests
    quiet: QuietRecords
    pools: DeletedPools
    retire_node: RetireNode
    provision_nodes: ProvisionNodes
    sources: NodeSources
    clock: Clock
