"""`leeway nodes`: a line a node, and the totals."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leeway_cli import options
from leeway_cli.completion import nodes as complete_nodes
from leeway_cli.errors import BadInputError, CannotBeDoneError, kubernetes_errors
from leeway_cli.explain.asked import ClusterName, NodesOption
from leeway_cli.manifests.files import FilesOption
from leeway_cli.nodes.rows import NodeRow, Share, Sort, Totals, ordered, totals_of
from leeway_cli.output import kept_warnings, print_json, stdout_console, write_stdout
from leeway_cli.selection.sources import RegionOption, SandboxOption
from leeway_cli.stack import DEFAULT_STACK, StackOption
from leeway_cli.terminal import show_changes

if TYPE_CHECKING:
    from datetime import datetime

    from leeway.provisioning.cluster_state import ClusterStates
    from rich.console import RenderableType

    from leeway_cli.explain.capacity import Source
    from leeway_cli.nodes.reading import NodeReading

REFRESH_EVERY = 5.0
"""Seconds between two reads with --watch."""

MONTH_HOURS = 730


class NodesFormat(StrEnum):
    """The output formats of nodes."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


def nodes(
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="NODE", help="Only these nodes.", autocompletion=complete_nodes),
    ] = None,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Only the nodes with these labels.")
    ] = "",
    sort: Annotated[Sort, typer.Option(help="Sort the nodes by this column.")] = Sort.OWNER,
    label: Annotated[
        list[str] | None,
        typer.Option("--label-column", "-L", metavar="KEY", help="Add a label as a column."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh the output until Ctrl-C.")
    ] = False,
    files: FilesOption = None,
    cluster: ClusterName = "",
    nodes: NodesOption = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: Annotated[
        NodesFormat, typer.Option("--output", "-o", help="Set the format of the result on stdout.")
    ] = NodesFormat.TABLE,
) -> None:
    """Show each node: what it is, how full it is, what it costs, and what happens to it next.

    Works with a kubeconfig alone. Prices come from AWS, if credentials and a region are set. With
    --cluster, the table of Leeway adds retirements, launches, and what is given back by the pools.
    Times are in UTC. Changes nothing.

    \b
    leeway nodes --sort price
    leeway nodes --cluster prod --watch
    leeway nodes -l team=web -L topology.kubernetes.io/zone -o wide
    """
    from leeway_cli.explain.capacity import Source
    from leeway_cli.nodes.reading import NodeReading

    if watch and (nodes or output is NodesFormat.JSON):
        raise BadInputError("--watch: expected a cluster and a table, not --nodes or -o json.")
    if selector and nodes:
        raise BadInputError("--selector: expected a cluster: the API server selects, not --nodes.")
    source = Source(
        *(files or (), nodes or (), cluster, kubeconfig, context, sandbox, region, stack),
        optional=True,
    )
    names = frozenset(one.removeprefix("node/") for one in name or ())
    chosen = _Chosen(NodeReading(source), names, selector, sort)
    if nodes:
        _print(*chosen.read(None), output, label or ())
        return
    from leeway.clock import SystemClock
    from leeway.kubernetes.cluster_states import KubernetesClusterStates
    from leeway.kubernetes.kubeconfig import kubeconfig_connection

    with kubernetes_errors(), closing(kubeconfig_connection(kubeconfig, context)) as connection:
        states = KubernetesClusterStates(lambda _: connection, SystemClock())
        if watch:
            show_changes(_views(chosen, states, output, label or ()), stdout_console())
        else:
            _print(*chosen.read(states), output, label or ())


class _Chosen:
    """Reads which nodes are shown, and puts them in order."""

    def __init__(
        self, reading: "NodeReading", names: frozenset[str], selector: str, sort: Sort
    ) -> None:
        self.reading, self.names, self.selector, self.sort = reading, names, selector, sort

    def read(self, states: "ClusterStates | None") -> tuple[list[NodeRow], Totals]:
        """Return the chosen nodes with their totals.

        Raises:
            BadInputError: an option is invalid.
            CannotBeDoneError: the API server did not answer, or refused; there is no such node.
        """
        seen = self.reading.read(states)
        rows = self._of(seen.rows)
        return rows, totals_of(rows, seen.saving if len(rows) == len(seen.rows) else None)

    def _of(self, rows: Sequence[NodeRow]) -> list[NodeRow]:
        found = [*rows]
        if self.names:
            found = [one for one in found if self.names & {one.name, one.instance}]
            known = {one.name for one in found} | {one.instance for one in found}
            if missing := sorted(self.names - known):
                raise CannotBeDoneError(f"The cluster has no node {missing[0]}.")
        if self.selector:
            selected = _selected(self.selector, self.reading.source)
            found = [one for one in found if one.name in selected]
        return ordered(found, self.sort)


def _selected(selector: str, source: "Source") -> frozenset[str]:
    from leeway.kubernetes.kubeconfig import kubeconfig_cluster

    with (
        kubernetes_errors(with_selector=True),
        closing(kubeconfig_cluster(source.kubeconfig, source.context)) as found,
    ):
        return frozenset(found.select_nodes(selector))


def _views(
    chosen: _Chosen, states: "ClusterStates", output: NodesFormat, labels: Sequence[str]
) -> Iterator["RenderableType"]:
    """Yield the table every five seconds, without end. An error is shown in place of the table.
    Warnings are printed once."""
    from rich.text import Text

    rows, totals = chosen.read(states)
    while True:
        yield Text(rendered(rows, totals, output is NodesFormat.WIDE, labels))
        time.sleep(REFRESH_EVERY)
        try:
            with kept_warnings():
                rows, totals = chosen.read(states)
        except CannotBeDoneError as error:
            yield Text(str(error), style="red")


