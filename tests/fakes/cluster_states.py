"""The states of clusters, in memory."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leeway.clock import Clock
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.kept_objects import KeptObjects


@dataclass
class ClusterStatesInMemory:
    """The ClusterStates Protocol: the objects of each cluster, and the error of each read."""

    clock: Clock
    clusters: dict[str, KeptObjects] = field(default_factory=lambda: defaultdict(KeptObjects))
    error: ClusterUnavailable | ClusterRefused | None = None

    def put(self, cluster: str, kind: str, document: Mapping[str, Any]) -> None:
        """Create or replace a Kubernetes object."""
        self.clusters[cluster].put(kind, document)

    def remove(self, cluster: str, kind: str, key: str) -> None:
        """Delete an object by `namespace/name`, or by its name if it has no namespace."""
        self.clusters[cluster].remove(kind, key)

    def read(self, cluster: str) -> ClusterState:
        if self.error is not None:
            raise self.error
        return self.clusters[cluster].state(self.clock.now())
