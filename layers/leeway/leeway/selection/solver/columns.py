"""Chooses how often to launch which nodes, by a linear program over patterns of pods on a node.

The method of cutting stock (Gilmore and Gomory, 1961): the program says what a pod of each group is
worth at the moment, nodes are filled with what is worth most, and those that are worth more than
they cost become columns, until there are none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import highspy
import numpy as np

from leeway.selection.solver.arrays import Floats, Ints, Problem
from leeway.selection.solver.covering import solver
from leeway.selection.solver.filling import by_density, by_value, fill

ROUNDS = 30
MIN_GAIN = 1e-4
"""Of a node's price, what a new pattern has to be worth beyond it."""

FULL_ROUND_EVERY, PROMISING = 4, 0.6
"""Of so many rounds one looks at all offerings, the others at those whose nodes came this near to
the best."""

MAX_COLUMNS = 4000

DIVES = 40
ROUND_UP_FROM = 0.7
"""The fraction of a node from which on it is taken for a whole one."""

MAX_BRANCHES = 200
"""Of the search for whole numbers of patterns."""

MIN_VALUE_SHARE = 0.85
"""The part of a pattern's value that has to be left for it to be taken."""

POWERS = (np.inf, 2.0, 0.5)
"""The ways in which nodes are filled by value: each finds patterns that the others miss."""

STABILIZATION = 0.5
"""How much of the values asked for is the best known so far: a program's own values swing widely
while it has few patterns (Wentges' smoothing)."""


@dataclass(frozen=True)
class Pattern:
    """Nodes of one offering that hold the same numbers of pods of each group (G), so many times."""

    offering: int
    pods: Floats
    times: int


class Master:
    """The program over patterns: the cheapest mix of them that holds all pods, in fractions."""

    def __init__(self, counts: Floats) -> None:
        self.patterns: list[tuple[int, Floats]] = []
        self._known: set[tuple[int, bytes]] = set()
        self._solver = solver()
        none = np.empty(0)
        rows, starts = len(counts), np.zeros(len(counts), np.int32)
        infinite = np.full(rows, np.inf)
        self._solver.addRows(rows, counts, infinite, 0, starts, none.astype(np.int32), none)

    def add(self, problem: Problem, offerings: Ints, pods: Floats) -> bool:
        """Add patterns (one for each of the offerings); False if all are known already."""
        fresh = []
        for row, offering in enumerate(offerings.tolist()):
            key = (offering, pods[row].tobytes())
            if key not in self._known and pods[row].any():
                self._known.add(key)
                self.patterns.append((offering, pods[row]))
                fresh.append(row)
        columns = pods[fresh]
        which, groups = np.nonzero(columns)
        starts = np.searchsorted(which, np.arange(len(fresh))).astype(np.int32)
        prices = problem.prices[offerings[fresh]]
        zeros, infinite = np.zeros(len(fresh)), np.full(len(fresh), np.inf)
        values = columns[which, groups]
        self._solver.addCols(
            len(fresh), prices, zeros, infinite, len(which), starts, groups.astype(np.int32), values
        )
        return bool(fresh)

    def set_counts(self, counts: Floats) -> None:
        """Ask for other numbers of pods."""
        rows = np.arange(len(counts), dtype=np.int32)
        self._solver.changeRowsBounds(  # type: ignore[attr-defined]
            len(counts), rows, counts, np.full(len(counts), np.inf)
        )

    def whole(self) -> list[tuple[int, Floats]]:
        """Return patterns in whole numbers that hold all pods: as cheap as is found in a while."""
        columns = np.arange(len(self.patterns), dtype=np.int32)
        kinds = np.full(len(columns), int(highspy.HighsVarType.kInteger), np.uint8)
        self._solver.changeColsIntegrality(len(columns), columns, kinds)
        self._solver.setOptionValue("mip_max_nodes", MAX_BRANCHES)
        self._solver.setOptionValue("mip_rel_gap", 1e-3)
        self._solver.run()
        times = np.asarray(self._solver.getSolution().col_value)
        return [
            pattern
            for pattern, share in zip(self.patterns, times.tolist(), strict=True)
            for _ in range(round(share))
        ]

    def solve(self) -> tuple[Floats, Floats]:
        """Return how often each pattern is launched, in fractions, and each group's value."""
        self._solver.run()
        solution = self._solver.getSolution()
        return np.asarray(solution.col_value), np.maximum(np.asarray(solution.row_dual), 0)


