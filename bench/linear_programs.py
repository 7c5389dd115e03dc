"""Measures what linear programs are worth: the price of plans against the bound, and the time, with
and without them, for groups of equal pods and for the pods of the packing measurements."""

import sys
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import Pod
from leeway.selection.solver import solving

from bench.packing import CATALOGS, SYNTHETIC
from bench.workloads import diverse_pods, equal_pods, generic_pods

COUNTS = (10, 50, 200, 1_000, 5_000)


WORKLOADS = {f"{groups} kinds": equal_pods(groups) for groups in (1, 3, 10, 30)} | {
    "unconstrained": generic_pods,
    "diverse": diverse_pods,
}


def _no_patterns(_problem: Any, _offerings: Any, _known: Any, values: Any, _proceed: Any) -> Any:
    return [], values


def _no_whole_numbers(_problem: Any, patterns: Any, _offerings: Any, _values: Any) -> Any:
    return list(patterns)


def _measured(pods: Sequence[Pod], supply: Supply, without: dict[str, Any]) -> str:
    with patch.multiple(solving, **without):
        started = time.process_time()
        plan = pack(pods, supply)
        seconds = time.process_time() - started
    return f"{plan.price / plan.bound:.4f} {1000 * seconds:6,.0f} ms"


def main() -> None:
    """Print a row for each workload: no programs over patterns, patterns, and as packing does it:
    with a search for whole numbers of patterns above 2,000 pods."""
    for catalog in CATALOGS.keys() - {SYNTHETIC}:
        supply = CATALOGS[catalog]()
        pack(generic_pods(100), supply)
        sys.stdout.write(f"\n{catalog}: no patterns | patterns | whole numbers of patterns\n")
        for workload, make in WORKLOADS.items():
            for count in COUNTS:
                pods = make(count)
                greedy: dict[str, Any] = {"improve": _no_patterns, "polish": _no_whole_numbers}
                rounded: dict[str, Any] = {"polish": _no_whole_numbers}
                cells = " | ".join(_measured(pods, supply, w) for w in (greedy, rounded, {}))
                sys.stdout.write(f"{count:6,} {workload:14}{cells}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
