"""Makes requests of packed nodes: each with the cheapest types that hold its pods, ranked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leeway.selection.packing.kinds import Sorter
from leeway.selection.packing.launching import NewNode, load_of
from leeway.selection.packing.plan import Choice, PlannedNode, Unschedulable
from leeway.selection.packing.ranking import rank, too_few
from leeway.selection.packing.supply import Candidate
from leeway.selection.resources import Resources
from leeway.selection.solver.arrays import Bools, Ints


@dataclass(frozen=True)
class _Request:
    cheapest: Candidate
    choices: tuple[Choice, ...]


def finish(
    nodes: Sequence[NewNode], sorter: Sorter
) -> tuple[list[PlannedNode], list[Unschedulable]]:
    """Turn nodes into requests. Pods that no request of enough types holds (the pool's minValues)
    go onto nodes of their own, or nowhere."""
    known: dict[object, Ints] = {}
    requests: dict[object, _Request] = {}
    launched: list[PlannedNode] = []
    short: list[Unschedulable] = []
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        key, able = _able(node, sorter, known)
        missed = too_few(sorter.supply, able)
        if missed is not None:
            halves = _halves(node)
            waiting += halves
            if not halves:
                reason = f"too few instance types hold it for the pool's {missed}"
                short += [Unschedulable(name, reason) for name in _names(node)]
            continue
        if key not in requests:
            choices = rank(sorter.supply, able)
            requests[key] = _Request(_first(choices, sorter, able), choices)
        request = requests[key]
        launched.append(
            PlannedNode(request.cheapest, _names(node), _requests(node), request.choices)
        )
    return launched, short


def _able(node: NewNode, sorter: Sorter, known: dict[object, Ints]) -> tuple[object, Ints]:
    """The offerings of the node's pool that hold its pods and count no more against limits."""
    asked = load_of(node, sorter)
    place = frozenset(sorter.place(lot) for lot, _ in node.load)
    pool = sorter.supply.of_pool[node.offering]
    key = (asked.tobytes(), place, int(pool), node.offering if _limited(node, sorter) else -1)
    if key not in known:
        of_pool: Bools = sorter.supply.of_pool == pool
        able = (sorter.capacity >= asked).all(axis=1) & of_pool
        for lot, _ in node.load:
            able &= sorter.allowed(lot, of_pool)
        if limits := _limited(node, sorter):
            counted = sorter.supply.limited(limits)
            able &= (counted <= counted[node.offering]).all(axis=1)
        known[key] = np.flatnonzero(able)
    return key, known[key]


def _limited(node: NewNode, sorter: Sorter) -> tuple[str, ...]:
    limits = sorter.supply.candidates[node.offering].pool.limits
    return tuple(limits) if limits else ()


def _first(choices: Sequence[Choice], sorter: Sorter, able: Ints) -> Candidate:
    """The cheapest offering of the request that is tried first."""
    wanted = (choices[0].capacity_type, choices[0].instance_types[0])
    supply = sorter.supply
    for index in able[np.argsort(supply.prices[able], kind="stable")]:
        found: Candidate = supply.candidates[index]
        if (found.offering.capacity_type, found.type.name) == wanted:
            return found
    raise AssertionError("a choice is made of these offerings")


def _names(node: NewNode) -> tuple[str, ...]:
    return tuple(name for _, units in node.load for unit in units for name in unit)


def _requests(node: NewNode) -> Resources:
    total = Resources()
    for lot, units in node.load:
        for group, pods in lot.parts:
            total = total + group.spec.requests.times(pods * len(units))
    return total


def _halves(node: NewNode) -> list[NewNode]:
    """Two nodes, each with half of the units; none where there is one unit."""
    units = [(lot, unit) for lot, units in node.load for unit in units]
    if len(units) < 2:
        return []
    middle = len(units) // 2
    return [
        NewNode(node.offering, tuple((lot, (unit,)) for lot, unit in half))
        for half in (units[:middle], units[middle:])
    ]
