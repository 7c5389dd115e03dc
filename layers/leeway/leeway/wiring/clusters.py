"""Opens clusters' APIs."""

import os
from functools import cache, partial
from urllib.parse import urlsplit

from leeway.aws.eks import EksClusters
from leeway.aws.endpoints import RememberedClusters
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.eks import eks_connection
from leeway.kubernetes.eks_hosts import refused_because
from leeway.kubernetes.lightkube_cluster import LightkubeCluster
from leeway.kubernetes.open_clusters import OpenedClusters
from leeway.ports.aws import ClusterEndpoint
from leeway.wiring.clients import client, clock, session, settings


def open_cluster(name: str) -> LightkubeCluster:
    """Open a cluster's nodes and pods, once for each connection to it."""
    return _cluster_on(connection_to(name))


def connection_to(name: str) -> Connection:
    """Connect to an EKS cluster's API, once per warm function while it is where it was."""
    return _connections().named(name)


@cache
def _cluster_on(connection: Connection) -> LightkubeCluster:
    return LightkubeCluster(connection, clock())


@cache
def _connections() -> OpenedClusters[Connection]:
    asked = RememberedClusters(
        partial(client, "dynamodb"),
        settings().table,
        EksClusters(partial(client, "eks")),
        clock(),
        _refused_because,
    )
    return OpenedClusters(asked, _connect, clock())


def _refused_because(url: str) -> str:
    """Say why no token is sent to an address. Whoever sets AWS_ENDPOINT_URL, as the sandbox does,
    trusts its host with the functions' credentials, and with tokens as well."""
    configured = urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname or ""
    return refused_because(url, session().region_name, configured)


def _connect(endpoint: ClusterEndpoint) -> Connection:
    return eks_connection(endpoint, session())
