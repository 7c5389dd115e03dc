"""`leeway explain node, pod and cluster`: reads what is asked for, from a cluster or from files."""

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from leeway.policy.rules import ClusterPolicy

from leeway_cli import options
from leeway_cli.completion import nodes as complete_nodes
from leeway_cli.drain.command import node_name
from leeway_cli.errors import BadInputError, CannotBeDoneError, aws_errors, kubernetes_errors
from leeway_cli.manifests.files import FilesOption, read_files, with_overlays
from leeway_cli.output import Format, FormatOption, print_json, write_stderr
from leeway_cli.selection.sources import RegionOption, SandboxOption, find_catalog
from leeway_cli.stack import (
    DEFAULT_STACK,
    StackOption,
    cluster_name,
    find_stack,
    open_cluster,
    warn_of_unreadable,
)

if TYPE_CHECKING:
    from leeway.capacity_requests import CapacityRequest
    from leeway.hibernation import Sleeping
    from leeway.kubernetes.connection import Connection
    from leeway.launch.intent import LaunchIntent
    from leeway.manifests.base import Manifest
    from leeway.pool_pauses import PoolRecord
    from leeway.provisioning.cluster_state import ClusterState
    from leeway.provisioning.demand import ClusterRead
    from leeway.reasons import Reason
    from leeway.selection.offers.catalog import Catalog

    from leeway_cli.explain.capacity import Capacity
    from leeway_cli.explain.plan_pod import Situation

ClusterName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        envvar="LEEWAY_CLUSTER",
        help="The cluster whose manifests and retirements are in the table. Not needed with "
        "--filename.",
    ),
]
NodesOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Read the output of `kubectl get nodes,pods,pdb,ds -A -o json` instead of a cluster.",
    ),
]


def find_manifests(
    files: list[Path] | tuple[Path, ...], cluster: str, stack: str
) -> "list[Manifest]":
    """Read the manifests of the files, or else those of the cluster in the table."""
    if files:
        return [one.manifest for one in read_files(files).written]
    if not cluster:
        raise BadInputError(
            "--cluster: expected the name of a cluster with stored manifests, or use --filename."
        )
    from leeway.manifests.reading import read_stored

    deployment = find_stack(stack)
    deployment.warn_if_unmanaged(cluster)
    with aws_errors(deployment.where):
        stored = deployment.manifests().of(cluster_name(cluster))
    readings = [read_stored(one.body, one.title) for one in stored]
    for problem in (problem for reading in readings for problem in reading.problems):
        write_stderr(f"warning: {problem}")
    return [one.manifest for reading in readings for one in reading.written]


def stored_launches(cluster: str, stack: str) -> "tuple[list[LaunchIntent], list[CapacityRequest]]":
    """Read the launches whose nodes may not have joined yet, and the requests of retirements for
    capacity. Without the name of a cluster, or without a deployment, none is known."""
    if not cluster:
        return [], []
    from leeway.capacity_requests import CAPACITY_REQUEST
    from leeway.clock import SystemClock
    from leeway.launch.intent import all_intents
    from leeway.wiring.clients import table

    try:
        deployment = find_stack(stack)
        stored, name = table(name=deployment.table), cluster_name(cluster)
        with aws_errors(deployment.where):
            found = stored.list(CAPACITY_REQUEST, cluster=name, unreadable=warn_of_unreadable)
            return all_intents(stored, name, SystemClock().now()), list(found)
    except CannotBeDoneError as error:
        write_stderr(f"warning: launched nodes and retiring nodes are not known: {error}")
        return [], []


def pool_records(cluster: str, stack: str) -> "Sequence[PoolRecord]":
    """Read the records of the pools whose instances did not join, paused ones among them. Without
    the name of a cluster, or without a deployment, none is known."""
    if not cluster:
        return ()
    from leeway.pool_pauses import POOL
    from leeway.wiring.clients import table

    try:
        deployment = find_stack(stack)
        records, name = table(name=deployment.table), cluster_name(cluster)
        with aws_errors(deployment.where):
            return records.list(POOL, cluster=name, unreadable=warn_of_unreadable)
    except CannotBeDoneError as error:
        write_stderr(f"warning: paused pools are not known: {error}")
        return ()


def block_of(cluster: str, stack: str, opened: "Callable[[], Connection]") -> "Reason | None":
    """Read why Leeway launches nothing in a cluster and gives nothing back, although its manifests
    say so: Karpenter launches its nodes, or they are held. `opened` connects to its API server.
    Without the name of a cluster, or without a deployment, nothing is known."""
    if not cluster:
        return None
    from leeway.clock import SystemClock
    from leeway.kubernetes.custom_resources import HttpClusterApi
    from leeway.manifests.in_cluster import launch_block
    from leeway.wiring.clients import table

    try:
        deployment = find_stack(stack)
        records, name = table(name=deployment.table), cluster_name(cluster)
        with aws_errors(deployment.where), kubernetes_errors():
            now = SystemClock().now()
            return launch_block(records, lambda _: HttpClusterApi(opened()), name, now)
    except CannotBeDoneError as error:
        write_stderr(f"warning: it is not known whether Karpenter launches the nodes: {error}")
        return None


