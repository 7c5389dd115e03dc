"""Measures packing from 1 to 20,000 pods: the time, peak memory, and the price of the plan against
the bound; the price after a budget of time; and the time with nodes that exist, and for pods that
fit nowhere. All seconds are those of one processor, on one thread."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from leeway.selection.labels import CAPACITY_TYPE, INSTANCE
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod
from leeway.selection.requirements import Requirement, Requirements
from leeway_cli.simulated_day.bound import covering_bound

from bench.plan_checker import violations
from bench.statistics import peak_mb
from bench.workloads import (
    diverse_pods,
    equal_pods,
    existing_nodes,
    generic_pods,
    huge_pods,
    spread_pods,
    synthetic_catalog,
)

COUNTS = (1, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
SYNTHETIC = "400 synthetic types"
USUAL = "us-east-1, c, m and r on demand"
EVERY = "us-east-1, every type on demand"

KARPENTER = {
    (SYNTHETIC, "diverse"): {50: 39, 100: 94, 200: 180, 1_000: 940, 5_000: 6_800, 20_000: 64_000},
    (USUAL, "unconstrained"): {100: 27, 5_000: 1_070},
}
"""Milliseconds in which Karpenter's scheduler solves and truncates the same pods on the same types:
the core of August 2026, CPU of one thread, one worker, on the machine of the other figures."""

WORKLOADS = {
    "unconstrained": generic_pods,
    "10 Deployments": equal_pods(10),
    "20 spread Deployments": spread_pods,
    "diverse": diverse_pods,
}
JUMP = 2.0
"""Time jumps if it grows by more than this multiple of the growth of the pods, or shrinks by it."""

CHECKED = 1_000
"""Up to this number of pods the plan is checked pod by pod, in quadratic time."""

RUNS = 3

BUDGETS = (0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds of one processor after which packing makes no further improvement."""

UNLIMITED = Effort(improvements=100_000)
"""Rounds of improvement that no budget is enough for."""

NOWHERE = 2_000
"""Pods that fit nowhere."""

NODES = (100, 1_000, 5_000)
PENDING = 500


def main() -> None:
    """Print all tables."""
    curves()
    _others()


def curves() -> None:
    """Print a table of all numbers of pods for each catalog and each mix of pods."""
    for catalog in CATALOGS:
        for workload in WORKLOADS:
            sys.stdout.write(f"\n{workload} pods, {catalog}\n")
            sys.stdout.write(
                "  pods       ms   pods/s  memory  nodes     USD/h  bound  price/bound\n"
            )
            beside = KARPENTER.get((catalog, workload), {})
            before: dict[str, Any] = {}
            for count in COUNTS:
                found = _apart("packing", catalog, workload, count)
                jumps = "  JUMP" if before and _jumps(before, found) else ""
                sys.stdout.write(f"{_line(found, beside.get(count))}{jumps}\n")
                sys.stdout.flush()
                before = found


def _others() -> None:
    sys.stdout.write(f"\nprice/bound of {CHECKED:,} pods after seconds of one processor\n")
    for catalog in CATALOGS:
        for workload in WORKLOADS:
            found = _apart("budgets", catalog, workload, CHECKED)
            cells = "".join(
                f"  {s}: {ratio:.4f} ({took:.2f} s)" for s, ratio, took in found["after"]
            )
            sys.stdout.write(f"{catalog}, {workload}:{cells}\n")
            sys.stdout.flush()
    sys.stdout.write(f"\n{PENDING} pending pods and nodes of ten pods each, {USUAL}\n")
    for free in (False, True):
        for workload in WORKLOADS:
            for count in NODES:
                found = _apart("free" if free else "full", USUAL, workload, count)
                sys.stdout.write(
                    f"{count:6,} nodes{' with room' if free else ', full'}, {workload}:"
                    f" {found['milliseconds']:8,.1f} ms {found['memory']:4,.0f} MB,"
                    f" {found['existing']} on existing nodes, {found['launched']} new nodes\n"
                )
                sys.stdout.flush()
    sys.stdout.write(f"\n{NOWHERE:,} pods of different sizes that fit nowhere\n")
    for catalog in CATALOGS:
        found = _apart("nowhere", catalog, "huge", NOWHERE)
        sys.stdout.write(f"{catalog}: {found['milliseconds']:,.1f} ms\n")
        sys.stdout.flush()


