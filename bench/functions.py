"""What each function costs to start: import time, CPU of a cold start, and peak memory."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
FUNCTIONS = ("receive_notice", "retire_node")
LAYER = ROOT / ".aws-sam" / "build" / "LeewayLayer" / "python"
RUNS = 9
SIZES_MB = (256, 512, 1024, 1769)

# A function has one vCPU at 1,769 MB and a share in proportion below that.
# Source: Lambda developer guide, "Configure Lambda function memory".
FULL_VCPU_MB = 1769

_PROBE = """
import json, resource, sys, time
began, cpu = time.perf_counter(), time.process_time()
import handler
imported, imported_cpu = time.perf_counter() - began, time.process_time() - cpu
from leeway.wiring.clients import client
for service in json.loads(sys.argv[1]):
    client(service)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([imported, imported_cpu, time.process_time() - cpu, peak]))
"""

# The clients that a function builds on its way through a Spot interruption.
CLIENTS = {
    "receive_notice": ["dynamodb", "ec2", "lambda"],
    "retire_node": ["dynamodb", "autoscaling", "ec2", "events", "lambda"],
}


def probe(function: str) -> list[float]:
    """Start a function with the built layer in a fresh interpreter; import seconds, their CPU,
    all CPU, peak MB."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT / 'functions' / function}:{LAYER}",
        # Lambda mounts the layer read-only: what the build did not compile is compiled each time.
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "LEEWAY_TABLE": "bench",
        "POWERTOOLS_METRICS_NAMESPACE": "Leeway",
    }
    done = subprocess.run(
        [Path(sys.base_prefix) / "bin" / "python3.13", "-c", _PROBE, json.dumps(CLIENTS[function])],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    measured: list[float] = json.loads(done.stdout)
    return measured


def main() -> None:
    """Print the table; the layer must have been built, as `make bench` does."""
    if not LAYER.exists():
        sys.exit(f"bench: {LAYER.relative_to(ROOT)} is missing: `make build` makes it")
    table = Table(title=f"Cold start (median of {RUNS} fresh interpreters)")
    for column in ("function", "import", "its CPU", "with clients", "peak"):
        table.add_column(column, justify="right")
    for size in SIZES_MB:
        table.add_column(f"at {size} MB", justify="right")
    for function in FUNCTIONS:
        probe(function)  # fills the page cache
        table.add_row(function, *_figures([probe(function) for _ in range(RUNS)]))
    console = Console()
    console.print(table)
    console.print(
        "with clients: CPU time until all its AWS clients are built, as while Lambda starts it"
    )
    console.print("at … MB: the same, were it done on that size's share of a vCPU")


def _figures(runs: list[list[float]]) -> list[str]:
    imported, import_cpu, cpu, peak = (
        statistics.median(column) for column in zip(*runs, strict=True)
    )
    sizes: list[Any] = [cpu / min(1.0, size / FULL_VCPU_MB) for size in SIZES_MB]
    first = [*(f"{s * 1000:.0f} ms" for s in (imported, import_cpu, cpu)), f"{peak:.0f} MB"]
    return [*first, *(f"{seconds:.2f} s" for seconds in sizes)]