def warn_of_block(block: "Reason | None") -> None:
    """Warn that Leeway does nothing of what a command explains."""
    if block is not None:
        write_stderr(f"warning: {block.code}: {block}")


def sleeping_now(
    cluster: str, stack: str, manifests: "list[Manifest]", now: datetime
) -> "Sleeping":
    """Return the pools that hibernate. Without the name of a cluster, or without a deployment, none
    was woken."""
    from leeway.launch.hibernating import read_sleeping, sleeping_pools
    from leeway.wiring.clients import table

    plain = sleeping_pools(manifests, (), now)
    if not (cluster and plain):
        return plain
    try:
        deployment = find_stack(stack)
        stored = table(name=deployment.table)
        with aws_errors(deployment.where):
            return read_sleeping(stored, cluster_name(cluster), manifests, now)
    except CannotBeDoneError as error:
        write_stderr(f"warning: it is not known which pools were woken: {error}")
        return plain


def cluster_read(
    cluster: str,
    manifests: "list[Manifest]",
    catalog: "Catalog",
    state: "ClusterState",
    stored: "tuple[list[LaunchIntent], list[CapacityRequest]]",
    sleeping: "Sleeping",
) -> "ClusterRead":
    """Return a cluster as a run of provision_nodes reads it, except for instances of Auto Scaling
    groups that have not joined. `stored` are the launches and the requests for capacity, `sleeping`
    the pools that hibernate."""
    from leeway.launch.intent import promised_nodes
    from leeway.manifests.node_pool import pools_of
    from leeway.provisioning.demand import (
        ClusterRead,
        demand_of,
        starting_nodes,
        starting_of_karpenter,
    )

    (intents, requests), now = stored, state.read_at
    applied = with_overlays(manifests, catalog)
    promised = promised_nodes(intents, pools_of(applied), catalog)
    starting = starting_nodes(state.nodes, state.joined, promised, intents, now)
    of_karpenter, coming = starting_of_karpenter(state.nodes, state.joined, state.claimed, now)
    starting = {**starting, **of_karpenter}
    open_now = [one for one in requests if one.is_open(now)]
    demand = demand_of(state, open_now, starting, promised, coming)
    read = (cluster, applied, catalog, state, intents, open_now, starting, demand)
    return ClusterRead(*read, sleeping=sleeping)


