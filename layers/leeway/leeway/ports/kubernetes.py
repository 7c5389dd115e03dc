"""What Leeway needs of a cluster's API server, as a Protocol."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from leeway.ports.kubernetes_objects import Attachment, Node, Pod, Response

if TYPE_CHECKING:
    # Only the names: reading manifests' models costs whoever drains a tenth of a second.
    pass


class ClusterUnavailable(Exception):
    """The API server can't be reached, throttles, fails, or does not accept us: try again."""


class ClusterRefused(Exception):
    """The API server understood and will not do it; the message says which right is missing."""


class ClusterForbidden(ClusterRefused):
    """The API server refuses it to us: no role of ours grants it."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What a retirement puts on its node, besides the cordon. Times are RFC 3339."""

    kind: str
    attempt: int
    deadline: str | None


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A Kubernetes Event about a node. `name` makes a repeated one the same one."""

    name: str
    node: str
    node_uid: str
    reason: str
    message: str
    warning: bool = False


class PodFeed(Protocol):
    """The pods of one node, kept up to date for as long as it is open."""

    def pods(self, seconds: float = math.inf) -> list[Pod]:
        """Return the node's pods as they are known now: all of them, and no others. If that takes a
        list, it takes so many seconds at most.

        Raises:
            ClusterUnavailable: what is known is not up to date; ask again.
            ClusterRefused: somebody has to give a right first.
        """
        ...

    def refresh(self, seconds: float = math.inf) -> list[Pod]:
        """Return the node's pods from a list that is made now, in so many seconds at most."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait so long at most: until something has changed, or somebody has called `wake`."""
        ...

    def wake(self) -> None:
        """End a wait, from any thread."""
        ...


class Cluster(Protocol):
    """One cluster. Every method may raise ClusterUnavailable or ClusterRefused."""

    def node_of(self, instance: str, names: tuple[str, ...]) -> Node | None:
        """Find an instance's node: by these names, else among all nodes by provider id.

        A node counts only if its provider id ends in the instance's id.
        """
        ...

    def node(self, name: str) -> Node | None:
        """Read a node by name."""
        ...

    def cordon(self, node: str, marks: Marks | None) -> None:
        """Make a node unschedulable and, with marks, taint and annotate it; keep other taints."""
        ...

    def release(self, node: str, attempt: int | None = None) -> bool:
        """Undo exactly what Leeway put on a node; False where there is nothing to undo.

        A node that was cordoned before Leeway came stays cordoned, and one that load balancers were
        told to leave out stays left out. With an attempt, marks of a later one stay.
        """
        ...

    def exclude_from_load_balancers(self, node: str) -> bool:
        """Have load balancers outside the cluster leave out a node that is marked as retiring.

        False, and nothing done, where it would be one of more than half of the Ready nodes.
        """
        ...

    def label(self, node: str, labels: Mapping[str, str]) -> None:
        """Put labels on a node; it keeps its other ones."""
        ...

    def nodes(self) -> list[Node]:
        """List all nodes, completely and not from a cache."""
        ...

    def ready_nodes(self) -> int:
        """Count the nodes that are Ready. Much cheaper than `nodes`."""
        ...

    def attachments_on(self, node: str) -> list[Attachment]:
        """List the volumes that are attached to a node."""
        ...

    def pods_on(self, node: str, selector: str = "") -> list[Pod]:
        """List a node's pods, completely and not from a cache; with a label selector, those."""
        ...

    def watch_pods(self, node: str, selector: str = "") -> AbstractContextManager[PodFeed]:
        """Keep up with a node's pods; with a label selector, with those."""
        ...

    def budgets_of(self, pod: Pod) -> tuple[str, ...]:
        """Return the names of the PodDisruptionBudgets that guard a pod."""
        ...

    def eviction_is_granted(self, pod: Pod) -> bool:
        """Whether a budget's status names this pod as disrupted: its slot is spent, and the pod was
        not deleted. False where that is not known."""
        ...

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        """Ask for an eviction; an answer of any status is returned, not raised."""
        ...

    def delete(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        """Delete a pod past its budgets; an answer of any status is returned, not raised."""
        ...

    def write_event(self, event: NodeEvent) -> None:
        """Write a Kubernetes Event; one that is there already is no error."""
        ...
