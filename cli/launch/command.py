"""`leeway launch`: nodes for pods, once and by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.aws_errors import aws_errors
from cli.errors import BadInputError, CannotBeDoneError
from cli.manifests.files import FilesOption, read_files
from cli.output import Format, FormatOption, print_json, write_stderr
from cli.reasons import INVALID_OPTION
from cli.selection.catalogs import RegionOption, account_catalog
from cli.selection.kubernetes_files import KubernetesFiles
from cli.stack import DEFAULT_STACK, StackOption, cluster_name, find_stack

if TYPE_CHECKING:
    from leeway.launch.launch_nodes import LaunchOrder
    from leeway.manifests.base import Manifest
    from leeway.selection.offers.catalog import Catalog

ClusterNameOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        envvar="LEEWAY_CLUSTER",
        help="The cluster that the nodes join. Default: the Cluster manifest's name.",
    ),
]


def launch(
    pods: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Pods, Lists, Deployments, StatefulSets, Jobs."),
    ],
    files: FilesOption = None,
    nodes: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="The output of `kubectl get nodes,pods -A -o json`."),
    ] = None,
    cluster: ClusterNameOption = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the fleet requests, and launch nothing.")
    ] = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Launch nodes for pods by the pools of manifests.

    Pods go onto the nodes of --nodes first, and onto nodes that were launched and have not joined
    yet. Leeway reads subnets, security groups, AMIs and the cluster from AWS.

    \b
    leeway launch -f pools.yaml --pods pods.yaml --cluster prod --dry-run
    """
    from leeway.wiring.launch_nodes import launch_nodes

    from cli.launch.view import preview_as_data, print_preview

    if not dry_run:
        raise BadInputError(INVALID_OPTION(option="--dry-run", expected="it: only previews exist"))
    manifests = [one.meant for one in read_files(files or ()).written]
    name = _cluster(cluster, manifests)
    deployment = find_stack(stack)
    order = _order(name, manifests, pods, nodes or (), account_catalog(region, stack))
    with aws_errors(deployment.where):
        preview = launch_nodes(deployment.table, _NoAdmissions()).preview(order)
    for reason in preview.outcome.reasons:
        write_stderr(f"warning: {reason.code}: {reason.message}")
    missing = preview.outcome.without_node
    if output is Format.TABLE:
        print_preview(preview)
    if missing:
        raise CannotBeDoneError(missing[0].reason, result=preview_as_data(preview))
    if output is Format.JSON:
        print_json(preview_as_data(preview))


def _cluster(given: str, manifests: "Sequence[Manifest]") -> str:
    from leeway.manifests.cluster import Cluster

    named = [one.metadata.name for one in manifests if isinstance(one, Cluster)]
    if not given and len(named) != 1:
        expected = "a name, or one Cluster manifest in --filename"
        raise BadInputError(INVALID_OPTION(option="--cluster", expected=expected))
    if given and named and named != [given]:
        expected = f"{named[0]}, the name of the Cluster manifest, got {given}"
        raise BadInputError(INVALID_OPTION(option="--cluster", expected=expected))
    return cluster_name(given or named[0])


def _order(
    cluster: str,
    manifests: "Sequence[Manifest]",
    pods: Sequence[Path],
    nodes: Sequence[Path],
    catalog: "Catalog",
) -> "LaunchOrder":
    from leeway.launch.launch_nodes import LaunchOrder
    from leeway.manifests.node_pool import NodePool
    from leeway.selection.reading.cluster_objects import daemons_of, existing_nodes, waiting_pods

    if not any(isinstance(one, NodePool) for one in manifests):
        expected = "at least one NodePool or Provisioner"
        raise BadInputError(INVALID_OPTION(option="--filename", expected=expected))
    given, running = KubernetesFiles(pods), KubernetesFiles(nodes)
    waiting = given.read_with(running, lambda of, others: waiting_pods(of, {}, others))
    if not waiting:
        expected = "at least one pod without a node"
        raise BadInputError(INVALID_OPTION(option="--pods", expected=expected))
    provider_ids = (
        str((document.get("spec") or {}).get("providerID") or "")
        for document in running.documents
        if document.get("kind") == "Node"
    )
    return LaunchOrder(
        cluster=cluster,
        manifests=manifests,
        catalog=catalog,
        pods=waiting,
        nodes=running.read_with(given, existing_nodes),
        joined=frozenset(name.rpartition("/")[2] for name in provider_ids if name),
        daemons=running.read_with(given, daemons_of),
    )


class _NoAdmissions:
    """The AdmitNode Protocol of a preview, which launches nothing."""

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        """Refuse: there is no launched instance."""
        raise AssertionError(f"a preview launched {instance}")
