"""Packing: pods → nodes that are there, nodes to launch, and pods that fit nowhere with the reason.

Pure: it knows neither AWS nor Kubernetes, and changes nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np

from leeway.selection.labels import INITIALIZED, JOINED
from leeway.selection.packing.bundles import bundled
from leeway.selection.packing.groups import Group, Lot, Misplaced, grouped, regrouped
from leeway.selection.packing.kinds import Sorter
from leeway.selection.packing.launching import Launch, Limits, NewNode, launch
from leeway.selection.packing.misses import nearest_miss
from leeway.selection.packing.plan import Plan, Unschedulable
from leeway.selection.packing.preferences import only_required, relaxed, strictly
from leeway.selection.packing.repacking import repack
from leeway.selection.packing.requests import finish
from leeway.selection.packing.standing import NO_ZONE, Standing
from leeway.selection.packing.supply import UNKNOWN_PRICE, Supply
from leeway.selection.packing.topology import NO_RULES, Counters, unknown_topology
from leeway.selection.packing.zones import Choice, ZoneCounts, assign
from leeway.selection.pods import ExistingNode, Pod, PodSpec, Weighted
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources
from leeway.selection.solver.arrays import Bools
from leeway.selection.solver.covering import cover

UNEVEN = "pods that its spread by zone or its affinity counts on have no place themselves"
FAR_OFF = 1.05
"""Of the bound: what nodes have to cost for some of them to be packed again."""

STARTING = frozenset(
    {"node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized"}
)
"""Taints of every node that has just joined."""

LIMIT = "the limits of its pools leave no room for another node"
LONELY = "the nodes of the pods that it has to share one with have no room for it"


def pack(pods: Sequence[Pod], supply: Supply, nodes: Sequence[ExistingNode] = ()) -> Plan:
    """Plan a place for every pod: on nodes that are there first, then on new ones.

    Preferences are held as if they were required, and given up one after another where pods would
    have no place otherwise (see `leeway.selection.packing.preferences`).
    """
    waiting = pods
    while True:
        packing = _Packing(waiting, supply, nodes)
        plan = packing.plan()
        if plan is not None:
            return plan
        # What some of a set's pods have given up, all of them have: they share a node or a zone.
        names = packing.given_up
        given_up = {pod.spec: names[pod.name] for pod in waiting if pod.name in names}
        waiting = [Pod(pod.name, given_up.get(pod.spec, pod.spec)) for pod in waiting]


@dataclass
class _Outcome:
    unschedulable: list[Unschedulable] = field(default_factory=list)
    bounds: list[float | None] = field(default_factory=list)
    nodes: list[NewNode] = field(default_factory=list)


class _Packing:
    """One run: what is known of the pods, and what has been decided so far."""

    def __init__(self, pods: Sequence[Pod], supply: Supply, nodes: Sequence[ExistingNode]) -> None:
        self._given = supply
        supply = self.supply = supply.told_apart({id(p.spec): p.spec for p in pods}.values())
        nodes = [_when_started(node, supply) for node in nodes]
        self.counters = Counters()
        self.counters.learn(pod for node in nodes for pod in node.pods)
        self.groups = grouped(pods, self.counters)
        resources = sorted({name for g in self.groups for name in g.spec.requests} | {"pods"})
        self.sorter = Sorter(supply, resources)
        self.standing = Standing(nodes, resources, self.counters, supply.daemons)
        self.zones = self._count_zones(nodes)
        self.limits = _limits(supply, nodes)
        taints = [t for pool in supply.pools for t in pool.taints]
        taints += [t for node in nodes for t in node.taints]
        self.soft_taints = any(taint.effect == "PreferNoSchedule" for taint in taints)
        self.outcome = _Outcome()
        self.given_up: dict[str, PodSpec] = {}
        self._led = self.standing.running
        self._wanted: frozenset[int] = frozenset()
        self._zones_of: dict[object, tuple[frozenset[int], frozenset[int]]] = {}

    def plan(self) -> Plan | None:
        """Plan; None where what pods have given up is to be known from the start."""
        waiting = self.groups
        while waiting:
            missed = list(self._place(waiting))
            again = [(m, self._relaxed(m.group.asked)) for m in missed]
            for miss, spec in again:
                if spec is None:
                    self.outcome.unschedulable += [
                        Unschedulable(pod, miss.reason) for pod in miss.pods
                    ]
            later = [(spec, miss.pods) for miss, spec in again if spec is not None]
            self.given_up |= {name: spec for spec, names in later for name in names}
            self._follow(waiting, missed)
            waiting = regrouped(later, self.counters)
            if self._too_late(again, waiting):
                return None
        if self.outcome.unschedulable:
            self._even_out()
        launched, short = finish(self.outcome.nodes, self.sorter)
        prices = [node.cheapest.price for node in launched]
        return Plan(
            tuple(launched),
            self.standing.placements(),
            (*self.outcome.unschedulable, *short),
            sum(price for price in prices if price < UNKNOWN_PRICE),
            self._bound(),
        )

    def _follow(self, groups: Sequence[Group], missed: Sequence[Misplaced]) -> None:
        """Note whom the pods that have a place now have to be near, and whom others may follow."""
        lost: dict[int, int] = {}
        for miss in missed:
            lost[id(miss.group)] = lost.get(id(miss.group), 0) + len(miss.pods)
        for group in groups:
            if lost.get(id(group), 0) < len(group.pods):
                self._wanted = self._wanted.union(group.rules.with_zone)
                self._led |= _leading(group)

    def _too_late(
        self, again: Sequence[tuple[Misplaced, PodSpec | None]], waiting: Sequence[Group]
    ) -> bool:
        """Whether giving up preferences came too late: pods that have to be near others find those
        on full nodes, or pods come to be like those that others have become the first of."""
        late = (
            miss.group.rules.with_zone and not self.given_up.keys().isdisjoint(miss.pods)
            for miss, spec in again
            if spec is None
        )
        alike = (_leading(group) & self._wanted - self._led for group in waiting)
        return any(late) or any(alike)

    def _relaxed(self, spec: PodSpec) -> PodSpec | None:
        """Give up preferences that nothing meets, and only where there is none the next one."""
        hoped = tuple(w for w in spec.preferred_terms if self._is_met(spec, w))
        if len(hoped) < len(spec.preferred_terms):
            return replace(spec, preferred_terms=hoped)
        return relaxed(spec, self.soft_taints)

    def _is_met(self, spec: PodSpec, wanted: Weighted[Requirements]) -> bool:
        """Whether there is a place at all where a pod's preference is met."""
        alone = strictly(replace(only_required(spec), preferred_terms=(wanted,)))
        lot = Lot.of(Group(spec, alone, NO_RULES, ("",)), ("",))
        return bool(self.sorter.allowed(lot).any() or self.standing.room(lot, None).any())

    def _place(self, groups: Sequence[Group]) -> Iterable[Misplaced]:
        """Place what can be placed; returns the rest with reasons."""
        able: list[tuple[Group, Choice]] = []
        for group in groups:
            topology = unknown_topology(group.spec)
            if topology is not None:
                reason = f"its topology {topology} is not known: zone and hostname are"
                yield Misplaced(group, group.pods, reason)
                continue
            choice = self._choice(group)
            if choice.any:
                able.append((group, choice))
            else:
                yield Misplaced(group, group.pods, nearest_miss(group.spec, self._given))
        lots, misplaced = assign(able, self.zones, self.counters.by_zone)
        yield from misplaced
        lots, misplaced = bundled(lots, self.standing.running, self._launched(), self._fits)
        for miss in misplaced:
            if miss.zone is not None:
                self.zones.add(miss.group.rules, miss.zone, -len(miss.pods))
        yield from misplaced
        lots = sorted(lots, key=lambda lot: (-lot.priority, -self.sorter.size(lot).sum()))
        left = [self.standing.place(lot, self._zone(lot)) for lot in lots]
        yield from self._launch([lot for lot in left if lot.units])

    def _launch(self, lots: Sequence[Lot]) -> Iterable[Misplaced]:
        """Pack lots onto new nodes: pools of the highest weight first."""
        lonely = [lot for lot in lots if not lot.joined and _bound_to_nodes(lot)]
        yield from self._misplaced(lonely, LONELY)
        alone = {id(lot) for lot in lonely}
        waiting = [lot for lot in lots if id(lot) not in alone]
        limited = False
        for weight in sorted({pool.weight for pool in self.supply.pools}, reverse=True):
            if not waiting:
                return
            done = launch(waiting, self.sorter, self._of_weight(weight), self.limits)
            self.outcome.nodes += self._again(done, self._of_weight(weight))
            self.outcome.bounds.append(None if done.left else done.bound)
            limited |= done.limited
            waiting = done.left
        yield from self._misplaced(waiting, LIMIT if limited else None)

    def _again(self, done: Launch, open_to: Bools) -> list[NewNode]:
        """Pack the worst of these nodes again where that is likely to pay."""
        prices = self.supply.prices[[node.offering for node in done.nodes]]
        if done.few or self.limits.left or float(prices.sum()) < FAR_OFF * done.bound:
            return done.nodes

        def launching(lots: Sequence[Lot]) -> list[NewNode] | None:
            again = launch(lots, self.sorter, open_to, self.limits, one_by_one=False)
            return None if again.left else again.nodes

        return repack(done.nodes, self.sorter, launching)

    def _even_out(self) -> None:
        """Take pods off new nodes that count on pods which have found no place themselves."""
        lost = -1
        while lost != len(self.outcome.unschedulable):
            lost = len(self.outcome.unschedulable)
            self.outcome.nodes = [self._still_right(node) for node in self.outcome.nodes]
            self.outcome.nodes = [node for node in self.outcome.nodes if node.load]

    def _still_right(self, node: NewNode) -> NewNode:
        zone = int(self.supply.zones[node.offering])
        load = []
        for lot, units in node.load:
            kept = list(units)
            rules = [group.rules for group, _ in lot.parts]
            domains = [self._choice(group).domains for group, _ in lot.parts]
            while kept and not all(map(self.zones.holds, rules, repeat(zone), domains)):
                for group, pods in lot.parts:
                    self.zones.add(group.rules, zone, -pods)
                self.outcome.unschedulable += [Unschedulable(n, UNEVEN) for n in kept.pop()]
            load.append((lot, tuple(kept)))
        return NewNode(node.offering, tuple(entry for entry in load if entry[1]))

    def _bound(self) -> float:
        """The least that nodes for the pods on new nodes could cost, of any pool."""
        match self.outcome.bounds:
            case []:
                return 0.0
            case [float(known)]:
                return known
        placed = [lot.having(units) for node in self.outcome.nodes for lot, units in node.load]
        kinds, _ = self.sorter.kinds(placed, np.ones(len(self.supply), dtype=bool))
        return cover(kinds.problem).bound if kinds else 0.0

    def _misplaced(self, lots: Iterable[Lot], reason: str | None) -> Iterable[Misplaced]:
        for lot in lots:
            zone = self._zone(lot)
            start = 0
            said = reason if self.sorter.allowed(lot).any() else None
            for group, pods in lot.parts:
                names = tuple(n for unit in lot.units for n in unit[start : start + pods])
                start += pods
                if lot.zone is not None:
                    self.zones.add(group.rules, lot.zone, -len(names))
                why = said or nearest_miss(group.spec, self._given, zone)
                yield Misplaced(group, names, why)

    def _of_weight(self, weight: int) -> Bools:
        chosen = np.array([pool.weight == weight for pool in self.supply.pools], dtype=bool)
        found: Bools = chosen[self.supply.of_pool]
        return found

    def _zone(self, lot: Lot) -> str | None:
        return None if lot.zone is None else self.zones.zones[lot.zone]

    def _launched(self) -> frozenset[int]:
        """The counters that have pods on new nodes."""
        loads = [load for node in self.outcome.nodes for load in node.load]
        return frozenset(counter for lot, _ in loads for counter in lot.counted)

    def _fits(self, lot: Lot) -> bool:
        counted = lot.counted
        if any(counted.get(counter, 0) > most for counter, most in lot.caps.items()):
            return False
        if self.sorter.allowed(lot).any():
            return True
        return bool((self.standing.room(lot, self._zone(lot)) > 0).any())

    def _choice(self, group: Group) -> Choice:
        """Where there is a place for one pod of the group, and which zones its spreads count."""
        lot = Lot.of(group, group.pods[:1])
        names = self.zones.zones
        # What a pod only prefers makes no zone less of a domain.
        required = replace(group.spec, terms=group.asked.terms)
        able, domains = map(set, self._launchable(lot, required))
        position = {name: i for i, name in enumerate(names)}
        zoneless = False
        admitted = self.standing.admits(group.spec)
        room = self.standing.room(lot, None) if admitted.any() else admitted
        for row in np.flatnonzero(admitted):
            zone = position.get(self.standing.zones[row])
            if zone is None:
                zoneless |= room[row] > 0
            elif room[row] > 0:
                able.add(zone)
        domains |= {position[zone] for zone in self.standing.domains(group.spec)}
        return Choice(
            tuple(i in able for i in range(len(names))),
            tuple(i in domains for i in range(len(names))),
            zoneless,
        )

    def _launchable(self, lot: Lot, required: PodSpec) -> tuple[frozenset[int], frozenset[int]]:
        """The zones with an offering that has room for one pod, and with any that it may go to."""
        key = (lot.shape, required.terms)
        if key not in self._zones_of:
            zones = self.supply.zones
            able = frozenset(zones[self.sorter.allowed(lot)].tolist())
            domains = frozenset(zones[self.supply.allowed(required)].tolist())
            self._zones_of[key] = (able, domains)
        return self._zones_of[key]

    def _count_zones(self, nodes: Sequence[ExistingNode]) -> ZoneCounts:
        known = self.supply.zone_names
        others = tuple(sorted(set(self.standing.zones) - set(known) - {NO_ZONE}))
        counts = ZoneCounts(
            known + others, [*self._cheapest_first(), *range(len(known), len(known + others))]
        )
        position = {name: i for i, name in enumerate(counts.zones)}
        for row, (node, zone) in enumerate(zip(nodes, self.standing.zones, strict=True)):
            for pod in node.pods if zone != NO_ZONE else ():
                rules = self.counters.rules_on(pod, self.standing.labels[row], node.taints)
                counts.add(rules, position[zone])
        return counts

    def _cheapest_first(self) -> list[int]:
        """The zones by what a node's worth of resources costs there at least."""
        capacity = self.sorter.capacity / np.maximum(self.sorter.capacity.max(axis=0, initial=1), 1)
        costs = self.supply.prices / np.maximum(capacity.sum(axis=1), 1e-12)
        zones = range(len(self.supply.zone_names))
        return sorted(zones, key=lambda z: costs[self.supply.zones == z].min(initial=np.inf))


