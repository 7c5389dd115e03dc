"""`leeway select`: shows the nodes that Leeway would launch for pods, and the pods that fit
nowhere."""

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from leeway.reasons import counted, some

from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.manifests.files import FilesOption, read_pools, with_overlays
from leeway_cli.output import (
    picked,
    print_json,
    stdout_console,
    table,
    write_stderr,
    write_stdout,
)
from leeway_cli.selection.sources import (
    KubernetesFiles,
    RegionOption,
    ReservedForOption,
    SandboxOption,
    find_catalog,
    with_reservations,
)
from leeway_cli.stack import DEFAULT_STACK, StackOption

if TYPE_CHECKING:
    from leeway.selection.packing.plan import Plan, PlannedNode


class SelectFormat(StrEnum):
    """The output formats of what is selected."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def select(
    files: FilesOption = None,
    pods: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Read pods, Lists, Deployments, StatefulSets and Jobs from a file."
        ),
    ] = None,
    nodes: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Read the output of `kubectl get nodes,pods -A -o json`."
        ),
    ] = None,
    replicas: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help="Override the replicas of a workload."),
    ] = None,
    cluster: ReservedForOption = "",
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    for_group: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Print a MixedInstancesPolicy for this Auto Scaling group."
        ),
    ] = "",
    output: Annotated[
        SelectFormat, typer.Option("--output", "-o", help="Set the format of the result on stdout.")
    ] = SelectFormat.TABLE,
) -> None:
    """Select nodes for pods from the pools of manifests, or instance types for a group. Launches
    and changes nothing.

    Pods are placed on the nodes of --nodes first. Without --pods, nodes are selected for those pods
    of --nodes that have no node.

    With --for-group, prints the policy as `aws autoscaling update-auto-scaling-group` takes it, and
    with -o yaml as CloudFormation does: types that hold what the pods on its nodes (of --nodes)
    request, else as much as its smallest type; its launch template and on-demand share stay.

    Exit codes: 0 every pod gets a node, 1 pods get none, 2 bad input.

    \b
    leeway select -f pools.yaml --pods web.yaml
    leeway select --for-group web > policy.json
    """
    if for_group:
        # The variable is for other commands too: doctor prints this one.
        given = cluster != os.environ.get("LEEWAY_CLUSTER", "")
        if files or pods or replicas or given:
            raise BadInputError("--for-group: expected no other input than --nodes.")
        _advise(for_group, nodes or (), sandbox, region, stack, output)
        return
    if output is SelectFormat.YAML:
        raise BadInputError("--output: expected table or json: yaml is for --for-group.")
    plan = _plan(
        files or (), pods or (), nodes or (), replicas or (), cluster, sandbox, region, stack
    )
    if output is SelectFormat.JSON:
        print_json(as_data(plan))
    else:
        _print_plan(plan)
    if plan.unschedulable:
        raise typer.Exit(1)


def _advise(
    name: str,
    nodes: Sequence[Path],
    sandbox: bool,
    region: str | None,
    stack: str,
    output: SelectFormat,
) -> None:
    """Print the policy of a group; what it changes goes to stderr, so that stdout is the policy."""
    from leeway.selection.reading.cluster_objects import existing_nodes
    from leeway.selection.reading.objects import instance_of
    from leeway.wiring.clients import background_client, session

    from leeway_cli.selection import group_advice

    used = region or session().region_name
    if used is None:
        raise CannotBeDoneError("No AWS region is set. Set AWS_REGION.")
    clients = (background_client(service, used) for service in ("autoscaling", "ec2"))
    group = group_advice.read_group(name, *clients)
    given, pods = KubernetesFiles(nodes), None
    if nodes:
        names = [
            one["metadata"]["name"]
            for one in given.documents
            if one.get("kind") == "Node" and instance_of(one) in group.instances
        ]
        pods = group_advice.requested(given.read_with(given, existing_nodes), names)
        if pods is None:
            write_stderr(f"warning: no pod of --nodes runs on a node of group {name}")
    catalog = find_catalog(region, stack, sandbox=sandbox)
    advice = group_advice.advise(group, catalog, pods)
    spot = group_advice.spot_of(group, stack, datetime.now(UTC))
    if output is SelectFormat.JSON:
        print_json(group_advice.as_data(advice, spot))
        return
    for note in group_advice.notes(advice):
        write_stderr(f"warning: group {name}: {note}")
    write_stderr(group_advice.as_text(advice, spot))
    if output is SelectFormat.YAML:
        write_stdout(group_advice.for_cloudformation(advice))
    else:
        write_stdout(group_advice.for_aws(advice))


def _plan(
    files: Iterable[Path],
    pods: Sequence[Path],
    nodes: Sequence[Path],
    replicas: Sequence[str],
    name: str,
    sandbox: bool,
    region: str | None,
    stack: str,
) -> "Plan":
    from leeway.selection.packing.planning import LAUNCHES, pack
    from leeway.selection.packing.supply import Supply
    from leeway.selection.reading.cluster_objects import daemons_of, existing_nodes, pending_pods

    from leeway_cli.selection.input_warnings import missing_references

    if not (pods or nodes):
        raise BadInputError("--pods: expected a file of pods, or --nodes with pending pods.")
    given = KubernetesFiles(pods)
    cluster = KubernetesFiles(nodes)
    replica_counts = _replicas(replicas, given if pods else cluster)
    manifests, _ = read_pools(files)
    first, second = (given, cluster) if pods else (cluster, given)
    waiting = first.read_with(second, lambda of, others: pending_pods(of, replica_counts, others))
    if not waiting:
        _warn_of_no_pods(first)
    for each in first.read_with(second, missing_references):
        write_stderr(f"warning: {first.place(each.path, each.message)}")
    existing = cluster.read_with(given, existing_nodes)
    daemons = given.read_with(cluster, daemons_of)
    catalog = find_catalog(region, stack, sandbox=sandbox)
    applied = with_overlays(manifests, catalog)
    pools = with_reservations(applied, name, region, sandbox=sandbox)
    return pack(waiting, Supply(pools, catalog, daemons=daemons), existing, LAUNCHES)


def _warn_of_no_pods(objects: KubernetesFiles) -> None:
    """Warn that there are no pods. A workload with zero replicas may be the cause."""
    scaled_to_zero = (d for d in objects.documents if (d.get("spec") or {}).get("replicas") == 0)
    names = [d["metadata"].get("name", "") for d in scaled_to_zero]
    hint = f"; set the replicas of {names[0]} with --replicas {names[0]}=N" if names else ""
    write_stderr(f"warning: no pod is pending{hint}")


def _replicas(given: Sequence[str], objects: KubernetesFiles) -> dict[str, int]:
    names = {(d.get("metadata") or {}).get("name") for d in objects.documents}
    found = {}
    for each in given:
        name, _, count = each.partition("=")
        if not count.isdecimal() or not name:
            raise BadInputError(f"--replicas: expected NAME=N, such as web=3, got {each}.")
        if name not in names:
            raise BadInputError(f"--replicas: expected a workload of the files, got {name}.")
        found[name] = int(count)
    return found


def as_data(plan: "Plan") -> dict[str, Any]:
    """Render a plan as JSON."""
    return {
        "launches": [launch_as_data(node) for node in plan.launches],
        "existing": [picked(one, "node", "pods") for one in plan.existing],
        "unschedulable": [picked(one, "pod", "reason") for one in plan.unschedulable],
        **picked(plan, pricePerHour="price", lowerBoundPerHour="bound"),
    }


def launch_as_data(node: "PlannedNode") -> dict[str, Any]:
    """Render a node to launch as JSON."""
    offered = ("instance_types", "zones", "capacity_type")
    first, *others = (picked(one, *offered, pricePerHour="price") for one in node.choices)
    own = {"requests": node.requests.printed(), "alternatives": others}
    return picked(node, "pods", nodePool="pool") | first | own


def _print_plan(plan: "Plan") -> None:
    console = stdout_console()
    rows = table("POOL", "TYPES", "ZONES", "CAPACITY", "USD/H", "PODS", right={"USD/H"})
    for node in plan.launches:
        choice = node.choices[0]
        price = "unknown" if choice.price is None else f"{choice.price:.4f}"
        types, zones = some(choice.instance_types), some(choice.zones)
        rows.add_row(node.pool, types, zones, choice.capacity_type, price, some(node.pods))
    if plan.launches:
        console.print(rows)
    for placement in plan.existing:
        console.print(f"on {placement.node}: {some(placement.pods, 8)}", soft_wrap=True)
    for pod in plan.unschedulable:
        line = f"{pod.pod} is unschedulable: {pod.reason.code}: {pod.reason.message}"
        console.print(line, soft_wrap=True, markup=False)
    console.print(
        f"{counted(len(plan.launches), 'node')} to launch, {plan.price:.4f} USD per hour; "
        f"lower bound {plan.bound:.4f} USD per hour",
        soft_wrap=True,
    )
