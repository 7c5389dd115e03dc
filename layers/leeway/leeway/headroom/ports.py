"""What the headroom reconciler calls, as Protocols."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from leeway.headroom.plan import ScaleTarget
from leeway.headroom.proportion import ClusterSize
from leeway.headroom.status import HeadroomStatus, Original
from leeway.headroom.wanted import Wanted


class HeadroomStates(Protocol):
    """What the table remembers of headroom."""

    def of(self, cluster: str) -> dict[str, HeadroomStatus]:
        """Read what is remembered of a cluster, by subject."""
        ...

    def write(self, cluster: str, kept: HeadroomStatus) -> None:
        """Remember how it stands with one buffer or target; what was its original stays."""
        ...

    def remember_original(self, cluster: str, subject: str, original: Original) -> None:
        """Remember the size that a target had, unless that of the same object is remembered."""
        ...

    def forget(self, cluster: str, subject: str) -> None:
        """Forget one that is no longer wanted."""
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


class HeadroomManifests(Protocol):
    """What users define about clusters' headroom."""

    def wanted(self, cluster: str) -> Wanted:
        """Return the headroom that a cluster's manifests define, and its policy.

        Raises:
            CloudUnavailable, CloudRefused: the manifests can't be read.
        """
        ...

    def faulty(self, cluster: str) -> int:
        """Count the cluster's manifests, of any kind, that have an error."""
        ...
