"""The endpoints of EKS clusters, by boto3."""

from collections.abc import Callable
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.ports.aws import CloudRefused, ClusterEndpoint


class EksClusters:
    """The Clusters Protocol; `client` returns boto3's EKS client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def endpoint(self, name: str) -> ClusterEndpoint:
        """Read a cluster's endpoint by DescribeCluster.

        Raises:
            CloudRefused: the cluster does not exist, or it has no endpoint yet.
        """
        with aws_errors():
            cluster = self._client().describe_cluster(name=name)["cluster"]
        url = cluster.get("endpoint")
        authority = cluster.get("certificateAuthority", {}).get("data")
        if not url or not authority:
            status = cluster.get("status")
            raise CloudRefused(f"cluster {name} has no endpoint yet; its status is {status}")
        return ClusterEndpoint(name, url, authority)
