"""Where Leeway is deployed: its table, and the clusters under its care."""

import os
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.aws import aws_trouble
from cli.errors import BadInputError, CannotBeDoneError
from cli.output import tell

if TYPE_CHECKING:
    from leeway.aws.manifests import DynamoManifests, DynamoManifestWriting

TABLE = "LEEWAY_TABLE"
CLUSTERS = "LEEWAY_CLUSTERS"

StackOption = Annotated[
    str,
    typer.Option(
        help=f"The CloudFormation stack that Leeway is; {TABLE} in the environment wins over it."
    ),
]
DEFAULT_STACK = "leeway"


def cluster_name(name: str) -> str:
    """Refuse what no cluster is called: it would be written about and never read.

    Raises:
        BadInputError: it is none's name.
    """
    from leeway.manifests.cluster import NAME

    if not re.fullmatch(NAME, name):
        raise BadInputError(f"expected a cluster's name (letters, digits, - and _), got {name!r}")
    return name


ClusterOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        callback=cluster_name,
        envvar="LEEWAY_CLUSTER",
        help="The cluster that the manifests are about.",
    ),
]


@dataclass(frozen=True, slots=True)
class Stack:
    """A deployment. `clusters` is None where nobody says which are under care."""

    table: str
    clusters: tuple[str, ...] | None

    @property
    def where(self) -> str:
        """How the table is named in messages."""
        return f"table {self.table}"

    def warn_of_a_stranger(self, cluster: str) -> None:
        """Say so where the cluster is not under care: nothing would come of its manifests."""
        if self.clusters is not None and cluster not in self.clusters:
            known = ", ".join(self.clusters) or "none"
            tell(f"warning: cluster {cluster} is not under Leeway's care (ClusterNames: {known})")

    def manifests(self) -> "DynamoManifests":
        """Open what reads the table's manifests."""
        from leeway.aws.manifests import DynamoManifests
        from leeway.wiring.clients import client

        return DynamoManifests(partial(client, "dynamodb"), self.table)

    def writing(self) -> "DynamoManifestWriting":
        """Open what changes the table's manifests."""
        from leeway.aws.manifests import DynamoManifestWriting
        from leeway.wiring.clients import client

        return DynamoManifestWriting(partial(client, "dynamodb"), self.table)


def find_stack(name: str) -> Stack:
    """Find the deployment: from the environment, or from the outputs of a stack.

    Raises:
        CannotBeDoneError: there is no such stack here, or it is not Leeway's.
    """
    if table := os.environ.get(TABLE):
        return Stack(table, _names(os.environ.get(CLUSTERS)))
    described = _describe(name)
    outputs = {o["OutputKey"]: o["OutputValue"] for o in described.get("Outputs", [])}
    if "TableName" not in outputs:
        status = described.get("StackStatus", "")
        raise CannotBeDoneError(f"stack {name} ({status}) is not Leeway's: no output TableName")
    given = {p["ParameterKey"]: p["ParameterValue"] for p in described.get("Parameters", [])}
    return Stack(outputs["TableName"], _names(given.get("ClusterNames")))


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _describe(name: str) -> dict[str, Any]:
    from botocore.exceptions import ClientError
    from leeway.wiring.clients import client, session

    with aws_trouble(f"stack {name}"):
        try:
            found: dict[str, Any] = client("cloudformation").describe_stacks(StackName=name)
        except ClientError as error:
            if "does not exist" in str(error):
                raise CannotBeDoneError(
                    f"no stack {name} in {session().region_name}: check AWS_REGION and --stack,"
                    f" or set {TABLE}"
                ) from error
            raise
    stack: dict[str, Any] = found["Stacks"][0]
    return stack
