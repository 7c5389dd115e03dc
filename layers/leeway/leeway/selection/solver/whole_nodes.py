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

STEPS = 13
"""Numbers of nodes that are tried of one offering."""

SLACKS = (1.0, 1.01, 1.02)
"""Multiples of the requests that the nodes have to hold: some of their capacity remains free."""

CLOSED = 48
"""Choices of two offerings that are completed by a node of any third one."""

NODE_SHARE = 0.001
"""The part of the price that one node less is worth: pods fill few large nodes better."""

AT_A_TIME = 4
"""Pods of a group are put onto nodes in at least this many steps for each node."""


type Mixes = list[tuple[float, Ints]]
"""Whole nodes, as their offerings (cheapest first), each mix with its price in USD per hour."""


def mixes(problem: Problem, each: int) -> Mixes:
    """Return mixes of whole nodes that hold all requests, as offerings of the problem (cheapest
    first) with their price in USD per hour. The first one is about the cheapest, and costs hardly
    more than the cheapest plan; up to `each` of every slack follow. None are found if few offerings
    cannot hold all pods."""
    totals = np.maximum(problem.counts @ problem.sizes, 1)
    held, prices = problem.capacity / totals, problem.prices
    divisible = Master(np.ones(len(totals)))
    divisible.add(problem, np.arange(len(prices)), np.minimum(held, 1))
    _, worth = divisible.solve()
    gain = (np.minimum(held, 1) @ worth) / np.maximum(prices, 1e-12)
    efficient = np.argsort(-gain, kind="stable")[:EFFICIENT]
    pods = float(problem.counts.sum())
    found = [_mixes(held, prices, efficient, slack, pods) for slack in SLACKS]
    if not found[0]:
        return []
    cheapest = min(found[0], key=lambda mix: mix[0])
    ranked = [mix for some in found for mix in sorted(some, key=_rank)[:each]]
    distinct = {offerings.tobytes(): (price, offerings) for price, offerings in ranked}
    return [cheapest, *distinct.values()]


def _rank(mix: tuple[float, Ints]) -> tuple[float, list[int]]:
    price, offerings = mix
    return price * (1 + NODE_SHARE * len(offerings)), offerings.tolist()


def _mixes(
    held: Floats, prices: Floats, efficient: Ints, needed: float, pods: float
) -> list[tuple[float, Ints]]:
    """Mixes of one offering in some number, a second one in the number that then is needed, or up
    to two nodes fewer, and one node of a third offering instead; never more nodes than `pods`.
    `held` (O x R) are shares of all requests."""
    several, costs = held[efficient], prices[efficient]
    most = np.minimum(np.ceil((needed / np.maximum(several, 1e-9)).max(axis=1)), pods)
    numbers = np.floor(np.linspace(0, np.maximum(most, STEPS - 1), STEPS)).T  # E x N
    open_ = np.maximum(needed - numbers[..., None] * several[:, None], 0)  # E x N x R
    seconds = np.ceil((open_[:, :, None] / np.maximum(several, 1e-9)).max(axis=3) - 1e-9)
    fewer = np.maximum(seconds - np.arange(3)[:, None, None, None], 0)  # 3 x E x N x E
    missing = np.maximum(open_[:, :, None] - fewer[..., None] * several, 0)
    spent = (numbers * costs[:, None])[:, :, None] + fewer * costs
    # Of an offering without a resource that pods request, endlessly many nodes would be needed.
    spent[numbers[:, :, None] + fewer > pods] = np.inf
    least = np.zeros(spent.shape)
    for amounts, own in zip(np.moveaxis(missing, -1, 0), held.T, strict=True):
        np.maximum(least, _least(own, prices, amounts), out=least)
    chosen = np.argsort(spent + least, axis=None, kind="stable")[:CLOSED]
    rows = np.stack(np.unravel_index(chosen, spent.shape), axis=1)
    found: dict[bytes, tuple[float, Ints]] = {}
    for less, first, step, second in rows.tolist():
        rest = missing[less, first, step, second]
        price = float(spent[less, first, step, second])
        if price == np.inf:
            break
        times = [int(numbers[first, step]), int(fewer[less, first, step, second])]
        offerings = np.repeat(efficient[[first, second]], times)
        if rest.max() > 1e-9:
            large = (held >= rest).all(axis=1)
            if not large.any():
                continue
            third = int(np.where(large, prices, np.inf).argmin())
            price, offerings = price + float(prices[third]), np.append(offerings, third)
        offerings = np.sort(offerings)
        found.setdefault(offerings.tobytes(), (price, offerings))
    return list(found.values())


def _least(held: Floats, prices: Floats, amounts: Floats) -> Floats:
    """The lowest price of an offering that holds each amount of one resource; 0 for 0."""
    order = np.argsort(held, kind="stable")
    lowest = np.minimum.accumulate(prices[order][::-1])[::-1]
    found = np.append(lowest, np.inf)[np.searchsorted(held[order], amounts)]
    return np.where(amounts > 1e-9, found, 0)


def filled(problem: Problem, offerings: Ints, order: Ints) -> tuple[Floats, Floats]:
    """Put pods onto nodes of these offerings: groups in this order, each pod onto the node whose
    free resources are the most like its requests. Return the pods on each node (N x G) and those
    that remain (G)."""
    unit = 1 / np.maximum(problem.counts @ problem.sizes, 1)
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
