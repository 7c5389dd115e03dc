"""The API server of a cluster, as Protocols.

Every method may raise ClusterUnavailable or ClusterRefused, unless its docstring says otherwise.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from leeway.ports.kubernetes_objects import Attachment, Node, Pod, Response, Taint


class ClusterUnavailable(Exception):
    """The API server cannot be reached, throttles, fails, or does not accept Leeway's credentials:
    the same request may succeed later."""


class WatchExpired(ClusterUnavailable):
    """The API server no longer has the changes since the version from which a watch should
    continue: the watch has to begin again."""


class ClusterRefused(Exception):
    """The API server rejected the request, and rejects it again until somebody changes something;
    the message says which right is missing."""


class ClusterForbidden(ClusterRefused):
    """The API server answered 403: no role that is bound to Leeway grants the right."""


EVICTION_SECONDS = 20.0
"""Timeout of an eviction. An API server may hold one for more than ten seconds while other requests
write the same budget. A client that disconnects may have used the budget's disruption for nothing:
the pod stays, and the budget allows the disruption again only after two minutes. Source:
Kubernetes, EvictionsRetry."""

EVICTION_SETTLES_SECONDS = 11.0
"""How long an API server may still write the budget after the client of an eviction disconnected:
at most twenty times, with pauses of up to 0.55 seconds. Source: Kubernetes, EvictionsRetry."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The taint and annotations that a retirement puts on its node, besides the cordon.

    `kind` is the kind of the notice; `deadline` is RFC 3339, None if it is not known yet."""

    kind: str
    attempt: int
    deadline: str | None


@dataclass(frozen=True, slots=True)
class NodeCount:
    """The number of nodes of a cluster: all, and those that are Ready."""

    total: int
    ready: int


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """An object that an Event is about; `namespace` is empty if it has none."""

    kind: str
    name: str
    uid: str
    namespace: str = ""
    api_version: str = "v1"


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event, in the namespace of the object or in `default`.

    Two Events of the same `name` are one Event. `reason` is a reason code; `message` is one or more
    sentences, and is cut after 1,024 characters."""

    name: str
    about: ObjectReference
    reason: str
    message: str
    warning: bool = True


class PodFeed(Protocol):
    """The pods of one node, kept up to date by a watch while the feed is open."""

    def pods(self, seconds: float = math.inf) -> list[Pod]:
        """Return all pods of the node as the watch knows them now.

        If there is no watch yet, or it was interrupted, the pods are listed; the list takes
        `seconds` at most.

        Raises:
            ClusterUnavailable: the pods that are known are not up to date; call again.
            ClusterRefused: a right is missing.
        """
        ...

    def refresh(self, seconds: float = math.inf) -> list[Pod]:
        """List the pods of the node now, in `seconds` at most, and return them."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until a pod changes or `wake` is called, for `seconds` at most. Raises nothing."""
        ...

    def wake(self) -> None:
        """End a `wait`. Thread-safe; raises nothing."""
        ...


class Cluster(Protocol):
    """The API server of one cluster."""

    def node_of(self, instance: str, names: tuple[str, ...]) -> Node | None:
        """Find the node of an instance: by these names, then among all nodes. None if there is
        none.

        A node matches only if its provider id ends in the id of the instance.

        Raises:
            ClusterUnavailable: also if several nodes match and not exactly one of them is Ready.
        """
        ...

    def node(self, name: str) -> Node | None:
        """Read a node by name; None if it does not exist."""
        ...

    def cordon(self, node: str, marks: Marks | None) -> None:
        """Make a node unschedulable. With `marks`, also taint, label and annotate it. Other taints,
        labels and annotations stay.

        Raises:
            ClusterRefused: also if the node does not exist.
        """
        ...

    def release(self, node: str, attempt: int | None = None) -> bool:
        """Remove what Leeway put on a node, and nothing else; False if there is nothing to remove.

        A node that was cordoned before Leeway cordoned it stays cordoned; so does a label of
        somebody else that excludes it from load balancers. With `attempt`, marks of a later attempt
        stay.
        """
        ...

    def exclude_from_load_balancers(self, node: str) -> bool:
        """Label a node that is marked as retiring, so that external load balancers exclude it.

        False, without a change, if more than half of the Ready nodes would be excluded then.
        """
        ...

    def set_up(
        self,
        node: Node,
        labels: Mapping[str, str],
        taints: Sequence[Taint] = (),
        without: Collection[str] = (),
        annotations: Mapping[str, str] | None = None,
    ) -> bool:
        """Add labels, taints and annotations to exactly this node, by its UID, and remove the
        taints with the keys `without`. Its other labels, taints and annotations stay.

        False, without a change, if the node was deleted, or created again under the same name.
        """
        ...

    def nodes(self) -> list[Node]:
        """List all nodes: completely, and not from a cache."""
        ...

    def count_nodes(self) -> NodeCount:
        """Count all nodes, and those that are Ready. Much cheaper than `nodes`."""
        ...

    def attachments_on(self, node: str) -> list[Attachment]:
        """List the volumes that are attached to a node or being detached from it."""
        ...

    def pods_on(self, node: str, selector: str = "") -> list[Pod]:
        """List the pods of a node that the label selector matches, or all pods if it is empty:
        completely, and not from a cache."""
        ...

    def watch_pods(self, node: str, selector: str = "") -> AbstractContextManager[PodFeed]:
        """Watch the pods of a node that the label selector matches, or all pods if it is empty. The
        watch runs while the context manager is open."""
        ...

    def budgets_of(self, pod: Pod) -> tuple[str, ...]:
        """Return the names of the PodDisruptionBudgets whose selectors match a pod."""
        ...

    def eviction_is_granted(self, pod: Pod) -> bool:
        """Return whether the status of a budget lists this pod in `disruptedPods`: an eviction was
        granted, and the pod is not deleted yet. False if that cannot be read."""
        ...

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        """Create an Eviction for exactly this pod, by its UID.

        `grace` is in seconds, None for the grace period of the pod. The response is returned with
        any status; a lost connection is status 0. While the API server may still handle an earlier
        eviction of the pod, none is created: the response is status 0, and `retry_after` says when
        the earlier one is over. Raises nothing.
        """
        ...

    def delete(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        """Delete exactly this pod, by its UID. PodDisruptionBudgets do not apply.

        `grace` is in seconds, None for the grace period of the pod. The response is returned with
        any status; a lost connection is status 0. Raises nothing.
        """
        ...

    def write_event(self, event: Event) -> None:
        """Write a Kubernetes Event. An Event that exists already is not an error."""
        ...
