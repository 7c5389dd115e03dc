"""What the headroom reconciler calls, as Protocols."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from leeway.headroom.plan import ClusterSize, ScaleTarget


@dataclass(frozen=True, slots=True)
class FoundDeployment:
    """A Deployment. `ours` says that Leeway applied it, whatever its labels are now; `ready` is the
    number of its Ready pods."""

    namespace: str
    name: str
    priority_class: str
    ours: bool
    ready: int = 0


@dataclass(frozen=True, slots=True)
class TargetScale:
    """The current size of a scaled target, and the object's uid."""

    replicas: int
    uid: str


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """The pod spec of an object as the API returns it, and the object's replicas; None for an
    object without replicas, such as a PodTemplate. `labels` are those of its pods."""

    spec: Mapping[str, Any]
    replicas: int | None
    labels: Mapping[str, str] = field(default_factory=dict)


class Workloads(Protocol):
    """The headroom objects of one cluster.

    Every method may raise ClusterUnavailable or ClusterRefused.
    """

    def apply(self, desired: Mapping[str, Any]) -> None:
        """Apply an object with server-side apply; fields of other managers stay."""
        ...

    def deployments(self, namespace: str) -> list[FoundDeployment]:
        """List the Deployments of a namespace; empty if the namespace does not exist."""
        ...

    def join_times(self) -> dict[tuple[str, str], list[timedelta]]:
        """Return how long running pause pods waited for a node, by namespace and buffer.

        Pods that were scheduled at once are left out.
        """
        ...

    def size(self) -> ClusterSize:
        """Count the Ready and schedulable nodes and their cores."""
        ...

    def remove_deployment(self, namespace: str, name: str) -> None:
        """Delete a Deployment with its pods; no error if it does not exist."""
        ...

    def remove_priority_class(self, name: str) -> None:
        """Delete a PriorityClass of Leeway; no error if it does not exist."""
        ...

    def scale_of(self, target: ScaleTarget) -> TargetScale | None:
        """Read the size of a target; None if the object does not exist."""
        ...

    def scale(self, target: ScaleTarget, replicas: int) -> None:
        """Set the size of a target."""
        ...

    def template(self, target: ScaleTarget) -> PodTemplate | None:
        """Read the pod template of an object; None if the object does not exist."""
        ...
