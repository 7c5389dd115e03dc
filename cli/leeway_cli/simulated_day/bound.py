"""A lower bound of the price of any plan: the covering program of the pods of each minute.

Shares no code with packing. It uses every distinct size of pod, every type and every offering.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

import highspy
import numpy as np
from leeway.selection.labels import HOSTNAME
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import Pod, PodSpec

from leeway_cli.simulated_day.workload import catalog, pools


def bound_of(pods: Iterable[PodSpec], seed: int, hour: int) -> float:
    """Return the least USD per hour that any nodes for these pods cost, at the prices of an hour.

    No pod can use both pools, so the bounds of the pools add up.
    """
    steady: Counter[PodSpec] = Counter()
    general: Counter[PodSpec] = Counter()
    for spec in pods:
        (steady if spec.tolerations else general)[spec] += 1
    return sum(
        _bound(frozenset(counts.items()), seed, hour, number)
        for number, counts in enumerate((general, steady))
    )


@cache
def _bound(counts: frozenset[tuple[PodSpec, int]], seed: int, hour: int, pool: int) -> float:
    pods = [Pod(str(number), spec) for spec, many in counts for number in range(many)]
    return covering_bound(pods, _supply(seed, hour, pool)) if pods else 0.0


@cache
def _supply(seed: int, hour: int, pool: int) -> Supply:
    return Supply([pools()[pool]], catalog(seed, hour))


RESOURCES = ("cpu", "memory", "pods")
UNIT = np.array([1000.0, 2.0**30, 1.0])


def covering_bound(pods: Sequence[Pod], supply: Supply) -> float:
    """Return USD per hour. Each pod may use every offering that it fits."""
    sizes = Counter(tuple(pod.spec.requests.of(name) for name in RESOURCES) for pod in pods)
    requested = np.array(list(sizes), dtype=float) / UNIT
    counts = np.array(list(sizes.values()), dtype=float)
    held: dict[tuple[float, ...], float] = {}
    for candidate in supply.candidates:
        key = tuple(candidate.type.allocatable.of(name) for name in RESOURCES)
        held[key] = min(candidate.price, held.get(key, np.inf))
    capacity = np.array(list(held), dtype=float) / UNIT
    prices = np.array(list(held.values()))
    return _solve(requested, counts, capacity, prices, _forced(pods))


def _forced(pods: Sequence[Pod]) -> int:
    """Return the number of nodes that anti-affinity by hostname requires: the size of the largest
    set of pods that exclude each other."""
    apart: Counter[object] = Counter()
    for pod in pods:
        for term in pod.spec.pod_anti_affinity:
            if term.topology == HOSTNAME and term.selects(pod.spec):
                apart[term] += 1
    return max(apart.values(), default=0)


def _solve(
    requested: np.ndarray, counts: np.ndarray, capacity: np.ndarray, prices: np.ndarray, nodes: int
) -> float:
    groups, offerings = np.nonzero((requested[:, None, :] <= capacity[None]).all(axis=2))
    g, (o, r) = len(counts), capacity.shape
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    none, empty = np.empty(0, np.int32), np.empty(0)
    solver.addRows(g, counts, np.full(g, np.inf), 0, np.zeros(g, np.int32), none, empty)
    rows = o * r + 1
    low = np.full(rows, -np.inf)
    high = np.zeros(rows)
    low[-1], high[-1] = nodes, np.inf
    solver.addRows(rows, low, high, 0, np.zeros(rows, np.int32), none, empty)
    pods = len(groups)
    index = np.column_stack([groups, *(g + offerings * r + k for k in range(r))])
    value = np.column_stack([np.ones(pods), requested[groups]])
    _columns(solver, np.zeros(pods), index, value)
    every = np.arange(o)
    index = np.column_stack([*(g + every * r + k for k in range(r)), np.full(o, g + o * r)])
    _columns(solver, prices, index, np.column_stack([-capacity, np.ones(o)]))
    solver.run()
    return float(solver.getInfo().objective_function_value)


def _columns(
    solver: highspy.Highs, costs: np.ndarray, index: np.ndarray, value: np.ndarray
) -> None:
    count, each = index.shape
    starts = (np.arange(count) * each).astype(np.int32)
    zeros, infinite = np.zeros(count), np.full(count, np.inf)
    solver.addCols(
        count,
        costs,
        zeros,
        infinite,
        count * each,
        starts,
        index.ravel().astype(np.int32),
        value.ravel(),
    )
