"""`leeway metrics`: the state of the clusters for Prometheus, from Leeway's table, as OpenMetrics.

All metrics are gauges, as the table has no counters that never go back, except the times of pods to
their nodes, which are a histogram.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError, aws_errors
from leeway_cli.output import write_stderr, write_stdout
from leeway_cli.stack import CLUSTERS, DEFAULT_STACK, Stack, StackOption, cluster_name, find_stack

if TYPE_CHECKING:
    from leeway.costs import CostHour
    from leeway.provisioning.tell import PodWaits
    from leeway.table import UnreadableRecord

    from leeway_cli.status.view import ClusterStatus

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

READ_EVERY = 15.0
"""Seconds for which an answer is kept: several scrapers do not read the table more often."""

MOST_SERIES = 500
"""Series of one metric and cluster. The others are one, with `*` in the place of their labels."""

METRICS = {
    "leeway_nodes": "Running nodes, by owner and type, at the last record of costs.",
    "leeway_node_cost_usd_per_hour": "What the nodes of an owner cost.",
    "leeway_node_cost_on_demand_usd_per_hour": "What the same nodes would cost on demand.",
    "leeway_namespace_cost_usd_per_hour": "What its pods cost, in this hour and the last.",
    "leeway_idle_cost_usd_per_hour": "What no pod requests, in this hour and the last.",
    "leeway_last_day_cost_usd": "What the nodes cost in this hour and the 23 before it.",
    "leeway_last_day_returned_nodes": "Nodes that were given back in these hours, by cause.",
    "leeway_last_day_returned_usd_per_hour": "What the nodes cost that were given back.",
    "leeway_cost_recorded_timestamp_seconds": "Until when costs are recorded.",
    "leeway_pods_waiting": "Pods that waited for a node at the last run of provision_nodes.",
    "leeway_pods_waiting_since_timestamp_seconds": "When the oldest of these pods was created.",
    "leeway_pods_bound_duration_seconds": "From the creation of a pod that waited to its node.",
    "leeway_pods_without_node": "Pods that got no node, by the code of the reason.",
    "leeway_provisioning_run_timestamp_seconds": "When provision_nodes last ran.",
    "leeway_provisioning_problems": "Problems of the last run of provision_nodes.",
    "leeway_pool_cost_usd_per_hour": "What counts against the limit in money of a pool.",
    "leeway_pool_cost_limit_usd_per_hour": "The limit in money of a pool.",
    "leeway_pool_paused": "1 if a pool is paused after failed launches.",
    "leeway_retirements": "Open retirements, by the kind of their notice and their phase.",
    "leeway_next_deadline_timestamp_seconds": "The first deadline of the open retirements.",
    "leeway_admissions": "Instances whose admission is open.",
    "leeway_paused": "1 if the cluster is paused.",
    "leeway_dry_run": "1 if the cluster has spec.dryRun.",
    "leeway_manifest_problems": "Problems of the manifests of the cluster.",
    "leeway_unreadable_records": "Records that this command cannot read, and leaves out.",
}
"""The metrics, and what they are."""

TO_NODE = "leeway_pods_bound_duration_seconds"
"""The histogram."""

type Labels = tuple[tuple[str, str], ...]


def metrics(
    cluster: Annotated[
        str,
        typer.Option(metavar="NAME", envvar="LEEWAY_CLUSTER", help="Show only this cluster."),
    ] = "",
    serve: Annotated[
        bool, typer.Option("--serve", help="Answer GET /metrics until Ctrl-C.")
    ] = False,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Set where --serve listens.")
    ] = "127.0.0.1:9468",
    stack: StackOption = DEFAULT_STACK,
) -> None:
    """Print the state of the clusters for Prometheus, or serve it.

    \b
    leeway metrics
    leeway metrics --serve --address 127.0.0.1:9468
    """
    host, port = _parsed(address)
    found = find_stack(stack)
    names = (cluster_name(cluster),) if cluster else found.clusters
    if names is None:
        raise BadInputError(f"--cluster: expected a name, because {CLUSTERS} is not set.")
    chosen = names

    def read() -> str:
        return exposition(_read(found, chosen, datetime.now(UTC)))

    if not serve:
        write_stdout(read())
        return
    try:
        server = server_of(read, host, port)
    except (OSError, OverflowError) as error:
        raise CannotBeDoneError(f"--address: can't listen on {address}: {error}.") from error
    write_stderr(f"Serving http://{address}/metrics until Ctrl-C.")
    with server:
        server.serve_forever()


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise BadInputError(
            f"--address: expected HOST:PORT such as 127.0.0.1:9468, got {address!r}."
        )
    return host.strip("[]"), int(port)


class Families:
    """The values of each metric by their labels, in the order of METRICS; `waits` are those of the
    histogram, one for each cluster."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Labels, float]] = {name: {} for name in METRICS}
        self.waits: list[PodWaits] = []

    def add(self, metric: str, value: float | None, /, **labels: str) -> None:
        """Add a value; those with the same labels are summed up. None is not known."""
        if value is not None and isfinite(value):
            values, key = self.values[metric], tuple(labels.items())
            values[key] = values.get(key, 0.0) + value