def _apart(measured: str, catalog: str, workload: str, count: int) -> dict[str, Any]:
    """Measure in a child process, so that its memory is measured alone."""
    command = [sys.executable, "-m", "bench.packing", measured, catalog, workload, str(count)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=alone)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _line(found: dict[str, Any], karpenter: int | None) -> str:
    return (
        f"{found['pods']:6,} {found['milliseconds']:8,.1f} {found['pods_per_second']:8,.0f}"
        f" {found['memory']:4,.0f} MB"
        f" {found['nodes']:6,} {found['price']:9,.2f} {found['bound']:6,.0f} {found['ratio']:8.4f}"
        f"{'' if found['sound'] else '  WRONG'}"
        f"{f'  ({found["unplaced"]} not placed)' if found['unplaced'] else ''}"
        f"{f'  (Karpenter: {karpenter:,} ms)' if karpenter else ''}"
    )


def _jumps(before: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether the time of a row does not follow from that of the one before with fewer pods."""
    growth = found["milliseconds"] / before["milliseconds"]
    return not 1 / JUMP <= growth <= JUMP * found["pods"] / before["pods"]


def measure(supply: Supply, pods: Sequence[Pod]) -> dict[str, Any]:
    """Pack several times on one processor and return the fastest, as `timeit` does."""
    pack(pods[:100], supply)  # builds the arrays of the catalog, which a warm function has already
    seconds = []
    for _ in range(RUNS):
        started = time.process_time()
        plan = pack(pods, supply)
        seconds.append(time.process_time() - started)
    memory = peak_mb()
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


def after_budgets(supply: Supply, pods: Sequence[Pod]) -> dict[str, Any]:
    """Pack with each budget, and return the price of the plan against the bound, and the seconds
    that it took."""
    bound = covering_bound(pods, supply)
    after = []
    for budget in BUDGETS:
        started = time.process_time()
        plan = pack(pods, supply, effort=UNLIMITED, proceed=_until(started + budget))
        after.append((budget, plan.price / bound, time.process_time() - started))
    return {"after": after}


def _until(end: float) -> Callable[[], bool]:
    return lambda: time.process_time() < end


def with_nodes(
    supply: Supply, pods: Sequence[Pod], nodes: Sequence[ExistingNode]
) -> dict[str, Any]:
    """Pack pods for a cluster of nodes with ten pods each. Return the fastest of several runs."""
    pack(pods[:100], supply)
    seconds = []
    for _ in range(RUNS):
        started = time.process_time()
        plan = pack(pods, supply, nodes)
        seconds.append(time.process_time() - started)
    return {
        "milliseconds": 1000 * min(seconds),
        "memory": peak_mb(),
        "existing": sum(len(placed.pods) for placed in plan.existing),
        "launched": len(plan.launches),
    }


def _synthetic() -> Supply:
    return Supply([NodePool("default")], synthetic_catalog())


def _real(*requirements: Requirement) -> Supply:
    from leeway_cli.selection.sources import sandbox_catalog

    on_demand = Requirement.of(CAPACITY_TYPE, "In", ["on-demand"])
    pool = NodePool("default", Requirements([on_demand, *requirements]))
    return Supply([pool], sandbox_catalog())


def _usual() -> Supply:
    return _real(
        Requirement.of(f"{INSTANCE}category", "In", ["c", "m", "r"]),
        Requirement.of(f"{INSTANCE}generation", "Gt", ["2"]),
    )


CATALOGS = {SYNTHETIC: _synthetic, USUAL: _usual, EVERY: _real}


def _measured(measured: str, catalog: str, workload: str, count: int) -> dict[str, Any]:
    supply = CATALOGS[catalog]()
    if measured == "packing":
        return measure(supply, WORKLOADS[workload](count))
    if measured == "budgets":
        pack(WORKLOADS[workload](100), supply)
        return after_budgets(supply, WORKLOADS[workload](count))
    if measured == "nowhere":
        return with_nodes(supply, huge_pods(count), ())
    nodes = existing_nodes(supply, count, with_room=measured == "free")
    return with_nodes(supply, WORKLOADS[workload](PENDING), nodes)


if __name__ == "__main__":
    kind, chosen, pods_of, number = sys.argv[1:]
    json.dump(_measured(kind, chosen, pods_of, int(number)), sys.stdout)
