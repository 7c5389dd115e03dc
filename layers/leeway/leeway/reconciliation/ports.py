"""What reconcile calls, as Protocols."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from leeway.admission.record import Admission
from leeway.instances.facts import InstanceFacts
from leeway.interruption.receive_notice import InstanceState
from leeway.ports.kubernetes_objects import Attachment, Node
from leeway.retirement.record import Retirement


@dataclass(frozen=True, slots=True)
class OpenRecords:
    """The open records of a cluster. `unreadable` names the records that cannot be parsed, with the
    error: another version of Leeway may have written them."""

    records: tuple[Retirement | Admission, ...]
    unreadable: tuple[str, ...] = ()


class Records(Protocol):
    """The retirement and admission records in the table."""

    def open_records(self, cluster: str) -> OpenRecords:
        """Read the records of a cluster that are open. The result may be a second old."""
        ...

    def known(self, instance: str) -> InstanceState:
        """Read all records of an instance with one consistent read."""
        ...


class InstanceIndex(Protocol):
    """The index of instances: the cluster, the owner and other facts of each instance."""

    def of_cluster(self, cluster: str) -> Mapping[str, InstanceFacts]:
        """Read the facts of a cluster's instances, by id. The result may be a second old."""
        ...

    def update(self, written: Iterable[InstanceFacts], removed: Iterable[str]) -> None:
        """Write the facts of some instances, and delete those of others."""
        ...


class ClusterNodes(Protocol):
    """The Nodes of a cluster. Every method raises the errors of an API server."""

    def names(self) -> frozenset[str]:
        """List the names of all Nodes, without a cache. Much cheaper than `nodes`."""
        ...

    def nodes(self) -> list[Node]:
        """List all Nodes, without a cache."""
        ...


class ClusterLeftovers(ClusterNodes, Protocol):
    """The Nodes of a cluster, and the objects that terminated instances leave in a cluster."""

    def nodes_with_volumes(self) -> frozenset[str]:
        """List the names of all nodes with an attached volume."""
        ...

    def unready(self) -> list[Node]:
        """List all nodes that are not Ready, without a cache.

        Much cheaper than the list of all nodes, since most are Ready.
        """
        ...

    def retiring(self) -> list[str]:
        """List the names of the nodes that Leeway has marked as retiring."""
        ...

    def node(self, name: str) -> Node | None:
        """Read a node by name."""
        ...

    def attachments_on(self, node: str) -> list[Attachment]:
        """List the volumes that are attached to a node."""
        ...

    def mark_out_of_service(self, node: Node) -> bool:
        """Add the out-of-service taint, after which Kubernetes detaches the volumes at once.

        Call it only if EC2 reports the instance as terminated: a pod that still runs would lose its
        disks. False if the Node object was deleted or changed since it was read.
        """
        ...

    def delete_node(self, node: Node) -> bool:
        """Delete a Node object; False if it was deleted or changed since it was read."""
        ...