def _read(stack: Stack, names: Sequence[str], now: datetime) -> Families:
    from leeway.provisioning.tell import POD_WAITS, PodWaits
    from leeway.wiring.clients import table

    from leeway_cli.cost import read_hours
    from leeway_cli.status.view import read_cluster_status

    found = Families()
    for name in names:
        hours = list(read_hours(stack, name, now - timedelta(hours=23), now))
        add_costs(found, name, hours, now)
        status = read_cluster_status(stack, name)
        add_status(found, status)
        if status.provisioning is not None:
            unread: list[UnreadableRecord] = []
            records = table(name=stack.table)
            with aws_errors(stack.where):
                waits = records.get(POD_WAITS, cluster=name, unreadable=unread.append)
            if unread:
                found.add("leeway_unreadable_records", 1, cluster=name)
            else:
                found.waits.append(waits or PodWaits(name))
    return found


def add_costs(found: Families, cluster: str, hours: "Sequence[CostHour]", now: datetime) -> None:
    """Add what is recorded of a day, the last hour last. While nothing is recorded any more, nobody
    knows what there is now."""
    from leeway.costs import LONGEST_LOOK

    if not hours:
        return
    last = hours[-1]
    is_current = now - last.through < LONGEST_LOOK
    for one in last.nodes if is_current else ():
        kind, _, owner = one.owner.partition("/")
        about = {"cluster": cluster, "owner_kind": kind, "owner": owner}
        if one.usd_per_hour:  # a stack that has just begun has no prices yet: unknown, not 0
            on_demand = one.on_demand_usd_per_hour
            found.add("leeway_node_cost_usd_per_hour", one.usd_per_hour, **about)
            found.add("leeway_node_cost_on_demand_usd_per_hour", on_demand, **about)
        for each, count in one.types.items():
            instance_type, _, capacity_type = each.partition(" ")
            of_type = {"instance_type": instance_type, "capacity_type": capacity_type}
            found.add("leeway_nodes", count, **about, **of_type)
    # An hour that has just begun has little: with it, the hour before.
    since = f"{now - timedelta(hours=1):%Y-%m-%d %H}"
    recent = [one for one in hours if is_current and f"{one.day} {one.hour}" >= since]
    covered = sum((end - begin for one in recent for begin, end in one.covered), timedelta())
    if covered:
        share = timedelta(hours=1) / covered
        for hour in recent:
            for namespace, usd in hour.namespaces.items():
                value = usd * share
                metric = "leeway_namespace_cost_usd_per_hour"
                found.add(metric, value, cluster=cluster, namespace=namespace)
            found.add("leeway_idle_cost_usd_per_hour", hour.idle * share, cluster=cluster)
    for hour in hours:
        usd = sum(one.usd for one in hour.owners.values())
        found.add("leeway_last_day_cost_usd", usd, cluster=cluster)
        for cause, given in hour.returned.items():
            about = {"cluster": cluster, "cause": cause}
            found.add("leeway_last_day_returned_nodes", given.nodes, **about)
            found.add("leeway_last_day_returned_usd_per_hour", given.usd_per_hour, **about)
    recorded = last.through.timestamp()
    found.add("leeway_cost_recorded_timestamp_seconds", recorded, cluster=cluster)


