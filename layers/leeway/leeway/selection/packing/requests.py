"""Makes launch requests of packed nodes: the cheapest types that fit the pods, ranked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leeway.selection.packing.new_nodes import NewNode, load_of
from leeway.selection.packing.plan import Choice, PlannedNode, Unschedulable
from leeway.selection.packing.pod_classes import Classifier
from leeway.selection.packing.ranking import rank, unmet_min_values
from leeway.selection.packing.supply import Candidate
from leeway.selection.reasons import MIN_VALUES_NOT_MET
from leeway.selection.resources import Resources
from leeway.selection.solver.arrays import Bools, Ints


@dataclass(frozen=True)
class _Request:
    cheapest: Candidate
    choices: tuple[Choice, ...]


def make_requests(
    nodes: Sequence[NewNode], classifier: Classifier
) -> tuple[list[PlannedNode], list[Unschedulable]]:
    """Return the planned nodes, and the pods for which too few types exist (the pool's minValues).
    A node with too few types is split until enough types fit."""
    known: dict[object, Ints] = {}
    requests: dict[object, _Request] = {}
    launched: list[PlannedNode] = []
    rejected: list[Unschedulable] = []
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        key, feasible = _feasible(node, classifier, known)
        unmet = unmet_min_values(classifier.supply, feasible)
        if unmet is not None:
            halves = _halves(node)
            waiting += halves
            if not halves:
                pool = classifier.supply.candidates[node.offering].pool.name
                reason = MIN_VALUES_NOT_MET(pool=pool, min_values=unmet)
                rejected += [Unschedulable(name, reason) for name in _names(node)]
            continue
        if key not in requests:
            choices = rank(classifier.supply, feasible)
            requests[key] = _Request(_first(choices, classifier, feasible), choices)
        request = requests[key]
        launched.append(
            PlannedNode(request.cheapest, _names(node), _requests(node), request.choices)
        )
    return launched, rejected


def _feasible(
    node: NewNode, classifier: Classifier, known: dict[object, Ints]
) -> tuple[object, Ints]:
    """The offerings of the node's pool that fit its pods and use no more of the limits."""
    requested = load_of(node, classifier)
    place = frozenset(classifier.place(batch) for batch, _ in node.batches)
    pool = classifier.supply.of_pool[node.offering]
    key = (
        requested.tobytes(),
        place,
        int(pool),
        node.offering if _limited(node, classifier) else -1,
    )
    if key not in known:
        of_pool: Bools = classifier.supply.of_pool == pool
        feasible = classifier.holding(requested) & of_pool
        for batch, _ in node.batches:
            feasible &= classifier.allowed(batch, of_pool)
        if limits := _limited(node, classifier):
            counted = classifier.supply.limited(limits)
            feasible &= (counted <= counted[node.offering]).all(axis=1)
        known[key] = np.flatnonzero(feasible)
    return key, known[key]


def _limited(node: NewNode, classifier: Classifier) -> tuple[str, ...]:
    limits = classifier.supply.candidates[node.offering].pool.limits
    return tuple(limits) if limits else ()


def _first(choices: Sequence[Choice], classifier: Classifier, feasible: Ints) -> Candidate:
    """The cheapest offering of the request that is tried first."""
    wanted = (choices[0].capacity_type, choices[0].instance_types[0])
    supply = classifier.supply
    for index in supply.by_price(feasible).tolist():
        found: Candidate = supply.candidates[index]
        if (found.offering.capacity_type, found.type.name) == wanted:
            return found
    raise AssertionError("a choice is made of these offerings")


def _names(node: NewNode) -> tuple[str, ...]:
    return tuple(name for _, units in node.batches for unit in units for name in unit)


def _requests(node: NewNode) -> Resources:
    total = Resources()
    for batch, units in node.batches:
        for group, pods in batch.parts:
            total = total + group.spec.requests.times(pods * len(units))
    return total


def _halves(node: NewNode) -> list[NewNode]:
    """Two nodes, each with half of the units; none if there is only one unit."""
    units = [(batch, unit) for batch, units in node.batches for unit in units]
    if len(units) < 2:
        return []
    middle = len(units) // 2
    return [
        NewNode(node.offering, tuple((batch, (unit,)) for batch, unit in half))
        for half in (units[:middle], units[middle:])
    ]
