"""Packs a small batch by ruin and recreate (Schrimpf et al., 2000).

Pods are inserted one by one where the price increases least. Then some nodes are removed, their
pods are inserted again, and the cheaper result is kept. One insertion evaluates all nodes at once,
which takes microseconds for tens of nodes; hundreds of equal pods are packed faster by patterns
(`leeway.selection.solver.columns`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leeway.selection.solver.arrays import Bools, Floats, Ints, Problem
from leeway.selection.solver.columns import Pattern

SEED = 1
"""A fixed seed, so that the same pods have the same plan."""

RUINED = (2, 6)
"""The number of nodes that one round removes: from the first number to one below the second."""

MIN_CHANCE = 0.05
"""The relative chance of the most efficient node to be removed."""

SHUFFLE = 0.5
"""The maximum relative change of the rating of a group or an offering in one round."""

NEW_NODE_SHARE = 0.3
"""The share of rounds that put the removed pods onto new nodes instead of inserting them."""

NEAR_ENOUGH = 1.005
"""The improvement stops at this multiple of the bound."""

TEMPERATURE = 0.1
"""The accepted price increase in the first round, as a share of an average node's price. It falls
to zero in the last round (simulated annealing)."""


def ruin_and_recreate(problem: Problem, rounds: int, bound: float) -> list[Pattern]:
    """Return nodes that hold all pods of groups that fit on an offering.

    Improves them for this number of rounds, or until they cost no more than the bound (USD per
    hour).
    """
    inserter = _Inserter(problem)
    rng = np.random.default_rng(SEED)
    ways = (inserter.insert, inserter.insert_on_new_nodes)
    starts = [
        insert_pods(inserter.no_nodes(), problem.counts, inserter.neutral_factors)
        for insert_pods in ways
    ]
    current = best = min(starts, key=lambda nodes: nodes.price)
    for round_number in range(rounds):
        if best.price <= bound * NEAR_ENOUGH:
            break
        ruined = _choose_ruined(current, inserter.worth, rng)
        kept = current.of(np.flatnonzero(~ruined))
        insert_pods = ways[int(rng.random() < NEW_NODE_SHARE)]
        nodes = insert_pods(kept, current.pods[ruined].sum(axis=0), inserter.random_factors(rng))
        temperature = TEMPERATURE * current.price / current.count * (1 - round_number / rounds)
        if nodes.price < current.price - temperature * math.log(1 - rng.random()):
            current = nodes
            best = current if current.price < best.price else best
    return [
        Pattern(int(inserter.offerings[chosen]), pods, 1)
        for chosen, pods in zip(best.chosen[:-1], best.pods[:-1], strict=True)
    ]


@dataclass
class _Nodes:
    """Nodes with their pods, and an empty node in the last row: N rows.

    `feasible`: the offerings that all pods of a node may use, regardless of their number; `limits`:
    the maxima of its counters; `chosen`: the cheapest offering that holds them.
    """

    load: Floats  # N x R
    counted: Floats  # N x K
    limits: Floats  # N x K
    feasible: Bools  # N x O
    pods: Floats  # N x G
    costs: Floats  # N, USD per hour
    chosen: Ints  # N

    def of(self, rows: Ints) -> "_Nodes":
        """Return copies of some rows."""
        return _Nodes(*(each[rows] for each in vars(self).values()))

    @property
    def count(self) -> int:
        """The number of nodes without the empty one."""
        return len(self.costs) - 1

    @property
    def price(self) -> float:
        """The price in USD per hour."""
        return float(self.costs.sum())


@dataclass(frozen=True)
class _RandomFactors:
    """The random factors of each group (G) and each offering (O) in one round."""

    groups: Floats
    offerings: Floats


class _Inserter:
    """Inserts the pods of a problem into nodes one by one."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.offerings = problem.undominated
        self._prices = problem.prices[self.offerings]
        self._fits = problem.fits[:, self.offerings]
        self._capacity = list(np.ascontiguousarray(problem.capacity[self.offerings].T))
        # The cost of a pod on its best offering. Pods without requests must be inserted too.
        costs = problem.of_offerings(self.offerings).costs
        self.worth = np.maximum(costs.min(axis=1), 1e-15)
        self.neutral_factors = _RandomFactors(
            np.ones(len(problem.counts)), np.ones(len(self.offerings))
        )
        involved = (problem.matches > 0) | np.isfinite(problem.caps)
        self._involved = [np.flatnonzero(row).tolist() for row in involved]

    def random_factors(self, rng: np.random.Generator) -> _RandomFactors:
        """Draw the factors of one round."""
        groups, offerings = len(self._problem.counts), len(self.offerings)
        return _RandomFactors(
            rng.uniform(1 - SHUFFLE, 1 + SHUFFLE, groups),
            rng.uniform(1 - SHUFFLE, 1 + SHUFFLE, offerings),
        )

    def no_nodes(self) -> _Nodes:
        """Return the empty node alone."""
        groups, counters = self._problem.matches.shape
        return _Nodes(
            load=np.zeros((1, len(self._capacity))),
            counted=np.zeros((1, counters)),
            limits=np.full((1, counters), np.inf),
            feasible=np.ones((1, len(self.offerings)), dtype=bool),
            pods=np.zeros((1, groups)),
            costs=np.zeros(1),
            chosen=np.zeros(1, dtype=np.int64),
        )

    def insert(self, nodes: _Nodes, pods: Floats, random_factors: _RandomFactors) -> _Nodes:
        """Insert pods of each group (G), the most valuable first. Modifies the nodes."""
        for group in self._in_order(pods, random_factors):
            for _ in range(int(pods[group])):
                nodes = self._insert(nodes, group)
        return nodes

    def insert_on_new_nodes(
        self, nodes: _Nodes, pods: Floats, random_factors: _RandomFactors
    ) -> _Nodes:
        """Put pods of each group (G) onto new nodes, each the one with the most value for its
        price. Modifies the nodes."""
        left, order = pods.copy(), self._in_order(pods, random_factors)
        while left.any():
            offering, taken = self._best_node(left, order, random_factors.offerings)
            left -= taken
            nodes = nodes.of(np.append(np.arange(len(nodes.costs)), -1))
            some = np.flatnonzero(taken)
            nodes.load[-2] = taken @ self._problem.sizes
            nodes.counted[-2] = taken @ self._problem.matches
            nodes.limits[-2] = self._problem.caps[some].min(axis=0, initial=np.inf)
            nodes.feasible[-2] = self._fits[some].all(axis=0)
            nodes.pods[-2], nodes.chosen[-2] = taken, offering
            nodes.costs[-2] = self._prices[offering]
        return nodes

    def _in_order(self, pods: Floats, random_factors: _RandomFactors) -> list[int]:
        """The groups with pods, the most valuable first."""
        groups = np.flatnonzero(pods)
        order: list[int] = groups[
            np.argsort(-(self.worth * random_factors.groups)[groups], kind="stable")
        ].tolist()
        return order

    def _best_node(
        self, left: Floats, order: Sequence[int], random_factors: Floats
    ) -> tuple[int, Floats]:
        """Fill one node of every offering in this order of groups. Return the offering with the
        most value for its price, and its pods (G)."""
        problem = self._problem
        free = [held.copy() for held in self._capacity]
        counted = np.zeros((problem.matches.shape[1], len(self.offerings)))
        limits = np.full(counted.shape, np.inf)
        taken = np.zeros((len(left), len(self.offerings)))
        for group in order:
            if not left[group]:
                continue
            room = self._room(group, float(left[group]), free, counted, limits)
            for there, requested in zip(free, problem.by_resource, strict=True):
                there -= room * requested[group]
            for k in self._involved[group]:
                most = np.minimum(limits[k], problem.caps[group, k])
                limits[k] = np.where(room > 0, most, limits[k])
                counted[k] += room * problem.matches[group, k]
            taken[group] = room
        gain = (self.worth @ taken) / np.maximum(self._prices, 1e-12)
        best = int((gain * random_factors).argmax())
        return best, taken[:, best]

    def _room(
        self, group: int, left: float, free: Sequence[Floats], counted: Floats, limits: Floats
    ) -> Floats:
        """How many pods of the group fit on one node of each offering: O."""
        problem = self._problem
        room: Floats = min(left, float(problem.max_per_node[group])) * self._fits[group]
        for there, requested in zip(free, problem.divisors, strict=True):
            room = np.minimum(room, np.floor((there + 1e-6) / requested[group]))
        for k in self._involved[group]:
            adds, most = problem.matches[group, k], np.minimum(limits[k], problem.caps[group, k])
            if adds:
                room = np.minimum(room, np.floor((most - counted[k]) / adds))
            else:
                room = np.where(counted[k] <= most, room, 0)
        return np.maximum(room, 0)

    def _insert(self, nodes: _Nodes, group: int) -> _Nodes:
        """Put a pod of the group onto the node where the price increases least, or onto the empty
        node if that is cheaper. Modifies the nodes."""
        problem = self._problem
        load = nodes.load + problem.sizes[group]
        fits = nodes.feasible & self._fits[group]
        fits &= self._counters_admit(nodes, group)[:, None]
        for requested, held in zip(load.T, self._capacity, strict=True):
            fits &= requested[:, None] <= held
        cheapest = fits.argmax(axis=1)
        rows = np.arange(len(load))
        costs = np.where(fits[rows, cheapest], self._prices[cheapest], np.inf)
        price_increase = costs - nodes.costs
        row = int(price_increase.argmin())
        if row == len(load) - 1:
            nodes = nodes.of(np.append(rows, row))
        nodes.load[row] = load[row]
        nodes.counted[row] += problem.matches[group]
        nodes.limits[row] = np.minimum(nodes.limits[row], problem.caps[group])
        nodes.feasible[row] &= self._fits[group]
        nodes.pods[row, group] += 1
        nodes.costs[row], nodes.chosen[row] = costs[row], cheapest[row]
        return nodes

    def _counters_admit(self, nodes: _Nodes, group: int) -> Bools:
        """Whether the counters of each node allow one more pod of the group, regardless of size:
        N."""
        problem = self._problem
        found: Bools = nodes.pods[:, group] < problem.max_per_node[group]
        if problem.matches.shape[1]:
            most = np.minimum(nodes.limits, problem.caps[group])
            found &= (nodes.counted + problem.matches[group] <= most).all(axis=1)
        return found


def _choose_ruined(nodes: _Nodes, worth: Floats, rng: np.random.Generator) -> Bools:
    """Choose random nodes, preferably those with little value for their price: N."""
    gain = (nodes.pods[:-1] @ worth) / np.maximum(nodes.costs[:-1], 1e-12)
    chance = 1 + MIN_CHANCE - gain / max(float(gain.max()), 1e-12)
    count = min(nodes.count, int(rng.integers(*RUINED)))
    found = np.zeros(len(nodes.costs), dtype=bool)
    found[rng.choice(nodes.count, count, replace=False, p=chance / chance.sum())] = True
    return found
