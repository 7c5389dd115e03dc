"""Packs batches onto new nodes, within the limits of their pools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from leeway.selection.packing.node_filling import (
    NodeBatches,
    NodeFiller,
    Queue,
    best_zone,
    take_planned,
)
from leeway.selection.packing.pod_classes import Classifier, PodClasses
from leeway.selection.packing.pod_groups import PodBatch
from leeway.selection.solver.arrays import Bools, Floats, Proceed
from leeway.selection.solver.columns import Pattern
from leeway.selection.solver.solving import Solution, solve, solve_few


@dataclass(frozen=True)
class NewNode:
    """A node to launch: an offering (its position in the supply) and the batches on it."""

    offering: int
    batches: NodeBatches


@dataclass
class Limits:
    """The remaining limits by pool and resource. "nodes" is the number of nodes."""

    remaining: dict[str, dict[str, int]]

    def admits(self, pool: str, capacity: Mapping[str, int]) -> bool:
        """Whether one more node of this capacity is within the limits."""
        return all(
            (1 if name == "nodes" else capacity.get(name, 0)) <= remaining
            for name, remaining in self.remaining.get(pool, {}).items()
        )

    def take(self, pool: str, capacity: Mapping[str, int]) -> None:
        """Subtract one node from the limits."""
        for name in self.remaining.get(pool, {}):
            self.remaining[pool][name] -= 1 if name == "nodes" else capacity.get(name, 0)


@dataclass
class NewNodesResult:
    """The nodes for some batches, the batches that remain, and the lower bound in USD per hour.
    `limited`: pool limits excluded pods. `few`: each pod was packed individually."""

    nodes: list[NewNode] = field(default_factory=list)
    remaining: list[PodBatch] = field(default_factory=list)
    limited: bool = False
    bound: float | None = None
    few: bool = True


def pack_new_nodes(
    batches: Sequence[PodBatch],
    classifier: Classifier,
    eligible: Bools,
    limits: Limits,
    proceed: Proceed,
    improvements: int | None = None,
) -> NewNodesResult:
    """Pack batches onto nodes of the eligible offerings (O). The plan is improved while `proceed`
    returns True.

    With a number of `improvements`, a small batch is packed one by one; with 0 the bound is not
    computed. With None, all pods are packed by class.
    """
    outcome = NewNodesResult()
    waiting: list[PodBatch] = list(batches)
    while waiting:
        feasible = eligible & _within(classifier, limits)
        pod_classes, lost = classifier.classify(
            waiting, feasible, improvements is not None and outcome.few
        )
        outcome.remaining += lost
        outcome.limited |= any(classifier.allowed(batch, eligible).any() for batch in lost)
        if pod_classes is None:
            break
        solution = _solved(pod_classes, proceed, improvements or 0)
        outcome.bound = solution.bound if outcome.bound is None else outcome.bound
        outcome.few &= pod_classes.few
        before = len(outcome.nodes)
        waiting = _load(pod_classes, solution.patterns, classifier, limits, outcome)
        if len(outcome.nodes) == before:
            outcome.remaining += waiting
            break
    return outcome


def _solved(pod_classes: PodClasses, proceed: Proceed, improvements: int) -> Solution:
    return (
        solve_few(pod_classes.problem, improvements, proceed)
        if pod_classes.few
        else solve(pod_classes.problem, proceed)
    )


def _within(classifier: Classifier, limits: Limits) -> Bools:
    """The offerings of which one more node is within the limits of its pool: O."""
    supply = classifier.supply
    found = np.ones(len(supply), dtype=bool)
    for number, pool in enumerate(supply.pools):
        remaining = limits.remaining.get(pool.name)
        if remaining:
            names = tuple(remaining)
            counted = supply.limited(names)
            inside = (counted <= np.array([remaining[name] for name in names])).all(axis=1)
            found &= inside | (supply.of_pool != number)
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
            if not limits.admits(candidate.pool.name, candidate.type.capacity):
                outcome.limited = True
                break
            zone = int(supply.zones[offering]) if pod_classes.exact else best_zone(pods, prices)
            exact = pod_classes.exact
            assigned = take_planned(pods) if exact else filler.fill(units, pattern.offering, zone)
            if assigned:
                limits.take(candidate.pool.name, candidate.type.capacity)
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