def _print(
    rows: Sequence[NodeRow], totals: Totals, output: NodesFormat, labels: Sequence[str]
) -> None:
    if output is NodesFormat.JSON:
        print_json(as_data(rows, totals))
    else:
        write_stdout(rendered(rows, totals, output is NodesFormat.WIDE, labels))


_BAR = 8
_FULL, _EMPTY = "█", "░"


def bar(share: Share) -> str:
    """Render a share as a bar with its percentage; `-` if the node has nothing of it."""
    if not share.allocatable:
        return "-"
    filled = min(_BAR, round(share.share * _BAR))
    return f"{_FULL * filled}{_EMPTY * (_BAR - filled)} {share.share:>4.0%}"


def _columns(
    wide: bool, labels: Sequence[str], now: "datetime"
) -> dict[str, Callable[[NodeRow], str]]:
    from leeway_cli.manifests.changes import age

    found: dict[str, Callable[[NodeRow], str]] = {
        "NAME": lambda row: row.name,
        "TYPE": lambda row: row.instance_type or "-",
        "CAPACITY": lambda row: row.capacity_type or "-",
        "ZONE": lambda row: row.zone or "-",
        "OWNER": lambda row: row.owner,
        "AGE": lambda row: age(now - row.created_at),
        "CPU": lambda row: bar(row.cpu),
        "MEMORY": lambda row: bar(row.memory),
        "GPUS": lambda row: bar(row.gpus),
        "PODS": lambda row: f"{row.pods.requested}/{row.pods.allocatable}",
        "USD/H": lambda row: "-" if row.price is None else f"{row.price:.4f}",
    }
    if wide:
        found |= {
            "USD/MONTH": lambda row: (
                "-" if row.price is None else f"{row.price * MONTH_HOURS:,.2f}"
            ),
            "INSTANCE": lambda row: row.instance or "-",
            "READY": lambda row: "yes" if row.ready else "no",
        }
    for key in labels:
        short = key.rpartition("/")[2].upper()
        found[key.upper() if short in found else short] = _label(key)
    return {**found, "NEXT": lambda row: row.next}


def _label(key: str) -> Callable[[NodeRow], str]:
    return lambda row: row.labels.get(key, "-")


def rendered(rows: Sequence[NodeRow], totals: Totals, wide: bool, labels: Sequence[str]) -> str:
    """Render the nodes as a table, and their totals below it."""
    from leeway.clock import SystemClock
    from leeway.printable import printable

    from leeway_cli.manifests.changes import aligned

    columns = _columns(wide, labels, SystemClock().now())
    if not totals.gpus.allocatable:
        del columns["GPUS"]
    lines = [[printable(show(row)) for show in columns.values()] for row in rows]
    return f"{aligned([[*columns], *lines])}\n{_totals_text(totals)}"


def _totals_text(totals: Totals) -> str:
    from leeway.reasons import counted

    gib = totals.memory.allocatable / 2**30
    parts = [
        counted(totals.nodes, "node"),
        f"{totals.cpu.allocatable / 1000:,.1f} vCPU ({totals.cpu.share:.0%} requested)",
        f"{gib:,.1f} GiB ({totals.memory.share:.0%} requested)",
    ]
    if gpus := totals.gpus.allocatable:
        parts.append(f"{counted(gpus, 'GPU')} ({totals.gpus.share:.0%} requested)")
    parts.append(counted(totals.pods.requested, "pod"))
    cost = f"{totals.price:,.4f} USD per hour, {totals.price * MONTH_HOURS:,.2f} a month"
    if totals.without_price:
        cost += f", without the {totals.without_price} of unknown price"
    lines = [", ".join(parts), cost]
    if totals.saving is not None:
        month = totals.saving * MONTH_HOURS
        lines.append(
            f"could save {totals.saving:,.4f} USD per hour, {month:,.2f} a month: see `leeway "
            "explain cluster`"
        )
    return "\n".join(lines)


def as_data(rows: Sequence[NodeRow], totals: Totals) -> dict[str, Any]:
    """Render as JSON: vCPUs, bytes of memory, USD."""
    return {"nodes": [_row_as_data(one) for one in rows], "totals": _totals_as_data(totals)}


def _shares(one: NodeRow | Totals) -> dict[str, Any]:
    return {
        "cpu": _share(one.cpu, 1000),
        "memory": _share(one.memory),
        "gpus": _share(one.gpus),
        "pods": _share(one.pods),
    }


def _share(share: Share, unit: int = 1) -> dict[str, float]:
    return {
        "requested": share.requested / unit if unit > 1 else share.requested,
        "allocatable": share.allocatable / unit if unit > 1 else share.allocatable,
        "share": round(share.share, 4),
    }


def _row_as_data(row: NodeRow) -> dict[str, Any]:
    from leeway_cli.explain.cluster_view import price_as_data
    from leeway_cli.output import picked

    own = ("name", "instance", "instance_type", "capacity_type", "zone", "owner", "created_at")
    return {
        **picked(row, *own, "ready", "fate", "next"),
        **_shares(row),
        **price_as_data(row.price),
        "labels": dict(sorted(row.labels.items())),
    }


def _totals_as_data(totals: Totals) -> dict[str, Any]:
    from leeway_cli.explain.cluster_view import price_as_data

    return {
        "nodes": totals.nodes,
        **_shares(totals),
        **price_as_data(totals.price),
        "nodesWithoutPrice": totals.without_price,
        **price_as_data(totals.saving, "saving"),
    }
