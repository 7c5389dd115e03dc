"""`leeway adopt` and `leeway release`: bring a cluster under Leeway's care, and undo it."""

import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli import options
from leeway_cli.errors import BadInputError
from leeway_cli.output import Format, FormatOption
from leeway_cli.stack import DEFAULT_STACK, StackOption, cluster_name

if TYPE_CHECKING:
    from leeway_cli.adopt.run import Command
    from leeway_cli.adopt.services import Connected

_ROLE = re.compile(r"arn:[a-z-]+:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}")


class Manifests(StrEnum):
    """Where users keep the manifests of a cluster: `manifests.in_cluster.Home` of the layer."""

    CLUSTER = "cluster"
    TABLE = "table"


ClusterArgument = Annotated[
    str, typer.Argument(metavar="CLUSTER", callback=cluster_name, help="The name of the cluster.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Change settings of others without a question.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print each change with its call, and change nothing.")
]


def adopt(
    cluster: ClusterArgument,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="NAME",
            help="Bring this Auto Scaling group under care. Repeatable. Default: all groups of the "
            "cluster except those of managed node groups.",
        ),
    ] = None,
    node_roles: Annotated[
        list[str] | None,
        typer.Option(
            "--node-role",
            metavar="ARN",
            help="Let nodes with this role join. Repeatable. Default: the roles of NodeRoleArns "
            "that the node classes of the cluster name.",
        ),
    ] = None,
    update_stack: Annotated[
        bool,
        typer.Option(
            help="Add the cluster to ClusterNames. With --no-update-stack, print the command."
        ),
    ] = True,
    manifests: Annotated[
        Manifests | None,
        typer.Option(
            help="Set where users keep manifests: in the API server of the cluster or in Leeway's "
            "table. Default: as recorded, else adopt asks.",
        ),
    ] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    rbac: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Set the folder with Leeway's objects (default: rbac/)."),
    ] = None,
    stack: StackOption = DEFAULT_STACK,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Bring a cluster under Leeway's care.

    Writes the authentication mode, access entries, RBAC, the Cluster manifest, ClusterNames of the
    stack, and tags and lifecycle hooks of Auto Scaling groups; each only if it differs. Asks before
    it changes settings of others. Run it again after any failure: it continues.

    \b
    leeway adopt CLUSTER --dry-run
    leeway adopt CLUSTER --group workers --group batch
    leeway adopt CLUSTER --manifests cluster
    leeway release CLUSTER
    """
    for role in node_roles or ():
        if not _ROLE.fullmatch(role):
            raise BadInputError(f"--node-role: expected the ARN of an IAM role, got {role!r}.")

    from leeway.manifests.in_cluster import Home

    from leeway_cli.adopt.plan import RBAC, Choices, plan_adoption, read_objects
    from leeway_cli.adopt.run import Command, ask_functions, ask_home, run_adoption
    from leeway_cli.adopt.services import connected

    command = Command(yes, dry_run, output)
    with connected(cluster, stack, kubeconfig, context, command.sleep) as found:
        home = Home(manifests) if manifests else ask_home(found, command)
        chosen = Choices(
            tuple(groups or ()), tuple(node_roles or ()), rbac or RBAC, update_stack, home
        )
        run_adoption(found, lambda: plan_adoption(found, chosen), command)
        if not update_stack:
            _say_stack_command(found, command)
        if not dry_run and (update_stack or cluster in found.stack.clusters):
            ask_functions(found, read_objects(chosen.rbac), command)


def release(
    cluster: ClusterArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    stack: StackOption = DEFAULT_STACK,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Undo what `leeway adopt` did in a cluster, and nothing else.

    Settings that were there before, or that somebody changed since, stay. Nodes and instances stay
    as they are. Run it again after any failure: it continues.

    \b
    leeway release CLUSTER --dry-run
    leeway release CLUSTER
    """
    from leeway_cli.adopt.run import Command, run_release
    from leeway_cli.adopt.services import connected

    command = Command(yes, dry_run, output)
    with connected(cluster, stack, kubeconfig, context, command.sleep) as found:
        run_release(found, command)


def _say_stack_command(found: "Connected", command: "Command") -> None:
    """Print the command that adds the cluster to ClusterNames, if it is not there yet."""
    from leeway_cli.adopt.settings.leeway_stack import names_after

    stack, cluster = found.stack, found.cluster.name
    if cluster in stack.clusters:
        return
    names = ",".join(names_after(stack.clusters, add=cluster))
    command.say(shlex.join(stack.update(ClusterNames=names)))
