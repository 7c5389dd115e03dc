"""Measures how long provisioning reads a cluster: a first read, and later ones.

Each size runs in a process of its own, against a server of prepared bytes (bench.canned_api).
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
from leeway.clock import SystemClock
from leeway.kubernetes.cluster_states import PATHS, KubernetesClusterStates
from leeway.kubernetes.connection import Connection
from leeway.selection.reading.cluster_objects import existing_nodes, pending_pods
from rich.console import Console
from rich.table import Table

from bench.canned_api import PODS_PER_NODE
from bench.connections import connection_of
from bench.statistics import peak_mb, percentile

SIZES = (100, 1_000, 5_000)
PENDING = 500
REPEATS = 9


def main() -> None:
    """Measure all sizes, and print the table."""
    table = Table(
        title=f"Reads of a cluster with {PODS_PER_NODE} pods per node: wall / CPU seconds"
    )
    columns = (
        "nodes",
        "lists each time",
        "its peak",
        "first read",
        "later, unchanged",
        f"later, {PENDING} new pods",
        "peak",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for nodes in SIZES:
        rows = {way: _measured(nodes, way) for way in ("lists", "states")}
        kept = rows["states"]
        table.add_row(
            f"{nodes:,}",
            rows["lists"]["cold"],
            f"{rows['lists']['peak']} MB",
            kept["cold"],
            kept["unchanged"],
            kept["pending"],
            f"{kept['peak']} MB",
        )
    Console().print(table)


def _measured(nodes: int, way: str) -> dict[str, Any]:
    """Run one way of reading in its own process."""
    with canned_cluster(nodes) as port:
        arguments = [sys.executable, "-m", "bench.provision_read", way, port]
        found = subprocess.run(arguments, check=True, capture_output=True, text=True)
    measured: dict[str, Any] = json.loads(found.stdout)
    return measured


def canned_cluster(nodes: int) -> AbstractContextManager[str]:
    """Run a server of prepared bytes; yield its port."""
    return served("bench.canned_api", nodes)


@contextmanager
def served(module: str, *arguments: object) -> Iterator[str]:
    """Run a module that serves until it is stopped; yield the port that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def _read(way: str, port: str) -> dict[str, object]:
    url = f"http://127.0.0.1:{port}"
    connection = connection_of(url)
    states = KubernetesClusterStates(lambda _: connection, SystemClock())
    read = {"lists": lambda: _read_lists(connection), "states": lambda: states.read("bench")}[way]
    found: dict[str, object] = {"cold": _shown(_timed(read))}
    if way == "states":
        unchanged = [_timed(read) for _ in range(REPEATS)]
        found["unchanged"] = _shown(_median(unchanged))
        httpx.post(f"{url}/_more", params={"count": PENDING})
        found["pending"] = _shown(_timed(read))
    found["peak"] = peak_mb()
    return found


def _read_lists(connection: Connection) -> None:
    """Read a cluster as `leeway select` reads files: from whole objects."""
    objects = []
    for kind, path in PATHS.items():
        parameters = {"limit": "500"}
        while True:
            page = connection.plain.get(path, params=parameters).json()
            objects += [{**item, "kind": kind} for item in page["items"]]
            if not page["metadata"].get("continue"):
                break
            parameters["continue"] = page["metadata"]["continue"]
    existing_nodes(objects)
    pending_pods([one for one in objects if one["kind"] == "Pod"], {})


def _timed(read: Callable[[], object]) -> tuple[float, float]:
    """Return the wall and CPU seconds of a read."""
    wall, cpu = time.perf_counter(), time.process_time()
    read()
    return time.perf_counter() - wall, time.process_time() - cpu


def _median(times: list[tuple[float, float]]) -> tuple[float, float]:
    walls, cpus = zip(*times, strict=True)
    return percentile(walls, 0.5), percentile(cpus, 0.5)


def _shown(seconds: tuple[float, float]) -> str:
    return " / ".join(f"{each:.2f}" for each in seconds)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_read(*sys.argv[1:])))
