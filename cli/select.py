"""`leeway select`: what would be launched for pods, and which of them fit nowhere, and why."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.catalogs import RegionOption, SandboxOption, find_catalog
from cli.errors import BadInputError
from cli.manifest_files import FilesOption, read_files
from cli.output import Format, FormatOption, print_json, results, tell
from cli.pod_files import Objects
from cli.stack import DEFAULT_STACK, StackOption

if TYPE_CHECKING:
    from leeway.selection.packing.plan import Plan, PlannedNode


def select(
    files: FilesOption = None,
    pods: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Pods, Lists, Deployments, StatefulSets, Jobs."),
    ] = None,
    nodes: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="What `kubectl get nodes,pods -A -o json` says."),
    ] = None,
    replicas: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help="The replicas of a workload, whatever it says."),
    ] = None,
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Select nodes for pods by the pools of manifests, launching nothing.

    Pods go onto the nodes of --nodes first. Without --pods, the pods of --nodes that have no node
    are selected for.
    """
    plan = _plan(files or (), pods or (), nodes or (), replicas or (), sandbox, region, stack)
    if output is Format.JSON:
        print_json(as_data(plan))
    else:
        _show(plan)


def _plan(
    files: Iterable[Path],
    pods: Sequence[Path],
    nodes: Sequence[Path],
    replicas: Sequence[str],
    sandbox: bool,
    region: str | None,
    stack: str,
) -> "Plan":
    from leeway.manifests.pools import pools_of
    from leeway.selection.packing.planning import pack
    from leeway.selection.packing.supply import Supply
    from leeway.selection.reading.cluster_objects import daemons_of, existing_nodes, waiting_pods
    from leeway.selection.reading.overlooked import overlooked

    if not (pods or nodes):
        raise BadInputError("--pods: expected a file of pods, or --nodes with pods that wait")
    asked = Objects(pods)
    there = Objects(nodes)
    wanted = _replicas(replicas, asked if pods else there)
    pools = pools_of(one.meant for one in read_files(files).written)
    if not pools:
        raise BadInputError("--filename: expected at least one NodePool or Provisioner")
    first, second = (asked, there) if pods else (there, asked)
    waiting = first.beside(second, lambda of, others: waiting_pods(of, wanted, others))
    if not waiting:
        _tell_of_nobody(first)
    for each in first.beside(second, overlooked):
        tell(f"warning: {first.place(each.path, each.message)}")
    existing = there.beside(asked, existing_nodes)
    daemons = asked.beside(there, daemons_of)
    catalog = find_catalog(region, stack, sandbox=sandbox)
    return pack(waiting, Supply(pools, catalog, daemons=daemons), existing)


def _tell_of_nobody(objects: Objects) -> None:
    """Say so where there is no pod to select for: a workload may still be to be scaled."""
    asleep = (d for d in objects.documents if (d.get("spec") or {}).get("replicas") == 0)
    names = [d["metadata"].get("name", "") for d in asleep]
    hint = f"; --replicas {names[0]}=N gives {names[0]} some" if names else ""
    tell(f"warning: no pod waits for a node{hint}")


def _replicas(given: Sequence[str], objects: Objects) -> dict[str, int]:
    names = {(d.get("metadata") or {}).get("name") for d in objects.documents}
    found = {}
    for each in given:
        name, _, count = each.partition("=")
        if not count.isdecimal() or not name:
            raise BadInputError(f"--replicas: expected NAME=N, like web=3, got {each}")
        if name not in names:
            raise BadInputError(f"--replicas: there is no workload {name}")
        found[name] = int(count)
    return found


def as_data(plan: "Plan") -> dict[str, Any]:
    """Render a plan for JSON."""
    return {
        "launches": [_launch(node) for node in plan.launches],
        "existing": [{"node": e.node, "pods": list(e.pods)} for e in plan.existing],
        "unschedulable": [{"pod": u.pod, "reason": u.reason} for u in plan.unschedulable],
        "pricePerHour": _usd(plan.price),
        "lowerBoundPerHour": _usd(plan.bound),
    }


def _launch(node: "PlannedNode") -> dict[str, Any]:
    first, *others = node.choices
    return {
        "nodePool": node.pool,
        "instanceTypes": list(first.instance_types),
        "zones": list(first.zones),
        "capacityType": first.capacity_type,
        "requests": node.requests.printed(),
        "pods": list(node.pods),
        "pricePerHour": None if first.price is None else _usd(first.price),
        "alternatives": [
            {
                "instanceTypes": list(choice.instance_types),
                "zones": list(choice.zones),
                "capacityType": choice.capacity_type,
                "pricePerHour": None if choice.price is None else _usd(choice.price),
            }
            for choice in others
        ],
    }


def _usd(price: float) -> float:
    return round(price, 6)


def _show(plan: "Plan") -> None:
    from rich.table import Table

    console = results()
    table = Table(box=None, pad_edge=False)
    for title in ("POOL", "TYPES", "ZONES", "CAPACITY", "USD/H", "PODS"):
        table.add_column(title, overflow="fold", justify="right" if title == "USD/H" else "left")
    for node in plan.launches:
        choice = node.choices[0]
        price = "unknown" if choice.price is None else f"{choice.price:.4f}"
        types, zones = _some(choice.instance_types, 3), _some(choice.zones, 3)
        table.add_row(node.pool, types, zones, choice.capacity_type, price, _some(node.pods, 3))
    if plan.launches:
        console.print(table)
    for placement in plan.existing:
        console.print(f"on {placement.node}: {_some(placement.pods, 8)}", soft_wrap=True)
    for miss in plan.unschedulable:
        console.print(f"{miss.pod} fits nowhere: {miss.reason}", soft_wrap=True, markup=False)
    count = len(plan.launches)
    console.print(
        f"{count} {'node' if count == 1 else 'nodes'} to launch, {plan.price:.4f} USD per hour; "
        f"no plan costs less than {plan.bound:.4f}",
        soft_wrap=True,
    )


def _some(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
