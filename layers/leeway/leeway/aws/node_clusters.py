"""EKS's clusters as nodes need them, by boto3."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.aws.remembered import Remembered
from leeway.bootstrap.node import UserDataError, described
from leeway.clock import Clock
from leeway.launch.belonging import Network
from leeway.launch.resolve_pools import NodeCluster
from leeway.parallel import in_parallel
from leeway.ports.aws import CloudRefused

_OF_NODES = {"EC2_LINUX", "EC2_WINDOWS"}
"""The types of access entries of nodes with a role of one's own. Source: EKS API,
CreateAccessEntry."""
_NO_ENTRY = {"ResourceNotFoundException", "InvalidRequestException"}
"""No such entry or cluster, or the cluster has no access entries, only its ConfigMap."""
_AT_ONCE = 8


class EksNodeClusters:
    """The NodeClusters Protocol; `client` makes boto3's EKS client when it is first used. `managed`
    are the clusters of the deployment."""

    def __init__(
        self, client: Callable[[], Any], clock: Clock, managed: Collection[str] = ()
    ) -> None:
        self._client = client
        self._managed = frozenset(managed)
        self._known: Remembered[tuple[str, str], bool] = Remembered(clock)

    def node_cluster(self, name: str) -> NodeCluster:
        """Read a cluster.

        Raises:
            CloudRefused: there is no such cluster, or nodes cannot join it yet.
        """
        with aws_errors():
            cluster = self._client().describe_cluster(name=name)["cluster"]
        network = cluster.get("resourcesVpcConfig") or {}
        groups = {network.get("clusterSecurityGroupId"), *(network.get("securityGroupIds") or ())}
        try:
            return NodeCluster(
                described(cluster),
                str(cluster.get("version", "")),
                str(cluster.get("arn", "")),
                Network(
                    vpc=network.get("vpcId") or "",
                    subnets=frozenset(network.get("subnetIds") or ()),
                    security_groups=frozenset(one for one in groups if one),
                ),
            )
        except UserDataError as error:
            raise CloudRefused(f"nodes cannot join cluster {name}: {error}") from error

    def joined_with(self, role: str, name: str) -> list[str]:
        """Return which clusters nodes with a role, by its ARN, can join by an access entry: of this
        cluster and the managed ones. It is read again after five minutes."""
        clusters = sorted({name, *self._managed})
        answers = in_parallel(partial(self._joins, role), clusters, _AT_ONCE)
        return [one for one, joins in zip(clusters, answers, strict=True) if joins]

    def _joins(self, role: str, name: str) -> bool:
        def ask() -> bool:
            with aws_errors():
                try:
                    answer = self._client().describe_access_entry(
                        clusterName=name, principalArn=role
                    )
                except ClientError as error:
                    if code_of(error) in _NO_ENTRY:
                        return False
                    raise
            return answer["accessEntry"].get("type") in _OF_NODES

        return self._known.get((name, role), ask)
