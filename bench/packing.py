"""Measures packing: pods per second, peak memory, and the price of the plan against the bound."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from resource import RUSAGE_SELF, getrusage
from typing import Any

from leeway.selection.labels import CAPACITY_TYPE, INSTANCE
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import Pod
from leeway.selection.pools import NodePool
from leeway.selection.requirements import Requirement, Requirements

from bench.covering_bound import covering_bound
from bench.plan_checker import violations
from bench.workloads import diverse_pods, generic_pods, synthetic_catalog

COUNTS = (1, 10, 50, 100, 200, 500, 1_000, 5_000, 10_000, 20_000)
KARPENTER = {50: 0.17, 100: 0.38}
"""CPU seconds in which Karpenter's scheduler plans this number of diverse pods on its 400 fake
instance types. Source: its own benchmark, `scheduling_benchmark_test.go`, run once on the same
machine as Leeway."""

WORKLOADS = {"unconstrained": generic_pods, "diverse": diverse_pods}
CHECKED = 1_000
"""Up to this number of pods the plan is checked pod by pod, in quadratic time."""

RUNS = 3

SYNTHETIC = "400 synthetic types"


def main() -> None:
    """Print a table for each catalog and each kind of workload."""
    for catalog in CATALOGS:
        for workload in WORKLOADS:
            sys.stdout.write(f"\n{workload} pods, {catalog}\n")
            sys.stdout.write(
                "  pods       ms   pods/s  memory  nodes     USD/h  bound  price/bound\n"
            )
            beside = KARPENTER if (catalog, workload) == (SYNTHETIC, "diverse") else {}
            for count in COUNTS:
                sys.stdout.write(_line(_apart(catalog, workload, count), beside.get(count)))
                sys.stdout.flush()


def _apart(catalog: str, workload: str, count: int) -> dict[str, Any]:
    """Measure in a child process, so that its memory is measured alone."""
    command = [sys.executable, "-m", "bench.packing", catalog, workload, str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _line(found: dict[str, Any], karpenter: float | None) -> str:
    return (
        f"{found['pods']:6,} {found['milliseconds']:8,.1f} {found['pods_per_second']:8,.0f}"
        f" {found['memory']:4,.0f} MB"
        f" {found['nodes']:6,} {found['price']:9,.2f} {found['bound']:6,.0f} {found['ratio']:8.4f}"
        f"{'' if found['sound'] else '  WRONG'}"
        f"{f'  ({found["unplaced"]} not placed)' if found['unplaced'] else ''}"
        f"{f'  (Karpenter: {1000 * karpenter:,.0f} ms)' if karpenter else ''}\n"
    )


def measure(supply: Supply, pods: Sequence[Pod]) -> dict[str, Any]:
    """Pack several times on one processor and return the fastest, as `timeit` does."""
    pack(pods[:100], supply)  # builds the arrays of the catalog, which a warm function has already
    seconds = []
    for _ in range(RUNS):
        started = time.process_time()
        plan = pack(pods, supply)
        seconds.append(time.process_time() - started)
    memory = getrusage(RUSAGE_SELF).ru_maxrss / 1024
    # A pod of a small batch may require affinity to pods outside of the batch.
    unplaced = {each.pod for each in plan.unschedulable}
    bound = covering_bound([pod for pod in pods if pod.name not in unplaced], supply)
    wrong = violations(plan, pods, supply.pools) if len(pods) <= CHECKED else []
    return {
        "pods": len(pods),
        "milliseconds": 1000 * min(seconds),
        "pods_per_second": len(pods) / min(seconds),
        "memory": memory,
        "nodes": len(plan.launches),
        "price": plan.price,
        "bound": bound,
        "ratio": plan.price / bound,
        "unplaced": len(unplaced),
        "sound": not wrong,
    }


def _synthetic() -> Supply:
    return Supply([NodePool("default")], synthetic_catalog())


def _real(*requirements: Requirement) -> Supply:
    from cli.selection.catalogs import sandbox_catalog

    on_demand = Requirement.of(CAPACITY_TYPE, "In", ["on-demand"])
    pool = NodePool("default", Requirements([on_demand, *requirements]))
    return Supply([pool], sandbox_catalog())


def _usual() -> Supply:
    return _real(
        Requirement.of(f"{INSTANCE}category", "In", ["c", "m", "r"]),
        Requirement.of(f"{INSTANCE}generation", "Gt", ["2"]),
    )


CATALOGS = {
    SYNTHETIC: _synthetic,
    "us-east-1, c, m and r on demand": _usual,
    "us-east-1, every type on demand": _real,
}


if __name__ == "__main__":
    chosen, kind, number = sys.argv[1:]
    json.dump(measure(CATALOGS[chosen](), WORKLOADS[kind](int(number))), sys.stdout)
