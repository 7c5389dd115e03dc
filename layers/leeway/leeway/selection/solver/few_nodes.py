"""A few nodes with their pods, in numbers and bit sets of Python: up to some dozens of nodes, an
operation of NumPy takes longer than a loop.

The nodes are those of `one_by_one.Nodes`, which follow the same rules.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, inf
from operator import add, ge, sub

import numpy as np

from leeway.selection.solver.problem import Bools, Floats


@dataclass(slots=True)
class Node:
    """A node with its pods. It is never changed: a node with more pods is a new one.

    `choice` has a bit for each offering that all its pods may use, regardless of their number.
    `spare` is what is left of `chosen`, the cheapest one of them that holds the pods. `counted` and
    `limits` are the counts and the maxima of its counters.
    """

    load: tuple[float, ...]
    spare: tuple[float, ...]
    cost: float
    worth: float
    choice: int
    chosen: int
    counted: dict[int, float]
    limits: dict[int, float]
    pods: tuple[int, ...]


def bit_set(row: Bools) -> int:
    """Return an integer with the bits of an array."""
    return int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little")


def booleans(bits: int, count: int) -> Bools:
    """Return the bits of an integer as an array."""
    octets = np.frombuffer(bits.to_bytes(-(-count // 8), "little"), np.uint8)
    return np.unpackbits(octets, count=count, bitorder="little").astype(bool)


class Offerings:
    """Offerings, numbered by price, and which of them hold an amount: capacity by offering and
    resource (O x R), and prices (O)."""

    def __init__(self, capacity: Floats, prices: Floats) -> None:
        self.capacity = [tuple(row) for row in capacity.tolist()]
        self.prices: list[float] = prices.tolist()
        self._levels: list[list[float]] = []
        self._holding: list[list[int]] = []
        for held in capacity.T:
            levels = np.unique(held)
            self._levels.append(levels.tolist())
            self._holding.append([bit_set(held >= level) for level in levels] + [0])

    def cheapest(self, choice: int, amounts: Iterable[float]) -> int:
        """Return the first of the chosen offerings that holds these amounts; -1 if none does."""
        for levels, holding, amount in zip(self._levels, self._holding, amounts, strict=True):
            choice &= holding[bisect_left(levels, amount)]
        return (choice & -choice).bit_length() - 1


class Groups:
    """What the groups of a problem request: lists by group of sizes, of bit sets of the offerings
    that one pod fits, of the counters that concern it with what it adds to each and the maximum
    that it allows, and of the value of a pod."""

    def __init__(
        self, sizes: Floats, fits: Bools, matches: Floats, caps: Floats, worth: Floats
    ) -> None:
        self.sizes = [tuple(row) for row in sizes.tolist()]
        self.fits = [bit_set(row) for row in fits]
        self.worth: list[float] = worth.tolist()
        self.counters: list[list[tuple[int, float, float]]] = [[] for _ in self.sizes]
        for group, counter in np.argwhere((matches > 0) | np.isfinite(caps)).tolist():
            adds, most = float(matches[group, counter]), float(caps[group, counter])
            self.counters[group].append((counter, adds, most))


class FewNodes:
    """Some nodes. A copy shares its nodes with the original."""

    def __init__(self, groups: Groups, offerings: Offerings, nodes: Sequence[Node] = ()) -> None:
        self._groups = groups
        self._offerings = offerings
        self.nodes = list(nodes)
        none = (0.0,) * len(offerings.capacity[0])
        self._empty = Node(none, none, 0.0, 0.0, -1, -1, {}, {}, ())

    @property
    def count(self) -> int:
        """The number of nodes."""
        return len(self.nodes)

    @property
    def gains(self) -> list[float]:
        """The value of each node's pods for its price."""
        return [node.worth / max(node.cost, 1e-12) for node in self.nodes]

    @property
    def pods(self) -> list[tuple[int, ...]]:
        """The groups of each node's pods."""
        return [node.pods for node in self.nodes]

    @property
    def chosen(self) -> list[int]:
        """The offering of each node."""
        return [node.chosen for node in self.nodes]

    def of(self, rows: Iterable[int]) -> "FewNodes":
        """Return some of the nodes."""
        return FewNodes(self._groups, self._offerings, [self.nodes[row] for row in rows])

    @property
    def price(self) -> float:
        """The price in USD per hour."""
        return sum(node.cost for node in self.nodes)

    def insert(self, group: int, pods: int) -> int:
        """Put a pod onto the node where the price increases least, or onto a new node if that is
        cheaper; more pods, if the node has room. Return their number."""
        groups, nodes = self._groups, self.nodes
        fit, size, counters = groups.fits[group], groups.sizes[group], groups.counters[group]
        feasible: list[int] = []
        for row, node in enumerate(nodes):
            if node.choice & fit and not (counters and _excluded(node, counters)):
                if fit >> node.chosen & 1 and all(map(ge, node.spare, size)):
                    number = self._room(node, group, pods) if pods > 1 else 1
                    nodes[row] = self._with(node, group, number, node.chosen)
                    return number
                feasible.append(row)
        row, offering = self._growing(feasible, fit, size)
        if row >= 0:
            nodes[row] = self._with(nodes[row], group, 1, offering)
        else:
            nodes.append(self._with(self._empty, group, 1, offering))
        return 1

    def add(self, pods: Iterable[tuple[int, int]]) -> None:
        """Add a node with pods: groups with numbers. Its offering is the cheapest one that holds
        them."""
        node, offerings = self._empty, self._offerings
        for group, number in pods:
            node = self._with(node, group, number, 0)
        node.chosen = offerings.cheapest(node.choice, node.load)
        node.cost = offerings.prices[node.chosen]
        node.spare = tuple(map(sub, offerings.capacity[node.chosen], node.load))
        self.nodes.append(node)

    def _growing(self, rows: Sequence[int], fit: int, size: Sequence[float]) -> tuple[int, int]:
        """The node that costs least more with a larger offering, and that offering; the row is -1
        if a new node costs less."""
        offerings = self._offerings
        alone = (fit & -fit).bit_length() - 1
        best, at, chosen = offerings.prices[alone], -1, alone
        for row in rows:
            node = self.nodes[row]
            needed = map(add, node.load, size)
            offering = offerings.cheapest(node.choice & fit, needed)
            if offering >= 0:
                more = offerings.prices[offering] - node.cost
                if more < best or (at < 0 and more == best):
                    best, at, chosen = more, row, offering
        return at, chosen

    def _room(self, node: Node, group: int, pods: int) -> int:
        """How many of these pods, at least one, fit on a node without a larger offering."""
        room = float(pods)
        for spare, size in zip(node.spare, self._groups.sizes[group], strict=True):
            room = min(room, floor((spare + 1e-6) / max(size, 1e-12)))
        for counter, adds, most in self._groups.counters[group]:
            if adds:
                limit = min(node.limits.get(counter, inf), most)
                if limit < inf:
                    room = min(room, (limit - node.counted.get(counter, 0)) // adds)
        return max(int(room), 1)

    def _with(self, node: Node, group: int, pods: int, chosen: int) -> Node:
        """A node with more pods, on an offering that holds them."""
        groups, offerings = self._groups, self._offerings
        load = tuple([a + pods * b for a, b in zip(node.load, groups.sizes[group], strict=True)])
        counted, limits = node.counted, node.limits
        if groups.counters[group]:
            counted, limits = dict(counted), dict(limits)
            for counter, adds, most in groups.counters[group]:
                counted[counter] = counted.get(counter, 0) + pods * adds
                limits[counter] = min(limits.get(counter, inf), most)
        return Node(
            load,
            tuple(map(sub, offerings.capacity[chosen], load)),
            offerings.prices[chosen],
            node.worth + pods * groups.worth[group],
            node.choice & groups.fits[group],
            chosen,
            counted,
            limits,
            node.pods + (group,) * pods,
        )


def _excluded(node: Node, counters: Sequence[tuple[int, float, float]]) -> bool:
    """Whether a counter of a node does not allow one more pod, regardless of its size."""
    return any(
        node.counted.get(counter, 0) + adds > min(node.limits.get(counter, inf), most)
        for counter, adds, most in counters
    )
