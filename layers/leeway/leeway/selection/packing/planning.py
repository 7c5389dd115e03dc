"""Packing: pods → nodes that are there, nodes to launch, and pods that fit nowhere with the reason.

Pure: it knows neither AWS nor Kubernetes, and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from leeway.selection.labels import CAPACITY_TYPE, JOINED, NODEPOOL, ZONE, ZONE_ID
from leeway.selection.packing.batch import Batch
from leeway.selection.packing.groups import Lot
from leeway.selection.packing.plan import Placement, Plan, Unschedulable
from leeway.selection.packing.preferences import bare
from leeway.selection.packing.requests import finish
from leeway.selection.packing.supply import UNKNOWN_PRICE, Supply
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.resources import Resources
from leeway.selection.solver.covering import cover

ROUNDS = 3
"""How often pods without a place are looked at again, as if the plan were carried out already."""


def pack(
    pods: Sequence[Pod],
    supply: Supply,
    nodes: Sequence[ExistingNode] = (),
    rounds: int = ROUNDS,
) -> Plan:
    """Plan a place for every pod: on nodes that are there first, then on new ones.

    Preferences are held as if they were required, and given up one after another where pods would
    have no place otherwise (see `leeway.selection.packing.preferences`).
    """
    draft = _Draft(_settled(pods, supply, nodes), {pod.name: pod.spec for pod in pods})
    for _ in range(rounds):
        if not draft.add():
            break
    return draft.plan()


def _settled(pods: Sequence[Pod], supply: Supply, nodes: Sequence[ExistingNode]) -> Batch:
    """A batch that is planned, with all preferences given up that have to be."""
    waiting = pods
    while True:
        batch = Batch(waiting, supply, nodes)
        if batch.plan():
            return batch
        # What some of a set's pods have given up, all of them have: they share a node or a zone.
        names = batch.given_up
        given_up = {pod.spec: names[pod.name] for pod in waiting if pod.name in names}
        waiting = [Pod(pod.name, given_up.get(pod.spec, pod.spec)) for pod in waiting]


class _Draft:
    """A plan that pods without a place are still added to, round by round."""

    def __init__(self, first: Batch, specs: dict[str, PodSpec]) -> None:
        self._first = first
        self._specs = specs
        self._new = list(first.outcome.nodes)
        self._placed = list(first.standing.placed)
        self._missed = dict(first.outcome.missed)
        self._changed = False

    def add(self) -> bool:
        """Find places for pods that have none, once the rest of the plan stands; False: none."""
        hopeless = self._first.outcome.hopeless
        waiting = [
            Pod(name, bare(self._specs[name], self._first.soft_taints))
            for name in self._missed
            if name not in hopeless
        ]
        if not waiting:
            return False
        supply, nodes = self._first.supply, [*self._held(), *self._coming()]
        batch = Batch(waiting, supply, nodes, len(self._new), self._first.counters)
        batch.plan()
        for row, lot in batch.standing.placed:
            self._put(row, lot)
        self._new += batch.outcome.nodes
        found = len(waiting) - len(batch.outcome.missed)
        left = batch.outcome.missed.keys() | hopeless
        self._missed = {name: why for name, why in self._missed.items() if name in left}
        self._changed |= found > 0
        return found > 0

    def _put(self, row: int, lot: Lot) -> None:
        known = len(self._first.standing.nodes)
        if row < known:
            self._placed.append((row, lot))
            return
        node = self._new[row - known]
        self._new[row - known] = replace(node, load=(*node.load, (lot, lot.units)))

    def _held(self) -> list[ExistingNode]:
        """The nodes that are there, with the pods that have been placed on them."""
        standing = self._first.standing
        added: dict[int, list[PodSpec]] = {}
        for row, lot in self._placed:
            added.setdefault(row, []).extend(self._specs_of(lot, lot.units))
        return [
            replace(node, pods=(*node.pods, *added.get(row, ())))
            for row, node in enumerate(standing.nodes)
        ]

    def _coming(self) -> list[ExistingNode]:
        """The nodes of the plan as they will be, with daemons and pods."""
        supply, found = self._first.supply, []
        for number, node in enumerate(self._new):
            candidate = supply.candidates[node.offering]
            pool, offering = candidate.pool, candidate.offering
            labels = {
                **candidate.type.labels,
                **pool.labels,
                **JOINED,
                ZONE: offering.zone,
                ZONE_ID: offering.zone_id,
                CAPACITY_TYPE: offering.capacity_type,
                NODEPOOL: pool.name,
            }
            daemons = supply.daemons_on(node.offering)
            pods = [spec for lot, units in node.load for spec in self._specs_of(lot, units)]
            found.append(
                ExistingNode(
                    f"{number} to come",
                    labels,
                    candidate.type.allocatable,
                    candidate.type.capacity,
                    pool.taints,
                    (*daemons, *pods),
                    daemons=sum((daemon.requests for daemon in daemons), Resources()),
                    pool=pool.name,
                )
            )
        return found

    def _specs_of(self, lot: Lot, units: Sequence[Sequence[str]]) -> list[PodSpec]:
        return [self._specs[name] for unit in units for name in unit]

    def plan(self) -> Plan:
        """Make the plan of what has been decided."""
        launched, short = finish(self._new, self._first.sorter)
        prices = [node.cheapest.price for node in launched]
        missed = [Unschedulable(name, why) for name, why in self._missed.items()]
        return Plan(
            tuple(launched),
            self._placements(),
            (*missed, *short),
            sum(price for price in prices if price < UNKNOWN_PRICE),
            self._bound(),
        )

    def _placements(self) -> tuple[Placement, ...]:
        names: dict[int, list[str]] = {}
        for row, lot in self._placed:
            names.setdefault(row, []).extend(name for unit in lot.units for name in unit)
        nodes = self._first.standing.nodes
        return tuple(Placement(nodes[row].name, tuple(names[row])) for row in sorted(names))

    def _bound(self) -> float:
        """The least that nodes for the pods on new nodes could cost, of any pool."""
        match self._first.outcome.bounds:
            case [] if not self._new:
                return 0.0
            case [float(known)] if not self._changed:
                return known
        sorter = self._first.sorter
        placed = [lot.having(units) for node in self._new for lot, units in node.load]
        kinds, _ = sorter.kinds(placed, np.ones(len(sorter.supply), dtype=bool))
        return cover(kinds.problem).bound if kinds else 0.0
