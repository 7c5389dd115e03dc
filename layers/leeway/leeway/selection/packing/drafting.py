"""A plan in the making: a batch of all pods, and then batches of those that have no place yet."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from leeway.reasons import Reason
from leeway.selection.labels import INITIALIZED, JOINED
from leeway.selection.packing.domains import other_topologies, pinned_to_labels
from leeway.selection.packing.new_nodes import NewNode
from leeway.selection.packing.packing_run import PackingRun, Search
from leeway.selection.packing.plan import Placement, Plan, Unschedulable
from leeway.selection.packing.pod_classes import Classifier
from leeway.selection.packing.pod_groups import PodBatch, Units
from leeway.selection.packing.preferences import fully_relaxed
from leeway.selection.packing.requests import make_requests
from leeway.selection.packing.supply import UNKNOWN_PRICE, Supply
from leeway.selection.packing.topology import Counters
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.resources import Resources
from leeway.selection.solver.covering import least

STARTUP_TAINTS = frozenset(
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
        self._base_supply, self._input_nodes = supply, nodes
        self._classifier = Classifier(
            supply.with_variants_for(distinct), sorted(resources | {"pods"})
        )
        self._nodes = [_when_initialized(node, self._classifier.supply) for node in nodes]
        self._counters: Counters | None = None
        self._new: list[NewNode] = []
        self._placed: list[tuple[int, PodBatch]] = []
        self._unplaced: dict[str, Reason | None] = dict.fromkeys(self._specs)
        self._infeasible: set[str] = set()
        self._limited: set[str] = set()
        self._bounds: list[float | None] = []

    def restarted(self) -> "Draft":
        """Return a draft of the same with nothing decided, whose nodes are not improved."""
        search = replace(self._search, improvements=0)
        return Draft(self._pods, self._base_supply, self._input_nodes, search)

    @cached_property
    def specs(self) -> tuple[PodSpec, ...]:
        """The pods' different specs, in the order of their coming, higher priorities first."""
        found = dict.fromkeys(pod.spec for pod in self._pods)
        return tuple(sorted(found, key=lambda spec: -spec.priority))

    @property
    def order_dependent(self) -> set[PodSpec]:
        """Of the pods that have no place and might have had one, if others had not come first."""
        names = self._unplaced.keys() - self._infeasible - self._limited
        return {self._specs[name] for name in names}

    @property
    def unplaced_by_priority(self) -> list[int]:
        """How many pods of each priority have no place, the highest first."""
        counts = Counter(self._specs[name].priority for name in self._unplaced)
        return [counts[p] for p in sorted({s.priority for s in self._specs.values()}, reverse=True)]

    def plan_all(self, ranks: Mapping[PodSpec, int] | None = None) -> None:
        """Plan for all pods at once, with all preferences given up that have to be. `ranks` say
        which come before others: the lower, the earlier."""
        by_name = {pod.name: ranks[pod.spec] for pod in self._pods} if ranks else {}
        waiting = self._pods
        while True:
            run = PackingRun(
                waiting,
                self._classifier,
                self._base_supply,
                self._nodes,
                self._search,
                ranks=by_name,
            )
            if run.plan():
                break
            # What some of a set's pods have given up, all of them have: they share a node or zone.
            names = run.given_up
            given_up = {pod.spec: names[pod.name] for pod in waiting if pod.name in names}
            waiting = [Pod(pod.name, given_up.get(pod.spec, pod.spec)) for pod in waiting]
        self._bounds = run.outcome.bounds
        self._unplaced = dict(run.outcome.unplaced)
        self._merge(run)

    def bind_all(self) -> None:
        """Put pods onto nodes that are there, and plan no new ones."""
        run = PackingRun(self._pods, self._classifier, self._base_supply, self._nodes, self._search)
        self._unplaced = {name: None for group in run.bind() for name in group.pods}
        self._merge(run)

    def add_unplaced(self, rounds: int) -> None:
        """Look so often again at pods without a place, as if the rest were carried out.

        Where limits of pools leave pods out, spreads were planned with these: nothing is added.
        """
        for _ in range(0 if self._limited else rounds):
            if not self._add([name for name in self._unplaced if name not in self._infeasible]):
                return

    def add_sequentially(self) -> None:
        """Look at pods without a place, set by set of equal ones, as kube-scheduler binds pods,
        until there is a place for none of them."""
        found = True
        while found:
            found = False
            for spec in self.specs:
                names = [n for n in self._unplaced if self._specs[n] == spec]
                found |= self._add([name for name in names if name not in self._infeasible])

    def _add(self, names: Sequence[str]) -> bool:
        """Plan for some of the pods without a place; returns whether any of them has one now."""
        if not names:
            return False
        waiting = [Pod(name, fully_relaxed(self._specs[name], soft_taints=True)) for name in names]
        nodes = [*self._existing_nodes(), *self._planned_nodes()]
        run = PackingRun(
            waiting,
            self._classifier,
            self._base_supply,
            nodes,
            self._search,
            len(self._new),
            self._counters,
        )
        run.plan()
        for name in names:
            self._unplaced[name] = self._unplaced[name] or run.outcome.unplaced.get(name)
        found = set(names) - run.outcome.unplaced.keys()
        self._bounds += [None] if found else []
        self._unplaced = {name: why for name, why in self._unplaced.items() if name not in found}
        self._merge(run)
        return bool(found)

    def _merge(self, run: PackingRun) -> None:
        """Take over where a batch has put its pods, and what it knows of others."""
        self._counters = run.counters
        self._infeasible |= run.outcome.infeasible
        self._limited |= run.outcome.limited
        known = len(self._nodes)
        for row, batch in run.existing.placed:
            if row < known:
                self._placed.append((row, batch))
            else:
                node = self._new[row - known]
                added = self._pinned(batch, node.offering)
                self._new[row - known] = replace(
                    node, batches=(*node.batches, (added, batch.units))
                )
        self._new += run.outcome.nodes

    def _pinned(self, batch: PodBatch, offering: int) -> PodBatch:
        """A lot that went by the labels of a node: these may not become others any more."""
        labels = self._classifier.supply.labels(offering)
        parts = []
        for group, pods in batch.parts:
            labels_used = {
                key: labels[key] for key in other_topologies(group.spec) if key in labels
            }
            kept = (
                replace(group, spec=pinned_to_labels(group.spec, labels_used))
                if labels_used
                else group
            )
            parts.append((kept, pods))
        return replace(batch, parts=tuple(parts), zone=int(self._classifier.supply.zones[offering]))

    def _existing_nodes(self) -> list[ExistingNode]:
        """The nodes that are there, with the pods that have been placed on them."""
        added: dict[int, list[PodSpec]] = {}
        for row, batch in self._placed:
            added.setdefault(row, []).extend(self._specs_of(batch.units))
        return [
            replace(node, pods=(*node.pods, *added[row])) if row in added else node
            for row, node in enumerate(self._nodes)
        ]

    def _planned_nodes(self) -> list[ExistingNode]:
        """The nodes of the plan as they will be, with daemons and pods."""
        return [self._as_existing(number, node) for number, node in enumerate(self._new)]

    def _as_existing(self, number: int, node: NewNode) -> ExistingNode:
        supply = self._classifier.supply
        candidate = supply.candidates[node.offering]
        pool = candidate.pool
        daemons = supply.daemons_on(node.offering)
        pods = [spec for _, units in node.batches for spec in self._specs_of(units)]
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
        launched, rejected = make_requests(self._new, self._classifier)
        prices = [node.cheapest.price for node in launched]
        unplaced = [
            Unschedulable(name, why or _not_planned(name)) for name, why in self._unplaced.items()
        ]
        return Plan(
            tuple(launched),
            self._placements(),
            (*unplaced, *rejected),
            sum(price for price in prices if price < UNKNOWN_PRICE),
            self._bound(),
        )

    def _placements(self) -> tuple[Placement, ...]:
        names: dict[int, list[str]] = {}
        for row, batch in self._placed:
            names.setdefault(row, []).extend(name for unit in batch.units for name in unit)
        return tuple(Placement(self._nodes[row].name, tuple(names[row])) for row in sorted(names))

    def _bound(self) -> float:
        """The least that nodes for the pods on new nodes could cost, of any pool."""
        match self._bounds:
            case []:
                return 0.0
            case [float(known)]:
                return known
        placed = [batch.having(units) for node in self._new for batch, units in node.batches]
        everywhere = np.ones(len(self._classifier.supply), dtype=bool)
        pod_classes, _ = self._classifier.classify(placed, everywhere)
        return least(pod_classes.problem) if pod_classes else 0.0


def _not_planned(pod: str) -> Reason:
    raise AssertionError(f"no run has planned pod {pod}")


def _when_initialized(node: ExistingNode, supply: Supply) -> ExistingNode:
    """A pool's node that starts, as it will be: without what is taken off when it is Ready."""
    pool = next((pool for pool in supply.pools if pool.name == node.pool), None)
    if pool is None or node.labels.get(INITIALIZED) == "true":
        return node
    temporary = {(t.key, t.effect) for t in pool.startup_taints}
    kept = [
        t for t in node.taints if t.key not in STARTUP_TAINTS and (t.key, t.effect) not in temporary
    ]
    return replace(node, taints=tuple(kept), labels={**node.labels, **JOINED})
