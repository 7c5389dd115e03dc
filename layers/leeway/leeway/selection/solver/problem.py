"""The problem of the solver, and how one node of every offering is filled at once: the inner loop
of packing.

Shapes: G groups of pods, O offerings, R resources, K counters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

type Proceed = Callable[[], bool]
"""Whether there is time for another improvement. Without it, the plan so far is used."""


@dataclass(frozen=True)
class Problem:
    """Groups of pods, and the offerings that they may use.

    Amounts are integers stored as floats (exact below 2**53, more bytes than any node has). A
    counter counts pods on one node: `matches` is the number that one pod of the group adds, `caps`
    the maximum on a node with a pod of the group (inf: none). `max_per_node` is the maximum number
    of pods of the group on one node. A counter that is not `strict` is an estimate, not a rule.
    `allowed`: the offerings that match the group's requirements, regardless of size.
    """

    sizes: Floats  # G x R
    counts: Floats  # G
    matches: Floats  # G x K
    caps: Floats  # G x K
    max_per_node: Floats  # G
    strict: Bools  # K
    capacity: Floats  # O x R
    prices: Floats  # O, USD per hour
    allowed: Bools  # G x O

    @cached_property
    def fits(self) -> Bools:
        """G x O: the offerings that fit one pod of the group."""
        found: Bools = self.allowed.copy()
        for requested, held in zip(self.by_resource, self.capacity.T, strict=True):
            found &= requested[:, None] <= held
        return found

    @cached_property
    def by_resource(self) -> list[Floats]:
        """`sizes` by resource, each G. There are few resources, and numpy reduces a list of arrays
        many times faster than an array along so short an axis."""
        return list(np.ascontiguousarray(self.sizes.T))

    @cached_property
    def divisors(self) -> list[Floats]:
        """The same, but always above 0."""
        return [np.maximum(requested, 1e-12) for requested in self.by_resource]

    @cached_property
    def per_counter(self) -> list[tuple[Ints, Floats, Floats, Ints, Floats]]:
        """For each counter, the groups that add to it with their numbers and caps, and the groups
        that only cap it with their caps. See `by_resource` for the reason of the list."""
        found = []
        for adds, caps in zip(self.matches.T, self.caps.T, strict=True):
            adding = np.flatnonzero(adds)
            capping = np.flatnonzero((adds == 0) & np.isfinite(caps))
            found.append((adding, adds[adding], caps[adding], capping, caps[capping]))
        return found

    @cached_property
    def costs(self) -> Floats:
        """G x O: the cost of one pod of the group on an offering that other pods fill; inf if it
        does not fit."""
        costs = np.zeros(self.allowed.shape)
        for requested, held in zip(self.by_resource, self.capacity.T, strict=True):
            np.maximum(costs, requested[:, None] / np.maximum(held, 1e-12), out=costs)
        costs *= np.maximum(self.prices, 1e-12)
        costs[~self.fits] = np.inf
        return costs

    @cached_property
    def usable(self) -> Floats:
        """O x R: the capacity of each offering up to the total requests."""
        return np.minimum(self.capacity, self.counts @ self.sizes)

    @cached_property
    def undominated(self) -> Ints:
        """The offerings, cheapest first, for which no cheaper one is as large and has the same
        groups."""
        feasible = np.flatnonzero(self.fits.any(axis=0))
        feasible = feasible[np.argsort(self.prices[feasible], kind="stable")]
        choices: dict[bytes, list[int]] = {}
        for at, choice in zip(
            feasible.tolist(), np.packbits(self.allowed[:, feasible], axis=0).T, strict=True
        ):
            choices.setdefault(choice.tobytes(), []).append(at)
        kept = [rows[~_dominated(self.usable[rows])] for rows in map(np.array, choices.values())]
        found: Ints = np.concatenate(kept)
        return found[np.argsort(self.prices[found], kind="stable")]

    def of_offerings(self, index: Ints) -> "Problem":
        """The problem restricted to some offerings."""
        return replace(
            self,
            capacity=self.capacity[index],
            prices=self.prices[index],
            allowed=self.allowed[:, index],
        )

    def of_groups(self, index: Ints, counts: Floats) -> "Problem":
        """The problem restricted to some groups, with other counts."""
        return replace(
            self,
            sizes=self.sizes[index],
            counts=counts,
            matches=self.matches[index],
            caps=self.caps[index],
            max_per_node=self.max_per_node[index],
            allowed=self.allowed[index],
        )


def _dominated(held: Floats) -> Bools:
    """Whether an earlier row is at least as large in every column."""
    # The first of the largest rows, if there is one, dominates all later ones.
    largest = (held >= held.max(axis=0)).all(axis=1)
    count = int(largest.argmax()) + 1 if largest.any() else len(held)
    beats = np.triu(np.ones((count, count), dtype=bool), 1)
    for amounts in held[:count].T:
        beats &= amounts[:, None] >= amounts
    found: Bools = np.append(beats.any(axis=0), np.ones(len(held) - count, dtype=bool))
    return found


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
