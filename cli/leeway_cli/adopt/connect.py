"""Connects to AWS and to the API server of one cluster."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from leeway.kubernetes.kubeconfig import kubeconfig_connection
from leeway.wiring.clients import client, session

from leeway_cli.adopt.services import Services
from leeway_cli.cluster_setup.auto_scaling import AutoScaling
from leeway_cli.cluster_setup.cloudformation import CloudFormation
from leeway_cli.cluster_setup.desired import LeewayStack
from leeway_cli.cluster_setup.eks import Eks
from leeway_cli.cluster_setup.kubernetes_objects import KubernetesObjects
from leeway_cli.cluster_setup.ports import EksCluster
from leeway_cli.errors import CannotBeDoneError, aws_errors, kubernetes_errors
from leeway_cli.stack import Stack, other_server, same_server

_ACTIVE = frozenset({"ACTIVE", "UPDATING"})


@dataclass(frozen=True, slots=True)
class Connected:
    """One cluster, Leeway's stack, and the services with their settings."""

    cluster: EksCluster
    stack: LeewayStack
    services: Services

    @property
    def region(self) -> str:
        """The region of the calls."""
        return str(session().region_name)


@contextmanager
def connected(
    cluster: str,
    stack: str,
    kubeconfig: Path | None,
    context: str | None,
    sleep: Callable[[float], None],
) -> Iterator[Connected]:
    """Read the cluster and the stack, and connect to the API server of the kubeconfig.

    Raises:
        BadInputError: the kubeconfig is invalid.
        CannotBeDoneError: AWS does not answer or refuses; there is no such cluster or stack; the
            kubeconfig is of another cluster.
    """
    eks = Eks(partial(client, "eks"), sleep)
    stacks = CloudFormation(partial(client, "cloudformation"), sleep)
    with aws_errors(f"cluster {cluster}"):
        found = eks.cluster(cluster)
    if found.status not in _ACTIVE:
        raise CannotBeDoneError(
            f"Cluster {cluster} has the status {found.status}. Wait until it is ACTIVE, and run "
            "the command again."
        )
    with aws_errors(f"stack {stack}"):
        leeway = stacks.stack(stack)
    with kubernetes_errors():
        connection = kubeconfig_connection(kubeconfig, context)
    with closing(connection):
        if not same_server(connection.server, found.endpoint.url):
            raise other_server(cluster, connection.server, found.endpoint.url)
        services = Services(
            cluster,
            eks,
            AutoScaling(partial(client, "autoscaling"), partial(client, "ec2")),
            KubernetesObjects(connection),
            stacks,
            Stack(leeway.table, leeway.clusters),
        )
        yield Connected(found, leeway, services)