def improve(
    problem: Problem, offerings: Ints, known: Iterable[Pattern], values: Floats
) -> tuple[list[Pattern], Floats]:
    """Return whole nodes of the best mix of patterns, and each group's value in it.

    The nodes hold most of the pods and never more than there are; the rest is for the caller.
    `known` are patterns that hold all pods: a plan that is there already; `values` what pods are
    worth by the covering bound.
    """
    master = Master(problem.counts)
    for pattern in known:
        master.add(problem, np.array([pattern.offering]), pattern.pods[None])
    stabilized, weight, best = values, STABILIZATION, 0.0
    _, current = master.solve()
    promising_offerings = offerings
    for round_number in range(ROUNDS):
        target = weight * stabilized + (1 - weight) * current
        full_round = round_number % FULL_ROUND_EVERY == 0
        gains, grown = generate(
            problem, offerings if full_round else promising_offerings, master, target, current
        )
        gain = max(float(gains.max()), 1.0)
        if full_round:
            promising_offerings = offerings[gains >= PROMISING * gains.max()]
            if (bound := float(problem.counts @ target) / gain) > best:
                best, stabilized = bound, target / gain
        if grown:
            _, current = master.solve()
        elif weight == 0:
            break
        else:
            weight = weight / 2 if weight > 0.2 else 0.0
        if len(master.patterns) > MAX_COLUMNS:
            break
    return list(_dive(problem, offerings, master)), current


def _dive(problem: Problem, offerings: Ints, master: Master) -> Iterator[Pattern]:
    """Round the program's fractions: fix what is nearly whole, solve it again for the rest."""
    left = problem.counts.copy()
    for _ in range(DIVES):
        times, values = master.solve()
        fixed = 0
        for at in np.argsort(-(times % 1 + (times >= 1)), kind="stable").tolist():
            share = times[at]
            if share < (ROUND_UP_FROM if fixed else 1e-6):
                continue
            offering, pods = master.patterns[at]
            taken = np.minimum(pods, left)
            if taken @ values < MIN_VALUE_SHARE * (pods @ values):
                continue
            full = np.floor(left[pods > 0] / pods[pods > 0]).min()
            nodes = max(1, int(min(full, share + 1 - ROUND_UP_FROM)))
            taken = pods if full >= 1 else taken
            left -= nodes * taken
            fixed += nodes
            yield Pattern(offering, taken, nodes)
        if not fixed or not left.any():
            return
        master.set_counts(left)
        part = replace(problem, counts=left)
        generate(part, offerings, master, values, values)


def generate(
    problem: Problem, offerings: Ints, master: Master, target: Floats, current: Floats
) -> tuple[Floats, bool]:
    """Fill nodes with what is worth most by the values asked, and keep those that are worth more
    than they cost by the current ones. Returns the most that each offering's nodes are worth of
    their price, and whether there was one to keep."""
    gains, grown = np.zeros(len(offerings)), False
    wanted = np.where(target > 1e-12, problem.counts, 0)
    prices = np.maximum(problem.prices[offerings], 1e-12)
    for score in (*(by_value(target, power) for power in POWERS), by_density(problem, target)):
        pods = fill(problem, wanted, offerings, score)
        gains = np.maximum(gains, pods @ target / prices)
        worth = pods @ current > prices * (1 + MIN_GAIN)
        if worth.any():
            grown |= master.add(problem, offerings[worth], pods[worth])
    return gains, grown
