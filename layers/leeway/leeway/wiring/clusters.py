"""Opens clusters' APIs."""

from functools import cache, partial

from leeway.cloud.dynamodb import RememberedClusters
from leeway.cloud.eks import EksClusters
from leeway.cluster.connection import Connection
from leeway.cluster.eks import eks_connection
from leeway.cluster.lightkube_cluster import LightkubeCluster
from leeway.wiring.clients import client, clock, session, settings


@cache
def cluster_named(name: str) -> LightkubeCluster:
    """Open a cluster's nodes and pods, once per warm function."""
    return LightkubeCluster(connection_to(name), clock())


@cache
def connection_to(name: str) -> Connection:
    """Connect to an EKS cluster's API, once per warm function."""
    clusters = RememberedClusters(
        partial(client, "dynamodb"), settings().table, EksClusters(partial(client, "eks"))
    )
    return eks_connection(clusters.endpoint(name), session())
