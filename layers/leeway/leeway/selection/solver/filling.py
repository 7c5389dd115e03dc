"""Fills one node of every offering at once, step by step: the inner loop of packing."""

from collections.abc import Callable, Sequence
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

    number: Ints  # O: of the node
    capacity: Floats  # O x R
    free: Floats  # O x R
    left: Floats  # O x G: what may still be put onto each
    counted: Floats  # O x K
    limits: Floats  # O x K

    def of(self, index: Bools) -> "_Nodes":
        return _Nodes(*(each[index] for each in vars(self).values()))


def fill(
    problem: Problem, counts: Floats, offerings: Ints, score: Score, share: float = COARSE
) -> Floats:
    """Return how many pods of each group a node of each offering would hold: O x G.

    Every node is filled independently from `counts`. One step adds this `share` of the pods that
    fit.
    """
    (pods,) = fill_by_each(problem, counts, offerings, [score], share)
    return pods


def fill_by_each(
    problem: Problem,
    counts: Floats,
    offerings: Ints,
    scores: Sequence[Score],
    share: float = COARSE,
) -> Sequence[Floats]:
    """Return what `fill` returns with each of the scores. All are filled together, because a step
    with more nodes takes hardly longer."""
    each = len(offerings)
    offerings = np.tile(offerings, len(scores))
    counters = problem.matches.shape[1]
    pods = np.zeros((len(offerings), len(counts)))
    nodes = _Nodes(
        number=np.arange(len(offerings)),
        capacity=problem.capacity[offerings],
        free=problem.capacity[offerings],
        left=np.minimum(counts, problem.max_per_node)[None] * problem.fits[:, offerings].T,
        counted=np.zeros((len(offerings), counters)),
        limits=np.full((len(offerings), counters), np.inf),
    )
    nodes = nodes.of(nodes.left.any(axis=1))
    while len(nodes.number):
        room = _room(problem, nodes)
        rated = _rated(problem, nodes, scores, each)
        best = np.where(room > 0, rated, -1.0).argmax(axis=1)
        found = room[np.arange(len(best)), best]
        filling = found > 0
        if not filling.all():
            nodes, best, found = nodes.of(filling), best[filling], found[filling]
        number = np.maximum(1, np.floor(found * share))
        pods[nodes.number, best] += number
        _put(problem, nodes, best, number)
    return np.split(pods, len(scores))


def _rated(problem: Problem, nodes: _Nodes, scores: Sequence[Score], each: int) -> Floats:
    """The rating of each group for each node, by its score: O x G. The nodes are in the order of
    the scores, with up to `each` nodes of one."""
    if len(scores) == 1:
        return scores[0](problem, nodes.free, nodes.capacity)
    ends = np.searchsorted(nodes.number, np.arange(len(scores) + 1) * each).tolist()
    return np.concatenate(
        [
            score(problem, nodes.free[begin:end], nodes.capacity[begin:end])
            for score, begin, end in zip(scores, ends, ends[1:], strict=False)
            if begin < end
        ]
    )


def _room(problem: Problem, nodes: _Nodes) -> Floats:
    """How many more pods of each group fit on each node: O x G."""
    # The margin is below any whole amount, so that resources without a request do not limit.
    there = nodes.free + 1e-6
    rooms = [there[:, r, None] / requested for r, requested in enumerate(problem.divisors)]
    room: Floats = np.minimum(np.floor(reduce(np.minimum, rooms)), nodes.left)
    if problem.matches.shape[1]:
        _limit_by_counters(problem, nodes, room)
    return room


def _limit_by_counters(problem: Problem, nodes: _Nodes, room: Floats) -> None:
    """Lower the numbers of pods (O x G) to those that the counters of each node allow."""
    for counter, (adding, adds, own, capping, most) in enumerate(problem.per_counter):
        there = nodes.counted[:, counter, None]
        countable = np.floor((np.minimum(nodes.limits[:, counter, None], own) - there) / adds)
        room[:, adding] = np.minimum(room[:, adding], countable)
        # Groups that are not counted are limited only by their own caps.
        if len(capping):
            room[:, capping] = np.where(there <= most, room[:, capping], 0)


def _put(problem: Problem, nodes: _Nodes, groups: Ints, pods: Floats) -> None:
    nodes.free -= pods[:, None] * problem.sizes[groups]
    nodes.left[np.arange(len(groups)), groups] -= pods
    if problem.matches.shape[1]:
        nodes.counted += pods[:, None] * problem.matches[groups]
        nodes.limits = np.minimum(nodes.limits, problem.caps[groups])


def valid(problem: Problem, pods: Floats, offering: int) -> bool:
    """Whether a node of the offering can hold these pods (G) together."""
    present: Bools = pods > 0
    if not problem.fits[present, offering].all() or (pods > problem.max_per_node).any():
        return False
    if (pods @ problem.sizes > problem.capacity[offering]).any():
        return False
    limits = problem.caps[present].min(axis=0, initial=np.inf)
    return bool((pods @ problem.matches <= limits).all())
