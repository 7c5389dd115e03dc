"""`leeway explain pod`: shows which node a pod gets, or why none, and the nearest pool."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.aws_errors import aws_errors
from cli.drain import options
from cli.errors import BadInputError, CannotBeDoneError
from cli.kubernetes_errors import kubernetes_errors
from cli.manifests.files import FilesOption, read_files
from cli.output import Format, FormatOption, print_json, write_stderr
from cli.reasons import INVALID_OPTION, POD_NOT_FOUND
from cli.selection.catalogs import RegionOption, SandboxOption, find_catalog
from cli.stack import DEFAULT_STACK, StackOption, cluster_name, find_stack

if TYPE_CHECKING:
    from leeway.launch.intent import LaunchIntent
    from leeway.manifests.base import Manifest
    from leeway.provisioning.explain_pod import PodPlan

    from cli.explain.cluster_objects import ClusterObjects


def explain_pod(
    pod: Annotated[
        str, typer.Argument(metavar="NAMESPACE/NAME", help="The pod. NAME: in namespace default.")
    ],
    files: FilesOption = None,
    cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            envvar="LEEWAY_CLUSTER",
            help="The cluster whose manifests are in the table. Not needed with --filename.",
        ),
    ] = "",
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Explain which node a pending pod gets, or why it gets none.

    Plans for all pending pods of the kubeconfig's cluster, with the pools of -f or of the table.
    Without a node, the pools are listed with what keeps the pod from each, the nearest first.
    Launches and changes nothing.

    \b
    leeway explain pod shop/web-7d4b9c-x2x7p --cluster prod
    leeway explain pod shop/web-7d4b9c-x2x7p -f pools.yaml -o json
    """
    from leeway.kubernetes.kubeconfig import kubeconfig_connection

    from cli.explain.cluster_objects import read_objects
    from cli.explain.pod_view import pod_as_data, show_pod

    name = _pod_name(pod)
    manifests = _manifests(files or (), cluster, stack)
    with kubernetes_errors(), closing(kubeconfig_connection(kubeconfig, context)) as connection:
        objects = read_objects(connection)
    found = objects.pods.get(name)
    if found is None:
        raise CannotBeDoneError(POD_NOT_FOUND(pod=name))
    plan = None
    if any(one.name == name for one in objects.waiting):
        intents = launches_of(cluster, stack)
        plan = _plan(name, objects, manifests, intents, region, stack, sandbox)
    if output is Format.JSON:
        print_json(pod_as_data(name, found, plan))
    else:
        show_pod(name, found, plan)


def _pod_name(given: str) -> str:
    namespace, slash, name = given.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        expected = f"NAMESPACE/NAME, got {given!r}"
        raise BadInputError(INVALID_OPTION(option="NAMESPACE/NAME", expected=expected))
    return f"{namespace or 'default'}/{name}"


def _manifests(
    files: "list[Path] | tuple[Path, ...]", cluster: str, stack: str
) -> "list[Manifest]":
    """Read the manifests of the files, or else those of the cluster in the table."""
    if files:
        return [one.meant for one in read_files(files).written]
    if not cluster:
        expected = "the name of a cluster with stored manifests, or use --filename"
        raise BadInputError(INVALID_OPTION(option="--cluster", expected=expected))
    from leeway.manifests.reading import read_stored

    deployment = find_stack(stack)
    with aws_errors(deployment.where):
        stored = deployment.manifests().of(cluster_name(cluster))
    readings = [read_stored(one.body, one.title) for one in stored]
    for problem in (problem for reading in readings for problem in reading.problems):
        write_stderr(f"warning: {problem}")
    return [one.meant for reading in readings for one in reading.written]


def launches_of(cluster: str, stack: str) -> "list[LaunchIntent]":
    """Read the launches whose nodes may not have joined yet. Without the name of a cluster, or
    without a deployment, none is known."""
    if not cluster:
        return []
    from functools import partial

    from leeway.aws.launch_intents import DynamoLaunchIntents
    from leeway.wiring.clients import client

    try:
        deployment = find_stack(stack)
        with aws_errors(deployment.where):
            return DynamoLaunchIntents(partial(client, "dynamodb"), deployment.table).of_cluster(
                cluster_name(cluster)
            )
    except CannotBeDoneError as error:
        write_stderr(f"warning: nodes that have not joined yet are not known: {error}")
        return []


def _plan(
    name: str,
    objects: "ClusterObjects",
    manifests: "list[Manifest]",
    intents: "list[LaunchIntent]",
    region: str | None,
    stack: str,
    sandbox: bool,
) -> "PodPlan":
    from leeway.clock import SystemClock
    from leeway.launch.nodes_on_the_way import nodes_on_the_way
    from leeway.manifests.pools import pools_of
    from leeway.provisioning.explain_pod import Situation, explain_pod

    pools = pools_of(manifests)
    catalog = find_catalog(region, stack, sandbox=sandbox)
    joining = nodes_on_the_way(intents, objects.joined, pools, catalog, SystemClock().now())
    situation = Situation(
        waiting=objects.waiting,
        nodes=objects.nodes,
        joining=joining,
        daemons=objects.daemons,
        pools=pools,
        catalog=catalog,
    )
    return explain_pod(name, situation)