def _when_started(node: ExistingNode, supply: Supply) -> ExistingNode:
    """A pool's node that starts, as it will be: without what is taken off when it is Ready."""
    pool = next((pool for pool in supply.pools if pool.name == node.pool), None)
    if pool is None or node.labels.get(INITIALIZED) == "true":
        return node
    passing = {(t.key, t.effect) for t in pool.startup_taints}
    kept = [t for t in node.taints if t.key not in STARTING and (t.key, t.effect) not in passing]
    return replace(node, taints=tuple(kept), labels={**node.labels, **JOINED})


def _leading(group: Group) -> frozenset[int]:
    """The counters that a group's pods add to without having to be near others of them."""
    return group.rules.counted - set(group.rules.with_zone)


def _bound_to_nodes(lot: Lot) -> bool:
    return any(group.rules.with_node for group, _ in lot.parts)


def _limits(supply: Supply, nodes: Sequence[ExistingNode]) -> Limits:
    """What the pools may still have, besides the nodes that they have."""
    left = {}
    for pool in supply.pools:
        own = [node for node in nodes if node.pool == pool.name]
        used = Resources({"nodes": len(own)})
        for node in own:
            used = used + node.capacity
        remaining = pool.left(used)
        if remaining is not None:
            left[pool.name] = dict(remaining)
    return Limits(left)
