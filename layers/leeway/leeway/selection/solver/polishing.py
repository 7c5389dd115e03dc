"""Packs the least efficient nodes again, by integer numbers of patterns."""

from collections.abc import Iterator, Sequence

import numpy as np

from leeway.selection.solver.columns import MAX_COLUMNS, Master, Pattern, generate
from leeway.selection.solver.problem import Floats, Ints, Problem, by_balance, fill

NODES = 12
"""The number of nodes that are packed again together."""

ROUNDS = 8


def polish(
    problem: Problem,
    patterns: Sequence[Pattern],
    offerings: Ints,
    values: Floats,
    most: int = MAX_COLUMNS,
) -> list[Pattern]:
    """Return a plan that costs no more, with the least efficient nodes replaced if others cost
    less. `most`: about how many patterns the search for integer numbers uses."""
    worst, kept = _parted(sorted(patterns, key=lambda p: _worth(problem, p, values)))
    counts = np.sum([pattern.pods for pattern in worst], axis=0)
    some = np.flatnonzero(counts)
    part = problem.of_groups(some, counts[some])
    master = Master(part.counts)
    for pattern in worst:
        master.add(part, np.array([pattern.offering]), pattern.pods[None, some])
    able = offerings[part.fits[:, offerings].any(axis=0)]
    master.add(part, able, fill(part, part.counts, able, by_balance))
    for _ in range(ROUNDS):
        _, current = master.solve()
        if not generate(part, able, master, current, current)[1]:
            break
    again = list(_spread(problem, some, master.whole(most), counts))
    if again and _price(problem, again) < _price(problem, worst) - 1e-9:
        return [*kept, *again]
    return list(patterns)


def _parted(ranked: Sequence[Pattern]) -> tuple[list[Pattern], list[Pattern]]:
    """The first nodes individually, and the other patterns."""
    first: list[Pattern] = []
    others: list[Pattern] = []
    for pattern in ranked:
        taken = min(pattern.times, NODES - len(first))
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
