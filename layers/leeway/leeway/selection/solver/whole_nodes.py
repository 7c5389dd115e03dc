"""Plans of pods without constraints: first the nodes, then a place for each pod.

Many pods of different sizes fill nodes nearly completely, whatever the nodes are. So the cheapest
whole nodes are chosen that hold all requests together, as if pods were divisible, and then filled.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from leeway.selection.solver.problem import Floats, Ints, Problem
from leeway.selection.solver.programs import Master

EFFICIENT = 24
"""Offerings of which several nodes may be chosen."""

AT_MOST = 4
"""Nodes of one offering that are chosen at a time."""

CLOSED = 2

WIDTH = 16
"""Choices of nodes that are continued with the next smaller offering."""

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
    totals = np.maximum(problem.counts @ problem.sizes, 1)
    held, prices = problem.capacity / totals, problem.prices
    divisible = Master(np.ones(len(totals)))
    divisible.add(problem, np.arange(len(prices)), np.minimum(held, 1))
    times, worth = divisible.solve()
    values = np.minimum(held, 1) @ worth
    efficient = np.argsort(-values / np.maximum(prices, 1e-12), kind="stable")[:EFFICIENT]
    efficient = efficient[np.argsort(-values[efficient], kind="stable")]
    # Of offerings that are needed many times, only the last nodes are searched for.
    fixed = np.maximum(np.floor(times[efficient]) - AT_MOST, 0)
    most = int(problem.counts.sum())
    found: dict[bytes, tuple[float, Ints]] = {}
    for some in _searched(held, prices, efficient, fixed, worth, most):
        distinct = {offerings.tobytes(): (price, offerings) for price, offerings in some}
        for key, mix in sorted(distinct.items(), key=lambda one: _rank(one[1]))[:each]:
            found[key] = mix
    return sorted(found.values(), key=_price)


def _price(mix: tuple[float, Ints]) -> tuple[float, list[int]]:
    price, offerings = mix
    return price, offerings.tolist()


def _rank(mix: tuple[float, Ints]) -> tuple[float, list[int]]:
    price, offerings = mix
    return price * (1 + NODE_SHARE * len(offerings)), offerings.tolist()


def _searched(
    held: Floats, prices: Floats, efficient: Ints, fixed: Floats, worth: Floats, most: int
) -> Iterator[Mixes]:
    """Yield mixes of up to `most` nodes for each slack: a beam search over numbers of nodes, the
    largest offerings first. `held` (O x R) are shares of all requests, `worth` (R) is the price of
    each resource if nodes were divisible, `fixed` are numbers of efficient nodes in all mixes."""
    slacks, steps = len(SLACKS), np.arange(AT_MOST + 1)
    open_ = np.maximum(SLACKS[:, None, None] - fixed @ held[efficient], 0)  # S x W x R
    spent = np.full((slacks, 1), fixed @ prices[efficient])  # S x W
    numbers = np.tile(fixed, (slacks, 1, 1))  # S x W x E
    closed: list[Mixes] = [[] for _ in SLACKS]
    per_node = NODE_SHARE * float(worth.sum())
    for stage, offering in enumerate(efficient.tolist()):
        _close(closed, held, prices, efficient, open_, spent, numbers, most)
        own, following = held[offering], held[efficient[min(stage + 1, len(efficient) - 1)]]
        left = np.maximum(open_[:, :, None] - steps[:, None] * own, 0)  # S x W x N x R
        paid = spent[:, :, None] + steps * prices[offering]
        nodes = numbers.sum(axis=2)[:, :, None] + steps
        nodes = nodes + np.minimum((left / np.maximum(following, 1e-9)).max(axis=3), most)
        score = paid + left @ worth + per_node * nodes
        needed = np.ceil((open_ / np.maximum(own, 1e-9)).max(axis=2) - 1e-9)
        score[steps > needed[:, :, None]] = np.inf
        score = score.reshape(slacks, -1)
        kept = np.argsort(score, axis=1, kind="stable")[:, :WIDTH]
        slack = np.arange(slacks)[:, None]
        before, step = np.divmod(kept, len(steps))
        open_, spent = left[slack, before, step], paid[slack, before, step]
        spent = np.where(np.isfinite(score[slack, kept]), spent, np.inf)
        numbers = numbers[slack, before]
        numbers[:, :, stage] += step
    _close(closed, held, prices, efficient, open_, spent, numbers, most)
    yield from closed


def _close(
    closed: Sequence[Mixes], held: Floats, prices: Floats, efficient: Ints, open_: Floats, spent: Floats, numbers: Floats, most: int
) -> None:
    """Complete choices by one node of any offering."""
    holding = (held >= open_[:, :, None] - 1e-9).all(axis=3)
    last = holding.argmax(axis=2)
    full = ~open_.any(axis=2)
    price = np.where(full, spent, spent + prices[last])
    price[~holding.any(axis=2)] = np.inf
    best = np.argsort(price, axis=1, kind="stable")[:, :CLOSED]
    for slack, rows in enumerate(best.tolist()):
        for row in rows:
            times = numbers[slack, row].astype(int)
            if price[slack, row] < np.inf and times.sum() < most:
                offerings = np.repeat(efficient, times)
                if not full[slack, row]:
                    offerings = np.append(offerings, last[slack, row])
                closed[slack].append((float(price[slack, row]), np.sort(offerings)))


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
