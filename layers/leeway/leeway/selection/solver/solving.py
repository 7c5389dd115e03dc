"""Packs groups onto new nodes: greedily, by patterns if there are many pods of each group
(`leeway.selection.solver.programs`), and one by one up to 2,000 pods and without constraints
(`leeway.selection.solver.one_by_one`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from leeway.selection.solver.one_by_one import NEAR_ENOUGH, ruin_and_recreate
from leeway.selection.solver.problem import (
    FINE,
    Floats,
    Ints,
    Problem,
    Proceed,
    by_balance,
    fill,
)
from leeway.selection.solver.programs import (
    Covering,
    Pattern,
    cover,
    improve,
    least,
    polish,
)

MAX_GROUPS = 600
"""With more groups, programs over patterns take too long, and the greedy result is used."""

SPARE = 0.02
"""Value of the requested resources, scarce or not, as a share of the bound. In the covering
program, an abundant resource has no value, and pods that request much of it would be packed
last."""

AT_ONCE = 8
"""Nodes that are filled together: filling one takes nearly as long as filling a few."""

MIN_NODES_FOR_PATTERNS = 8
"""Patterns are generated for an offering if at least this many of its nodes are needed; with fewer,
rounding loses the gain."""

PER_SIZE = 3
"""Offerings considered of each size (a factor of 1.4), for pods with the same candidates."""


PODS_FOR_PATTERNS = 8
"""A small batch is packed by patterns first if its groups have this number of pods on average."""

ROUNDS_FOR_A_POD, FEW_ROUNDS = 4, 100
"""The maximum number of rounds for each pod: a few pods have few plans. Above the second number, a
pod adds half as many."""

PODS_OF_ALL_ROUNDS = 250
"""With more pods of many groups, a batch has proportionally fewer rounds of improvement: a round
takes longer, and changes a smaller part of the plan."""


SAME_PRICE = 1e-6
"""The difference up to which two prices are equal, as a share of the lowest price."""


@dataclass(frozen=True)
class Solution:
    """Nodes that hold all pods of a problem. `bound` is in USD per hour, None if unknown."""

    patterns: tuple[Pattern, ...]
    bound: float | None


def solve(problem: Problem, proceed: Proceed) -> Solution:
    """Pack all pods of groups that fit on an offering, greedily, and better while `proceed` returns
    True."""
    best, covering, offerings, _ = _by_patterns(problem, proceed)
    if price(problem, best) > NEAR_ENOUGH * covering.bound and proceed():
        best = polish(problem, best, offerings, covering.values)
    return Solution(tuple(best), covering.bound)


def _by_patterns(
    problem: Problem, proceed: Proceed
) -> tuple[Sequence[Pattern], Covering, Ints, float]:
    """The cheaper one of the greedy plan and that of patterns, with its bound, the offerings that
    are worth filling, and the price if patterns were divisible, 0 if none were made."""
    covering = cover(problem)
    offerings = promising(problem, covering.values)
    values = covering.values + SPARE * covering.bound * _share(problem)
    greedy = list(_greedily(problem, problem.counts, offerings, values))
    plans = [greedy]
    expensive = price(problem, greedy) > NEAR_ENOUGH * covering.bound
    divisible = 0.0
    if expensive and proceed() and len(problem.counts) <= MAX_GROUPS:
        small = _small_enough(problem, offerings, covering)
        whole, values = improve(problem, small, greedy, covering.values, proceed)
        divisible = float(problem.counts @ values)
        left = problem.counts - sum(p.times * p.pods for p in whole)
        plans.append([*whole, *_greedily(problem, left, offerings, values)])
    return min(plans, key=lambda plan: price(problem, plan)), covering, offerings, divisible


def solve_few(problem: Problem, rounds: int, proceed: Proceed) -> Solution:
    """Pack all pods of a small batch, or pods without constraints, one by one; if there are many of
    each group, by patterns first. Improve the result for up to this number of rounds while
    `proceed` returns True. The bound is computed only for rounds of improvement.

    Groups without an offering or a counter in common, such as those of two zones, are packed apart.
    """
    if not rounds:
        return Solution(tuple(ruin_and_recreate(problem, 0, 0.0, proceed)), None)
    parts = list(_independent(problem))
    if len(parts) == 1:
        return _solve_few(problem, rounds, proceed)
    patterns: list[Pattern] = []
    bound = 0.0
    for groups in parts:
        part = problem.of_groups(groups, problem.counts[groups])
        found = _solve_few(part, rounds, proceed)
        bound += found.bound or 0.0
        for pattern in found.patterns:
            pods = np.zeros(len(problem.counts))
            pods[groups] = pattern.pods
            patterns.append(Pattern(pattern.offering, pods, pattern.times))
    return Solution(tuple(patterns), bound)


def _independent(problem: Problem) -> Iterator[Ints]:
    """The groups that have offerings or counters in common, directly or through other groups."""
    linked = problem.matches.astype(bool) | np.isfinite(problem.caps)
    links = np.concatenate([problem.allowed, linked], axis=1)
    left = np.ones(len(links), dtype=bool)
    while left.any():
        reached, together = np.zeros(links.shape[1], dtype=bool), np.zeros(len(links), dtype=bool)
        joining = np.arange(len(links)) == left.argmax()
        while joining.any():
            together |= joining
            reached |= links[joining].any(axis=0)
            joining = left & ~together & (links & reached).any(axis=1)
        left &= ~together
        yield np.flatnonzero(together)


def _solve_few(problem: Problem, rounds: int, proceed: Proceed) -> Solution:
    pods = float(problem.counts.sum())
    patterns: Callable[[], tuple[Sequence[Pattern], float]] | None = None
    if len(problem.counts) * PODS_FOR_PATTERNS <= pods:
        patterns = partial(_patterns, problem, proceed)
    else:
        rounds = round(rounds * min(1, PODS_OF_ALL_ROUNDS / pods))
    most = ROUNDS_FOR_A_POD * round(pods)
    bound, rounds = least(problem), min(rounds, most, max(FEW_ROUNDS, most // 2))
    found = ruin_and_recreate(problem, rounds, of_whole_nodes(problem, bound), proceed, patterns)
    return Solution(tuple(found), bound)


def of_whole_nodes(problem: Problem, bound: float) -> float:
    """Return a bound for whole nodes: if all prices are multiples of the lowest one, as those of
    the types of one family are, so is the price of each plan."""
    prices = problem.prices[problem.fits.any(axis=0)]
    lowest = max(float(prices.min()), 1e-12)
    times = prices / lowest
    if np.abs(times - times.round()).max() > SAME_PRICE:
        return bound
    return lowest * float(np.ceil(bound / lowest - SAME_PRICE))


def _patterns(problem: Problem, proceed: Proceed) -> tuple[Sequence[Pattern], float]:
    plan, _, _, divisible = _by_patterns(problem, proceed)
    return plan, divisible


def price(problem: Problem, patterns: Sequence[Pattern]) -> float:
    """Return the price of nodes in USD per hour."""
    return float(sum(problem.prices[p.offering] * p.times for p in patterns))


def promising(problem: Problem, values: Floats) -> Ints:
    """Return the offerings worth filling: of every size, those with the most value for their price.

    The values of resources follow from the values of the pods. Pods with different candidate
    offerings each have their own.
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
        firsts = np.searchsorted(sizes, sizes)  # the first row of each size
        kept.update(ranked[np.arange(len(ranked)) - firsts < PER_SIZE].tolist())
    return np.array(sorted(kept), dtype=np.int64)