def explain_cluster(
    files: FilesOption = None,
    cluster: ClusterName = "",
    nodes: NodesOption = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Explain what a cluster costs, what giving back its next node saves, and which steps follow.

    Decides as Leeway does each minute, for the pools of -f or of the table, and then simulates the
    next hours as if nothing else changed. Lists why the other nodes are kept, and the Auto Scaling
    groups that could be smaller, which Leeway does not change. Changes nothing.

    \b
    leeway explain cluster --cluster prod
    leeway explain cluster -f pools.yaml --nodes cluster.json --sandbox -o json
    """
    from leeway.disruption.explain import explain_cluster as explain

    from leeway_cli.explain.capacity import Source, read_capacity, time_limit
    from leeway_cli.explain.cluster_view import cluster_as_data, show_cluster

    source = Source(files or (), nodes or (), cluster, kubeconfig, context, sandbox, region, stack)
    read = read_capacity(source)
    snapshot, decision = read.decide()
    found = explain(snapshot, decision, read.foreign, read.sizes, time_limit())
    if output is Format.JSON:
        print_json(cluster_as_data(found, cluster, read.snapshot.now))
    else:
        show_cluster(found, cluster, read.snapshot.now)


def explain_node(
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE",
            help="The node: NAME, node/NAME, or the id of its instance.",
            autocompletion=complete_nodes,
        ),
    ],
    files: FilesOption = None,
    cluster: ClusterName = "",
    nodes: NodesOption = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Explain why a node is kept or given back, what it costs, and what is in the way.

    Lists every pod, PodDisruptionBudget, annotation, budget and window that keeps the node now, the
    node that its pods would get instead, and what is missing until their move pays. For a node of
    another owner, says whose it is and whether its pods fit elsewhere. Changes nothing.

    \b
    leeway explain node ip-10-0-0-1.ec2.internal --cluster prod
    leeway explain node i-0123456789abcdef0 -f pools.yaml -o json
    """
    from leeway.disruption.explain import explain_node as explain

    from leeway_cli.explain.capacity import Source, read_capacity, time_limit
    from leeway_cli.explain.cluster_view import node_as_data, show_node

    given = node_name(node)
    source = Source(files or (), nodes or (), cluster, kubeconfig, context, sandbox, region, stack)
    read = read_capacity(source)
    name = _found(given, read)
    snapshot, decision = read.decide()
    found = explain(name, snapshot, decision, read.foreign, time_limit())
    if output is Format.JSON:
        print_json(node_as_data(found))
    else:
        show_node(found)


def _found(given: str, read: "Capacity") -> str:
    """Return the name of a node that is given by its name or its instance.

    Raises:
        CannotBeDoneError: the cluster has no such node.
    """
    by_instance = {
        one.instance: one.name
        for one in (*read.snapshot.own, *(other.one for other in read.foreign))
        if one.instance
    }
    if given in read.names:
        return given
    if given in by_instance:
        return by_instance[given]
    raise CannotBeDoneError(f"The cluster has no node {given}{_similar(given, read.names)}.")


def _similar(given: str, names: Sequence[str]) -> str:
    near = get_close_matches(given, names, n=3, cutoff=0.8)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def explain_pod(
    pod: Annotated[
        str, typer.Argument(metavar="NAMESPACE/NAME", help="The pod. NAME: in namespace default.")
    ],
    files: FilesOption = None,
    cluster: ClusterName = "",
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
    from leeway.manifests.cluster import Cluster

    from leeway_cli.explain.plan_pod import explain_pod as plan_for_pod
    from leeway_cli.explain.plan_pod import pod_as_data, show_pod
    from leeway_cli.selection.input_warnings import unknown_words_of

    name = _pod_name(pod)
    manifests = find_manifests(files or (), cluster, stack)
    if any(isinstance(one, Cluster) and one.spec.dry_run for one in manifests):
        write_stderr("warning: the cluster has dryRun: nothing is launched.")
    with kubernetes_errors(), closing(open_cluster(cluster, kubeconfig, context)) as connection:
        found = _read_pod(connection, name)
        state = KubernetesClusterStates(lambda _: connection, SystemClock()).read(cluster)
        warn_of_block(block_of(cluster, stack, lambda: connection))
    for unreadable in state.unreadable:
        write_stderr(f"warning: {unreadable.reason.code}: {unreadable.reason}")
    for path, message in unknown_words_of(found):
        write_stderr(f"warning: pod {name}: {'.'.join(map(str, path[:2]))}: {message}")
    plan = None
    if any(one.pod.name == name for one in state.waiting):
        stored = stored_launches(cluster, stack)
        catalog = find_catalog(region, stack, sandbox=sandbox)
        sleeping = sleeping_now(cluster, stack, manifests, state.read_at)
        read = cluster_read(cluster, manifests, catalog, state, stored, sleeping)
        plan = plan_for_pod(name, _situation(read, pool_records(cluster, stack)))
    if output is Format.JSON:
        print_json(pod_as_data(name, found, plan))
    else:
        show_pod(name, found, plan)


def _pod_name(given: str) -> str:
    namespace, slash, name = given.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise BadInputError(f"NAMESPACE/NAME: expected NAMESPACE/NAME, got {given!r}.")
    return f"{namespace or 'default'}/{name}"


def _read_pod(connection: "Connection", name: str) -> dict[str, Any]:
    """Read a pod, `namespace/name`.

    Raises:
        CannotBeDoneError: there is no such pod.
        ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
    """
    from leeway.kubernetes.connection import ApiError

    namespace, _, pod = (quote(part, safe="") for part in name.partition("/"))
    try:
        return connection.request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")
    except ApiError as error:
        raise CannotBeDoneError(f"The cluster has no pod {name}.") from error


def _situation(read: "ClusterRead", records: "Sequence[PoolRecord]") -> "Situation":
    """Return what provision_nodes plans with, except for instances of Auto Scaling groups.
    `records` are those of the pools."""
    from leeway.hibernation import stopped_pools
    from leeway.launch.intent import nodes_on_the_way
    from leeway.launch.prices import Prices
    from leeway.manifests.cluster import Cluster, cluster_policy
    from leeway.manifests.node_pool import pools_of
    from leeway.provisioning.brakes import price_ceiling, stopped_pods, vain_launches

    from leeway_cli.explain.plan_pod import Situation

    state, pools = read.state, pools_of(read.manifests)
    policies = [cluster_policy(one) for one in read.manifests if isinstance(one, Cluster)]
    most = next(iter(policies), ClusterPolicy()).usd_per_hour
    prices, demand = Prices(read.catalog), read.demand
    vain = vain_launches(read.intents, state.joined, state.nodes, state.read_at)
    return Situation(
        waiting=demand.pods,
        nodes=demand.nodes,
        joining=nodes_on_the_way(read.intents, state.joined, pools, read.catalog, state.read_at),
        daemons=state.daemons,
        pools=pools,
        catalog=read.catalog,
        unavailable=demand.unavailable,
        ceiling=price_ceiling(most, demand, read.requests, state, read.intents, prices),
        cluster=read.cluster,
        stopped=stopped_pools(records, read.sleeping),
        vain=stopped_pods(demand.pods, demand.nodes, read.catalog, vain),
    )
