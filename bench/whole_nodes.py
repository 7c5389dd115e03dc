"""Lower bounds of what a simulated day costs that count whole pods on whole nodes.

For each moment a linear program over patterns: all sets of pods that one node holds, found by
column generation. Its value is a bound at each step (Farley), so that it ends within a permille.
Zones, budgets and moves cost nothing. It shares no code with packing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import highspy
import numpy as np
from leeway.selection.labels import SPOT
from leeway.selection.packing.supply import Candidate
from leeway.selection.pods import PodSpec
from leeway.selection.resources import Resources
from leeway_cli.simulated_day.workload import supply

CPU, MEMORY = 50, 256 * 1024**2
"""The units in which the pods of a simulated day request: millicores and bytes."""

CLOSE = 1.001
MOST_ROUNDS = 500


@dataclass(frozen=True)
class Offer:
    """What one node holds, in units, and its price in USD per hour."""

    cpu: int
    memory: int
    price: float


@dataclass(frozen=True)
class Kind:
    """Pods of one size, in units. `alone`: they exclude each other from a node."""

    cpu: int
    memory: int
    alone: bool


def whole_nodes(pods: Iterable[PodSpec], seed: int, hour: int, choices: int) -> float:
    """Return USD per hour that any nodes for these pods cost at least at the prices of an hour, if
    EC2 launches one of the `choices` cheapest Spot types that hold the pods of a node."""
    pools: dict[bool, Counter[Kind]] = {False: Counter(), True: Counter()}
    for spec in pods:
        kind = Kind(*_units(spec.requests), bool(spec.pod_anti_affinity))
        pools[bool(spec.tolerations)][kind] += 1
    return sum(_bound(kinds, _offers(seed, hour, choices)[taint]) for taint, kinds in pools.items())


def with_idle_time(prices: Sequence[float], apart: float, idle: float) -> float:
    """Return the USD of nodes that cost at least these USD per hour at moments that are `apart`
    hours from each other, if each node is also paid for while it starts and while it waits to be
    given back, `idle` hours together. A node may instead be kept through a dip."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    count = len(prices)
    for price in prices:
        solver.addVar(price, np.inf)
    for at in range(count):
        solver.changeColCost(at, apart)
    for at in range(1, count):
        solver.addVar(0.0, np.inf)
        grown = count + at - 1
        solver.changeColCost(grown, idle)
        index, value = np.array([grown, at, at - 1], np.int32), np.array([1.0, -1.0, 1.0])
        solver.addRow(0.0, np.inf, 3, index, value)
    solver.run()
    return float(solver.getInfo().objective_function_value)


def _units(amounts: Resources) -> tuple[int, int]:
    return amounts.of("cpu") // CPU, amounts.of("memory") // MEMORY


@cache
def _offers(seed: int, hour: int, choices: int) -> Mapping[bool, Sequence[Offer]]:
    """The offers of the pools without and with a taint."""
    pools: dict[bool, list[Candidate]] = {False: [], True: []}
    for one in supply(seed, hour).candidates:
        pools[bool(one.pool.taints)].append(one)
    return {taint: _of_pool(candidates, choices) for taint, candidates in pools.items()}


def _of_pool(candidates: Sequence[Candidate], choices: int) -> Sequence[Offer]:
    """The largest requests of each price: what a node costs depends on the requests of its pods,
    since EC2 chooses among the types that hold them."""
    held = [_units(one.type.allocatable) for one in candidates]
    shape = max(cpu for cpu, _ in held) + 1, max(memory for _, memory in held) + 1
    paid = np.full(shape, np.inf)
    markets: dict[tuple[str, str], list[tuple[float, int, int]]] = defaultdict(list)
    for one, size in zip(candidates, held, strict=True):
        market = one.offering.zone, one.offering.capacity_type
        markets[market].append((one.price, *size))
    for (_, capacity_type), offered in markets.items():
        most = choices if capacity_type == SPOT else 1
        count, total = np.zeros(shape), np.zeros(shape)
        for price, cpu, memory in sorted(offered):
            able = (slice(cpu + 1), slice(memory + 1))
            total[able] += np.where(count[able] < most, price, 0.0)
            count[able] += count[able] < most
        mean = np.divide(total, count, out=np.full(shape, np.inf), where=count > 0)
        paid = np.minimum(paid, mean)
    beyond = np.pad(paid, ((0, 1), (0, 1)), constant_values=np.inf)
    largest = (beyond[1:, :-1] > paid) & (beyond[:-1, 1:] > paid) & np.isfinite(paid)
    return [Offer(int(c), int(m), float(paid[c, m])) for c, m in np.argwhere(largest)]


def _bound(counts: Mapping[Kind, int], offers: Sequence[Offer]) -> float:
    if not counts:
        return 0.0
    kinds = sorted(counts, key=lambda one: (one.alone, one.cpu, one.memory))
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    empty, none = np.empty(0), np.empty(0, np.int32)
    for kind in kinds:
        solver.addRow(float(counts[kind]), np.inf, 0, none, empty)
    for number, kind in enumerate(kinds):
        able = (one for one in offers if one.cpu >= kind.cpu and one.memory >= kind.memory)
        cheapest = min(able, key=lambda one: one.price)
        _add(solver, cheapest.price, {number: 1})
    bound = 0.0
    for _ in range(MOST_ROUNDS):
        solver.run()
        value = float(solver.getInfo().objective_function_value)
        worth = np.array(solver.getSolution().row_dual)
        filled = _Filled(kinds, worth, offers)
        ratios = [filled.value(one) / one.price for one in offers]
        bound = max(bound, value / max(*ratios, 1.0))
        if value <= bound * CLOSE:
            break
        for at in np.argsort(ratios)[-5:]:
            if ratios[at] > 1 + 1e-9:
                _add(solver, offers[at].price, filled.pattern(offers[at]))
    return bound


def _add(solver: highspy.Highs, price: float, pattern: Mapping[int, int]) -> None:
    index = np.array(list(pattern), np.int32)
    solver.addCol(price, 0.0, np.inf, len(index), index, np.array(list(pattern.values()), float))


class _Filled:
    """The sets of pods that are worth most on nodes of each size: a knapsack of two resources."""

    def __init__(self, kinds: Sequence[Kind], worth: np.ndarray, offers: Sequence[Offer]) -> None:
        self._kinds, self._worth = kinds, worth
        shape = max(one.cpu for one in offers) + 1, max(one.memory for one in offers) + 1
        best = np.zeros(shape)
        self._layers = [best]
        for kind, each in zip(kinds, worth, strict=True):
            best = best.copy()
            before = self._layers[-1] if kind.alone else best
            for cpu in range(kind.cpu, shape[0]):
                more = before[cpu - kind.cpu, : shape[1] - kind.memory] + each
                np.maximum(best[cpu, kind.memory :], more, out=best[cpu, kind.memory :])
            self._layers.append(best)

    def value(self, offer: Offer) -> float:
        """What the best set for a node is worth."""
        return float(self._layers[-1][offer.cpu, offer.memory])

    def pattern(self, offer: Offer) -> Mapping[int, int]:
        """The number of pods of each kind in the best set for a node."""
        cpu, memory, found = offer.cpu, offer.memory, Counter[int]()
        for number in range(len(self._kinds) - 1, -1, -1):
            kind, layer, before = (
                self._kinds[number],
                self._layers[number + 1],
                self._layers[number],
            )
            while layer[cpu, memory] > before[cpu, memory] + 1e-12:
                found[number] += 1
                cpu, memory = cpu - kind.cpu, memory - kind.memory
                if kind.alone:
                    break
        return found
