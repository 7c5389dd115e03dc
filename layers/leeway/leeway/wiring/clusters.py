"""Connects to the APIs of clusters."""

import os
from collections.abc import Callable
from functools import cache, partial
from urllib.parse import urlsplit

from leeway.aws.eks import CachedClusters, EksClusters
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.eks import OpenClusters, eks_connection, endpoint_problem
from leeway.ports.aws import ClusterEndpoint
from leeway.wiring.clients import client, clock, session, table


def on_connections[A](adapter: Callable[[Connection], A]) -> Callable[[str], A]:
    """Return what opens an adapter of a cluster, once per connection."""
    kept = cache(adapter)
    return lambda name: kept(connections().get(name))


@cache
def connections() -> OpenClusters[Connection]:
    """Return the connections to EKS clusters' APIs, each open while its endpoint is the same."""
    return opened(connect)


def opened[C](connect: Callable[[ClusterEndpoint], C]) -> OpenClusters[C]:
    """Return clusters as `connect` connects to them, each open while its endpoint is the same."""
    eks = EksClusters(partial(client, "eks"))
    clusters = CachedClusters(table(), eks, clock(), _endpoint_problem)
    return OpenClusters(clusters, connect, clock())


def _endpoint_problem(url: str) -> str:
    """Return why an address gets no token; empty if it gets one. The host of AWS_ENDPOINT_URL,
    which the sandbox sets, receives the functions' credentials, so it may receive tokens, too."""
    configured = urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname or ""
    return endpoint_problem(url, session().region_name, configured)


def connect(endpoint: ClusterEndpoint) -> Connection:
    """Connect to the API of a cluster."""
    return eks_connection(endpoint, session())
