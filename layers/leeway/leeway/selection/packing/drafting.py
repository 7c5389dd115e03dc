"""A plan in the making: a batch of all pods, and then batches of those that have no place yet."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from leeway.selection.labels import INITIALIZED, JOINED
from leeway.selection.packing.batch import Batch
from leeway.selection.packing.domains import other_topologies, pinned
from leeway.selection.packing.groups import Lot, Units
from leeway.selection.packing.kinds import Sorter
from leeway.selection.packing.launching import NewNode
from leeway.selection.packing.plan import Placement, Plan, Unschedulable
from leeway.selection.packing.preferences import bare
from leeway.selection.packing.requests import finish
from leeway.selection.packing.supply import UNKNOWN_PRICE, Supply
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.resources import Resources
from leeway.selection.solver.covering import cover

STARTING = frozenset(
    {"node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized"}
)
"""Taints of every node that has just joined."""


class Draft:
    """What has been decided. `ranks` say which pods come before others: the lower, the earlier."""

    def __init__(
        self,
        pods: Sequence[Pod],
        supply: Supply,
        nodes: Sequence[ExistingNode],
        ranks: Mapping[PodSpec, int],
    ) -> None:
        self._specs = {pod.name: pod.spec for pod in pods}
        self._ranks = {pod.name: ranks.get(pod.spec, 0) for pod in pods} if ranks else {}
        distinct = {id(pod.spec): pod.spec for pod in pods}.values()
        resources = {name for spec in distinct for name in spec.requests}
        self._given = supply
        self._sorter = Sorter(supply.told_apart(distinct), sorted(resources | {"pods"}))
        self._nodes = [_when_started(node, self._sorter.supply) for node in nodes]
        self._new: list[NewNode] = []
        self._placed: list[tuple[int, Lot]] = []
        first = self._settled(pods)
        self._counters = first.counters
        self._missed = dict(first.outcome.missed)
        self._hopeless = first.outcome.hopeless
        self._limited = first.outcome.limited
        self._bounds = first.outcome.bounds
        self._take(first)

    @property
    def stuck(self) -> set[str]:
        """The pods that have no place and might have had one, if others had not come first."""
        return self._missed.keys() - self._hopeless - self._limited

    @property
    def missed_by_priority(self) -> list[int]:
        """How many pods of each priority have no place, the highest first."""
        counts = Counter(self._specs[name].priority for name in self._missed)
        return [counts[p] for p in sorted({s.priority for s in self._specs.values()}, reverse=True)]

    def _settled(self, pods: Sequence[Pod]) -> Batch:
        """Plan a batch with all preferences given up that have to be."""
        waiting = pods
        while True:
            batch = Batch(waiting, self._sorter, self._given, self._nodes, ranks=self._ranks)
            if batch.plan():
                return batch
            # What some of a set's pods have given up, all of them have: they share a node or zone.
            names = batch.given_up
            given_up = {pod.spec: names[pod.name] for pod in waiting if pod.name in names}
            waiting = [Pod(pod.name, given_up.get(pod.spec, pod.spec)) for pod in waiting]

    def add_missed(self) -> bool:
        """Look again at pods without a place, as if the rest of the plan were carried out; returns
        whether there is one now for any of them."""
        waiting = [
            Pod(name, bare(self._specs[name], soft_taints=True))
            for name in self._missed
            if name not in self._hopeless
        ]
        if not waiting:
            return False
        nodes = [*self._held(), *self._coming()]
        batch = Batch(waiting, self._sorter, self._given, nodes, len(self._new), self._counters)
        batch.plan()
        left = batch.outcome.missed.keys() | self._hopeless
        found = self._missed.keys() - left
        if found:
            self._take(batch)
            self._bounds.append(None)
            self._missed = {name: why for name, why in self._missed.items() if name in left}
        return bool(found)

    def _take(self, batch: Batch) -> None:
        """Take over where a batch has put its pods."""
        known = len(self._nodes)
        for row, lot in batch.standing.placed:
            if row < known:
                self._placed.append((row, lot))
            else:
                node = self._new[row - known]
                added = self._pinned(lot, node.offering)
                self._new[row - known] = replace(node, load=(*node.load, (added, lot.units)))
        self._new += batch.outcome.nodes

    def _pinned(self, lot: Lot, offering: int) -> Lot:
        """A lot that went by the labels of a node: these may not become others any more."""
        labels = self._sorter.supply.labels(offering)
        parts = []
        for group, pods in lot.parts:
            minded = {key: labels[key] for key in other_topologies(group.spec) if key in labels}
            kept = replace(group, spec=pinned(group.spec, minded)) if minded else group
            parts.append((kept, pods))
        return replace(lot, parts=tuple(parts), zone=int(self._sorter.supply.zones[offering]))

    def _held(self) -> list[ExistingNode]:
        """The nodes that are there, with the pods that have been placed on them."""
        added: dict[int, list[PodSpec]] = {}
        for row, lot in self._placed:
            added.setdefault(row, []).extend(self._specs_of(lot.units))
        return [
            replace(node, pods=(*node.pods, *added[row])) if row in added else node
            for row, node in enumerate(self._nodes)
        ]

    def _coming(self) -> list[ExistingNode]:
        """The nodes of the plan as they will be, with daemons and pods."""
        return [self._joined(number, node) for number, node in enumerate(self._new)]

    def _joined(self, number: int, node: NewNode) -> ExistingNode:
        supply = self._sorter.supply
        candidate = supply.candidates[node.offering]
        pool = candidate.pool
        daemons = supply.daemons_on(node.offering)
        pods = [spec for _, units in node.load for spec in self._specs_of(units)]
        return ExistingNode(
            f"{number} to come",
            supply.labels(node.offering),
            candidate.type.allocatable,
            candidate.type.capacity,
            pool.taints,
            (*daemons, *pods),
            daemons=sum((daemon.requests for daemon in daemons), Resources()),
            pool=pool.name,
        )

    def _specs_of(self, units: Units) -> list[PodSpec]:
        return [self._specs[name] for unit in units for name in unit]

    def plan(self) -> Plan:
        """Make the plan of what has been decided."""
        launched, short = finish(self._new, self._sorter)
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
        return tuple(Placement(self._nodes[row].name, tuple(names[row])) for row in sorted(names))

    def _bound(self) -> float:
        """The least that nodes for the pods on new nodes could cost, of any pool."""
        match self._bounds:
            case []:
                return 0.0
            case [float(known)]:
                return known
        placed = [lot.having(units) for node in self._new for lot, units in node.load]
        everywhere = np.ones(len(self._sorter.supply), dtype=bool)
        kinds, _ = self._sorter.kinds(placed, everywhere)
        return cover(kinds.problem).bound if kinds else 0.0


def _when_started(node: ExistingNode, supply: Supply) -> ExistingNode:
    """A pool's node that starts, as it will be: without what is taken off when it is Ready."""
    pool = next((pool for pool in supply.pools if pool.name == node.pool), None)
    if pool is None or node.labels.get(INITIALIZED) == "true":
        return node
    passing = {(t.key, t.effect) for t in pool.startup_taints}
    kept = [t for t in node.taints if t.key not in STARTING and (t.key, t.effect) not in passing]
    return replace(node, taints=tuple(kept), labels={**node.labels, **JOINED})
