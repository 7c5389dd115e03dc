"""Chooses how many nodes of which pattern to launch, by a linear program over patterns.

The cutting-stock method (Gilmore and Gomory, 1961): the program values the pods of each group,
nodes are filled with the most valuable pods, and patterns that are worth more than they cost become
columns, until there are none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import highspy
import numpy as np

from leeway.selection.solver.covering import solver
from leeway.selection.solver.problem import (
    Floats,
    Ints,
    Problem,
    Proceed,
    by_balance,
    by_density,
    by_value,
    fill,
    fill_by_each,
)

ROUNDS = 30
MIN_GAIN = 1e-4
"""The minimum gain of a new pattern as a share of its node's price."""

FULL_ROUND_EVERY, PROMISING = 4, 0.6
"""One of this many rounds fills all offerings; the others fill only offerings whose nodes reached
this share of the best value."""

MAX_COLUMNS = 4000

DIVES = 40
ROUND_UP_FROM = 0.7
"""The fraction of a node from which it is rounded up."""

MAX_BRANCHES = 200
"""Limit of the search for integer numbers of patterns."""

MIN_VALUE_SHARE = 0.85
"""The share of a pattern's value that must remain for it to be used."""

POWERS = (np.inf, 2.0, 0.5)
"""The ways of filling nodes by value. Each finds patterns that the others miss."""

STABILIZATION = 0.5
"""The weight of the best values so far in the target values. The values of the program vary widely
while it has few patterns (Wentges' smoothing)."""


@dataclass(frozen=True)
class Pattern:
    """A number of nodes of one offering with the same pods of each group (G)."""

    offering: int
    pods: Floats
    times: int


class Master:
    """The program over patterns: the cheapest fractional mix that holds all pods."""

    def __init__(self, counts: Floats) -> None:
        self.patterns: list[tuple[int, Floats]] = []
        self._known: set[tuple[int, bytes]] = set()
        self._solver = solver()
        none = np.empty(0)
        rows, starts = len(counts), np.zeros(len(counts), np.int32)
        infinite = np.full(rows, np.inf)
        self._solver.addRows(rows, counts, infinite, 0, starts, none.astype(np.int32), none)

    def add(self, problem: Problem, offerings: Ints, pods: Floats) -> bool:
        """Add patterns, one for each of the offerings. Returns False if all are known already."""
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
        """Change the numbers of pods."""
        rows = np.arange(len(counts), dtype=np.int32)
        self._solver.changeRowsBounds(  # type: ignore[attr-defined]
            len(counts), rows, counts, np.full(len(counts), np.inf)
        )

    def whole(self) -> list[tuple[int, Floats]]:
        """Return patterns in integer numbers that hold all pods, as cheap as a limited search
        finds; none if it finds none."""
        columns = np.arange(len(self.patterns), dtype=np.int32)
        kinds = np.full(len(columns), int(highspy.HighsVarType.kInteger), np.uint8)
        self._solver.changeColsIntegrality(len(columns), columns, kinds)
        self._solver.setOptionValue("mip_max_nodes", MAX_BRANCHES)
        self._solver.setOptionValue("mip_rel_gap", 1e-3)
        self._solver.run()
        times = np.asarray(self._solver.getSolution().col_value)
        if np.abs(times - times.round()).max(initial=0) > 1e-6:
            return []
        return [
            pattern
            for pattern, share in zip(self.patterns, times.tolist(), strict=True)
            for _ in range(round(share))
        ]

    def solve(self) -> tuple[Floats, Floats]:
        """Return the fractional number of each pattern, and the value of each group."""
        self._solver.run()
        solution = self._solver.getSolution()
        return np.asarray(solution.col_value), np.maximum(np.asarray(solution.row_dual), 0)


