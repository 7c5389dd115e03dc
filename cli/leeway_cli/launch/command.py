"""`leeway launch`: nodes for pods, once and by hand."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from leeway.reasons import Reason

from leeway_cli import options
from leeway_cli.errors import BadInputError, CannotBeDoneError, aws_errors, kubernetes_errors
from leeway_cli.manifests.files import FilesOption, read_pools, with_overlays
from leeway_cli.options import parse_duration
from leeway_cli.output import Format, FormatOption, print_json, write_stderr
from leeway_cli.selection.sources import KubernetesFiles, RegionOption, find_catalog
from leeway_cli.stack import DEFAULT_STACK, Stack, StackOption, cluster_name, find_stack

if TYPE_CHECKING:
    from leeway.launch.launch_run import LaunchOrder
    from leeway.manifests.base import Manifest
    from leeway.ports.kubernetes import Cluster
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
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="Wait so long for nodes to become Ready.")
    ] = "15m",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the fleet requests, and launch nothing.")
    ] = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Launch nodes for pods by the pools of manifests, and wait until they are Ready.

    Pods go onto the nodes of --nodes first, and onto nodes that were launched and have not joined
    yet. Leeway reads subnets, security groups, AMIs and the cluster from AWS. The kubeconfig's
    cluster must be the one that the nodes join.

    \b
    leeway launch -f pools.yaml --pods pods.yaml --cluster prod --dry-run
    leeway launch -f pools.yaml --pods pods.yaml --cluster prod --timeout 5m
    """
    from leeway_cli.kubeconfig import kubeconfig_cluster

    manifests, _ = read_pools(files or ())
    name = _cluster(cluster, manifests)
    limit = parse_duration("--timeout", timeout)
    deployment = find_stack(stack)
    catalog = find_catalog(region, stack, sandbox=False)
    order = _order(deployment, name, manifests, pods, nodes or (), catalog)
    if dry_run:
        _preview(deployment, order, output)
    else:
        with (
            kubernetes_errors(),
            closing(kubeconfig_cluster(kubeconfig, context)) as joined_cluster,
        ):
            joined_cluster.count_nodes()  # before machines are bought
            _launch(deployment, order, joined_cluster, limit, output)


def _preview(deployment: Stack, order: "LaunchOrder", output: Format) -> None:
    from leeway.launch.intent import INTENT_BY_HAND
    from leeway.wiring.launch_nodes import launch_nodes

    from leeway_cli.launch.launch import preview_as_data, print_preview

    with aws_errors(deployment.where):
        preview = launch_nodes(deployment.table, INTENT_BY_HAND).preview(order)
    _warn(preview.outcome.reasons)
    missing = preview.outcome.without_node
    if output is Format.TABLE:
        print_preview(preview)
    if missing:
        raise CannotBeDoneError(str(missing[0].reason), result=preview_as_data(preview))
    if output is Format.JSON:
        print_json(preview_as_data(preview))


def _launch(
    deployment: Stack, order: "LaunchOrder", cluster: "Cluster", limit: timedelta, output: Format
) -> None:
    from leeway.clock import SystemClock
    from leeway.launch.intent import INTENT_BY_HAND
    from leeway.wiring.launch_nodes import launch_nodes

    from leeway_cli.launch.launch import (
        LaunchProgress,
        launch_as_data,
        print_launch,
        wait_for_nodes,
    )

    until = SystemClock().now() + limit
    with LaunchProgress() as progress:
        with aws_errors(deployment.where):
            outcome = launch_nodes(deployment.table, INTENT_BY_HAND).launch(order)
        instances = [one.instance.instance for one in outcome.launched]
        progress.launched(len(instances))
        joined = wait_for_nodes(instances, cluster, until, progress.ended)
    _warn(outcome.reasons)
    problems = [one.problem for one in joined if one.problem is not None]
    problems += [str(one.reason) for one in outcome.without_node]
    if output is Format.TABLE:
        print_launch(outcome, joined)
    if problems:
        details = "\n".join(problems[1:])
        raise CannotBeDoneError(problems[0], details, launch_as_data(outcome, joined))
    if output is Format.JSON:
        print_json(launch_as_data(outcome, joined))


def _warn(reasons: Iterable[Reason]) -> None:
    for reason in reasons:
        write_stderr(f"warning: {reason.code}: {reason.message}")


def _cluster(given: str, manifests: "Sequence[Manifest]") -> str:
    from leeway.manifests.cluster import Cluster

    named = [one.metadata.name for one in manifests if isinstance(one, Cluster)]
    if not given and len(named) != 1:
        raise BadInputError("--cluster: expected a name, or one Cluster manifest in --filename.")
    if given and named and named != [given]:
        raise BadInputError(
            f"--cluster: expected {named[0]}, the name of the Cluster manifest, got {given}."
        )
    return cluster_name(given or named[0])


def _order(
    deployment: Stack,
    cluster: str,
    manifests: "Sequence[Manifest]",
    pods: Sequence[Path],
    nodes: Sequence[Path],
    catalog: "Catalog",
) -> "LaunchOrder":
    from leeway.clock import SystemClock
    from leeway.launch.hibernating import read_sleeping
    from leeway.launch.launch_run import LaunchOrder
    from leeway.selection.reading.cluster_objects import daemons_of, existing_nodes, pending_pods
    from leeway.selection.reading.objects import instance_of, name_of
    from leeway.wiring.clients import table

    given, running = KubernetesFiles(pods), KubernetesFiles(nodes)
    waiting = given.read_with(running, lambda of, others: pending_pods(of, {}, others))
    if not waiting:
        raise BadInputError("--pods: expected at least one pod without a node.")
    joined = {
        instance_of(document): name_of(document)
        for document in running.documents
        if document.get("kind") == "Node"
    }
    with aws_errors(deployment.where):
        records = table(name=deployment.table)
        sleeping = read_sleeping(records, cluster, manifests, SystemClock().now())
    return LaunchOrder(
        cluster=cluster,
        manifests=with_overlays(manifests, catalog),
        catalog=catalog,
        pods=waiting,
        nodes=running.read_with(given, existing_nodes),
        joined={instance: name for instance, name in joined.items() if instance},
        daemons=running.read_with(given, daemons_of),
        sleeping=sleeping,
    )
