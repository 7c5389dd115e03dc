"""Reads the desired headroom from Headroom, CapacityBuffer and ScaledObject manifests."""

from collections.abc import Collection
from typing import Protocol

from leeway.headroom.desired import DesiredHeadroom
from leeway.manifests.capacity_buffer import CapacityBuffer
from leeway.manifests.headroom import Headroom
from leeway.manifests.interpreting import Written
from leeway.manifests.scaled_object import ScaledObject
from leeway.policy.rules import ClusterPolicy

KINDS = ("capacitybuffer.autoscaling.x-k8s.io", "headroom.leeway.sh", "scaledobject.keda.sh")


class Manifests(Protocol):
    """The stored manifests of clusters."""

    def policy_of(self, cluster: str) -> ClusterPolicy:
        """Return a cluster's policy."""
        ...

    def manifests(self, cluster: str, resources: Collection[str]) -> tuple[Written, ...]:
        """Return a cluster's manifests of some kinds."""
        ...

    def unread(self, cluster: str, resources: Collection[str]) -> frozenset[str]:
        """Name the manifests of some kinds that have errors, as `KIND NAMESPACE/NAME`."""
        ...

    def faulty(self, cluster: str) -> int:
        """Count the manifests, of any kind, that have an error."""
        ...


class HeadroomSource:
    """The HeadroomManifests Protocol, on stored manifests."""

    def __init__(self, stored: Manifests) -> None:
        self._stored = stored

    def desired(self, cluster: str) -> DesiredHeadroom:
        """Return the headroom that a cluster's manifests define, and its policy."""
        written = self._stored.manifests(cluster, KINDS)
        manifests = [one.manifest for one in written]
        return DesiredHeadroom(
            policy=self._stored.policy_of(cluster),
            buffers=tuple(b for m in manifests if isinstance(m, Headroom) for b in m.buffers()),
            template_buffers=tuple(
                m.template_buffer() for m in manifests if isinstance(m, CapacityBuffer)
            ),
            targets=tuple(m.target() for m in manifests if isinstance(m, ScaledObject)),
            unreadable=self._stored.unread(cluster, KINDS),
        )

    def count_invalid(self, cluster: str) -> int:
        """Count the cluster's manifests, of any kind, that have an error."""
        return self._stored.faulty(cluster)
