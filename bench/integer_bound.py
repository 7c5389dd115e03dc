"""Shows what share of a plan's price above the linear bound no plan with whole nodes can save.

The nodes of a plan have to hold the pods: for any values of the pods, the most that each of these
nodes can hold in value (a knapsack, solved exactly) is at least the value of all pods. An integer
program over the numbers of nodes of each offering, with such rows, is a lower bound. The values
come from the resources, from a linear program over patterns (Gilmore and Gomory; its value is a
bound, too: Farley), and from nodes that this integer program chose and that cannot hold the pods.
If they can, by an integer program of its own, they are the cheapest nodes. Pods that are spread
over zones have their share in each zone. None of it shares code with packing.
"""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np
from leeway.selection.labels import ZONE
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Candidate, Supply
from leeway.selection.pods import Pod, PodSpec
from leeway.selection.resources import Resources
from leeway_cli.simulated_day.bound import RESOURCES, covering_bound

from bench.packing import CATALOGS
from bench.workloads import equal_pods, generic_pods, spread_pods

COUNTS = (20, 50, 100, 200)
SEEDS = (7, 42)
SECONDS = 30.0
"""Seconds of one processor after which the bounds of a batch are what they are."""

PATTERNS_SHARE = 0.5
"""The part of these seconds for the linear program over patterns."""

CLOSE, TINY, STEP = 1.001, 1e-6, 1.001

MOST_BRANCHES = 2_000
"""Branches of a knapsack; if there are more, an upper bound of it is used."""

Place = Sequence[tuple[np.ndarray, float]]
"""What the offerings of a zone hold, and their prices, without those that another one replaces."""


def _size(amounts: Resources) -> tuple[int, ...]:
    return tuple(amounts.of(name) for name in RESOURCES)


class Batch:
    """Kinds of pods (G), and places (P): the zones if pods are spread over them, or all at once.

    `least` and `most` (P x G) are the numbers of pods of a place, `node` (G) those of a node. All
    prices are multiples of `step`, if there is such a price.
    """

    def __init__(self, pods: Sequence[Pod], supply: Supply) -> None:
        kinds = Counter(_kind(pod.spec) for pod in pods)
        self.counts = np.array(list(kinds.values()), float)
        sizes = np.array([size for size, _ in kinds], float)
        self.unit = np.maximum(self.counts @ sizes, 1) / 1000
        self.sizes = sizes / self.unit
        spread = np.array([spec is not None for _, spec in kinds])
        zones = Counter(one.offering.zone for one in supply.candidates if spread.any())
        many = max(zones.values(), default=0)
        # Zones with about as many offerings count as one that has the offerings of all.
        alike = [zone for zone, offered in zones.items() if 2 * offered >= many]
        apart = [alike, *([zone] for zone in zones if zone not in alike)]
        self.merged = len(alike) > 1
        self.places = [self._place(supply.candidates, some) for some in apart]
        each = self.counts / max(len(zones), 1)
        self.node = np.where(spread, np.ceil(each), self.counts)
        number = np.array([[len(some)] for some in apart])
        self.least = np.where(spread, number * np.floor(each), 0.0)
        self.most = np.minimum(np.where(spread, number * np.ceil(each), np.inf), self.counts)
        self.offers = [(p, *one) for p, place in enumerate(self.places) for one in place]
        self.prices = np.array([price for _, _, price in self.offers])
        times = self.prices / self.prices.min()
        multiples = bool(np.abs(times - times.round()).max() < TINY)
        self.step = float(self.prices.min()) if multiples else 1.0

    def _place(self, candidates: Sequence[Candidate], zones: Sequence[str]) -> Place:
        cheapest: dict[tuple[float, ...], float] = {}
        for one in candidates:
            if not zones or one.offering.zone in zones:
                held = np.minimum(np.array(_size(one.type.allocatable)) / self.unit, 1000)
                key = tuple((-held).tolist())
                cheapest[key] = min(one.price, cheapest.get(key, math.inf))
        kept: list[tuple[np.ndarray, float]] = []
        for price, key in sorted((price, key) for key, price in cheapest.items()):
            held = -np.array(key)
            if not any((other >= held).all() for other, _ in kept):
                kept.append((held, price))
        return kept

    def value(self, worth: np.ndarray) -> float:
        """What all pods are worth at least, by the values (P x G) of their places."""
        found, left = float((worth * self.least).sum()), self.counts - self.least.sum(axis=0)
        for row in np.argsort(worth, axis=0):
            at = row, np.arange(len(left))
            more = np.minimum(left, (self.most - self.least)[at])
            found, left = found + float(more @ worth[at]), left - more
        return found

    def room(self, held: np.ndarray) -> np.ndarray:
        """How many pods of each kind alone one node holds."""
        alone = ((held + TINY) / np.maximum(self.sizes, 1e-9)).min(axis=1) // 1
        return np.asarray(np.minimum(alone, self.node))


