"""Fills one node of every offering at once, step by step: the inner loop of packing."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from leeway.selection.solver.arrays import Bools, Floats, Ints, Problem

FINE, COARSE = 0.34, 0.5
"""The share of the fitting pods of a group that one step adds. It is below 1, so that groups
alternate and the mix follows the free resources."""

type Score = Callable[[Problem, Floats, Floats], Floats]
"""Rates groups for nodes: (problem, free: O x R, capacity: O x R) -> O x G, larger is better."""


def by_balance(problem: Problem, free: Floats, capacity: Floats) -> Floats:
    """Prefer large pods that request the resources the node has most of (the dot product of vector
    bin packing; Panigrahy et al., "Heuristics for Vector Bin Packing")."""
    scores: Floats = (free / np.square(np.maximum(capacity, 1))) @ problem.sizes.T
    return scores


def by_value(values: Floats, power: float) -> Score:
    """Prefer the highest value per use of the scarcest resource (`power`: the weight of the
    scarcest)."""

    def score(problem: Problem, free: Floats, capacity: Floats) -> Floats:
        there = np.maximum(free, 1e-9)
        parts = [requested / there[:, r, None] for r, requested in enumerate(problem.by_resource)]
        if power == np.inf:
            scarce = reduce(np.maximum, parts)
        else:
            scarce = reduce(np.add, (part**power for part in parts)) ** (1 / power)
        rated: Floats = values[None] / scarce
        return rated

    return score


def by_density(problem: Problem, values: Floats) -> Score:
    """Prefer the highest value per size, regardless of free resources."""
    totals = problem.counts @ problem.sizes
    dense = values / (problem.sizes / np.maximum(totals, 1)).sum(axis=1)

    def score(problem: Problem, free: Floats, capacity: Floats) -> Floats:
        return np.broadcast_to(dense, (len(free), len(dense)))

    return score


@dataclass
class _Nodes:
    """One node of each offering while it is filled."""

    free: Floats  # O x R
    left: Floats  # O x G: what may still be put onto each
    pods: Floats  # O x G
    counted: Floats  # O x K
    limits: Floats  # O x K

    def of(self, index: Ints) -> "_Nodes":
        return _Nodes(*(each[index] for each in vars(self).values()))


def fill(
    problem: Problem, counts: Floats, offerings: Ints, score: Score, share: float = COARSE
) -> Floats:
    """Return how many pods of each group a node of each offering would hold: O x G.

    Every node is filled independently from `counts`. One step adds this `share` of the pods that
    fit.
    """
    capacity = problem.capacity[offerings]
    nodes = _Nodes(
        free=capacity.copy(),
        left=np.minimum(counts, problem.max_per_node)[None] * problem.fits[:, offerings].T,
        pods=np.zeros((len(offerings), len(counts))),
        counted=np.zeros((len(offerings), problem.matches.shape[1])),
        limits=np.full((len(offerings), problem.matches.shape[1]), np.inf),
    )
    live = np.flatnonzero(nodes.left.any(axis=1))
    while len(live):
        room = _room(problem, nodes, live)
        scores = np.where(room > 0, score(problem, nodes.free[live], capacity[live]), -1.0)
        best = scores.argmax(axis=1)
        found = room[np.arange(len(live)), best]
        filling = found > 0
        live, best, found = live[filling], best[filling], found[filling]
        _put(problem, nodes, live, best, np.maximum(1, np.floor(found * share)))
    return nodes.pods


def _room(problem: Problem, nodes: _Nodes, live: Ints) -> Floats:
    """How many more pods of each group fit on each node: O x G."""
    # The margin is below any whole amount, so that resources without a request do not limit.
    there = nodes.free[live] + 1e-6
    rooms = [there[:, r, None] / requested for r, requested in enumerate(problem.divisors)]
    room: Floats = np.minimum(np.floor(reduce(np.minimum, rooms)), nodes.left[live])
    if problem.matches.shape[1]:
        room = np.minimum(room, _countable(problem, nodes.counted[live], nodes.limits[live]))
    return room


def _countable(problem: Problem, counted: Floats, limits: Floats) -> Floats:
    """How many more pods of each group the counters of each node allow: O x G."""
    countable = np.full((len(counted), len(problem.counts)), np.inf)
    for counter, (adding, adds, own, capping, most) in enumerate(problem.per_counter):
        there = counted[:, counter, None]
        room = np.floor((np.minimum(limits[:, counter, None], own) - there) / adds)
        countable[:, adding] = np.minimum(countable[:, adding], room)
        # Groups that are not counted are limited only by their own caps.
        countable[:, capping] = np.where(there <= most, countable[:, capping], 0)
    return countable


def _put(problem: Problem, nodes: _Nodes, live: Ints, groups: Ints, pods: Floats) -> None:
    nodes.free[live] -= pods[:, None] * problem.sizes[groups]
    nodes.left[live, groups] -= pods
    nodes.pods[live, groups] += pods
    if problem.matches.shape[1]:
        nodes.counted[live] += pods[:, None] * problem.matches[groups]
        nodes.limits[live] = np.minimum(nodes.limits[live], problem.caps[groups])


def valid(problem: Problem, pods: Floats, offering: int) -> bool:
    """Whether a node of the offering can hold these pods (G) together."""
    present: Bools = pods > 0
    if not problem.fits[present, offering].all() or (pods > problem.max_per_node).any():
        return False
    if (pods @ problem.sizes > problem.capacity[offering]).any():
        return False
    limits = problem.caps[present].min(axis=0, initial=np.inf)
    return bool((pods @ problem.matches <= limits).all())
