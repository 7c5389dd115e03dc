"""reconciliation.ports"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from leeway.admission.record import Admission
from leeway.instances.facts import InstanceFacts
from leeway.interruption.ports import InstanceState
from leeway.ports.kubernetes_objects import Attachment, Node
from leeway.retirement.record import Retirement


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The records of a cluster's work that is under way, and what is wrong with those that can't be
    made sense of: another version of Leeway may have written them."""

    records: tuple[Retirement | Admission, ...]
    unread: tuple[str, ...] = ()


class Unfinished(Protocol):
    """The table's records of work that is under way."""

    def unfinished(self, cluster: str) -> UnderWay:
        """Read all records of a cluster that are not finished. They may be a second old."""
        ...

    def known(self, instance: str) -> InstanceState:
        """Read everything about an instance, consistently and in one call."""
        ...


class Index(Protocol):
    """The table's index: instance → cluster, owner and the rest of its facts."""

    def of_cluster(self, cluster: str) -> Mapping[str, InstanceFacts]:
        """Read what is known of a cluster's instances, by id. It may be a second old."""
        ...

    def update(self, written: Iterable[InstanceFacts], removed: Iterable[str]) -> None:
        """Write the facts of some instances, and forget others."""
        ...


class ClusterLeftovers(Protocol):
    """What instances that are gone leave behind in a cluster."""

    def nodes_with_volumes(self) -> frozenset[str]:
        """List the names of the nodes that some volume is attached to, all at once."""
        ...

    def unready(self) -> list[Node]:
        """List the nodes that are not Ready, completely and not from a cache.

        Much cheaper than all of them, where most are Ready.
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
        """Vouch that a node's machine is gone, so that its volumes are freed at once.

        To be called only when EC2 says so: pods that still ran would lose their disks. False where
        the Node object is gone, or was changed since it was read.
        """
        ...

    def delete_node(self, node: Node) -> bool:
        """Remove a Node object; False where it is gone, or was changed since it was read."""
        ...
