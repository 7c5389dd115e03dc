"""One batch of pods and what is decided for it: nodes that are there, new nodes, or no place."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, repeat

import numpy as np

from leeway.selection.labels import ZONE, normalised
from leeway.selection.packing.bundles import bundled
from leeway.selection.packing.domains import ELSEWHERE, Values, divided
from leeway.selection.packing.groups import Group, Lot, Misplaced, grouped, regrouped
from leeway.selection.packing.kinds import Sorter
from leeway.selection.packing.launching import Launch, Limits, NewNode, launch
from leeway.selection.packing.misses import nearest_miss
from leeway.selection.packing.preferences import bare, only_required, relaxed, strictly
from leeway.selection.packing.repacking import repack
from leeway.selection.packing.scheduling import Demand, Order, schedule
from leeway.selection.packing.standing import NO_ZONE, Standing
from leeway.selection.packing.supply import Supply
from leeway.selection.packing.topology import NO_RULES, Counters, Evenness, unknown_topology
from leeway.selection.packing.zones import Choice, ZoneCounts, assign
from leeway.selection.pods import ExistingNode, Pod, PodSpec, Weighted
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources
from leeway.selection.solver.arrays import Bools

UNEVEN = "pods that its spread by zone or its affinity counts on have no place themselves"
FAR_OFF = 1.05
"""Of the bound: what nodes have to cost for some of them to be packed again."""

LIMIT = "the limits of its pools leave no room for another node"
LONELY = "the nodes of the pods that it has to share one with have no room for it"


@dataclass
class Outcome:
    """What has been decided so far. `missed` are the pods without a place, each with the reason;
    `hopeless` are those that no node at all is for, `limited` those that a pool's limits leave no
    node for."""

    missed: dict[str, str] = field(default_factory=dict)
    hopeless: set[str] = field(default_factory=set)
    limited: set[str] = field(default_factory=set)
    bounds: list[float | None] = field(default_factory=list)
    nodes: list[NewNode] = field(default_factory=list)

    def miss(self, pods: Iterable[str], reason: str) -> None:
        """Note pods that have no place."""
        self.missed.update((pod, reason) for pod in pods)


@dataclass(frozen=True, slots=True)
class Search:
    """How much is tried for one plan: in which `orders` pods are bound to nodes that are there, and
    in how many rounds the new nodes of few pods are improved."""

    orders: Sequence[Order]
    improvements: int


class Batch:
    """One run: what is known of the pods, and what has been decided so far.

    `given` is the supply before pools were told apart, `search` says how much is tried. `coming` of
    the nodes, the last ones, are still to be launched. `counters` are those of the batch whose plan
    this one adds to.
    `ranks` say which pods, by name, come before others: the lower, the earlier.
    """

    def __init__(
        self,
        pods: Sequence[Pod],
        sorter: Sorter,
        given: Supply,
        nodes: Sequence[ExistingNode],
        search: Search,
        coming: int = 0,
        counters: Counters | None = None,
        ranks: Mapping[str, int] | None = None,
    ) -> None:
        self._given = given
        self._search = search
        self._ranks = ranks or {}
        self.supply = supply = sorter.supply
        self.counters = counters or Counters(_zones(supply, nodes))
        self.counters.learn(pod for node in nodes for pod in node.pods)
        self.groups = grouped(pods, self.counters)
        self.sorter = sorter
        self.standing = Standing(nodes, sorter.resources, self.counters, supply.daemons, coming)
        self.zones = self._count_zones(nodes)
        self.limits = _limits(supply, nodes)
        taints = [t for pool in supply.pools for t in pool.taints]
        taints += [t for node in nodes for t in node.taints]
        self.soft_taints = any(taint.effect == "PreferNoSchedule" for taint in taints)
        self.outcome = Outcome()
        self.given_up: dict[str, PodSpec] = {}
        self._led = self.standing.running
        self._wanted: frozenset[int] = frozenset()
        self._zones_of: dict[object, tuple[frozenset[int], frozenset[int]]] = {}

    def plan(self) -> bool:
        """Plan; False where what pods have given up is to be known from the start."""
        waiting: Sequence[Group] = self.groups
        while waiting:
            waiting, missed = self._divide(self._bind(waiting))
            missed += self._place(waiting)
            again = [(m, self._relaxed(m.group.asked)) for m in missed]
            for miss, spec in again:
                if spec is None:
                    self.outcome.miss(miss.pods, miss.reason)
                    self.outcome.hopeless.update(miss.pods if miss.hopeless else ())
                    self.outcome.limited.update(miss.pods if miss.reason == LIMIT else ())
            later = [(spec, miss.pods) for miss, spec in again if spec is not None]
            self.given_up |= {name: spec for spec, names in later for name in names}
            self._follow(waiting, missed)
            waiting = regrouped(later, self.counters)
            if self._too_late(again, waiting):
                return False
        if self.outcome.missed:
            self._even_out()
        return True

    def bind(self) -> Sequence[Group]:
        """Only bind pods to nodes that are there; returns the groups of those that are left."""
        return self._bind(self.groups)

    def _bind(self, groups: Sequence[Group]) -> Sequence[Group]:
        """Bind pods to nodes that are there; returns the groups of those that are left."""
        before = len(self.standing.placed)
        if not self.standing.nodes:
            return groups
        demands = [self._demand(group) for group in groups if not unknown_topology(group.spec)]
        left = dict(zip((id(d.group) for d in demands), self._schedule(demands), strict=True))
        position = {name: zone for zone, name in enumerate(self.zones.zones)}
        for row, lot in self.standing.placed[before:]:
            ((group, _),) = lot.parts
            node, labels = self.standing.nodes[row], self.standing.labels[row]
            zone = position.get(self.standing.zones[row])
            if zone is not None:
                rules = self.counters.rules_on(group.spec, labels, node.taints)
                self.zones.add(rules, zone, len(lot.units))
            self._wanted = self._wanted.union(group.rules.with_zone)
            self._led |= _leading(group)
        kept = [(group, left.get(id(group), len(group.pods))) for group in groups]
        return [
            group if pods == len(group.pods) else replace(group, pods=group.pods[-pods:])
            for group, pods in kept
            if pods
        ]

    def _divide(self, groups: Sequence[Group]) -> tuple[list[Group], list[Misplaced]]:
        """Divide groups by the labels that their spreads go by, besides zone and hostname."""
        kept: list[Group] = []
        missed: list[Misplaced] = []
        counts: dict[int, dict[str, int]] = {}
        for group in groups:
            parts = [group]
            for even in self.counters.evenness(group.spec):
                if even.topology not in ELSEWHERE:
                    found = [
                        each
                        for part in parts
                        for each in divided(part, even, self._values(part, even, counts))
                    ]
                    missed += [each for each in found if isinstance(each, Misplaced)]
                    parts = [each for each in found if isinstance(each, Group)]
            kept += parts
        return kept, missed

    def _values(self, group: Group, even: Evenness, counts: dict[int, dict[str, int]]) -> Values:
        """The values of a label by which a group is spread."""
        offered = self.supply.values(even.topology)
        able = np.flatnonzero(self.sorter.allowed(Lot.of(group, group.pods[:1])))
        cheapest = able[np.argsort(self.supply.prices[able], kind="stable")]
        named = dict.fromkeys(offered[at] for at in cheapest.tolist())
        if even.counter not in counts:
            counts[even.counter] = self.standing.counts_by(even.topology, even.counter)
        compared = self.standing.values(even.topology, even.domains)
        return Values([value for value in named if value], compared, counts[even.counter])

    def _schedule(self, demands: Sequence[Demand]) -> list[int]:
        return schedule(self.standing, self.counters, demands, self._search.orders)

    def _demand(self, group: Group) -> Demand:
        spec = bare(group.asked, self.soft_taints)
        forms: tuple[Group, ...] = (group,)
        if spec is not group.spec:
            forms = (group, replace(group, asked=spec, spec=spec, rules=self.counters.rules(spec)))
        able, _ = self._launchable(Lot.of(forms[-1], group.pods[:1]), forms[-1].spec)
        zones = frozenset(self.zones.zones[zone] for zone in able)
        return Demand(group, forms, zones, self._rank(group))

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
                yield Misplaced(group, group.pods, reason, hopeless=True)
                continue
            choice = self._choice(group)
            if choice.any:
                able.append((group, choice))
            else:
                why = nearest_miss(group.spec, self._given)
                yield Misplaced(group, group.pods, why, hopeless=True)
        lots: list[Lot] = []
        for _, some in groupby(sorted(able, key=self._rank_of), self._rank_of):
            assigned, misplaced = assign(list(some), self.zones, self.counters.by_zone)
            lots += assigned
            yield from misplaced
        lots, misplaced = bundled(lots, self.standing.running, self._launched(), self._fits)
        for miss in misplaced:
            if miss.zone is not None:
                self.zones.add(miss.group.rules, miss.zone, -len(miss.pods))
        yield from misplaced
        lots = sorted(lots, key=lambda lot: (-lot.priority, -self.sorter.size(lot).sum()))
        left = [self.standing.place(lot, self._zone(lot)) for lot in lots]
        yield from self._launch([lot for lot in left if lot.units])

    def _rank_of(self, entry: tuple[Group, Choice]) -> int:
        return self._rank(entry[0])

    def _rank(self, group: Group) -> int:
        return self._ranks.get(group.pods[0], 0)

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
            open_to, rounds = self._of_weight(weight), self._search.improvements
            done = launch(waiting, self.sorter, open_to, self.limits, rounds)
            self.outcome.nodes += self._again(done, open_to)
            self.outcome.bounds.append(None if done.left else done.bound)
            limited |= done.limited
            waiting = done.left
        yield from self._misplaced(waiting, LIMIT if limited else None)

    def _again(self, done: Launch, open_to: Bools) -> list[NewNode]:
        """Pack the worst of these nodes again where that is likely to pay."""
        prices = self.supply.prices[[node.offering for node in done.nodes]]
        if done.few or done.bound is None or self.limits.left:
            return done.nodes
        if float(prices.sum()) < FAR_OFF * done.bound:
            return done.nodes

        def launching(lots: Sequence[Lot]) -> list[NewNode] | None:
            again = launch(lots, self.sorter, open_to, self.limits)
            return None if again.left else again.nodes

        return repack(done.nodes, self.sorter, launching)

    def _even_out(self) -> None:
        """Take pods off new nodes that count on pods which have found no place themselves."""
        lost = -1
        while lost != len(self.outcome.missed):
            lost = len(self.outcome.missed)
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
                self.outcome.miss(kept.pop(), UNEVEN)
            load.append((lot, tuple(kept)))
        return NewNode(node.offering, tuple(entry for entry in load if entry[1]))

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
        # Be the pods there that it has to share a node with, or not.
        rules = replace(group.rules, with_node=())
        lot = Lot.of(replace(group, rules=rules), group.pods[:1])
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
        known = len(self.supply.zone_names)
        zones = self.counters.zones
        counts = ZoneCounts(zones, [*self._cheapest_first(), *range(known, len(zones))])
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


def _zones(supply: Supply, nodes: Sequence[ExistingNode]) -> tuple[str, ...]:
    """The zones that anything is offered in, and those besides that nodes are in."""
    known = supply.zone_names
    labels = ({normalised(key): value for key, value in node.labels.items()} for node in nodes)
    return known + tuple(sorted({each[ZONE] for each in labels if each.get(ZONE)} - set(known)))


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
