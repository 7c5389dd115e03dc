"""`leeway nodes`: a line a node, and the totals."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from leeway.printable import printable
from leeway.provisioning.cluster_state import ClusterStates
from leeway.reasons import counted
from rich.console import RenderableType
from rich.text import Span, Text

from leeway_cli import options
from leeway_cli.completion import nodes as complete_nodes
from leeway_cli.errors import BadInputError, CannotBeDoneError, aws_errors, kubernetes_errors
from leeway_cli.explain.asked import ClusterName, NodesOption
from leeway_cli.manifests.files import FilesOption
from leeway_cli.nodes.rows import Fate, NodeRow, Share, Sort, Totals, ordered, totals_of
from leeway_cli.output import Format, kept_warnings, picked, stdout_console
from leeway_cli.places import (
    AllOption,
    Clusters,
    Found,
    Place,
    ProfilesOption,
    RegionsOption,
    as_one_view,
    chosen_clusters,
    show,
)
from leeway_cli.selection.sources import SandboxOption
from leeway_cli.stack import DEFAULT_STACK, StackOption, connect, open_cluster
from leeway_cli.terminal import show_changes

if TYPE_CHECKING:
    from leeway.kubernetes.connection import Connection

    from leeway_cli.explain.capacity import KeptOffers, Source
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
    profile: ProfilesOption = None,
    region: RegionsOption = None,
    every: AllOption = False,
    stack: StackOption = DEFAULT_STACK,
    output: Annotated[
        NodesFormat, typer.Option("--output", "-o", help="Set the format of the result on stdout.")
    ] = NodesFormat.TABLE,
) -> None:
    """Show each node: what it is, how full it is, what it costs, and what happens to it next.

    Works with a kubeconfig alone. Prices come from AWS, if credentials and a region are set. With
    --cluster, the table of Leeway adds retirements, launches, and what is given back by the pools.
    With --all, or with several places, each cluster is read with your AWS identity, unless the
    current context is of this cluster. Times are in UTC. Changes nothing.

    \b
    leeway nodes --sort price
    leeway nodes --cluster prod --watch
    leeway nodes --all --region us-east-1 --region eu-west-1 --profile dev --profile prod
    leeway nodes -l team=web -L topology.kubernetes.io/zone -o wide
    """
    clusters = chosen_clusters(profile, region, cluster, stack, every=every)
    as_json = output is NodesFormat.JSON
    _refuse(
        {
            "--watch: expected a cluster and a table, not --nodes or -o json.": (
                watch and (nodes or as_json)
            ),
            "--watch: expected one profile and one region.": (
                watch and len(clusters.everywhere) > 1
            ),
            "--selector: expected a cluster: the API server selects, not --nodes.": (
                selector and nodes
            ),
            "--nodes, --kubeconfig, --context: expected one cluster, one profile and one region.": (
                clusters.several and (nodes or kubeconfig or context)
            ),
            "--filename: expected one cluster, not --all.": every and files,
        }
    )
    from leeway_cli.explain.capacity import Source

    options_of_all = (files or (), nodes or (), clusters.name, kubeconfig, context, sandbox, None)
    source = Source(*options_of_all, stack, optional=True)
    names = frozenset(one.removeprefix("node/") for one in name or ())

    def as_text(one: _Listed) -> RenderableType:
        console = stdout_console()
        width = console.width if watch and console.is_terminal else None
        return rendered(one.rows, one.totals, output is NodesFormat.WIDE, label or (), width)

    with closing(_Listing(source, clusters, names, selector, sort)) as listing:
        if watch:
            with clusters.everywhere[0].entered():
                show_changes(_views(listing, as_text), stdout_console())
            return
        found = listing.read()
        show(found, Format.JSON if as_json else Format.TABLE, as_data, as_text, totals=_sums)


def _refuse(problems: Mapping[str, object]) -> None:
    """Raise the first problem that there is."""
    for problem, there in problems.items():
        if there:
            raise BadInputError(problem)


def _sums(listed: "Sequence[_Listed]") -> tuple[dict[str, Any], str]:
    """Return the totals of several clusters, as JSON and in words."""
    savings = [one.totals.saving for one in listed if one.totals.saving is not None]
    rows = (row for one in listed for row in one.rows)
    complete = all(one.totals.complete for one in listed)
    totals = totals_of(rows, sum(savings) if savings else None, complete=complete)
    return _totals_as_data(totals), _totals_text(totals)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The chosen nodes of a cluster with their totals."""

    rows: Sequence[NodeRow]
    totals: Totals


