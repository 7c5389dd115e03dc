"""Packs groups onto new nodes: greedily, and by patterns where that is not good enough."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from leeway.selection.solver.arrays import Floats, Ints, Problem
from leeway.selection.solver.columns import Pattern, improve
from leeway.selection.solver.covering import Covering, cover, least
from leeway.selection.solver.filling import FINE, by_balance, fill
from leeway.selection.solver.polishing import polish
from leeway.selection.solver.ruin_and_recreate import ruin_and_recreate

NEAR_ENOUGH = 1.02
"""Of the bound: what greedy packing has to come to for patterns not to be tried."""

MAX_GROUPS = 600
"""With more, programs over patterns take too long, and greedy packing stands."""

SPARE = 0.02
"""Of the bound, what pods are worth for the resources they ask for, scarce or not: by the covering
program a resource that there is enough of is worth nothing, and pods that ask for much of it would
be left to the last."""

AT_ONCE = 8
"""Nodes that are filled again together: filling one takes about as long as filling a few."""

MIN_NODES_FOR_PATTERNS = 8
"""How often a node has to go into all pods for patterns of it to be looked for: fewer would be
rounded away."""

PER_SIZE = 3
"""Offerings looked at of each size (a factor of 1.4), for pods with the same choice."""


@dataclass(frozen=True)
class Solution:
    """Nodes that hold all pods of a problem. `bound` is in USD per hour; None where not known."""

    patterns: tuple[Pattern, ...]
    bound: float | None


def solve(problem: Problem) -> Solution:
    """Pack all pods of groups that fit somewhere."""
    covering = cover(problem)
    offerings = promising(problem, covering.values)
    values = covering.values + SPARE * covering.bound * _share(problem)
    greedy = list(_greedily(problem, problem.counts, offerings, values))
    plans = [greedy]
    expensive = price(problem, greedy) > NEAR_ENOUGH * covering.bound
    if expensive and len(problem.counts) <= MAX_GROUPS:
        small = _small_enough(problem, offerings, covering)
        whole, values = improve(problem, small, greedy, covering.values)
        left = problem.counts - sum(p.times * p.pods for p in whole)
        plans.append([*whole, *_greedily(problem, left, offerings, values)])
    best = min(plans, key=lambda plan: price(problem, plan))
    if price(problem, best) > NEAR_ENOUGH * covering.bound:
        best = polish(problem, best, offerings, covering.values)
    return Solution(tuple(best), covering.bound)


def solve_few(problem: Problem, rounds: int) -> Solution:
    """Pack all pods of groups that fit somewhere, where they are few. The bound is asked for by the
    rounds of improvement: without any, nobody needs it."""
    bound = least(problem) if rounds else None
    return Solution(tuple(ruin_and_recreate(problem, rounds, bound or 0.0)), bound)


def price(problem: Problem, patterns: Sequence[Pattern]) -> float:
    """Return what nodes cost, in USD per hour."""
    return float(sum(problem.prices[p.offering] * p.times for p in patterns))


def promising(problem: Problem, values: Floats) -> Ints:
    """Return the offerings worth filling: of every size, those that hold most for their price.

    What a resource is worth is read off the pods' values. Pods with a different choice of
    offerings each have theirs among those returned.
    """
    worth = _worth(problem, values)
    capacity_value = problem.capacity @ worth
    value_per_price = capacity_value / np.maximum(problem.prices, 1e-12)
    size = np.floor(2 * np.log2(np.maximum(capacity_value, 1e-9)))
    kept: set[int] = set()
    for choice in {row.tobytes(): row for row in problem.fits}.values():
        found = np.flatnonzero(choice)
        ranked = found[np.lexsort((-value_per_price[found], size[found]))]
        sizes = size[ranked]
        firsts = np.searchsorted(sizes, sizes)  # where each one's size begins
        kept.update(ranked[np.arange(len(ranked)) - firsts < PER_SIZE].tolist())
    return np.array(sorted(kept), dtype=np.int64)


def _share(problem: Problem) -> Floats:
    """The part of all that is asked for that one pod of each group asks for: G."""
    totals = np.maximum(problem.counts @ problem.sizes, 1)
    share: Floats = (problem.sizes / totals).mean(axis=1)
    return share


def _small_enough(problem: Problem, offerings: Ints, covering: Covering) -> Ints:
    """Return those offerings of which it would take several nodes to hold all pods; where pods
    that keep apart force many nodes, only those that are not much larger than these need be."""
    total = float(problem.counts @ covering.values)
    capacity_value = problem.capacity[offerings] @ _worth(problem, covering.values)
    largest = min(
        total / MIN_NODES_FOR_PATTERNS, total / max(covering.nodes, 1) * MIN_NODES_FOR_PATTERNS
    )
    small = offerings[capacity_value <= largest]
    return small if len(small) else offerings


def _worth(problem: Problem, values: Floats) -> Floats:
    """What one unit of each resource is worth, so that pods come to their values by and large."""
    totals = problem.counts @ problem.sizes
    paid = float(problem.counts @ values)
    with np.errstate(divide="ignore", invalid="ignore"):
        # How scarce each resource is in the offering that would hold all pods best.
        nodes = (totals[None] / problem.capacity).max(axis=1) * problem.prices
        best = int(np.nanargmin(np.where(np.isfinite(nodes), nodes, np.inf)))
        scarce = np.nan_to_num(totals / problem.capacity[best])
    share = scarce / max(float(scarce.sum()), 1e-12)
    worth: Floats = share * paid / np.maximum(totals, 1)
    return worth


def _greedily(
    problem: Problem, counts: Floats, offerings: Ints, values: Floats
) -> Iterator[Pattern]:
    """Take the node that holds most value for its price, as often as half of what is left allows,
    and so on until nothing is left.

    A node that held more than is left now is filled again only when it would be the best: with
    fewer pods to choose from it can't have become much better.
    """
    left = counts.copy()
    pods = np.zeros((len(offerings), len(left)))
    gains = np.full(len(offerings), np.inf)
    stale = np.ones(len(offerings), dtype=bool)
    prices = np.maximum(problem.prices[offerings], 1e-12)
    while left.any():
        while stale[best := int(gains.argmax())]:
            ranked = np.flatnonzero(stale)
            ranked = ranked[np.argsort(-gains[ranked])[:AT_ONCE]]
            pods[ranked] = _filled(problem, left, offerings[ranked])
            gains[ranked] = (pods[ranked] @ (values + 1e-12)) / prices[ranked]
            stale[ranked] = False
        taken = pods[best] > 0
        times = max(1, int((left[taken] // pods[best][taken]).min()) // 2)
        left -= times * pods[best]
        yield Pattern(int(offerings[best]), pods[best].copy(), times)
        stale |= (pods > left).any(axis=1)


def _filled(problem: Problem, left: Floats, offerings: Ints) -> Floats:
    some = np.flatnonzero(left)
    pods = np.zeros((len(offerings), len(left)))
    part = problem.of_groups(some, left[some])
    pods[:, some] = fill(part, left[some], offerings, by_balance, FINE)
    return pods
