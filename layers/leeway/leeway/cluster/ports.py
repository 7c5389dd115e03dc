"""What Leeway needs of a cluster's API server, as a Protocol."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from leeway.drain.answers import Response
from leeway.drain.pods import Pod

if TYPE_CHECKING:
    # Only the names: reading manifests' models costs whoever drains a tenth of a second.
    from leeway.headroom.plan import ScaleTarget
    from leeway.headroom.proportion import ClusterSize


class ClusterUnavailable(Exception):
    """The API server can't be reached, throttles, fails, or does not accept us: try again."""


class ClusterRefused(Exception):
    """The API server understood and will not do it; the message says which right is missing."""


class ClusterForbidden(ClusterRefused):
    """The API server refuses it to us: no role of ours grants it."""


RETIRING = "leeway.sh/retiring"
"""The taint of a node on its way out, and the label by which such nodes can be listed."""


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods off a node that do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """One Node object. `ready` is its Ready condition, `version` its resource version.

    `devices` are the allocatable extended resources, as `nvidia.com/gpu`, each with its count; one
    that is present with a count of zero is not usable yet.
    """

    name: str
    uid: str
    provider_id: str
    unschedulable: bool
    ready: bool
    labels: dict[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    devices: Mapping[str, int] = field(default_factory=dict)
    version: str = ""

    @property
    def marked(self) -> bool:
        """Whether a retirement has cordoned it."""
        return RETIRING in self.labels

    def runs_on(self, instance: str) -> bool:
        """Whether this is an instance's node: names alone do not tell."""
        return self.provider_id.rsplit("/", 1)[-1] == instance


@dataclass(frozen=True, slots=True)
class Attachment:
    """A volume that is attached to a node, or on its way from it. `claim` is the
    `namespace/name` of the claim that it is bound to, empty where there is none."""

    volume: str
    claim: str


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

    def release(self, node: str, generation: int | None = None) -> bool:
        """Undo exactly what Leeway put on a node; False where there is nothing to undo.

        A node that was cordoned before Leeway came stays cordoned, and one that load balancers were
        told to leave out stays left out. With a generation, marks of a later one stay.
        """
        ...

    def leave_load_balancers(self, node: str) -> bool:
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

    def follow(self, node: str, selector: str = "") -> AbstractContextManager[PodFeed]:
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

    def note(self, event: NodeEvent) -> None:
        """Write a Kubernetes Event; one that is there already is no error."""
        ...


@dataclass(frozen=True, slots=True)
class FoundDeployment:
    """A Deployment. `ours` says that Leeway applied it, whatever labels it has by now; `running` is
    how many of its pods are Ready."""

    namespace: str
    name: str
    priority_class: str
    ours: bool
    running: int = 0


@dataclass(frozen=True, slots=True)
class TargetScale:
    """The size of a scaled target, and which object of its name it is."""

    replicas: int
    uid: str


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """The spec of pods that an object makes, as the API has it, and how many it makes; None for an
    object that makes none itself."""

    spec: Mapping[str, Any]
    replicas: int | None


class Workloads(Protocol):
    """What headroom is made of, in one cluster.

    Every method may raise ClusterUnavailable or ClusterRefused.
    """

    def apply(self, desired: Mapping[str, Any]) -> None:
        """Make an object what it is to be, by server-side apply; what others added stays."""
        ...

    def deployments(self, namespace: str) -> list[FoundDeployment]:
        """List the Deployments of a namespace; none where it does not exist."""
        ...

    def joins(self) -> dict[tuple[str, str], list[timedelta]]:
        """Return how long running pause pods had waited for a node, by namespace and buffer.

        Pods that found room at once are left out.
        """
        ...

    def size(self) -> "ClusterSize":
        """Measure the cluster: its Ready and schedulable nodes, and their cores."""
        ...

    def remove_deployment(self, namespace: str, name: str) -> None:
        """Delete a Deployment with its pods; one that is gone is no error."""
        ...

    def remove_priority_class(self, name: str) -> None:
        """Delete a PriorityClass that Leeway made; one that is gone is no error."""
        ...

    def scale_of(self, target: "ScaleTarget") -> TargetScale | None:
        """Read a target's size; None where there is no such object."""
        ...

    def scale(self, target: "ScaleTarget", replicas: int) -> None:
        """Set a target's size."""
        ...

    def template(self, of: "ScaleTarget") -> PodTemplate | None:
        """Read the pod template of an object; None where there is no such object."""
        ...


class Remains(Protocol):
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