class _Listing:
    """Reads which nodes of the clusters are shown, and puts them in order; again and again with
    --watch. Connections stay open until the end. Clusters of a region of a profile share what is
    read of its offers, which takes some time."""

    def __init__(
        self,
        source: "Source",
        clusters: Clusters,
        names: frozenset[str],
        selector: str,
        sort: Sort,
    ) -> None:
        self._source, self._clusters, self._sort = source, clusters, sort
        self._names, self._selector = names, selector
        self._offers: dict[Place, KeptOffers] = {}
        self._opened: dict[Place, _Cluster] = {}

    def close(self) -> None:
        """Close the connections."""
        for one in self._opened.values():
            if one.connection is not None:
                one.connection.close()

    def read(self) -> Found[_Listed]:
        """Return the chosen nodes of each cluster with their totals.

        Raises:
            BadInputError: an option is invalid.
            CannotBeDoneError: the only cluster could not be read, or none has a node that was
                named.
        """
        found = self._clusters.read(self._read)
        read = [one for _, one in found if not isinstance(one, CannotBeDoneError)]
        if len(read) == len(found):
            rows = [row for one in read for row in one.rows]
            known = {one.name for one in rows} | {one.instance for one in rows}
            if missing := sorted(self._names - known):
                raise CannotBeDoneError(f"The cluster has no node {missing[0]}.")
        return found

    def _read(self, place: Place) -> _Listed:
        with kubernetes_errors(with_selector=bool(self._selector)), aws_errors("the clusters"):
            if place not in self._opened:
                self._opened[place] = self._open(place)
            cluster = self._opened[place]
            seen = cluster.reading.read(cluster.states)
            rows = [*seen.rows]
            if self._names:
                rows = [one for one in rows if self._names & {one.name, one.instance}]
            if self._selector and cluster.connection is not None:
                selected = _selected(self._selector, cluster.connection)
                rows = [one for one in rows if one.name in selected]
        saving = seen.saving if len(rows) == len(seen.rows) else None
        totals = totals_of(rows, saving, complete=seen.complete)
        return _Listed(ordered(rows, self._sort), totals)

    def _open(self, place: Place) -> "_Cluster":
        from leeway_cli.explain.capacity import KeptOffers
        from leeway_cli.nodes.reading import NodeReading

        source = replace(self._source, cluster=place.cluster, region=place.region or None)
        account = replace(place, cluster="")
        reading = NodeReading(source, self._offers.setdefault(account, KeptOffers(source)))
        if source.nodes:
            return _Cluster(reading, None)
        if self._clusters.several:
            return _Cluster(reading, connect(place.cluster))
        found = open_cluster(place.cluster, source.kubeconfig, source.context)
        return _Cluster(reading, found)


class _Cluster:
    """What reads a cluster. Without a connection, the source has files."""

    def __init__(self, reading: "NodeReading", connection: "Connection | None") -> None:
        self.reading, self.connection = reading, connection
        self.states = None if connection is None else _states(connection)


def _states(connection: "Connection") -> ClusterStates:
    from leeway.clock import SystemClock
    from leeway.kubernetes.cluster_states import KubernetesClusterStates

    return KubernetesClusterStates(lambda _: connection, SystemClock())


def _selected(selector: str, connection: "Connection") -> frozenset[str]:
    from leeway.clock import SystemClock
    from leeway.kubernetes.http_cluster import HttpCluster

    with kubernetes_errors(with_selector=True):
        return frozenset(HttpCluster(connection, SystemClock()).select_nodes(selector))


def _views(
    listing: _Listing, as_text: Callable[[_Listed], RenderableType]
) -> Iterator[RenderableType]:
    """Yield the table every five seconds, without end. An error is shown in place of the table.
    Warnings are printed once."""
    yield as_one_view(listing.read(), as_text, _sums)
    while True:
        time.sleep(REFRESH_EVERY)
        try:
            with kept_warnings():
                found = listing.read()
        except CannotBeDoneError as error:
            yield Text(str(error), style="red")
        else:
            yield as_one_view(found, as_text, _sums)


