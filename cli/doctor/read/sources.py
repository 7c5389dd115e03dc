"""Who reads what `leeway adopt` sets: the readers of cli/cluster_setup."""

from collections.abc import Callable
from dataclasses import dataclass

from leeway.kubernetes.connection import Connection

from cli.cluster_setup.desired import LeewayStack
from cli.cluster_setup.ports import Clusters, Groups, Objects, Stacks
from cli.cluster_setup.reachability import FunctionsNetwork
from cli.cluster_setup.settings import ClusterObject


@dataclass(frozen=True, slots=True)
class Sources:
    """The readers. `connect` connects to the API server of a cluster, `objects` reads its objects,
    and `wanted` are those that it needs."""

    stacks: Stacks
    clusters: Clusters
    groups: Groups
    network: Callable[[LeewayStack], FunctionsNetwork]
    connect: Callable[[str], Connection]
    objects: Callable[[Connection], Objects]
    wanted: tuple[ClusterObject, ...]