def improve(
    problem: Problem,
    offerings: Ints,
    known: Iterable[Pattern],
    values: Floats,
    proceed: Proceed,
) -> tuple[list[Pattern], Floats]:
    """Return whole nodes of the best mix of patterns, and the value of each group in it. Looks for
    patterns while `proceed` returns True.

    The nodes hold most of the pods and never more than exist; the caller packs the rest. `known`
    are the patterns of an existing plan; `values` are those of the covering bound.
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
        if len(master.patterns) > MAX_COLUMNS or not proceed():
            break
    return list(_dive(problem, offerings, master)), current


def _dive(problem: Problem, offerings: Ints, master: Master) -> Iterator[Pattern]:
    """Round the fractions of the program: fix nearly whole patterns, then solve for the remaining
    pods."""
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
    """Fill nodes by the target values, and add those that are worth more than they cost by the
    current values. Returns the highest value per price of each offering's nodes, and whether a
    pattern was added."""
    gains, grown = np.zeros(len(offerings)), False
    wanted = np.where(target > 1e-12, problem.counts, 0)
    prices = np.maximum(problem.prices[offerings], 1e-12)
    scores = [*(by_value(target, power) for power in POWERS), by_density(problem, target)]
    for pods in fill_by_each(problem, wanted, offerings, scores):
        gains = np.maximum(gains, pods @ target / prices)
        worth = pods @ current > prices * (1 + MIN_GAIN)
        if worth.any():
            grown |= master.add(problem, offerings[worth], pods[worth])
    return gains, grown


POLISHED_NODES = 12
"""The number of nodes that are packed again together."""

POLISHING_ROUNDS = 8


def polish(
    problem: Problem,
    patterns: Sequence[Pattern],
    offerings: Ints,
    values: Floats,
) -> list[Pattern]:
    """Return a plan that costs no more, with the least efficient nodes replaced if others cost
    less."""
    worst, kept = _parted(sorted(patterns, key=lambda p: _worth(problem, p, values)))
    counts = np.sum([pattern.pods for pattern in worst], axis=0)
    some = np.flatnonzero(counts)
    part = problem.of_groups(some, counts[some])
    master = Master(part.counts)
    for pattern in worst:
        master.add(part, np.array([pattern.offering]), pattern.pods[None, some])
    able = offerings[part.fits[:, offerings].any(axis=0)]
    master.add(part, able, fill(part, part.counts, able, by_balance))
    for _ in range(POLISHING_ROUNDS):
        _, current = master.solve()
        if not generate(part, able, master, current, current)[1]:
            break
    again = list(_spread(problem, some, master.whole(), counts))
    if again and _price(problem, again) < _price(problem, worst) - 1e-9:
        return [*kept, *again]
    return list(patterns)


def _parted(ranked: Sequence[Pattern]) -> tuple[list[Pattern], list[Pattern]]:
    """The first nodes individually, and the other patterns."""
    first: list[Pattern] = []
    others: list[Pattern] = []
    for pattern in ranked:
        taken = min(pattern.times, POLISHED_NODES - len(first))
        first += [Pattern(pattern.offering, pattern.pods, 1)] * taken
        if taken < pattern.times:
            others.append(Pattern(pattern.offering, pattern.pods, pattern.times - taken))
    return first, others


def _worth(problem: Problem, pattern: Pattern, values: Floats) -> float:
    return float(pattern.pods @ values) / max(float(problem.prices[pattern.offering]), 1e-12)


def _price(problem: Problem, patterns: Sequence[Pattern]) -> float:
    return float(sum(problem.prices[p.offering] for p in patterns))


def _spread(
    problem: Problem, some: Ints, chosen: Sequence[tuple[int, Floats]], counts: Floats
) -> Iterator[Pattern]:
    """Nodes of patterns that together hold more pods than exist: each pod is on one node."""
    left = counts.copy()
    for offering, pods in chosen:
        taken = np.zeros(len(left))
        taken[some] = pods
        taken = np.minimum(taken, left)
        left -= taken
        if taken.any():
            yield Pattern(offering, taken, 1)