def _kind(spec: PodSpec) -> tuple[tuple[int, ...], PodSpec | None]:
    spread = any(one.pods.topology == ZONE and one.max_skew == 1 for one in spec.spreads)
    return _size(spec.requests), spec if spread else None


def _solver(seconds: float = math.inf) -> highspy.Highs:
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in (("output_flag", False), ("threads", 1), ("time_limit", seconds)):
        solver.setOptionValue(name, value)
    return solver


def _row(solver: highspy.Highs, low: float, high: float) -> None:
    solver.addRow(low, high, 0, np.empty(0, np.int32), np.empty(0))


def _column(
    solver: highspy.Highs, cost: float, low: float, high: float, rows: Sequence[int], values: object
) -> None:
    numbers = np.array(values, float)
    solver.addCol(cost, low, high, len(rows), np.array(rows, np.int32), numbers)


def _whole(solver: highspy.Highs) -> None:
    for column in range(solver.getNumCol()):
        solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)


class Knapsack:
    """The pods that are worth most on one node: an integer program, and its relaxation."""

    def __init__(self, batch: Batch) -> None:
        self._batch, self._kinds = batch, np.arange(len(batch.counts), dtype=np.int32)
        self._relaxed, self._exact = _solver(), _solver()
        for solver in (self._relaxed, self._exact):
            for _ in RESOURCES:
                _row(solver, -math.inf, 0.0)
            for size in batch.sizes:
                _column(solver, 0.0, 0.0, 0.0, range(len(size)), size)
            solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        _whole(self._exact)
        self._exact.setOptionValue("mip_max_nodes", MOST_BRANCHES)

    def relaxed(self, worth: np.ndarray, offer: int) -> tuple[float, np.ndarray]:
        """An upper bound, and a set of pods: that of divisible pods, rounded down and filled up."""
        batch, (place, held, _) = self._batch, self._batch.offers[offer]
        self._run(self._relaxed, worth[place], held)
        pods = np.floor(np.array(self._relaxed.getSolution().col_value) + TINY)
        use = (batch.sizes / held).max(axis=1)
        for kind in np.argsort(-worth[place] / np.maximum(use, TINY)):
            free = (held + TINY - pods @ batch.sizes) / np.maximum(batch.sizes[kind], 1e-9)
            pods[kind] += max(min(free.min() // 1, batch.node[kind] - pods[kind]), 0)
        return self._relaxed.getInfo().objective_function_value, pods

    def exact(self, worth: np.ndarray, offer: int, gap: float) -> tuple[float, np.ndarray]:
        """An upper bound within this gap, and a set of pods."""
        place, held, _ = self._batch.offers[offer]
        self._exact.setOptionValue("mip_rel_gap", gap)
        self._run(self._exact, worth[place], held)
        pods = np.round(np.array(self._exact.getSolution().col_value))
        return self._exact.getInfo().mip_dual_bound, pods

    def _run(self, solver: highspy.Highs, worth: np.ndarray, held: np.ndarray) -> None:
        kinds, none = self._kinds, np.zeros(len(self._kinds))
        solver.changeColsCost(len(kinds), kinds, worth)
        solver.changeColsBounds(len(kinds), kinds, none, self._batch.room(held))
        for number, amount in enumerate(held):
            solver.changeRowBounds(number, -math.inf, amount + 1e-9)
        solver.run()


class Patterns:
    """The linear program over patterns. Without `nodes`, each costs the price of its offering; with
    `nodes` (numbers by offering), it asks for the multiple of them that holds all pods."""

    def __init__(self, batch: Batch, nodes: Counter[int] | None = None) -> None:
        self._batch, self._nodes, self._solver = batch, nodes, _solver()
        places, kinds = batch.most.shape
        for count in batch.counts:
            _row(self._solver, count, math.inf)
        for _ in range(places * kinds + len(nodes or ())):
            _row(self._solver, 0.0, math.inf)
        for place, kind in np.ndindex(places, kinds):
            low, high = batch.least[place, kind], batch.most[place, kind]
            rows = [kind, self._row(place, kind)]
            _column(self._solver, 0.0, float(low), float(high), rows, [1.0, -1.0])
            # Pods without a node cost more than any, so that the program has a solution.
            dear = float(batch.prices.max()) if nodes is None else 10.0
            _column(self._solver, dear, 0.0, math.inf, rows[1:], [1.0])
        self._links = {offer: (places + 1) * kinds + n for n, offer in enumerate(nodes or ())}
        if nodes is not None:
            rows, numbers = list(self._links.values()), list(nodes.values())
            _column(self._solver, 1.0, 0.0, math.inf, rows, numbers)

    def _row(self, place: int, kind: int) -> int:
        return (place + 1) * len(self._batch.counts) + kind

    def solve(self) -> tuple[float, np.ndarray, np.ndarray]:
        """The value, what pods are worth (P x G), and what each offering may cost."""
        self._solver.run()
        duals = np.maximum(np.array(self._solver.getSolution().row_dual), 0)
        places, kinds = self._batch.most.shape
        worth = duals[kinds : (places + 1) * kinds].reshape(places, kinds)
        paid = self._batch.prices.copy()
        for offer, row in self._links.items():
            paid[offer] = duals[row]
        return self._solver.getInfo().objective_function_value, worth, paid

    def add(self, offer: int, pods: np.ndarray) -> None:
        """Add a pattern."""
        some, place = np.flatnonzero(pods), self._batch.offers[offer][0]
        rows, values = [self._row(place, int(kind)) for kind in some], list(pods[some])
        if self._nodes is None:
            _column(self._solver, self._batch.prices[offer], 0.0, math.inf, rows, values)
        else:
            link = self._links[offer]
            _column(self._solver, 0.0, 0.0, math.inf, [*rows, link], [*values, -1.0])


@dataclass
class Cut:
    """Values of pods, all together at least 1, and the most that a node of each offering holds: an
    upper bound, or exact."""

    worth: np.ndarray
    most: np.ndarray
    exact: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Bounds:
    """USD per hour: what nodes cost at least, by patterns (0: not needed) and by whole nodes, and
    the cheapest plan that was found."""

    patterns: float
    lower: float
    upper: float


class Search:
    """The search for the cheapest whole nodes of a batch, within some seconds of one processor."""

    def __init__(self, batch: Batch, upper: float, seconds: float) -> None:
        self._batch, self._knapsack, self._upper = batch, Knapsack(batch), upper
        self._started, self._seconds = time.process_time(), seconds
        self._cuts: list[Cut] = []
        places, _ = batch.most.shape
        for size in batch.sizes.T:
            self._cut(np.tile(size, (places, 1)))
            for place in range(places if places > 1 else 0):
                self._cut(np.where(np.arange(places)[:, None] == place, size, 0.0))

    def bounds(self) -> Bounds:
        """Search."""
        _, lower = self._cheapest(0.0, self._seconds / 20)
        patterns = floor = 0.0
        if lower < self._upper * (1 - TINY):
            patterns = self._by_patterns()
        while self._left() > 0 and max(patterns, lower) < self._upper * (1 - TINY):
            nodes, least = self._refined(floor)
            lower = lower if floor else max(lower, least)
            price = float(sum(self._batch.prices[one] * many for one, many in nodes.items()))
            if least >= self._upper * (1 - TINY) or not nodes:
                break
            if (worth := self._excess(nodes)) is not None:
                self._cut(worth)
            elif self._batch.merged:
                break
            elif self._holds(nodes):
                self._upper = min(price, self._upper)
            else:
                floor = price * STEP
        return Bounds(patterns, max(lower, patterns), self._upper)

    def _left(self) -> float:
        return self._started + self._seconds - time.process_time()

    def _cut(self, worth: np.ndarray) -> None:
        least = self._batch.value(worth)
        if least > 0:
            offers = range(len(self._batch.offers))
            most = np.array([self._knapsack.relaxed(worth, one)[0] for one in offers])
            self._cuts.append(Cut(worth / least, most / least))

    def _refined(self, floor: float) -> tuple[Counter[int], float]:
        """The cheapest nodes, by cuts that are exact for all of them."""
        while True:
            nodes, least = self._cheapest(floor, max(self._left() / 5, 1.0))
            vague = [(cut, one) for cut in self._cuts for one in nodes if one not in cut.exact]
            if not vague or self._left() <= 0:
                return nodes, least
            for cut, offer in vague:
                cut.most[offer], _ = self._knapsack.exact(cut.worth, offer, TINY)
                cut.exact.add(offer)

    def _cheapest(self, floor: float, seconds: float) -> tuple[Counter[int], float]:
        """The cheapest nodes that meet all cuts and cost at least the floor, and a bound."""
        solver, step = _solver(seconds), self._batch.step
        solver.setOptionValue("mip_rel_gap", TINY)
        # The solver knows from whole numbers that the price is one, too.
        costs = self._batch.prices / step
        costs = costs if step == 1.0 else costs.round()
        _row(solver, floor / step, math.inf)
        for _ in self._cuts:
            _row(solver, 1.0, math.inf)
        for offer, price in enumerate(costs):
            values = [price, *(cut.most[offer] for cut in self._cuts)]
            most = float(self._batch.counts.sum())
            _column(solver, price, 0.0, most, range(len(values)), values)
        _whole(solver)
        solver.run()
        numbers = np.round(np.array(solver.getSolution().col_value))
        nodes = Counter({int(one): int(numbers[one]) for one in np.flatnonzero(numbers)})
        return nodes, float(solver.getInfo().mip_dual_bound) * step

    def _by_patterns(self) -> float:
        """The bound of the linear program over patterns. Its values become a cut."""
        batch, program = self._batch, Patterns(self._batch)
        bound, best, share = 0.0, np.zeros(batch.most.shape), 0.0
        end = time.process_time() + PATTERNS_SHARE * self._left()
        while time.process_time() < end:
            value, worth, _ = program.solve()
            # Values between the last ones and the best ones so far change less from round to round.
            tried = share * best + (1 - share) * worth
            gap = min(max((value / max(bound, 1e-9) - 1) / 10, 1e-5), 0.01)
            most, found = self._priced(tried, gap)
            if (here := batch.value(tried) / most) > bound:
                bound, best = here, tried / most
            if value <= bound * CLOSE or bound >= self._upper:
                break
            better = [(offer, pods) for offer, pods in found if self._gains(worth, offer, pods)]
            if not better and not share:
                break
            share = 0.5 if better else 0.0
            for offer, pods in better:
                program.add(offer, pods)
        self._cut(best)
        return bound

    def _gains(self, worth: np.ndarray, offer: int, pods: np.ndarray) -> bool:
        value = float(worth[self._batch.offers[offer][0]] @ pods)
        return value > float(self._batch.prices[offer]) * (1 + TINY)

    def _priced(self, worth: np.ndarray, gap: float) -> tuple[float, list[tuple[int, np.ndarray]]]:
        """The most that a node of any offering is worth for its price, at least 1, and patterns."""
        relaxed = [self._knapsack.relaxed(worth, one) for one in range(len(self._batch.offers))]
        ratios = np.array([value for value, _ in relaxed]) / self._batch.prices
        ranked = [int(one) for one in np.argsort(-ratios)]
        found = [(one, relaxed[one][1]) for one in ranked[:10]]
        most = 1.0
        for offer in ranked:
            if ratios[offer] <= most * (1 + gap):
                return max(most, float(ratios[offer])), found
            value, pods = self._knapsack.exact(worth, offer, gap)
            most = max(most, value / self._batch.prices[offer])
            found.append((offer, pods))
        return most, found

    def _excess(self, nodes: Counter[int]) -> np.ndarray | None:
        """Values by which all pods are worth more than these nodes can hold; None if patterns of
        divisible numbers show that they hold them."""
        program = Patterns(self._batch, nodes)
        while self._left() > 0:
            value, worth, paid = program.solve()
            if value <= 1 + TINY:
                return None
            filled = {one: self._knapsack.exact(worth, one, TINY) for one in nodes}
            held = sum(nodes[one] * most for one, (most, _) in filled.items())
            if self._batch.value(worth) > held * (1 + TINY):
                return worth
            place = {one: self._batch.offers[one][0] for one in nodes}
            new = [
                (one, pods)
                for one, (_, pods) in filled.items()
                if worth[place[one]] @ pods > paid[one] + TINY
            ]
            if not new:
                return None
            for offer, pods in new:
                program.add(offer, pods)
        return None

    def _holds(self, nodes: Counter[int]) -> bool:
        """Whether all pods have a place on these nodes, by an integer program of limited time."""
        batch, solver = self._batch, _solver(min(max(self._left(), 1.0), self._seconds / 3))
        places, kinds = batch.most.shape
        for count in batch.counts:
            _row(solver, count, count)
        for place, kind in np.ndindex(places, kinds):
            _row(solver, float(batch.least[place, kind]), float(batch.most[place, kind]))
        rows = (places + 1) * kinds
        for offer in nodes.elements():
            place, held, _ = batch.offers[offer]
            for amount in held:
                _row(solver, -math.inf, amount + 1e-9)
            for kind, (size, room) in enumerate(zip(batch.sizes, batch.room(held), strict=True)):
                index = [kind, (place + 1) * kinds + kind, *range(rows, rows + len(size))]
                _column(solver, 0.0, 0.0, float(room), index, [1.0, 1.0, *size])
            rows += len(held)
        _whole(solver)
        solver.run()
        return bool(solver.getModelStatus() == highspy.HighsModelStatus.kOptimal)


WORKLOADS: dict[str, Callable[[int, int], list[Pod]]] = {
    "unconstrained": generic_pods,
    "10 Deployments": lambda count, seed: equal_pods(10, seed)(count),
    "20 Deployments": lambda count, seed: equal_pods(20, seed)(count),
    "20 spread Deployments": lambda count, seed: spread_pods(count, seed=seed),
}


def main() -> None:
    """Print a row for each batch."""
    for catalog, make in CATALOGS.items():
        supply = make()
        sys.stdout.write(f"\n{catalog}: price / linear bound, price / integer bound\n")
        for workload, pods_of in WORKLOADS.items():
            for count in COUNTS:
                for seed in SEEDS:
                    pods = pods_of(count, seed)
                    sys.stdout.write(f"{workload:22}{count:4} {seed:3} {_line(pods, supply)}\n")
                    sys.stdout.flush()


def _line(pods: Sequence[Pod], supply: Supply) -> str:
    plan, linear = pack(pods, supply), covering_bound(pods, supply)
    started = time.process_time()
    found = Search(Batch(pods, supply), plan.price, SECONDS).bounds()
    took = time.process_time() - started
    return (
        f"{plan.price / linear:.4f} {plan.price / max(found.lower, linear):.4f}  best plan found:"
        f" {found.upper / linear:.4f}  patterns: {found.patterns / linear:.4f}"
        f"  {len(plan.launches)} nodes, {took:.0f} s"
    )


if __name__ == "__main__":
    main()
