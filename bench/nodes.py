"""Measures what `leeway nodes` costs in a large cluster, by a kubeconfig alone.

Each size runs in a process of its own, against a server of prepared bytes (bench.canned_api).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

from leeway.clock import SystemClock
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway_cli.explain.capacity import Source
from leeway_cli.nodes.command import rendered
from leeway_cli.nodes.reading import NodeReading
from leeway_cli.nodes.rows import Sort, ordered, totals_of
from leeway_cli.output import stdout_console
from rich.console import Console
from rich.table import Table

from bench.canned_api import PODS_PER_NODE
from bench.connections import connection_of
from bench.provision_read import canned_cluster
from bench.statistics import peak_mb

SIZES = (500, 2_000, 5_000)
COLUMNS = ("first read", "later read", "table", "peak MB")


def main() -> None:
    """Measure all sizes, and print the table."""
    table = Table(title=f"`leeway nodes` with {PODS_PER_NODE} pods per node: CPU seconds")
    for column in ("nodes", *COLUMNS):
        table.add_column(column, justify="right")
    for nodes in SIZES:
        found = _measured(nodes)
        table.add_row(f"{nodes:,}", *(f"{found[column]:,.3g}" for column in COLUMNS))
    Console().print(table)


def _measured(nodes: int) -> dict[str, float]:
    """Measure one size in a process without an AWS account."""
    alone = {name: one for name, one in os.environ.items() if not name.startswith("AWS_")}
    nothing = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    environment = alone | nothing | {"AWS_EC2_METADATA_DISABLED": "true"}
    with canned_cluster(nodes) as port:
        command = [sys.executable, "-m", "bench.nodes", port]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    measured: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return measured


def _read(port: str) -> dict[str, float]:
    connection = connection_of(f"http://127.0.0.1:{port}")
    states = KubernetesClusterStates(lambda _: connection, SystemClock())
    reading = NodeReading(Source((), (), "", None, None, False, None, "leeway", optional=True))
    first, later = (_cpu(lambda: reading.read(states)) for _ in range(2))
    rows = ordered(reading.read(states).rows, Sort.OWNER)

    def show() -> None:
        table = rendered(rows, totals_of(rows, None), False, ())
        stdout_console().print(table, soft_wrap=True)

    return dict(zip(COLUMNS, (first, later, _cpu(show), peak_mb()), strict=True))


def _cpu(do: Callable[[], object]) -> float:
    began = time.process_time()
    do()
    return time.process_time() - began


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(_read(sys.argv[1]))}\n")