_BAR = 8
_FULL, _EMPTY = "█", "░"


def bar(share: Share) -> str:
    """Render a share as a bar with its percentage; `-` if the node has nothing of it."""
    if not share.allocatable:
        return "-"
    filled = min(_BAR, round(share.share * _BAR))
    return f"{_FULL * filled}{_EMPTY * (_BAR - filled)} {share.share:>4.0%}"


def _columns(
    wide: bool, labels: Sequence[str], now: datetime
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


_STYLES = {
    Fate.RETIRES: "bold red",
    Fate.NOT_READY: "red",
    Fate.STARTING: "green",
    Fate.GOES: "yellow",
    Fate.KEPT: "dim",
    Fate.NONE: "",
}

_LEFT_OUT = ("ZONE", "AGE", "CAPACITY", "GPUS", "OWNER", "MEMORY", "PODS", "USD/H")
"""Columns that a narrow terminal has no room for, the first one first."""


def rendered(
    rows: Sequence[NodeRow],
    totals: Totals,
    wide: bool,
    labels: Sequence[str],
    width: int | None = None,
) -> Text:
    """Render the nodes as a table, and their totals below it. With a `width`, names lose their
    domain and columns are left out until the table fits."""
    from leeway.clock import SystemClock

    columns = _columns(wide, labels, SystemClock().now())
    if not totals.gpus.allocatable:
        del columns["GPUS"]
    cells = {
        head: [head, *(printable(show(row)) for row in rows)] for head, show in columns.items()
    }
    widths = {head: max(map(len, column)) for head, column in cells.items()}
    if width is not None:
        _narrow(cells, widths, width)
    lines: list[str] = []
    spans: list[Span] = []
    begins = 0
    for number, line in enumerate(zip(*cells.values(), strict=True)):
        at = begins
        for head, cell in zip(cells, line, strict=True):
            end, style = at + len(cell), "" if number else "bold"
            if number and head == "NEXT":
                style = _STYLES[rows[number - 1].fate]
            elif number and cell.startswith(_FULL):
                end, style = end - len(cell.lstrip(_FULL)), "green"
            if style:
                spans.append(Span(at, end, style))
            at += widths[head] + 3
        padded = (f"{cell:{widths[head]}}" for head, cell in zip(cells, line, strict=True))
        lines.append("   ".join(padded).rstrip())
        begins += len(lines[-1]) + 1
    lines += ["", _totals_text(totals)]
    return Text("\n".join(lines), no_wrap=width is not None, overflow="ellipsis", spans=spans)


def _narrow(cells: dict[str, list[str]], widths: dict[str, int], width: int) -> None:
    def too_wide() -> bool:
        return sum(widths.values()) + 3 * (len(widths) - 1) > width

    if too_wide():
        cells["NAME"] = [one.partition(".")[0] for one in cells["NAME"]]
        widths["NAME"] = max(map(len, cells["NAME"]))
    for head in _LEFT_OUT:
        if head in cells and too_wide():
            del cells[head], widths[head]


def _totals_text(totals: Totals) -> str:
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
    if not totals.price_known:
        cost = "no price is known"
    elif totals.without_price:
        cost += f", without the {totals.without_price} of unknown price"
    if totals.windows:
        licences = counted(totals.windows, "Windows licence", "Windows licences")
        cost += f", without {licences}"
    lines = [", ".join(parts), cost]
    if totals.saving:
        month, least = totals.saving * MONTH_HOURS, "" if totals.complete else "at least "
        lines.append(
            f"could save {least}{totals.saving:,.4f} USD per hour, {month:,.2f} a month: see "
            "`leeway explain cluster`"
        )
    return "\n".join(lines)


def as_data(one: _Listed) -> dict[str, Any]:
    """Render as JSON: vCPUs, bytes of memory, USD."""
    nodes = [_row_as_data(row) for row in one.rows]
    return {"nodes": nodes, "totals": _totals_as_data(one.totals)}


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
        "nodesWithoutLicence": totals.windows,
        **price_as_data(totals.saving, "saving"),
        "complete": totals.complete,
    }
