"""What Leeway needs of a cluster's API server, as a Protocol."""

from dataclasses import dataclass
from typing import Protocol

from leeway.drain.answers import Response
from leeway.drain.pods import Pod


class ClusterUnavailable(Exception):
    """The API server can't be reached, throttles, fails, or does not accept us: try again."""


class ClusterRefused(Exception):
    """The API server understood and will not do it; the message says which right is missing."""


@dataclass(frozen=True, slots=True)
class Node:
    """One Node object. `ready` is its Ready condition."""

    name: str
    uid: str
    provider_id: str
    unschedulable: bool
    ready: bool
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class Marks:
    """What a retirement puts on its node, besides the cordon. Times are RFC 3339."""

    kind: str
    generation: int
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

    def pods_on(self, node: str) -> list[Pod]:
        """List a node's pods, completely and not from a cache."""
        ...

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        """Ask for an eviction; an answer of any status is returned, not raised."""
        ...

    def delete(self, pod: Pod, grace: int | None) -> Response:
        """Delete a pod past its budgets; an answer of any status is returned, not raised."""
        ...

    def note(self, event: NodeEvent) -> None:
        """Write a Kubernetes Event; one that is there already is no error."""
        ...