def _share(problem: Problem) -> Floats:
    """The share of one pod of each group in the total requests: G."""
    totals = np.maximum(problem.counts @ problem.sizes, 1)
    share: Floats = (problem.sizes / totals).mean(axis=1)
    return share


def _small_enough(problem: Problem, offerings: Ints, covering: Covering) -> Ints:
    """Return the offerings of which several nodes are needed for all pods. If anti-affinity
    requires many nodes, the offerings need not be much larger than those."""
    total = float(problem.counts @ covering.values)
    capacity_value = problem.capacity[offerings] @ _worth(problem, covering.values)
    largest = min(
        total / MIN_NODES_FOR_PATTERNS, total / max(covering.nodes, 1) * MIN_NODES_FOR_PATTERNS
    )
    small = offerings[capacity_value <= largest]
    return small if len(small) else offerings


def _worth(problem: Problem, values: Floats) -> Floats:
    """The value of one unit of each resource, so that pods have approximately their values."""
    totals = problem.counts @ problem.sizes
    paid = float(problem.counts @ values)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The scarcity of each resource in the best single offering for all pods.
        nodes = (totals[None] / problem.capacity).max(axis=1) * problem.prices
        best = int(np.nanargmin(np.where(np.isfinite(nodes), nodes, np.inf)))
        scarce = np.nan_to_num(totals / problem.capacity[best])
    share = scarce / max(float(scarce.sum()), 1e-12)
    worth: Floats = share * paid / np.maximum(totals, 1)
    return worth


def _greedily(
    problem: Problem, counts: Floats, offerings: Ints, values: Floats
) -> Iterator[Pattern]:
    """Take the node with the most value for its price, as often as half of the remaining pods
    allow, until no pod remains.

    A node is filled again, if it needs more pods than remain, only when it would be the best: with
    fewer pods it cannot have become much better.
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
