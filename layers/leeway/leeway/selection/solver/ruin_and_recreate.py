"""Packs a small batch by ruin and recreate (Schrimpf et al., 2000).

Pods are inserted one by one where the price grows least. Then some nodes are emptied and their pods
are inserted again, and the cheaper outcome stays. One insertion looks at every node at once, which
takes microseconds for tens of nodes; hundreds of equal pods are packed sooner by patterns
(`leeway.selection.solver.columns`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leeway.selection.solver.arrays import Bools, Floats, Ints, Problem
from leeway.selection.solver.columns import Pattern

SEED = 1
"""The same pods lead to the same plan."""

EMPTIED = (2, 6)
"""Nodes that one round empties: from the first number up to the one before the last."""

LEAST_SHARE = 0.05
"""The part of its chance to be emptied that a node keeps which holds most for its price."""

SHUFFLE = 0.5
"""By how much of its worth a pod, and an offering, may be rated higher or lower in one round."""

OPENED = 0.3
"""How often the pods of emptied nodes go onto new ones, and not wherever the price grows least."""

NEAR_ENOUGH = 1.005
"""Of the bound: what is not improved any more."""

WARMTH = 0.1
"""The part of an average node's price that a plan may cost more and still be gone on from, in the
first round. It falls to nothing in the last (simulated annealing)."""


def ruin_and_recreate(problem: Problem, rounds: int, bound: float) -> list[Pattern]:
    """Return nodes that hold all pods of groups that fit somewhere.

    It improves them for so many rounds, or until they cost no more than the bound (USD per hour).
    """
    batch = _Batch(problem)
    dice = np.random.default_rng(SEED)
    ways = (batch.inserted, batch.opened)
    starts = [put(batch.no_nodes(), problem.counts, batch.no_favours) for put in ways]
    current = best = min(starts, key=lambda nodes: nodes.price)
    for turn in range(rounds):
        if best.price <= bound * NEAR_ENOUGH:
            break
        emptied = _to_empty(current, batch.worth, dice)
        kept = current.of(np.flatnonzero(~emptied))
        put = ways[int(dice.random() < OPENED)]
        nodes = put(kept, current.pods[emptied].sum(axis=0), batch.favours(dice))
        warmth = WARMTH * current.price / current.count * (1 - turn / rounds)
        if nodes.price < current.price - warmth * math.log(1 - dice.random()):
            current = nodes
            best = current if current.price < best.price else best
    return [
        Pattern(int(batch.offerings[chosen]), pods, 1)
        for chosen, pods in zip(best.chosen[:-1], best.pods[:-1], strict=True)
    ]


@dataclass
class _Nodes:
    """Nodes with what is on them, and in the last row one that is empty: N rows.

    `able` says which offerings all of a node's pods may go to, whatever their number; `limits` what
    its counters may come to; `chosen` is the cheapest offering that holds them.
    """

    load: Floats  # N x R
    counted: Floats  # N x K
    limits: Floats  # N x K
    able: Bools  # N x O
    pods: Floats  # N x G
    costs: Floats  # N, USD per hour
    chosen: Ints  # N

    def of(self, rows: Ints) -> "_Nodes":
        """Return some of them, which change by themselves."""
        return _Nodes(*(each[rows] for each in vars(self).values()))

    @property
    def count(self) -> int:
        """How many there are, without the empty one."""
        return len(self.costs) - 1

    @property
    def price(self) -> float:
        """What they cost, in USD per hour."""
        return float(self.costs.sum())


@dataclass(frozen=True)
class _Favours:
    """By what factor chance rates each group (G) and each offering (O) in one round."""

    groups: Floats
    offerings: Floats


class _Batch:
    """A problem whose pods are inserted into nodes one by one."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.offerings = problem.unbeaten
        self._prices = problem.prices[self.offerings]
        self._fits = problem.fits[:, self.offerings]
        self._capacity = list(np.ascontiguousarray(problem.capacity[self.offerings].T))
        # What a pod costs on the offering that suits it best. What asks for nothing has to go, too.
        costs = problem.of_offerings(self.offerings).costs
        self.worth = np.maximum(costs.min(axis=1), 1e-15)
        self.no_favours = _Favours(np.ones(len(problem.counts)), np.ones(len(self.offerings)))
        minds = (problem.matches > 0) | np.isfinite(problem.caps)
        self._minded = [np.flatnonzero(row).tolist() for row in minds]

    def favours(self, dice: np.random.Generator) -> _Favours:
        """Draw the factors of one round."""
        groups, offerings = len(self._problem.counts), len(self.offerings)
        return _Favours(
            dice.uniform(1 - SHUFFLE, 1 + SHUFFLE, groups),
            dice.uniform(1 - SHUFFLE, 1 + SHUFFLE, offerings),
        )

    def no_nodes(self) -> _Nodes:
        """Return the empty node alone."""
        groups, counters = self._problem.matches.shape
        return _Nodes(
            load=np.zeros((1, len(self._capacity))),
            counted=np.zeros((1, counters)),
            limits=np.full((1, counters), np.inf),
            able=np.ones((1, len(self.offerings)), dtype=bool),
            pods=np.zeros((1, groups)),
            costs=np.zeros(1),
            chosen=np.zeros(1, dtype=np.int64),
        )

    def inserted(self, nodes: _Nodes, pods: Floats, favours: _Favours) -> _Nodes:
        """Insert so many pods of each group (G), those first that are worth most. Changes the
        nodes."""
        for group in self._in_order(pods, favours):
            for _ in range(int(pods[group])):
                nodes = self._inserted(nodes, group)
        return nodes

    def opened(self, nodes: _Nodes, pods: Floats, favours: _Favours) -> _Nodes:
        """Put so many pods of each group (G) onto new nodes, each the one that holds most for its
        price. Changes the nodes."""
        left, order = pods.copy(), self._in_order(pods, favours)
        while left.any():
            offering, taken = self._best_node(left, order, favours.offerings)
            left -= taken
            nodes = nodes.of(np.append(np.arange(len(nodes.costs)), -1))
            some = np.flatnonzero(taken)
            nodes.load[-2] = taken @ self._problem.sizes
            nodes.counted[-2] = taken @ self._problem.matches
            nodes.limits[-2] = self._problem.caps[some].min(axis=0, initial=np.inf)
            nodes.able[-2] = self._fits[some].all(axis=0)
            nodes.pods[-2], nodes.chosen[-2] = taken, offering
            nodes.costs[-2] = self._prices[offering]
        return nodes

    def _in_order(self, pods: Floats, favours: _Favours) -> list[int]:
        """The groups that have pods, those first that are worth most."""
        groups = np.flatnonzero(pods)
        order: list[int] = groups[
            np.argsort(-(self.worth * favours.groups)[groups], kind="stable")
        ].tolist()
        return order

    def _best_node(self, left: Floats, order: Sequence[int], favours: Floats) -> tuple[int, Floats]:
        """Fill one node of every offering in this order of groups; return the one whose pods are
        worth most for its price, and them (G)."""
        problem = self._problem
        free = [held.copy() for held in self._capacity]
        counted = np.zeros((problem.matches.shape[1], len(self.offerings)))
        limits = np.full(counted.shape, np.inf)
        taken = np.zeros((len(left), len(self.offerings)))
        for group in order:
            if not left[group]:
                continue
            room = self._room(group, float(left[group]), free, counted, limits)
            for there, asked in zip(free, problem.by_resource, strict=True):
                there -= room * asked[group]
            for k in self._minded[group]:
                most = np.minimum(limits[k], problem.caps[group, k])
                limits[k] = np.where(room > 0, most, limits[k])
                counted[k] += room * problem.matches[group, k]
            taken[group] = room
        gain = (self.worth @ taken) / np.maximum(self._prices, 1e-12)
        best = int((gain * favours).argmax())
        return best, taken[:, best]

    def _room(
        self, group: int, left: float, free: Sequence[Floats], counted: Floats, limits: Floats
    ) -> Floats:
        """How many pods of the group one node of each offering could take: O."""
        problem = self._problem
        room: Floats = min(left, float(problem.alone[group])) * self._fits[group]
        for there, asked in zip(free, problem.divisors, strict=True):
            room = np.minimum(room, np.floor((there + 1e-6) / asked[group]))
        for k in self._minded[group]:
            adds, most = problem.matches[group, k], np.minimum(limits[k], problem.caps[group, k])
            if adds:
                room = np.minimum(room, np.floor((most - counted[k]) / adds))
            else:
                room = np.where(counted[k] <= most, room, 0)
        return np.maximum(room, 0)

    def _inserted(self, nodes: _Nodes, group: int) -> _Nodes:
        """Put a pod of the group where the price of all nodes grows least; the empty node is taken
        only where that is cheaper. Changes the nodes."""
        problem = self._problem
        load = nodes.load + problem.sizes[group]
        fits = nodes.able & self._fits[group]
        fits &= self._counters_admit(nodes, group)[:, None]
        for asked, held in zip(load.T, self._capacity, strict=True):
            fits &= asked[:, None] <= held
        cheapest = fits.argmax(axis=1)
        rows = np.arange(len(load))
        costs = np.where(fits[rows, cheapest], self._prices[cheapest], np.inf)
        dearer = costs - nodes.costs
        row = int(dearer.argmin())
        if row == len(load) - 1:
            nodes = nodes.of(np.append(rows, row))
        nodes.load[row] = load[row]
        nodes.counted[row] += problem.matches[group]
        nodes.limits[row] = np.minimum(nodes.limits[row], problem.caps[group])
        nodes.able[row] &= self._fits[group]
        nodes.pods[row, group] += 1
        nodes.costs[row], nodes.chosen[row] = costs[row], cheapest[row]
        return nodes

    def _counters_admit(self, nodes: _Nodes, group: int) -> Bools:
        """Whether each node may have one more pod of the group, whatever its size: N."""
        problem = self._problem
        found: Bools = nodes.pods[:, group] < problem.alone[group]
        if problem.matches.shape[1]:
            most = np.minimum(nodes.limits, problem.caps[group])
            found &= (nodes.counted + problem.matches[group] <= most).all(axis=1)
        return found


def _to_empty(nodes: _Nodes, worth: Floats, dice: np.random.Generator) -> Bools:
    """Choose some nodes by chance, rather those that hold little for their price: N."""
    gain = (nodes.pods[:-1] @ worth) / np.maximum(nodes.costs[:-1], 1e-12)
    chance = 1 + LEAST_SHARE - gain / max(float(gain.max()), 1e-12)
    count = min(nodes.count, int(dice.integers(*EMPTIED)))
    found = np.zeros(len(nodes.costs), dtype=bool)
    found[dice.choice(nodes.count, count, replace=False, p=chance / chance.sum())] = True
    return found
