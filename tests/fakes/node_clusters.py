"""What IAM and EKS know of nodes, in memory."""

from dataclasses import dataclass, field

from leeway.launch.resolve_pools import NodeCluster
from leeway.ports.aws import CloudRefused


@dataclass
class NodeClustersInMemory:
    """The NodeClusters Protocol."""

    known: dict[str, NodeCluster] = field(default_factory=dict)

    def node_cluster(self, name: str) -> NodeCluster:
        if name not in self.known:
            raise CloudRefused(f"No cluster found for name: {name}.")
        return self.known[name]


@dataclass
class InstanceProfilesInMemory:
    """The InstanceProfiles Protocol: profiles by role."""

    by_role: dict[str, list[str]] = field(default_factory=dict)

    def profiles_of(self, role: str) -> list[str]:
        return self.by_role.get(role, [])
