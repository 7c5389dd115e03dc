"""Measures what a plan of provision_nodes costs with each memory size of the function: import, plan
and peak memory of a process of its own on one core, priced by the CPU share of each size.

The reads of the cluster and the calls of AWS are not part of it: `provision` measures them.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

from bench.costs import GB_SECOND, REQUEST
from bench.functions import FULL_VCPU_MB
from bench.statistics import peak_mb

SIZES_MB = (256, 512, 1024, 1769, 3008)
NODES, PENDING = 1_000, (100, 500, 1_000, 5_000)
WAITS = 2.0
"""Seconds in which a run waits for the cluster and for EC2, with any memory size: an assumption."""


def main() -> None:
    """Print, for each number of pods, the figures of one process, and a row for each memory size
    that holds its peak."""
    for pending in PENDING:
        _print(pending, _apart(pending))


def _apart(pending: int) -> dict[str, Any]:
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "bench.provision_memory", str(pending)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=alone)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _print(pending: int, found: dict[str, Any]) -> None:
    sys.stdout.write(
        f"import {found['import']:.2f} s, first plan {found['first']:.2f} s, warm plan"
        f" {found['warm']:.2f} s, peak {found['peak']} MB, {found['launched']} launches:"
        f" {pending:,} diverse pods, {NODES:,} full nodes\n"
    )
    for size in SIZES_MB:
        if size < found["peak"]:
            sys.stdout.write(f"{size:5,} MB: too small\n")
            continue
        share = min(1.0, size / FULL_VCPU_MB)
        seconds = WAITS + found["warm"] / share
        price = REQUEST + GB_SECOND * size / 1024 * seconds
        cold = (found["import"] + found["first"]) / share
        sys.stdout.write(
            f"{size:5,} MB: {seconds:5.2f} s warm with {WAITS:g} s of waits, {cold:5.2f} s of CPU"
            f" when cold, ${1e6 * price / found['launched']:.2f} for a million launches\n"
        )
    sys.stdout.flush()


def _measure(pending: int) -> dict[str, Any]:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    began = time.process_time()
    from leeway.selection.packing.planning import pack

    imported, peak = time.process_time() - began, peak_mb()
    from bench.packing import CATALOGS, USUAL
    from bench.workloads import diverse_pods, existing_nodes

    supply = CATALOGS[USUAL]()
    nodes = existing_nodes(supply, NODES, with_room=False)
    pods, seconds, launched = diverse_pods(pending), [], 0
    for _ in range(3):
        began = time.process_time()
        launched = len(pack(pods, supply, nodes).launches)
        seconds.append(time.process_time() - began)
    return {
        "import": imported,
        "imported_peak": peak,
        "first": seconds[0],
        "warm": min(seconds),
        "peak": peak_mb(),
        "launched": launched,
    }


if __name__ == "__main__":
    json.dump(_measure(int(sys.argv[1])), sys.stdout)
