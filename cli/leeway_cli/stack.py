"""Finds the deployment of Leeway: its table and its clusters."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError, NotDeployedError, aws_errors
from leeway_cli.output import write_stderr

if TYPE_CHECKING:
    from leeway.kubernetes.connection import Connection
    from leeway.manifests.configuration import StoredManifests
    from leeway.manifests.in_cluster import ManifestHome
    from leeway.selection.offers.catalog import Catalog
    from leeway.table import UnreadableRecord

TABLE = "LEEWAY_TABLE"
CLUSTERS = "LEEWAY_CLUSTERS"

STACK_SET = "StackSet-"
"""What the names of the stacks of StackSets begin with. docs/stacksets.md"""

NAME_PREFIX = "NamePrefix"
"""The parameter of such a stack with what the names of its functions begin with."""

StackOption = Annotated[
    str,
    typer.Option(
        help=f"Set the CloudFormation stack of Leeway. The variable {TABLE} has precedence."
    ),
]
DEFAULT_STACK = "leeway"


def has_account() -> bool:
    """Return whether AWS credentials and a region are configured."""
    from leeway.wiring.clients import session

    return session().region_name is not None and session().get_credentials() is not None


def cluster_name(name: str) -> str:
    """Check that this is a valid name of a cluster.

    Raises:
        BadInputError: it is not.
    """
    from leeway.manifests.cluster import NAME

    if not re.fullmatch(NAME, name):
        raise BadInputError(
            f"CLUSTER: expected the name of a cluster (letters, digits, - and _), got {name!r}."
        )
    return name


ClusterOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        callback=cluster_name,
        envvar="LEEWAY_CLUSTER",
        help="Set the cluster of the manifests.",
    ),
]


@dataclass(frozen=True, slots=True)
class Stack:
    """A deployment. `clusters` is None if its clusters are unknown."""

    table: str
    clusters: tuple[str, ...] | None

    @property
    def where(self) -> str:
        """The table, as messages name it."""
        return f"table {self.table}"

    def warn_if_unmanaged(self, cluster: str) -> None:
        """Warn if the deployment does not manage the cluster: nothing acts on its manifests."""
        if problem := self._unmanaged(cluster):
            write_stderr(f"warning: {problem}")

    def check_managed(self, cluster: str) -> None:
        """Check that the deployment manages the cluster, before a change that would do nothing.

        Raises:
            CannotBeDoneError: it does not.
        """
        if problem := self._unmanaged(cluster):
            raise CannotBeDoneError(f"Nothing was changed: {problem}.")

    def _unmanaged(self, cluster: str) -> str:
        if self.clusters is None or cluster in self.clusters:
            return ""
        from leeway.manifests.base import near_miss

        known = ", ".join(self.clusters) or "none"
        return (
            f"Leeway does not manage cluster {cluster} (ClusterNames: {known})"
            f", and does nothing there before `leeway adopt {cluster}`"
            f"{near_miss(cluster, self.clusters)}"
        )

    def manifests(self) -> "StoredManifests":
        """Return the table's manifests."""
        from leeway.manifests.configuration import StoredManifests
        from leeway.wiring.clients import table

        return StoredManifests(table(name=self.table))

    def home(self, cluster: str) -> "ManifestHome":
        """Read where users keep the manifests of a cluster."""
        from leeway.manifests.in_cluster import home_of
        from leeway.wiring.clients import table

        return home_of(table(name=self.table), cluster)

    def catalog(self) -> "Catalog | None":
        """Return the table's catalog of the region; None if it has none.

        Raises:
            CannotBeDoneError: AWS does not answer or refuses.
        """
        from leeway.catalog.stored import StoredCatalog
        from leeway.clock import SystemClock
        from leeway.wiring.clients import session, table

        with aws_errors(self.where):
            region = session().region_name
            return StoredCatalog(table(name=self.table), region, SystemClock()).read()


def find_stack(name: str) -> Stack:
    """Find the deployment in the environment or in the outputs of a stack.

    Raises:
        NotDeployedError: the region has no such stack, or it is not a stack of Leeway.
        CannotBeDoneError: AWS does not answer or refuses.
    """
    if table := os.environ.get(TABLE):
        return Stack(table, _known_names(os.environ.get(CLUSTERS)))
    described = _describe(name)
    outputs = {o["OutputKey"]: o["OutputValue"] for o in described.get("Outputs", [])}
    if "TableName" not in outputs:
        status = described.get("StackStatus", "")
        raise NotDeployedError(
            f"Stack {name} ({status}) has no output TableName, so it is not a deployment of Leeway."
        )
    given = {p["ParameterKey"]: p["ParameterValue"] for p in described.get("Parameters", [])}
    return Stack(outputs["TableName"], _known_names(given.get("ClusterNames")))


