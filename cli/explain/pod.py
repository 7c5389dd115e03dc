"""`leeway explain pod`: shows which node a pod gets, or why none, and the nearest pool."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

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
    from leeway.capacity_requests.request import CapacityRequest
    from leeway.kubernetes.connection import Connection
    from leeway.launch.intent import LaunchIntent
    from leeway.manifests.base import Manifest
    from leeway.provisioning.cluster_state import ClusterState
    from leeway.provisioning.explain_pod import Situation
    from leeway.selection.offers.catalog import Catalog


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
    With --cluster and a deployment, also counts launched nodes and the pods of retiring nodes.
    Without a node, the pools are listed with what keeps the pod from each, the nearest first.
    Launches and changes nothing.

    \b
    leeway explain pod shop/web-7d4b9c-x2x7p --cluster prod
    leeway explain pod shop/web-7d4b9c-x2x7p -f pools.yaml -o json
    """
    from leeway.clock import SystemClock
    from leeway.kubernetes.cluster_states import KubernetesClusterStates
    from leeway.kubernetes.kubeconfig import kubeconfig_connection
    from leeway.provisioning.explain_pod import explain_pod as plan_for_pod

    from cli.explain.pod_view import pod_as_data, show_pod

    name = _pod_name(pod)
    manifests = _manifests(files or (), cluster, stack)
    with kubernetes_errors(), closing(kubeconfig_connection(kubeconfig, context)) as connection:
        found = _read_pod(connection, name)
        state = KubernetesClusterStates(lambda _: connection, SystemClock()).read(cluster)
    for unreadable in state.unreadable:
        write_stderr(f"warning: {unreadable.reason.code}: {unreadable.reason}")
    plan = None
    if any(one.pod.name == name for one in state.waiting):
        stored = stored_launches(cluster, stack)
        catalog = find_catalog(region, stack, sandbox=sandbox)
        plan = plan_for_pod(name, _situation(state, manifests, stored, catalog))
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


def _read_pod(connection: "Connection", name: str) -> "dict[str, Any]":
    """Read a pod, `namespace/name`.

    Raises:
        CannotBeDoneError: there is no such pod.
        ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
    """
    from leeway.kubernetes.connection import raise_unless_object
    from lightkube import ApiError

    namespace, _, pod = (quote(part, safe="") for part in name.partition("/"))

    def read(connection: "Connection") -> "dict[str, Any]":
        response = connection.plain.request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")
        raise_unless_object(response)
        document: dict[str, Any] = response.json()
        return document

    try:
        return connection.call(read)
    except ApiError as error:
        raise CannotBeDoneError(POD_NOT_FOUND(pod=name)) from error


def stored_launches(cluster: str, stack: str) -> "tuple[list[LaunchIntent], list[CapacityRequest]]":
    """Read the launches whose nodes may not have joined yet, and the requests of retirements for
    capacity. Without the name of a cluster, or without a deployment, none is known."""
    if not cluster:
        return [], []
    from functools import partial

    from leeway.aws.capacity_requests import DynamoCapacityRequests
    from leeway.aws.launch_intents import DynamoLaunchIntents
    from leeway.wiring.clients import client

    try:
        deployment = find_stack(stack)
        database, name = partial(client, "dynamodb"), cluster_name(cluster)
        with aws_errors(deployment.where):
            intents = DynamoLaunchIntents(database, deployment.table).of_cluster(name)
            return intents, DynamoCapacityRequests(database, deployment.table).of_cluster(name)
    except CannotBeDoneError as error:
        write_stderr(f"warning: launched nodes and retiring nodes are not known: {error}")
        return [], []


def _situation(
    state: "ClusterState",
    manifests: "list[Manifest]",
    stored: "tuple[list[LaunchIntent], list[CapacityRequest]]",
    catalog: "Catalog",
) -> "Situation":
    """Return what provision_nodes plans with, except for instances of Auto Scaling groups."""
    from leeway.clock import SystemClock
    from leeway.launch.nodes_on_the_way import nodes_on_the_way
    from leeway.manifests.pools import pools_of
    from leeway.provisioning.demand import demand_of
    from leeway.provisioning.explain_pod import Situation
    from leeway.provisioning.starting_nodes import starting_nodes, starting_of_karpenter

    (intents, requests), now, pools = stored, SystemClock().now(), pools_of(manifests)
    launched = nodes_on_the_way(intents, (), pools, catalog, now)
    starting = starting_nodes(state.nodes, state.joined, launched, intents, now)
    of_karpenter, coming = starting_of_karpenter(state.nodes, state.joined, state.claimed, now)
    starting = {**starting, **of_karpenter}
    demand = demand_of(state, [one for one in requests if one.is_open(now)], starting, coming)
    return Situation(
        waiting=demand.pods,
        nodes=demand.nodes,
        joining=[one for one in launched if one.name not in state.joined],
        daemons=state.daemons,
        pools=pools,
        catalog=catalog,
        unavailable=demand.unavailable,
    )
