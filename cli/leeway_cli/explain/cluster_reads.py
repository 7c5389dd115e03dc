"""Reads what provision_nodes knows about a cluster before it decides."""

from pathlib import Path
from typing import TYPE_CHECKING

from leeway_cli.errors import BadInputError, CannotBeDoneError, aws_errors
from leeway_cli.manifests.files import read_files
from leeway_cli.output import write_stderr
from leeway_cli.stack import cluster_name, find_stack

if TYPE_CHECKING:
    from leeway.capacity_requests.request import CapacityRequest
    from leeway.launch.intent import LaunchIntent
    from leeway.manifests.base import Manifest
    from leeway.provisioning.cluster_read import ClusterRead
    from leeway.provisioning.cluster_state import ClusterState
    from leeway.selection.offers.catalog import Catalog


def find_manifests(
    files: "list[Path] | tuple[Path, ...]", cluster: str, stack: str
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


def cluster_read(
    cluster: str,
    manifests: "list[Manifest]",
    catalog: "Catalog",
    state: "ClusterState",
    stored: "tuple[list[LaunchIntent], list[CapacityRequest]]",
) -> "ClusterRead":
    """Return a cluster as a run of provision_nodes reads it, except for instances of Auto Scaling
    groups that have not joined. `stored` are the launches and the requests for capacity."""
    from leeway.launch.nodes_on_the_way import promised_nodes
    from leeway.manifests.pools import pools_of
    from leeway.provisioning.cluster_read import ClusterRead
    from leeway.provisioning.demand import demand_of
    from leeway.provisioning.starting_nodes import starting_nodes, starting_of_karpenter

    (intents, requests), now = stored, state.read_at
    promised = promised_nodes(intents, pools_of(manifests), catalog)
    starting = starting_nodes(state.nodes, state.joined, promised, intents, now)
    of_karpenter, coming = starting_of_karpenter(state.nodes, state.joined, state.claimed, now)
    starting = {**starting, **of_karpenter}
    open_now = [one for one in requests if one.is_open(now)]
    demand = demand_of(state, open_now, starting, promised, coming)
    return ClusterRead(cluster, manifests, catalog, state, intents, open_now, starting, demand)
