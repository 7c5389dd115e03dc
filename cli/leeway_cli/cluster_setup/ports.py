"""The Protocols of those that read the current settings of a cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from leeway_cli.cluster_setup.desired import LeewayStack
from leeway_cli.cluster_setup.reachability import Endpoint
from leeway_cli.cluster_setup.settings import (
    AccessEntry,
    ClusterObject,
    GroupHook,
    GroupTag,
    Mode,
)


@dataclass(frozen=True, slots=True)
class EksCluster:
    """A cluster by DescribeCluster. `status` is EKS's, `version` that of Kubernetes."""

    name: str
    status: str
    version: str
    mode: Mode
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class ScalingGroup:
    """An Auto Scaling group. `tags` are all of its tags by key; `node_group` is the name of its EKS
    managed node group, empty if it has none. `waiting` are instances that wait for a launch
    hook."""

    name: str
    tags: Mapping[str, GroupTag]
    hooks: tuple[GroupHook, ...] = ()
    node_group: str = ""
    waiting: tuple[str, ...] = ()


class Clusters(Protocol):
    """EKS."""

    def cluster(self, name: str) -> EksCluster:
        """Read a cluster by DescribeCluster."""
        ...

    def entries(self, cluster: str, principals: Iterable[str]) -> Sequence[AccessEntry]:
        """Read the access entries of these roles, by DescribeAccessEntry; a role without an entry
        is left out. The cluster's mode must have access entries."""
        ...


class Groups(Protocol):
    """EC2 Auto Scaling."""

    def groups_of(self, cluster: str) -> Sequence[ScalingGroup]:
        """Find the groups of a cluster by their tags and by the tags of their instances, with those
        of managed node groups, by name."""
        ...

    def read(self, names: Iterable[str]) -> Sequence[ScalingGroup]:
        """Read groups with their hooks; a group that does not exist is left out."""
        ...


class Objects(Protocol):
    """The objects of the cluster."""

    def read(self, wanted: ClusterObject) -> ClusterObject | None:
        """Read an object, reduced to the fields that `wanted` has; None if it does not exist."""
        ...


class Stacks(Protocol):
    """CloudFormation."""

    def stack(self, name: str) -> LeewayStack:
        """Read Leeway's stack, by DescribeStacks and GetTemplateSummary."""
        ...
