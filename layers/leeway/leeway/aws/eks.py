"""Where EKS's clusters are, by boto3."""

from collections.abc import Callable
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.ports.aws import CloudRefused, ClusterEndpoint


class EksClusters:
    """The Clusters Protocol; `client` makes boto3's EKS client when first asked."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def endpoint(self, name: str) -> ClusterEndpoint:
        """Read where the cluster's API server is.

        Raises:
            CloudRefused: there is no such cluster, or it has no endpoint yet.
        """
        with aws_errors():
            cluster = self._client().describe_cluster(name=name)["cluster"]
        url = cluster.get("endpoint")
        authority = cluster.get("certificateAuthority", {}).get("data")
        if not url or not authority:
            raise CloudRefused(f"cluster {name} is {cluster.get('status')}: it has no endpoint yet")
        return ClusterEndpoint(name, url, authority)
