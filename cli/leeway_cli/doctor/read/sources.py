"""Who reads what `leeway adopt` sets: the readers of cli/leeway_cli/cluster_setup."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from leeway.aws.eks import EksClusters
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.eks import eks_connection
from leeway.kubernetes.kubeconfig import BadKubeconfig, kubeconfig_connection
from leeway.wiring.clients import client, session

from leeway_cli.adopt.plan import RBAC, read_objects
from leeway_cli.cluster_setup.auto_scaling import AutoScaling
from leeway_cli.cluster_setup.cloudformation import CloudFormation
from leeway_cli.cluster_setup.desired import LeewayStack
from leeway_cli.cluster_setup.eks import Eks
from leeway_cli.cluster_setup.kubernetes_objects import KubernetesObjects
from leeway_cli.cluster_setup.ports import Clusters, Groups, Objects, Stacks
from leeway_cli.cluster_setup.reachability import FunctionsNetwork
from leeway_cli.cluster_setup.settings import ClusterObject
from leeway_cli.cluster_setup.subnets import functions_network
from leeway_cli.stack import other_server, same_server


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


def sources(kubeconfig: Path | None, context: str | None) -> Sources:
    """Return the readers of AWS, and of clusters by this kubeconfig.

    Raises:
        BadInputError: the objects that a cluster needs cannot be read.
    """
    return Sources(
        stacks=CloudFormation(partial(client, "cloudformation")),
        clusters=Eks(partial(client, "eks")),
        groups=AutoScaling(partial(client, "autoscaling"), partial(client, "ec2")),
        network=partial(functions_network, ec2=partial(client, "ec2")),
        connect=lambda name: _connect(name, kubeconfig, context),
        objects=KubernetesObjects,
        wanted=read_objects(RBAC),
    )


def _connect(cluster: str, kubeconfig: Path | None, context: str | None) -> Connection:
    """Connect to the API server of a cluster: by the kubeconfig if its context is of this cluster,
    or else with an EKS token of the AWS identity.

    Raises:
        BadKubeconfig: the kubeconfig or the context that a user named is invalid.
        CannotBeDoneError: they are of another cluster.
    """
    endpoint = EksClusters(partial(client, "eks")).endpoint(cluster)
    named = kubeconfig is not None or context is not None
    try:
        connection = kubeconfig_connection(kubeconfig, context)
    except BadKubeconfig:
        if named:
            raise
        return eks_connection(endpoint, session())
    if same_server(connection.server, endpoint.url):
        return connection
    server = connection.server
    connection.close()
    if named:
        raise other_server(cluster, server, endpoint.url)
    return eks_connection(endpoint, session())
