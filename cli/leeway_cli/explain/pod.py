"""`leeway explain pod`: shows which node a pod gets, or why none, and the nearest pool."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from leeway_cli.drain import options
from leeway_cli.errors import BadInputError, CannotBeDoneError, kubernetes_errors
from leeway_cli.explain.cluster_reads import cluster_read, find_manifests, stored_launches
from leeway_cli.explain.options import ClusterName
from leeway_cli.manifests.files import FilesOption
from leeway_cli.output import Format, FormatOption, print_json, write_stderr
from leeway_cli.selection.catalogs import RegionOption, SandboxOption, find_catalog
from leeway_cli.stack import DEFAULT_STACK, StackOption

if TYPE_CHECKING:
    from leeway.kubernetes.connection import Connection
    from leeway.provisioning.cluster_read import ClusterRead
    from leeway.provisioning.explain_pod import Situation


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
    from leeway.kubernetes.kubeconfig import kubeconfig_connection
    from leeway.provisioning.explain_pod import explain_pod as plan_for_pod

    from leeway_cli.explain.pod_view import pod_as_data, show_pod

    name = _pod_name(pod)
    manifests = find_manifests(files or (), cluster, stack)
    with kubernetes_errors(), closing(kubeconfig_connection(kubeconfig, context)) as connection:
        found = _read_pod(connection, name)
        state = KubernetesClusterStates(lambda _: connection, SystemClock()).read(cluster)
    for unreadable in state.unreadable:
        write_stderr(f"warning: {unreadable.reason.code}: {unreadable.reason}")
    plan = None
    if any(one.pod.name == name for one in state.waiting):
        stored = stored_launches(cluster, stack)
        catalog = find_catalog(region, stack, sandbox=sandbox)
        read = cluster_read(cluster, manifests, catalog, state, stored)
        plan = plan_for_pod(name, _situation(read))
    if output is Format.JSON:
        print_json(pod_as_data(name, found, plan))
    else:
        show_pod(name, found, plan)


def _pod_name(given: str) -> str:
    namespace, slash, name = given.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise BadInputError(f"NAMESPACE/NAME: expected NAMESPACE/NAME, got {given!r}.")
    return f"{namespace or 'default'}/{name}"


def _read_pod(connection: "Connection", name: str) -> "dict[str, Any]":
    """Read a pod, `namespace/name`.

    Raises:
        CannotBeDoneError: there is no such pod.
        ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
    """
    from leeway.kubernetes.connection import raise_unless_object
    from leeway.kubernetes.decoders import without_nulls
    from lightkube import ApiError

    namespace, _, pod = (quote(part, safe="") for part in name.partition("/"))

    def read(connection: "Connection") -> "dict[str, Any]":
        response = connection.plain.request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")
        raise_unless_object(response)
        document: dict[str, Any] = without_nulls(response.json())
        return document

    try:
        return connection.call(read)
    except ApiError as error:
        raise CannotBeDoneError(f"The cluster has no pod {name}.") from error


def _situation(read: "ClusterRead") -> "Situation":
    """Return what provision_nodes plans with, except for instances of Auto Scaling groups."""
    from leeway.launch.nodes_on_the_way import nodes_on_the_way
    from leeway.launch.price_ceiling import Prices
    from leeway.manifests.cluster import Cluster, cluster_policy
    from leeway.manifests.pools import pools_of
    from leeway.policy.rules import ClusterPolicy
    from leeway.provisioning.explain_pod import Situation
    from leeway.provisioning.launch_cap import price_ceiling

    state, pools = read.state, pools_of(read.manifests)
    policies = [cluster_policy(one) for one in read.manifests if isinstance(one, Cluster)]
    most = next(iter(policies), ClusterPolicy()).usd_per_hour
    prices = Prices(read.catalog)
    return Situation(
        waiting=read.demand.pods,
        nodes=read.demand.nodes,
        joining=nodes_on_the_way(read.intents, state.joined, pools, read.catalog, state.read_at),
        daemons=state.daemons,
        pools=pools,
        catalog=read.catalog,
        unavailable=read.demand.unavailable,
        ceiling=price_ceiling(most, read.demand, read.requests, state, read.intents, prices),
        cluster=read.cluster,
    )
