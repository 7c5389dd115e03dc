"""The services that have the settings of one cluster, and the connection to them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from leeway.wiring.clients import client, session

from leeway_cli.adopt.changes import Change, Setting, by_key
from leeway_cli.adopt.settings.access import Eks, EksCluster, read_access
from leeway_cli.adopt.settings.groups import AutoScaling, read_groups
from leeway_cli.adopt.settings.home import read_home, read_manifest
from leeway_cli.adopt.settings.leeway_stack import CloudFormation, LeewayStack, read_cluster_name
from leeway_cli.adopt.settings.objects import KubernetesObjects, read_objects
from leeway_cli.adopt.settings.spot_role import read_spot_role
from leeway_cli.errors import CannotBeDoneError, aws_errors, kubernetes_errors
from leeway_cli.kubeconfig import kubeconfig_connection
from leeway_cli.stack import Stack, other_server, same_server

_READERS = (
    read_access,
    read_objects,
    read_groups,
    read_cluster_name,
    read_manifest,
    read_home,
    read_spot_role,
)


@dataclass(frozen=True, slots=True)
class Services:
    """The services with the settings of one cluster. `stack` has the table with the manifests."""

    cluster: str
    eks: Eks
    scaling: AutoScaling
    objects: KubernetesObjects
    stacks: CloudFormation
    stack: Stack

    def read(self, wanted: Iterable[Setting]) -> dict[str, Any]:
        """Read the current state of these settings, with all hooks of their groups.

        Raises:
            CannotBeDoneError: AWS or the API server does not answer or refuses.
        """
        asked = [*wanted]
        with aws_errors(f"cluster {self.cluster}"), kubernetes_errors():
            return by_key(*(found for reader in _READERS for found in reader(self, asked)))

    def later(self, change: Change) -> str | None:
        """Return why a removal would end pods or instances now; None if it would not.

        Raises:
            CannotBeDoneError: AWS or the API server does not answer or refuses.
        """
        if change.after is not None:
            return None
        with aws_errors(change.title), kubernetes_errors():
            return change.setting.later(self)

    def write(self, change: Change) -> None:
        """Make one change.

        Raises:
            CannotBeDoneError: AWS or the API server does not answer or refuses.
        """
        with aws_errors(change.title), kubernetes_errors():
            if change.after is None:
                change.setting.remove(self)
            else:
                change.after.write(self, change.before)  # type: ignore[arg-type] # of one kind


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
