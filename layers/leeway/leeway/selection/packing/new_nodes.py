"""Packs batches onto new nodes, within the limits of their pools, and without exceeding any
counter.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from leeway.selection.packing.pod_classes import Classifier, PodClasses
from leeway.selection.packing.pod_groups import PodBatch, Units
from leeway.selection.packing.supply import Candidate
from leeway.selection.resources import Resources
from leeway.selection.solver.problem import Bools, Floats, Problem, Proceed
from leeway.selection.solver.programs import Pattern
from leeway.selection.solver.solving import Solution, price, solve, solve_few

type NodeBatches = tuple[tuple[PodBatch, Units], ...]
"""The batches on one node, with the units of each."""


class Queue:
    """The batches of one pod class, from which units are taken by zone."""

    def __init__(self, batches: Sequence[PodBatch], zones: int) -> None:
        self.batches = batches
        self._taken = [0] * len(batches)
        self._position = 0
        self._counted = [batch.counted for batch in batches]
        self._caps = [batch.caps for batch in batches]
        self._of_zone: list[list[int]] = [[] for _ in range(zones)]
        self._free: list[int] = []
        for at, batch in enumerate(batches):
            (self._free if batch.zone is None else self._of_zone[batch.zone]).append(at)
        self._next_index = [0] * (zones + 1)
        self.waiting = [sum(len(batches[at].units) for at in own) for own in self._of_zone]
        self.free = sum(len(batches[at].units) for at in self._free)

    def remaining(self) -> Iterator[PodBatch]:
        """The units that were not taken."""
        for batch, take_planned in zip(self.batches, self._taken, strict=True):
            if take_planned < len(batch.units):
                yield batch.having(batch.units[take_planned:])

    def take(self, units: int) -> Iterator[tuple[PodBatch, Units]]:
        """Take units of any batch that has some."""
        while units > 0 and self._position < len(self.batches):
            batch, start = self.batches[self._position], self._taken[self._position]
            found = batch.units[start : start + units]
            if found:
                self._taken[self._position] += len(found)
                units -= len(found)
                yield batch, found
            else:
                self._position += 1

    def take_one(
        self, counts: dict[int, int], limits: dict[int, int], zone: int
    ) -> tuple[PodBatch, tuple[str, ...]] | None:
        """Take one unit that the counters of a node in a zone admit. Batches take turns; batches
        that may use every zone come last."""
        at = self._next(self._of_zone[zone], zone, counts, limits) if zone >= 0 else None
        if at is not None:
            self.waiting[zone] -= 1
        else:
            at = self._next(self._free, -1, counts, limits)
            if at is None:
                return None
            self.free -= 1
        for counter, adds in self._counted[at].items():
            counts[counter] = counts.get(counter, 0) + adds
        for counter, most in self._caps[at].items():
            limits[counter] = min(most, limits.get(counter, most))
        unit = self.batches[at].units[self._taken[at]]
        self._taken[at] += 1
        return self.batches[at], unit

    def _next(
        self, own: list[int], queue: int, counts: dict[int, int], limits: dict[int, int]
    ) -> int | None:
        start = self._next_index[queue]
        for step in range(len(own)):
            at = own[(start + step) % len(own)]
            if self._taken[at] >= len(self.batches[at].units):
                continue
            if _admits(self._counted[at], self._caps[at], counts, limits):
                self._next_index[queue] = (start + step + 1) % len(own)
                return at
        return None


def _admits(
    counted: Mapping[int, int],
    caps: Mapping[int, int],
    counts: Mapping[int, int],
    limits: Mapping[int, int],
) -> bool:
    for counter, adds in counted.items():
        if counter in limits and counts.get(counter, 0) + adds > limits[counter]:
            return False
    return all(
        counts.get(counter, 0) + counted.get(counter, 0) <= most for counter, most in caps.items()
    )


def best_zone(pods: Sequence[tuple[Queue, int]], prices: Mapping[int, float]) -> int:
    """Of the zones with a price for the node, the one with the most of the planned pods; then the
    cheapest; then the one with the most pending pods."""
    return max(
        prices,
        key=lambda zone: (
            sum(min(units, queue.waiting[zone] + queue.free) for queue, units in pods),
            -prices[zone],
            sum(queue.waiting[zone] for queue, _ in pods),
        ),
    )


def take_planned(pods: Sequence[tuple[Queue, int]]) -> NodeBatches:
    """Take the planned units of a node without checking counters."""
    return tuple(entry for queue, units in pods for entry in queue.take(units))


class NodeFiller:
    """Fills nodes up to the limits of their counters, and uses free resources for other pods."""

    def __init__(self, problem: Problem, queues: Sequence[Queue]) -> None:
        self._problem = problem
        self._queues = queues
        self._waiting = problem.counts.copy()
        capacity = problem.capacity.max(axis=0, initial=1)
        self._large = (problem.sizes / np.maximum(capacity, 1)).sum(axis=1)

    def fill(self, pods: Sequence[tuple[int, int]], offering: int, zone: int) -> NodeBatches:
        """Take units of pod classes for a node of an offering in a zone."""
        counts: dict[int, int] = {}
        limits: dict[int, int] = {}
        assigned: dict[int, tuple[PodBatch, list[tuple[str, ...]]]] = {}
        free = self._problem.capacity[offering].copy()
        exhausted = set()
        for pod_class, units in pods:
            for _ in range(units):
                found = self._queues[pod_class].take_one(counts, limits, zone)
                if found is None:
                    exhausted.add(pod_class)
                    break
                self._account(pod_class, found, free, assigned)
        if exhausted and assigned:
            self._top_up(exhausted, offering, zone, free, counts, limits, assigned)
        return tuple((batch, tuple(units)) for batch, units in assigned.values())

    def _account(
        self,
        pod_class: int,
        found: tuple[PodBatch, tuple[str, ...]],
        free: Floats,
        assigned: dict[int, tuple[PodBatch, list[tuple[str, ...]]]],
    ) -> None:
        batch, unit = found
        self._waiting[pod_class] -= 1
        free -= self._problem.sizes[pod_class]
        assigned.setdefault(id(batch), (batch, []))[1].append(unit)

    def _top_up(
        self,
        exhausted: set[int],
        offering: int,
        zone: int,
        free: Floats,
        counts: dict[int, int],
        limits: dict[int, int],
        assigned: dict[int, tuple[PodBatch, list[tuple[str, ...]]]],
    ) -> None:
        """Add the largest pods that fit, one by one."""
        problem = self._problem
        feasible = problem.fits[:, offering] & (self._waiting > 0)
        feasible[list(exhausted)] = False
        while True:
            feasible &= (problem.sizes <= free).all(axis=1) & (self._waiting > 0)
            if not feasible.any():
                return
            pod_class = int(np.where(feasible, self._large, -1).argmax())
            found = self._queues[pod_class].take_one(counts, limits, zone)
            if found is None:
                feasible[pod_class] = False
            else:
                self._account(pod_class, found, free, assigned)


@dataclass(frozen=True)
class NewNode:
    """A node to launch: an offering (its position in the supply) and the batches on it. `most`: the
    amounts that it may count for in the limits of its pool, None for those of the offering."""

    offering: int
    batches: NodeBatches
    most: Resources | None = None


@dataclass
class Limits:
    """The remaining limits by pool and resource, where "nodes" is the number of nodes; and how many
    more nodes each capacity reservation has room for, by its id."""

    remaining: dict[str, dict[str, int]]
    free: dict[str, int] = field(default_factory=dict)

    def admits(self, one: Candidate) -> bool:
        """Whether one more node of an offering is within the limits of its pool."""
        capacity = one.type.capacity
        return all(
            (1 if name == "nodes" else capacity.get(name, 0)) <= remaining
            for name, remaining in self.remaining.get(one.pool.name, {}).items()
        )

    def has_room(self, one: Candidate) -> bool:
        """Whether one more node fits into the reservation of an offering, if it has one."""
        reservation = one.offering.reservation
        return reservation is None or self.free[reservation.id] > 0

    def take(self, one: Candidate, most: Resources | None = None) -> None:
        """Subtract one node from the limits, with these amounts if it may be larger."""
        remaining = self.remaining.get(one.pool.name, {})
        amounts = one.type.capacity if most is None else most
        for name in remaining:
            remaining[name] -= 1 if name == "nodes" else amounts.get(name, 0)
        if (reservation := one.offering.reservation) is not None:
            self.free[reservation.id] -= 1


@dataclass
class NewNodesResult:
    """The nodes for some batches, the batches that remain, and the lower bound in USD per hour.
    `limited`: pool limits excluded pods. `full`: their reservations have no room left for pods that
    fit into them. `few`: each pod was packed individually."""

    nodes: list[NewNode] = field(default_factory=list)
    remaining: list[PodBatch] = field(default_factory=list)
    limited: bool = False
    full: bool = False
    bound: float | None = None
    few: bool = True


def pack_new_nodes(
    batches: Sequence[PodBatch],
    classifier: Classifier,
    eligible: Bools,
    limits: Limits,
    proceed: Proceed,
    improvements: int | None = None,
    stranded: float = 0.0,
) -> NewNodesResult:
    """Pack batches onto nodes of the eligible offerings (O). The plan is improved while `proceed`
    returns True. Each node counts as if so many pods more were paid for on it (`stranded`).

    With a number of `improvements`, a small batch is packed one by one; with 0 the bound is not
    computed. With None, all pods are packed by class.
    """
    outcome = NewNodesResult()
    waiting: list[PodBatch] = list(batches)
    while waiting:
        within = eligible & _within(classifier, limits)
        feasible = within & _with_room(classifier, limits)
        pod_classes, lost = classifier.classify(waiting, feasible, improvements is not None)
        outcome.remaining += lost
        outcome.full |= any(classifier.allowed(batch, within).any() for batch in lost)
        outcome.limited |= any(classifier.allowed(batch, eligible).any() for batch in lost)
        if pod_classes is None:
            break
        if not pod_classes.few:
            solution = solve(pod_classes.problem, proceed)
        else:
            rounds = improvements or 0
            paid = ~classifier.supply.reserved[pod_classes.index]
            solution = _solved_for_later(pod_classes.problem, paid, stranded, rounds, proceed)
        outcome.bound = solution.bound if outcome.bound is None else outcome.bound
        outcome.few &= pod_classes.few
        before = len(outcome.nodes)
        waiting = _load(pod_classes, solution.patterns, classifier, limits, outcome)
        if len(outcome.nodes) == before:
            outcome.remaining += waiting
            break
    return outcome


MOST_FOR_LATER = 1.05
"""What a plan with fewer nodes may cost, as a multiple of one that only these pods decide."""

PODS_FOR_LATER = 100
"""The maximum number of pods of a batch that is planned for later ones too: a larger batch fills
its nodes well by itself, and a second plan would take too long."""


def _solved_for_later(
    problem: Problem, paid: Bools, stranded: float, rounds: int, proceed: Proceed
) -> Solution:
    """Pack a small batch as if each node that is paid for (O) cost besides its price what so many
    pods (`stranded`) cost in the mean. The result costs little more than without."""
    usual, pods = solve_few(problem, rounds, proceed), problem.counts.sum()
    alone = sum(one.times for one in usual.patterns) == 1
    if not stranded or alone or pods > PODS_FOR_LATER:
        return usual
    mean = float(problem.counts @ problem.costs.min(axis=1)) / float(pods)
    dearer = replace(problem, prices=problem.prices + stranded * mean * paid)
    found = solve_few(dearer, rounds, proceed)
    if price(problem, found.patterns) > MOST_FOR_LATER * price(problem, usual.patterns):
        return usual
    return Solution(found.patterns, usual.bound)


def _within(classifier: Classifier, limits: Limits) -> Bools:
    """The offerings of which one more node is within the limits of its pool: O."""
    supply = classifier.supply
    found = np.ones(len(supply), dtype=bool)
    for number, pool in enumerate(supply.pools):
        remaining = limits.remaining.get(pool.name)
        if remaining:
            names = tuple(remaining)
            counted = classifier.limited(names)
            inside = (counted <= np.array([remaining[name] for name in names])).all(axis=1)
            found &= inside | (supply.of_pool != number)
    return found


def _with_room(classifier: Classifier, limits: Limits) -> Bools:
    """The offerings that are in no reservation, or in one that has room for one more node: O."""
    found = np.ones(len(classifier.supply), dtype=bool)
    for reservation, positions in classifier.supply.of_reservation.items():
        found[positions] = limits.free[reservation] > 0
    return found


def _load(
    pod_classes: PodClasses,
    patterns: Sequence[Pattern],
    classifier: Classifier,
    limits: Limits,
    outcome: NewNodesResult,
) -> list[PodBatch]:
    """Assign batches to nodes by patterns. Returns the batches that remain."""
    supply = classifier.supply
    queues = [Queue(batches, len(supply.zone_names)) for batches in pod_classes.batches]
    filler = NodeFiller(pod_classes.problem, queues)
    order = sorted(
        range(len(queues)), key=lambda pod_class: not pod_classes.batches[pod_class][0].caps
    )
    for pattern in _by_priority(patterns, pod_classes):
        offering = int(pod_classes.index[pattern.offering])
        candidate = supply.candidates[offering]
        units = [
            (pod_class, int(pattern.pods[pod_class]))
            for pod_class in order
            if pattern.pods[pod_class]
        ]
        pods = [(queues[pod_class], number) for pod_class, number in units]
        offering_by_zone = {int(supply.zones[offering]): offering}
        if not pod_classes.exact:
            offering_by_zone = classifier.offering_by_zone(
                pod_classes, offering, [pod_class for pod_class, _ in units]
            )
        prices = {
            zone: float(supply.prices[position]) for zone, position in offering_by_zone.items()
        }
        for _ in range(pattern.times):
            if not limits.admits(candidate):
                outcome.limited = True
                break
            for each, position in list(offering_by_zone.items()):
                if not limits.has_room(supply.candidates[position]):
                    del offering_by_zone[each], prices[each]
            if not offering_by_zone:
                break
            zone = int(supply.zones[offering]) if pod_classes.exact else best_zone(pods, prices)
            exact = pod_classes.exact
            assigned = take_planned(pods) if exact else filler.fill(units, pattern.offering, zone)
            if assigned:
                limits.take(supply.candidates[offering_by_zone[zone]])
                outcome.nodes.append(NewNode(offering_by_zone[zone], assigned))
    return [batch for queue in queues for batch in queue.remaining()]


def _by_priority(patterns: Sequence[Pattern], pod_classes: PodClasses) -> list[Pattern]:
    """Order nodes by the highest priority of their pods, because limits may stop the launch."""
    ranks = np.array([max(batch.priority for batch in batches) for batches in pod_classes.batches])
    if len(np.unique(ranks)) == 1:
        return list(patterns)
    return sorted(patterns, key=lambda p: -int(ranks[p.pods > 0].max()))


def load_of(node: NewNode, classifier: Classifier) -> Floats:
    """The requests of the pods on a new node: R."""
    requested = np.zeros(len(classifier.resources))
    for batch, units in node.batches:
        requested += len(units) * classifier.size(batch)
    return requested
