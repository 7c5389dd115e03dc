"""Packs lots onto new nodes, within the limits of their pools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from leeway.selection.packing.groups import Lot
from leeway.selection.packing.kinds import Kinds, Sorter
from leeway.selection.packing.loading import Careful, Load, Queue, best_zone, taken
from leeway.selection.solver.arrays import Bools, Floats
from leeway.selection.solver.columns import Pattern
from leeway.selection.solver.solving import Solution, solve, solve_few


@dataclass(frozen=True)
class NewNode:
    """A node to be launched: an offering (its position in the supply) and the lots on it."""

    offering: int
    load: Load


@dataclass
class Limits:
    """What the pools may still have: by pool, by resource; "nodes" is a number of nodes."""

    left: dict[str, dict[str, int]]

    def admits(self, pool: str, capacity: Mapping[str, int]) -> bool:
        """Whether one more node of this capacity may be launched."""
        return all(
            (1 if name == "nodes" else capacity.get(name, 0)) <= left
            for name, left in self.left.get(pool, {}).items()
        )

    def take(self, pool: str, capacity: Mapping[str, int]) -> None:
        """Count one more node."""
        for name in self.left.get(pool, {}):
            self.left[pool][name] -= 1 if name == "nodes" else capacity.get(name, 0)


@dataclass
class Launch:
    """The outcome for some lots: nodes, what is left over, and the bound in USD per hour.

    `few` says that there were so few pods that each was placed by itself.
    """

    nodes: list[NewNode] = field(default_factory=list)
    left: list[Lot] = field(default_factory=list)
    limited: bool = False
    bound: float | None = None
    few: bool = True


def launch(
    lots: Sequence[Lot],
    sorter: Sorter,
    open_to: Bools,
    limits: Limits,
    improvements: int | None = None,
) -> Launch:
    """Pack lots onto nodes of the offerings that are open (O).

    Few of them are packed one by one if there are rounds of `improvements`, or none (0): then the
    bound is not known. Without (None) all are packed by kinds.
    """
    outcome = Launch()
    waiting: list[Lot] = list(lots)
    while waiting:
        able = open_to & _within(sorter, limits)
        kinds, lost = sorter.kinds(waiting, able, improvements is not None and outcome.few)
        outcome.left += lost
        outcome.limited |= any(sorter.allowed(lot, open_to).any() for lot in lost)
        if kinds is None:
            break
        solution = _solved(kinds, improvements or 0)
        outcome.bound = solution.bound if outcome.bound is None else outcome.bound
        outcome.few &= kinds.few
        before = len(outcome.nodes)
        waiting = _load(kinds, solution.patterns, sorter, limits, outcome)
        if len(outcome.nodes) == before:
            outcome.left += waiting
            break
    return outcome


def _solved(kinds: Kinds, improvements: int) -> Solution:
    return solve_few(kinds.problem, improvements) if kinds.few else solve(kinds.problem)


def _within(sorter: Sorter, limits: Limits) -> Bools:
    """The offerings of which one more node is within its pool's limits: O."""
    supply = sorter.supply
    found = np.ones(len(supply), dtype=bool)
    for number, pool in enumerate(supply.pools):
        left = limits.left.get(pool.name)
        if left:
            names = tuple(left)
            counted = supply.limited(names)
            inside = (counted <= np.array([left[name] for name in names])).all(axis=1)
            found &= inside | (supply.of_pool != number)
    return found


def _load(
    kinds: Kinds,
    patterns: Sequence[Pattern],
    sorter: Sorter,
    limits: Limits,
    outcome: Launch,
) -> list[Lot]:
    """Put lots onto nodes by patterns; returns the lots that are left."""
    supply = sorter.supply
    queues = [Queue(lots, len(supply.zone_names)) for lots in kinds.lots]
    careful = Careful(kinds.problem, queues)
    order = sorted(range(len(queues)), key=lambda kind: not kinds.lots[kind][0].caps)
    for pattern in _by_priority(patterns, kinds):
        offering = int(kinds.index[pattern.offering])
        candidate = supply.candidates[offering]
        units = [(kind, int(pattern.pods[kind])) for kind in order if pattern.pods[kind]]
        pods = [(queues[kind], number) for kind, number in units]
        homes = {int(supply.zones[offering]): offering}
        if not kinds.exact:
            homes = sorter.homes(kinds, offering, [kind for kind, _ in units])
        prices = {zone: float(supply.prices[home]) for zone, home in homes.items()}
        for _ in range(pattern.times):
            if not limits.admits(candidate.pool.name, candidate.type.capacity):
                outcome.limited = True
                break
            zone = int(supply.zones[offering]) if kinds.exact else best_zone(pods, prices)
            exact = kinds.exact
            load = taken(pods) if exact else careful.load(units, pattern.offering, zone)
            if load:
                limits.take(candidate.pool.name, candidate.type.capacity)
                outcome.nodes.append(NewNode(homes[zone], load))
    return [lot for queue in queues for lot in queue.left()]


def _by_priority(patterns: Sequence[Pattern], kinds: Kinds) -> list[Pattern]:
    """Nodes of pods with the highest priority first: limits may end the launching."""
    ranks = np.array([max(lot.priority for lot in lots) for lots in kinds.lots])
    if len(np.unique(ranks)) == 1:
        return list(patterns)
    return sorted(patterns, key=lambda p: -int(ranks[p.pods > 0].max()))


def load_of(node: NewNode, sorter: Sorter) -> Floats:
    """What a new node's pods ask for: R."""
    asked = np.zeros(len(sorter.resources))
    for lot, units in node.load:
        asked += len(units) * sorter.size(lot)
    return asked
