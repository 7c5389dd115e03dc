"""Plans of pods without constraints: first the nodes, then a place for each pod.

Many pods of different sizes fill nodes nearly completely, whatever the nodes are. So the cheapest
whole nodes are chosen that hold all requests together, as if pods were divisible, and then filled.
"""

import math
from collections.abc import Sequence

import numpy as np

from leeway.selection.solver.problem import Floats, Ints, Problem
from leeway.selection.solver.programs import Master

EFFICIENT = 24
"""Offerings of which several nodes may be chosen."""

AT_MOST = 4
"""Nodes of one offering that are chosen at a time."""

WIDTH, CLOSED = 16, 2
"""Choices of nodes that go on with the next smaller offering, and those that are completed."""

SLACKS = np.array([1.0, 1.005, 1.01, 1.02])
"""Multiples of the requests that the nodes have to hold: some of their capacity remains free."""

NODE_SHARE = 0.001
"""The part of the price that one node less is worth: pods fill few large nodes better."""

SCARCE = 8
"""The power of a resource's use on all nodes that weighs it: one that is abundant does not decide
which node is the most like a pod."""

AT_A_TIME = 4
"""Pods of a group are put onto nodes in at least this many steps for each node."""


type Mixes = list[tuple[float, Ints]]
"""Whole nodes, as their offerings (cheapest first), each mix with its price in USD per hour."""


def mixes(problem: Problem, each: int) -> Mixes:
    """Return mixes of whole nodes that hold all requests, as offerings of the problem (cheapest
    first) with their price in USD per hour, the cheapest mix first: up to `each` of every slack.
    The first one costs hardly more than the cheapest plan. None are found if few offerings cannot
    hold all pods."""
    found: dict[bytes, tuple[float, Ints]] = {}
    for some in _Search(problem).mixes():
        distinct = {offerings.tobytes(): (price, offerings) for price, offerings in some}
        found |= sorted(distinct.items(), key=lambda entry: _rank(entry[1]))[:each]
    return sorted(found.values(), key=lambda mix: (mix[0], mix[1].tolist()))


def _rank(mix: tuple[float, Ints]) -> tuple[float, list[int]]:
    price, offerings = mix
    return price * (1 + NODE_SHARE * len(offerings)), offerings.tolist()


