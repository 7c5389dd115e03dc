"""What IAM and EKS know of nodes, in memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from leeway.launch.resolve_pools import InstanceProfile, NodeCluster, NoWayToIam
from leeway.ports.aws import CloudRefused


def role_arn(name: str) -> str:
    """The ARN of a role of the account."""
    return f"arn:aws:iam::123456789012:role/{name}"


@dataclass
class NodeClustersInMemory:
    """The NodeClusters Protocol; `entries` are the roles of nodes by the cluster that they may
    join."""

    known: dict[str, NodeCluster] = field(default_factory=dict)
    entries: dict[str, set[str]] = field(default_factory=dict)

    def node_cluster(self, name: str) -> NodeCluster:
        if name not in self.known:
            raise CloudRefused(f"No cluster found for name: {name}.")
        return self.known[name]

    def joined_with(self, role: str, name: str) -> list[str]:
        own = role.rpartition("/")[2]
        return [one for one in {name, *self.known} if own in self.entries.get(one, ())]


@dataclass
class InstanceProfilesInMemory:
    """The InstanceProfiles Protocol: profiles by role, tags of roles, and the path and the tags of
    profiles that have some."""

    by_role: dict[str, list[str]] = field(default_factory=dict)
    tags: dict[str, Mapping[str, str]] = field(default_factory=dict)
    unreachable: bool = False
    marked: dict[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)

    def profiles_of(self, role: str) -> list[InstanceProfile]:
        return [
            InstanceProfile(name, role_arn(role), self.marked.get(name, ("/", {}))[0])
            for name in self.by_role.get(role, [])
        ]

    def profile(self, name: str) -> InstanceProfile | None:
        if self.unreachable:
            raise NoWayToIam("ConnectTimeoutError")
        found = next((one for one in self._all() if one.name == name), None)
        tags = self.marked.get(name, ("/", {}))[1]
        return replace(found, tags=tags) if found is not None else None

    def tags_of(self, role: str) -> Mapping[str, str]:
        return {} if self.unreachable else self.tags.get(role, {})

    def _all(self) -> Iterable[InstanceProfile]:
        return (one for role in self.by_role for one in self.profiles_of(role))
