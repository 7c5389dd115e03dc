"""EKS's clusters as nodes need them, by boto3."""

from collections.abc import Callable
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.bootstrap.node import UserDataError, described
from leeway.launch.ports import NodeCluster
from leeway.ports.aws import CloudRefused


class EksNodeClusters:
    """The NodeClusters Protocol; `client` makes boto3's EKS client when it is first used."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def node_cluster(self, name: str) -> NodeCluster:
        """Read a cluster.

        Raises:
            CloudRefused: there is no such cluster, or nodes cannot join it yet.
        """
        with aws_errors():
            cluster = self._client().describe_cluster(name=name)["cluster"]
        try:
            return NodeCluster(described(cluster), str(cluster.get("version", "")))
        except UserDataError as error:
            raise CloudRefused(f"nodes cannot join cluster {name}: {error}") from error