def warn_of_unreadable(problem: "UnreadableRecord") -> None:
    """Warn of a record that a command leaves out. Another version of Leeway may have written it."""
    write_stderr(f"warning: a record is not readable: {problem}")


def caller() -> str:
    """Return the ARN of the caller, for the record of what a person asked for; empty if STS does
    not answer: a network without a way to it prevents no request."""
    from botocore.exceptions import BotoCoreError, ClientError
    from leeway.wiring.clients import client

    with suppress(BotoCoreError, ClientError):
        return str(client("sts", tries=1).get_caller_identity()["Arn"])
    return ""


def _known_names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else names_of(text)


def names_of(text: str) -> tuple[str, ...]:
    """Return the values of a parameter that is a list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _describe(name: str) -> dict[str, Any]:
    from botocore.exceptions import ClientError
    from leeway.wiring.clients import client, session

    with aws_errors(f"stack {name}"):
        try:
            found: dict[str, Any] = client("cloudformation").describe_stacks(StackName=name)
        except ClientError as error:
            if "does not exist" in str(error):
                if in_stack_set := stack_of_stack_set(client("cloudformation"), name):
                    return in_stack_set
                raise NotDeployedError(
                    f"Region {session().region_name} has no stack {name}. Check AWS_REGION and "
                    f"--stack, or set {TABLE}."
                ) from error
            raise
    stack: dict[str, Any] = found["Stacks"][0]
    return stack


def connect(
    cluster: str, kubeconfig: Path | None = None, context: str | None = None
) -> "Connection":
    """Connect to the API server of a cluster: by the kubeconfig if its context is of this cluster,
    or else with an EKS token of the AWS identity.

    Raises:
        BadKubeconfig: the kubeconfig or the context that a user named is invalid.
        CannotBeDoneError: they are of another cluster.
    """
    from leeway.aws.eks import EksClusters
    from leeway.kubernetes.eks import eks_connection
    from leeway.wiring.clients import client, session

    from leeway_cli.kubeconfig import BadKubeconfig, kubeconfig_connection

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


def open_cluster(cluster: str, kubeconfig: Path | None, context: str | None) -> "Connection":
    """Connect as `connect` does if a cluster is named and EKS knows it. A kubeconfig or context
    that a user named is used in any case, with a warning if it is of another server: it may be a
    tunnel. Without a cluster, or without AWS credentials, connect by the kubeconfig.

    Raises:
        BadKubeconfig: the kubeconfig or the context is missing or invalid.
    """
    from leeway.ports.aws import CloudRefused, CloudUnavailable

    from leeway_cli.kubeconfig import kubeconfig_connection

    if cluster and has_account():
        try:
            return connect(cluster_name(cluster), kubeconfig, context)
        except (CannotBeDoneError, CloudRefused, CloudUnavailable) as error:
            write_stderr(f"warning: the kubeconfig is used for cluster {cluster}: {error}")
    return kubeconfig_connection(kubeconfig, context)


def stack_of_stack_set(cloudformation: Any, prefix: str) -> dict[str, Any] | None:
    """Describe the stack of a StackSet whose names begin with a prefix; None if the region has
    none, or if AWS does not allow to list stacks. CloudFormation gives such a stack its name."""
    from botocore.exceptions import ClientError

    try:
        for page in cloudformation.get_paginator("describe_stacks").paginate():
            for one in page["Stacks"]:
                given = {p["ParameterKey"]: p["ParameterValue"] for p in one.get("Parameters", [])}
                if one["StackName"].startswith(STACK_SET) and given.get(NAME_PREFIX) == prefix:
                    found: dict[str, Any] = one
                    return found
    except ClientError as error:
        if error.response["Error"]["Code"] not in {"AccessDenied", "AccessDeniedException"}:
            raise
    return None


def same_server(first: str, second: str) -> bool:
    """Whether two URLs are of the same API server."""
    of = [urlsplit(one) for one in (first, second)]
    return len({(one.hostname, one.port or 443) for one in of}) == 1


def other_server(cluster: str, server: str, url: str) -> CannotBeDoneError:
    """Return the error for a kubeconfig with the API server of another cluster."""
    return CannotBeDoneError(
        f"The kubeconfig has the API server {server}, and cluster {cluster} has {url}. Run `aws "
        f"eks update-kubeconfig --name {cluster}`, or set --context."
    )
