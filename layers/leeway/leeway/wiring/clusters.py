"""Opens clusters' APIs."""

from functools import cache, partial

from leeway.cloud.dynamodb import RememberedClusters
from leeway.cloud.eks import EksClusters
from leeway.cluster.eks import eks_connection
from leeway.cluster.lightkube_cluster import LightkubeCluster
from leeway.cluster.ports import Cluster
from leeway.wiring.clients import client, session, settings


@cache
def cluster_named(name: str) -> Cluster:
    """Open an EKS cluster's API, once per warm function."""
    clusters = RememberedClusters(
        partial(client, "dynamodb"), settings().table, EksClusters(partial(client, "eks"))
    )
    return LightkubeCluster(eks_connection(clusters.endpoint(name), session()))
