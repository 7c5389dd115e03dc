"""A plan in the making: a batch of all pods, and then batches of those that have no place yet."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from leeway.selection.labels import INITIALIZED, JOINED
from leeway.selection.packing.batch import Batch, Search
from leeway.selection.packing.domains import other_topologies, pinned
from leeway.selection.packing.groups import Lot, Units
from leeway.selection.packing.kinds import Sorter
from leeway.selection.packing.launching import NewNode
from leeway.selection.packing.plan import Placement, Plan, Unschedulable
from leeway.selection.packing.preferences import bare
from leeway.selection.packing.requests import finish
from leeway.selection.packing.supply import UNKNOWN_PRICE, Supply
from leeway.selection.packing.topology import Counters
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.resources import Resources
from leeway.selection.solver.covering import least

STARTING = frozenset(
    {"node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized"}
)
"""Taints of every node that has just joined."""


class Draft:
    """What has been decided for some pods; at first nothing."""

    def __init__(
        self,
        pods: Sequence[Pod],
        supply: Supply,
        nodes: Sequence[ExistingNode],
        search: Search,
    ) -> None:
        self._search = search
        self._pods = pods
        self._specs = {pod.name: pod.spec for pod in pods}
        distinct = {id(pod.spec): pod.spec for pod in pods}.values()
        resources = {name for spec in distinct for name in spec.requests}
        self._given, self._given_nodes = supply, nodes
        self._sorter = Sorter(supply.told_apart(distinct), sorted(resources | {"pods"}))
        self._nodes = [_when_started(node, self._sorter.supply) for node in nodes]
        self._counters: Counters | None = None
        self._new: list[NewNode] = []
        self._placed: list[tuple[int, Lot]] = []
        self._missed = dict.fromkeys(self._specs, "")
        self._hopeless: set[str] = set()
        self._limited: set[str] = set()
        self._bounds: list[float | None] = []

    def afresh(self) -> "Draft":
        """Return a draft of the same with nothing decided, whose nodes are not improved."""
        search = replace(self._search, improvements=0)
        return Draft(self._pods, self._given, self._given_nodes, search)

    @cached_property
    def specs(self) -> tuple[PodSpec, ...]:
        """The pods' different specs, in the order of their coming, higher priorities first."""
        found = dict.fromkeys(pod.spec for pod in self._pods)
        return tuple(sorted(found, key=lambda spec: -spec.priority))

    @property
    def stuck(self) -> set[PodSpec]:
        """Of the pods that have no place and might have had one, if others had not come first."""
        names = self._missed.keys() - self._hopeless - self._limited
        return {self._specs[name] for name in names}

    @property
    def missed_by_priority(self) -> list[int]:
        """How many pods of each priority have no place, the highest first."""
        counts = Counter(self._specs[name].priority for name in self._missed)
        return [counts[p] for p in sorted({s.priority for s in self._specs.values()}, reverse=True)]

    def plan_all(self, ranks: Mapping[PodSpec, int] | None = None) -> None:
        """Plan for all pods at once, with all preferences given up that have to be. `ranks` say
        which come before others: the lower, the earlier."""
        by_name = {pod.name: ranks[pod.spec] for pod in self._pods} if ranks else {}
        waiting = self._pods
        while True:
            batch = Batch(
                waiting, self._sorter, self._given, self._nodes, self._search, ranks=by_name
            )
            if batch.plan():
                break
            # What some of a set's pods have given up, all of them have: they share a node or zone.
            names = batch.given_up
            given_up = {pod.spec: names[pod.name] for pod in waiting if pod.name in names}
            waiting = [Pod(pod.name, given_up.get(pod.spec, pod.spec)) for pod in waiting]
        self._bounds = batch.outcome.bounds
        self._missed = dict(batch.outcome.missed)
        self._take(batch)

    def bind_all(self) -> None:
        """Put pods onto nodes that are there, and plan no new ones."""
        batch = Batch(self._pods, self._sorter, self._given, self._nodes, self._search)
        self._missed = {name: "" for group in batch.bind() for name in group.pods}
        self._take(batch)

    def add_missed(self, rounds: int) -> None:
        """Look so often again at pods without a place, as if the rest were carried out.

        Where limits of pools leave pods out, spreads were planned with these: nothing is added.
        """
        for _ in range(0 if self._limited else rounds):
            if not self._add([name for name in self._missed if name not in self._hopeless]):
                return

    def add_singly(self) -> None:
        """Look at pods without a place, set by set of equal ones, as kube-scheduler binds pods,
        until there is a place for none of them."""
        found = True
        while found:
            found = False
            for spec in self.specs:
                names = [n for n in self._missed if self._specs[n] == spec]
                found |= self._add([name for name in names if name not in self._hopeless])

    def _add(self, names: Sequence[str]) -> bool:
        """Plan for some of the pods without a place; returns whether any of them has one now."""
        if not names:
            return False
        waiting = [Pod(name, bare(self._specs[name], soft_taints=True)) for name in names]
        nodes = [*self._held(), *self._coming()]
        batch = Batch(
            waiting,
            self._sorter,
            self._given,
            nodes,
            self._search,
            len(self._new),
            self._counters,
        )
        batch.plan()
        for name in names:
            self._missed[name] = self._missed[name] or batch.outcome.missed.get(name, "")
        found = set(names) - batch.outcome.missed.keys()
        self._bounds += [None] if found else []
        self._missed = {name: why for name, why in self._missed.items() if name not in found}
        self._take(batch)
        return bool(found)

    def _take(self, batch: Batch) -> None:
        """Take over where a batch has put its pods, and what it knows of others."""
        self._counters = batch.counters
        self._hopeless |= batch.outcome.hopeless
        self._limited |= batch.outcome.limited
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
        return least(kinds.problem) if kinds else 0.0


def _when_started(node: ExistingNode, supply: Supply) -> ExistingNode:
    """A pool's node that starts, as it will be: without what is taken off when it is Ready."""
    pool = next((pool for pool in supply.pools if pool.name == node.pool), None)
    if pool is None or node.labels.get(INITIALIZED) == "true":
        return node
    passing = {(t.key, t.effect) for t in pool.startup_taints}
    kept = [t for t in node.taints if t.key not in STARTING and (t.key, t.effect) not in passing]
    return replace(node, taints=tuple(kept), labels={**node.labels, **JOINED})