def add_status(found: Families, status: "ClusterStatus") -> None:
    """Add what `leeway status` shows of a cluster."""
    cluster = {"cluster": status.cluster}
    found.add("leeway_paused", float(status.paused), **cluster)
    found.add("leeway_dry_run", float(status.dry_run), **cluster)
    found.add("leeway_manifest_problems", len(status.problems), **cluster)
    found.add("leeway_unreadable_records", len(status.unreadable), **cluster)
    found.add("leeway_admissions", len(status.admissions), **cluster)
    records = [one.record for one in status.retirements]
    phases = Counter((one.kind.value, one.phase.value) for one in records)
    for (kind, phase), count in phases.items():
        found.add("leeway_retirements", count, **cluster, kind=kind, phase=phase)
    deadlines = [one.deadline.timestamp() for one in records if one.deadline is not None]
    if deadlines:
        found.add("leeway_next_deadline_timestamp_seconds", min(deadlines), **cluster)
    for pool in status.pools:
        paused = float(pool.paused is not None)
        found.add("leeway_pool_paused", paused, **cluster, pool=pool.pool)
    run = status.provisioning
    if run is None:
        return
    found.add("leeway_pods_waiting", run.waiting, **cluster)
    since = None if run.waiting_since is None else run.waiting_since.timestamp()
    found.add("leeway_pods_waiting_since_timestamp_seconds", since, **cluster)
    for group in run.without_node:
        code = group.reason.code
        found.add("leeway_pods_without_node", group.count, **cluster, reason=code)
    if run.others:
        found.add("leeway_pods_without_node", run.others, **cluster, reason="*")
    found.add("leeway_provisioning_run_timestamp_seconds", run.run_at.timestamp(), **cluster)
    found.add("leeway_provisioning_problems", len(run.problems), **cluster)
    for limit in run.spending:
        about = {**cluster, "pool": limit.pool}  # without a pool, the limit is that of the cluster
        found.add("leeway_pool_cost_usd_per_hour", limit.used, **about)
        found.add("leeway_pool_cost_limit_usd_per_hour", limit.most, **about)


def exposition(found: Families) -> str:
    """Render metrics in the text format of OpenMetrics, without a line break at the end."""
    lines = []
    for name, values in found.values.items():
        if not values:
            continue
        lines += [f"# TYPE {name} gauge", f"# HELP {name} {METRICS[name]}"]
        for labels, value in sorted(bounded(values).items()):
            rendered = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
            lines.append(f"{name}{{{rendered}}} {value!r}")
    if found.waits:
        lines += [f"# TYPE {TO_NODE} histogram", f"# HELP {TO_NODE} {METRICS[TO_NODE]}"]
    for waits in sorted(found.waits, key=lambda one: one.cluster):
        lines += _buckets(waits)
    return "\n".join([*lines, "# EOF"])


def _buckets(waits: "PodWaits") -> Iterator[str]:
    """Render a histogram. The buckets of Prometheus contain those below them."""
    from leeway.provisioning.tell import BUCKETS

    cluster = f'cluster="{_escaped(waits.cluster)}"'
    for upper in BUCKETS:
        below = sum(count for bound, count in waits.counts.items() if bound <= upper)
        yield f'{TO_NODE}_bucket{{{cluster},le="{float(upper)}"}} {below}'
    yield f'{TO_NODE}_bucket{{{cluster},le="+Inf"}} {waits.count}'
    yield f"{TO_NODE}_count{{{cluster}}} {waits.count}"
    yield f"{TO_NODE}_sum{{{cluster}}} {waits.seconds}"


def bounded(values: Mapping[Labels, float]) -> dict[Labels, float]:
    """Keep the largest values of each cluster; the sum of its others is one series."""
    by_cluster: dict[str, list[Labels]] = {}
    for labels in sorted(values, key=lambda one: -values[one]):
        by_cluster.setdefault(dict(labels)["cluster"], []).append(labels)
    kept: dict[Labels, float] = {}
    for cluster, own in by_cluster.items():
        first, rest = own[:MOST_SERIES], own[MOST_SERIES:]
        kept |= {labels: values[labels] for labels in first}
        if rest:
            other = tuple((key, cluster if key == "cluster" else "*") for key, _ in rest[0])
            kept[other] = kept.get(other, 0.0) + sum(values[labels] for labels in rest)
    return kept


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def server_of(read: Callable[[], str], host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that answers GET /metrics with what `read` returns, at most 15 seconds old.
    An error of `read` is the answer 503, which Prometheus shows as `up` 0.

    Raises:
        OSError: the address can't be used.
    """
    lock = threading.Lock()
    kept: list[tuple[float, str]] = []

    def current() -> str:
        with lock:
            if not kept or time.monotonic() - kept[0][0] > READ_EVERY:
                text = read()
                kept[:] = [(time.monotonic(), text)]
            return kept[0][1]

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self._send(404, "text/plain", "Get /metrics.")
                return
            try:
                text = current()
            except CannotBeDoneError as error:
                self._send(503, "text/plain", str(error))
                return
            self._send(200, CONTENT_TYPE, text)

        def _send(self, status: int, kind: str, text: str) -> None:
            body = f"{text}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
            """Log nothing."""

    return ThreadingHTTPServer((host, port), Handler)