class _Search:
    """A beam search for whole nodes: numbers of nodes of the efficient offerings (E), the largest
    ones first, then one node of any offering. `held` (O x R) are shares of all requests.

    For each slack (S) it goes on with several choices (W): what they have to hold yet (S x W x R),
    their price (S x W), and their nodes of each efficient offering (S x W x E).
    """

    def __init__(self, problem: Problem) -> None:
        totals = np.maximum(problem.counts @ problem.sizes, 1)
        self._pods = int(problem.counts.sum())
        self._held, self._prices = problem.capacity / totals, problem.prices
        once = np.minimum(self._held, 1)
        divisible = Master(np.ones(len(totals)))
        divisible.add(problem, np.arange(len(once)), once)
        times, self._worth = divisible.solve()
        values = once @ self._worth
        gains = values / np.maximum(self._prices, 1e-12)
        efficient = np.argsort(-gains, kind="stable")[:EFFICIENT]
        self._efficient = efficient[np.argsort(-values[efficient], kind="stable")]
        # Of offerings that are needed many times, only the last nodes are searched for.
        fixed = np.maximum(np.floor(times[self._efficient]) - AT_MOST, 0)
        held = fixed @ self._held[self._efficient]
        self._open = np.maximum(SLACKS[:, None, None] - held, 0)
        self._spent = np.full((len(SLACKS), 1), fixed @ self._prices[self._efficient])
        self._numbers = np.tile(fixed.astype(np.int64), (len(SLACKS), 1, 1))
        self._found: list[Mixes] = [[] for _ in SLACKS]

    def mixes(self) -> list[Mixes]:
        """The mixes for each slack."""
        for stage in range(len(self._efficient)):
            self._complete()
            self._choose(stage)
        self._complete()
        return self._found

    def _choose(self, stage: int) -> None:
        """Go on with the best numbers of nodes of one offering: those that cost the least, with
        what pods cost on divisible nodes that have no node yet."""
        this, following = self._efficient[[stage, min(stage + 1, len(self._efficient) - 1)]]
        steps, own = np.arange(AT_MOST + 1), self._held[this]
        left = np.maximum(self._open[:, :, None] - steps[:, None] * own, 0)  # S x W x N x R
        spent = self._spent[:, :, None] + steps * self._prices[this]
        more = (left / np.maximum(self._held[following], 1e-9)).max(axis=3)
        nodes = self._numbers.sum(axis=2)[:, :, None] + steps + np.minimum(more, self._pods)
        score = spent + left @ self._worth + NODE_SHARE * self._worth.sum() * nodes
        needed = np.ceil((self._open / np.maximum(own, 1e-9)).max(axis=2) - 1e-9)
        score = np.where(steps > needed[:, :, None], np.inf, score).reshape(len(SLACKS), -1)
        kept = np.argsort(score, axis=1, kind="stable")[:, :WIDTH]
        slack, (before, step) = np.arange(len(SLACKS))[:, None], np.divmod(kept, len(steps))
        self._open = left[slack, before, step]
        feasible = np.isfinite(score[slack, kept])
        self._spent = np.where(feasible, spent[slack, before, step], np.inf)
        self._numbers = self._numbers[slack, before]
        self._numbers[:, :, stage] += step

    def _complete(self) -> None:
        """Record the choices that hold all requests with one more node for the lowest price."""
        holding = (self._held >= self._open[:, :, None] - 1e-9).all(axis=3)
        last, full = holding.argmax(axis=2), ~self._open.any(axis=2)
        price = self._spent + np.where(full, 0, self._prices[last])
        price[~holding.any(axis=2)] = np.inf
        best = np.argsort(price, axis=1, kind="stable")[:, :CLOSED]
        for slack, row in zip(np.repeat(range(len(best)), best.shape[1]), best.flat, strict=True):
            nodes = np.repeat(self._efficient, self._numbers[slack, row])
            if not full[slack, row]:
                nodes = np.append(nodes, last[slack, row])
            if price[slack, row] < np.inf and len(nodes) <= self._pods:
                self._found[slack].append((float(price[slack, row]), np.sort(nodes)))


def filled(problem: Problem, offerings: Ints, order: Ints) -> tuple[Floats, Floats]:
    """Put pods onto nodes of these offerings: groups in this order, each pod onto the node whose
    free resources are the most like its requests. Return the pods on each node (N x G) and those
    that remain (G)."""
    totals = np.maximum(problem.counts @ problem.sizes, 1)
    held = problem.capacity[offerings].sum(axis=0)
    unit = np.minimum(totals / np.maximum(held, 1), 1) ** SCARCE / totals
    nodes = problem.capacity[offerings].tolist()
    pods, left = np.zeros((len(offerings), len(problem.counts))), problem.counts.copy()
    for group in order.tolist():
        like = _Likeness(problem.sizes[group], unit)
        step = max(1, int(left[group]) // (AT_A_TIME * len(offerings)))
        found = np.array([like.of(free) for free in nodes])
        remaining = int(left[group])
        while remaining and found[node := int(found.argmax())] >= 0:
            number = int(min(like.room(nodes[node]), remaining, step))
            pods[node, group] += number
            remaining -= number
            nodes[node] = [
                there - number * own for there, own in zip(nodes[node], like.size, strict=True)
            ]
            found[node] = like.of(nodes[node])
        left[group] = remaining
    return pods, left


class _Likeness:
    """How much the free resources of a node are like one pod. `unit` are the shares of one unit of
    each resource. A node changes with each pod: numbers are faster here than short arrays."""

    def __init__(self, size: Floats, unit: Floats) -> None:
        self.size: list[float] = size.tolist()
        self._unit: list[float] = unit.tolist()

    def room(self, free: Sequence[float]) -> float:
        """How many of the pods have room."""
        requested = ((there, own) for there, own in zip(free, self.size, strict=True) if own)
        return min(((there + 1e-6) // own for there, own in requested), default=math.inf)

    def of(self, free: Sequence[float]) -> float:
        """The cosine of the angle between free resources and requests, in shares; -1 without
        room."""
        alike = length = 0.0
        for there, own, unit in zip(free, self.size, self._unit, strict=True):
            if own > there + 1e-6:
                return -1.0
            share = there * unit
            alike += share * own * unit
            length += share * share
        return alike / max(math.sqrt(length), 1e-12)
