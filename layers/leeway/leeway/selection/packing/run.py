"""One packing run: assigns pods to existing nodes, then to new nodes, or records why not.

The least efficient new nodes are packed again, and the cheaper result stays.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from leeway.reasons import Reason
from leeway.selection.labels import HOSTNAME, RESERVATION_ID, ZONE
from leeway.selection.packing.binding import Demand, Order, schedule
from leeway.selection.packing.existing_nodes import NO_ZONE, ExistingNodes, labels_of
from leeway.selection.packing.label_domains import LabelDomains
from leeway.selection.packing.new_nodes import (
    Limits,
    NewNode,
    NewNodesResult,
    load_of,
    pack_new_nodes,
)
from leeway.selection.packing.plan import (
    POOL_LIMIT_REACHED,
    RESERVATIONS_FULL,
    TOPOLOGY_UNSATISFIABLE,
)
from leeway.selection.packing.pod_classes import MAX_ONE_BY_ONE, Classifier
from leeway.selection.packing.pod_groups import (
    PodBatch,
    PodGroup,
    Unplaced,
    affinity_unsatisfiable,
    bundle,
    fully_relaxed,
    group_pods,
    relaxed,
    with_preferences_required,
    without_preferences,
)
from leeway.selection.packing.requests import first_offerings, meeting_min_values
from leeway.selection.packing.supply import Supply
from leeway.selection.packing.topology import NO_RULES, Counters, Rules
from leeway.selection.packing.unschedulable import Explanations
from leeway.selection.packing.zones import Choice, ZoneCounts, assign
from leeway.selection.pods import ExistingNode, Pod, PodSpec, Weighted
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources
from leeway.selection.solver.problem import Bools, Ints, Proceed

_LIMITS = frozenset({POOL_LIMIT_REACHED.name, RESERVATIONS_FULL.name})

REPACK_FROM = 1.05
"""Nodes that cost more than this multiple of the bound are partly packed again."""


_NO_ROOM_NEXT_TO_PODS = affinity_unsatisfiable(
    "the nodes of the pods that it has to share a node with have no room for it"
)
_DEPENDENT = TOPOLOGY_UNSATISFIABLE(
    why="The topology spread constraint or the pod affinity of the pod depends on pods that are "
    "unschedulable themselves"
)


@dataclass
class Outcome:
    """The result so far. `unplaced` maps each pod without a node to its reason. `infeasible` are
    the pods that no node at all fits, `limited` those that the limits of the node pools exclude."""

    unplaced: dict[str, Reason] = field(default_factory=dict)
    infeasible: set[str] = field(default_factory=set)
    limited: set[str] = field(default_factory=set)
    bounds: list[float | None] = field(default_factory=list)
    nodes: list[NewNode] = field(default_factory=list)

    def add_unplaced(self, pods: Iterable[str], reason: Reason) -> None:
        """Record pods without a node."""
        self.unplaced.update((pod, reason) for pod in pods)


@dataclass(frozen=True, slots=True)
class Search:
    """The effort for one plan: the `orders` in which pods are bound to existing nodes, the number
    of rounds that improve the new nodes of small batches, while `proceed` returns True, and what is
    `stranded` on each new node, in pods."""

    orders: Sequence[Order]
    improvements: int
    proceed: Proceed
    stranded: float = 0.0


class PackingRun:
    """One run over a set of pods, with its state.

    `explanations` are those of the supply before `with_variants_for`. The last `planned` of the
    nodes are not launched yet. `counters` are those of the run whose plan this run extends. `ranks`
    orders pods by name: a lower rank is placed earlier. Nothing is launched from `closed` pools.
    """

    def __init__(
        self,
        pods: Sequence[Pod],
        classifier: Classifier,
        explanations: Explanations,
        nodes: Sequence[ExistingNode],
        search: Search,
        planned: int = 0,
        counters: Counters | None = None,
        ranks: Mapping[str, int] | None = None,
        closed: Iterable[str] = (),
    ) -> None:
        self._explanations = explanations
        self._search = search
        self._ranks = ranks or {}
        self.supply = supply = classifier.supply
        self.counters = counters or Counters(_zones(supply, nodes))
        self.counters.register(pod for node in nodes for pod in node.present)
        self.groups = group_pods(pods, self.counters)
        self.classifier = classifier
        self.existing = ExistingNodes(
            nodes, classifier.resources, self.counters, supply.daemons, planned
        )
        self.labels = LabelDomains(self.counters, classifier, self.existing)
        self.zones = self._count_zones()
        self.limits = limits_of(supply, nodes, planned)
        self.limits.remaining.update({pool: {"nodes": 0} for pool in closed})
        taints = [t for pool in supply.pools for t in pool.taints]
        taints += [t for node in nodes for t in node.taints]
        self.soft_taints = any(taint.effect == "PreferNoSchedule" for taint in taints)
        self.outcome = Outcome()
        self.given_up: dict[str, PodSpec] = {}
        self._leader_counters = self.existing.running
        self._follower_counters: frozenset[int] = frozenset()
        self._zones_of: dict[object, tuple[frozenset[int], frozenset[int]]] = {}

    def plan(self) -> bool:
        """Plan all pods. Returns False if the plan must restart because of relaxed preferences."""
        waiting: Sequence[PodGroup] = self.groups
        while waiting:
            waiting, unplaced = self.labels.choose(self._bind(waiting), self._rank)
            for entry in self._place(waiting):
                self.labels.remove(entry.group, len(entry.pods))
                unplaced.append(entry)
            relaxations = [(m, self._next_relaxed(m.group.declared)) for m in unplaced]
            for entry, spec in relaxations:
                if spec is None:
                    self.outcome.add_unplaced(entry.pods, entry.reason)
                    self.outcome.infeasible.update(entry.pods if entry.infeasible else ())
                    self.outcome.limited.update(entry.pods if entry.reason.code in _LIMITS else ())
            retries = [(spec, entry.pods) for entry, spec in relaxations if spec is not None]
            relaxed_pods = [Pod(name, spec) for spec, names in retries for name in names]
            self.given_up |= {pod.name: pod.spec for pod in relaxed_pods}
            self._record_affinities(waiting, unplaced)
            waiting = group_pods(relaxed_pods, self.counters)
            if self._needs_restart(relaxations, waiting):
                return False
        return True

    def bind(self) -> Sequence[PodGroup]:
        """Bind pods to existing nodes only. Returns the groups of the pods that remain."""
        return self._bind(self.groups)

    def _bind(self, groups: Sequence[PodGroup]) -> Sequence[PodGroup]:
        """Bind pods to existing nodes. Returns the groups of the pods that remain."""
        before = len(self.existing.placed)
        if not self.existing.nodes:
            return groups
        demands = [self._demand(group) for group in groups]
        left = schedule(self.existing, self.counters, demands, self._search.orders)
        remaining = dict(zip((id(demand.group) for demand in demands), left, strict=True))
        position = {name: zone for zone, name in enumerate(self.zones.zones)}
        for row, batch in self.existing.placed[before:]:
            ((group, _),) = batch.parts
            node, labels = self.existing.nodes[row], self.existing.labels[row]
            zone = position.get(self.existing.zones[row])
            rules = self.counters.rules_on(group.spec, labels, node.taints)
            if zone is not None:
                self.zones.add(rules, zone, len(batch.units))
            self.labels.add(rules, labels, len(batch.units))
            self._follower_counters = self._follower_counters.union(group.rules.affinity_in_zone)
            self._leader_counters |= _leading(group)
        kept = [(group, remaining.get(id(group), len(group.pods))) for group in groups]
        return [
            group if pods == len(group.pods) else replace(group, pods=group.pods[-pods:])
            for group, pods in kept
            if pods
        ]

    def _demand(self, group: PodGroup) -> Demand:
        spec = fully_relaxed(group.declared, self.soft_taints)
        forms: tuple[PodGroup, ...] = (group,)
        if spec is not group.spec:
            forms = (
                group,
                replace(group, declared=spec, spec=spec, rules=self.counters.rules(spec)),
            )
        feasible, compared = self._launchable(
            PodBatch.of(forms[-1], group.pods[:1]), forms[-1].spec
        )
        zones = frozenset(self.zones.zones[zone] for zone in feasible)
        near = (self.counters.topology(counter) for counter in group.rules.affinity_by_label)
        values = {label: self.labels.offered(forms[-1], label) for label in near}
        offered = dict[str, frozenset[str]]()
        if self.existing.any_planned:
            spread = {each.pods.topology for each in group.spec.spreads} - {HOSTNAME, ZONE}
            offered = {label: self.labels.offered(forms[-1], label) for label in spread}
            offered[ZONE] = frozenset(self.zones.zones[zone] for zone in compared)
        return Demand(group, forms, zones, self._rank(group), values, offered)

    def _record_affinities(self, groups: Sequence[PodGroup], unplaced: Sequence[Unplaced]) -> None:
        """Record which counters the placed pods depend on, which counters others may follow, and
        which ones they exclude."""
        unplaced_pods: dict[int, int] = {}
        for entry in unplaced:
            unplaced_pods[id(entry.group)] = unplaced_pods.get(id(entry.group), 0) + len(entry.pods)
        for group in groups:
            if unplaced_pods.get(id(group), 0) < len(group.pods):
                self._follower_counters = self._follower_counters.union(
                    group.rules.affinity_in_zone
                )
                self._leader_counters |= _leading(group)
                self.labels.placed(group)

    def _needs_restart(
        self, relaxations: Sequence[tuple[Unplaced, PodSpec | None]], waiting: Sequence[PodGroup]
    ) -> bool:
        """Whether preferences were relaxed too late: pods that depend on others find those on full
        nodes, or relaxed pods now match pods that others were placed as the first of."""
        late = (
            entry.group.rules.affinity_in_zone and not self.given_up.keys().isdisjoint(entry.pods)
            for entry, spec in relaxations
            if spec is None
        )
        alike = (
            _leading(group) & self._follower_counters - self._leader_counters for group in waiting
        )
        return any(late) or any(alike)

    def _next_relaxed(self, spec: PodSpec) -> PodSpec | None:
        """Relax the preferences that nothing satisfies. If there are none, relax the next
        preference."""
        hoped = tuple(w for w in spec.preferred_terms if self._is_satisfiable(spec, w))
        if len(hoped) < len(spec.preferred_terms):
            return replace(spec, preferred_terms=hoped)
        return relaxed(spec, self.soft_taints)

    def _is_satisfiable(self, spec: PodSpec, wanted: Weighted[Requirements]) -> bool:
        """Whether any node satisfies a preference of a pod."""
        alone = with_preferences_required(
            replace(without_preferences(spec), preferred_terms=(wanted,))
        )
        batch = PodBatch.of(PodGroup(spec, alone, NO_RULES, ("",)), ("",))
        return bool(self.classifier.allowed(batch).any() or self.existing.room(batch, None).any())

    def _place(self, groups: Sequence[PodGroup]) -> Iterable[Unplaced]:
        """Place the pods that have a node. Yields the others with reasons."""
        feasible: list[tuple[PodGroup, Choice]] = []
        for group in groups:
            choice = self._choice(group)
            if choice.any:
                feasible.append((group, choice))
            else:
                why = self.classifier.too_few_types(PodBatch.of(group, group.pods[:1]))
                why = why or self._explanations.explain(group.spec)
                yield Unplaced(group, group.pods, why, infeasible=True)
        batches: list[PodBatch] = []
        ranked = sorted(feasible, key=lambda entry: self._rank(entry[0]))
        for _, some in groupby(ranked, lambda entry: self._rank(entry[0])):
            assigned, unplaced = assign(list(some), self.zones, self.counters.by_zone)
            batches += assigned
            yield from unplaced
        for at, batch in enumerate(batches):
            for dropped in self._uneven_by_labels(batch):
                yield dropped
                batches[at] = batch = batch.having(batch.units[:-1])
        batches = [batch for batch in batches if batch.units]
        batches, unplaced = bundle(batches, self.existing.running, self._launched(), self._fits)
        for entry in unplaced:
            if entry.zone is not None:
                self.zones.add(entry.group.rules, entry.zone, -len(entry.pods))
        yield from unplaced
        batches = sorted(
            batches, key=lambda batch: (-batch.priority, -self.classifier.size(batch).sum())
        )
        remaining = [self.existing.place(batch, self._zone(batch)) for batch in batches]
        yield from self._pack_new_nodes([batch for batch in remaining if batch.units])

    def _uneven_by_labels(self, batch: PodBatch) -> Iterator[Unplaced]:
        """Yield the last pods of a batch as long as its spreads and affinities by labels depend on
        pods that have no zone."""
        ((group, _),) = batch.parts
        for (pod,) in reversed(batch.units):
            if self.labels.are_satisfied(group):
                return
            if batch.zone is not None:
                self.zones.add(group.rules, batch.zone, -1)
            yield Unplaced(group, (pod,), _DEPENDENT)

    def _rank(self, group: PodGroup) -> int:
        return self._ranks.get(group.pods[0], 0)

    def _pack_new_nodes(self, batches: Sequence[PodBatch]) -> Iterable[Unplaced]:
        """Pack batches onto new nodes. Pools with the highest weight come first."""
        waiting, lonely = list[PodBatch](), list[PodBatch]()
        for batch in batches:
            bound_to_nodes = any(group.rules.affinity_on_node for group, _ in batch.parts)
            (lonely if bound_to_nodes and not batch.joined else waiting).append(batch)
        yield from self._unplaced(lonely, _NO_ROOM_NEXT_TO_PODS)
        limited = full = False
        for weight in sorted({pool.weight for pool in self.supply.pools}, reverse=True):
            if not waiting:
                return
            eligible, rounds = self._of_weight(weight), self._search.improvements
            proceed, stranded = self._search.proceed, self._search.stranded
            done = pack_new_nodes(
                waiting, self.classifier, eligible, self.limits, proceed, rounds, stranded
            )
            self.outcome.nodes += self._repack(done, eligible)
            self.outcome.bounds.append(None if done.remaining else done.bound)
            limited |= done.limited
            full |= done.full
            waiting = done.remaining
        reason = POOL_LIMIT_REACHED() if limited else None
        yield from self._unplaced(waiting, RESERVATIONS_FULL() if full else reason)

    def _repack(self, done: NewNodesResult, eligible: Bools) -> list[NewNode]:
        """Pack the least efficient nodes again if this is likely to reduce the price."""
        prices = self.supply.prices[[node.offering for node in done.nodes]]
        if done.few or done.bound is None or self.limits.remaining or self.limits.free:
            return done.nodes
        if float(prices.sum()) < REPACK_FROM * done.bound or not self._search.proceed():
            return done.nodes

        search = self._search

        def pack(batches: Sequence[PodBatch]) -> list[NewNode] | None:
            again = pack_new_nodes(
                batches,
                self.classifier,
                eligible,
                self.limits,
                search.proceed,
                search.improvements,
                search.stranded,
            )
            return None if again.remaining else again.nodes

        return repack(done.nodes, self.classifier, pack)

    def _unplaced(self, batches: Iterable[PodBatch], reason: Reason | None) -> Iterable[Unplaced]:
        for batch in batches:
            zone = self._zone(batch)
            fits = self.classifier.allowed(batch).any()
            reason_of_batch = reason if fits else self.classifier.too_few_types(batch)
            for group, names in batch.pods_by_group():
                if batch.zone is not None:
                    self.zones.add(group.rules, batch.zone, -len(names))
                why = reason_of_batch or self._explanations.explain(group.spec, zone)
                yield Unplaced(group, names, why)

    def _of_weight(self, weight: int) -> Bools:
        chosen = np.array([pool.weight == weight for pool in self.supply.pools], dtype=bool)
        found: Bools = chosen[self.supply.of_pool]
        return found

    def _zone(self, batch: PodBatch) -> str | None:
        return None if batch.zone is None else self.zones.zones[batch.zone]

    def _launched(self) -> frozenset[int]:
        """The counters that have pods on new nodes."""
        placed = [entry for node in self.outcome.nodes for entry in node.batches]
        return frozenset(counter for batch, _ in placed for counter in batch.counted)

    def _fits(self, batch: PodBatch) -> bool:
        counted = batch.counted
        if any(counted.get(counter, 0) > most for counter, most in batch.caps.items()):
            return False
        if self.classifier.allowed(batch).any():
            return True
        return bool((self.existing.room(batch, self._zone(batch)) > 0).any())

    def _choice(self, group: PodGroup) -> Choice:
        """The zones with a node for one pod of the group, and the zones that its spreads
        compare."""
        # Ignore affinity by hostname: it is handled by `bundle`.
        alone = group
        if group.rules.affinity_on_node:
            alone = replace(group, rules=replace(group.rules, affinity_on_node=()))
        batch = PodBatch.of(alone, group.pods[:1])
        names = self.zones.zones
        # Preferences do not exclude zones from the domains.
        required = group.spec
        if required.terms != group.declared.terms:
            required = replace(required, terms=group.declared.terms)
        feasible, domains = map(set, self._launchable(batch, required))
        position = {name: i for i, name in enumerate(names)}
        zoneless = False
        admitted = self.existing.admits(group.spec)
        if admitted.any():
            zones = self.existing.zones_with(admitted & (self.existing.room(batch, None) > 0))
            zoneless = NO_ZONE in zones
            feasible |= {position[zone] for zone in zones if zone != NO_ZONE}
        domains |= {position[zone] for zone in self.existing.domains(group.spec)}
        return Choice(
            tuple(i in feasible for i in range(len(names))),
            tuple(i in domains for i in range(len(names))),
            zoneless,
        )

    def _launchable(
        self, batch: PodBatch, required: PodSpec
    ) -> tuple[frozenset[int], frozenset[int]]:
        """The zones with an offering that has room for one pod, and the zones with any offering
        that matches its requirements."""
        key = (batch.shape, required.terms)
        if key not in self._zones_of:
            zones = self.supply.zones
            feasible = frozenset(_numbers(zones[self.classifier.allowed(batch)]))
            domains = frozenset(_numbers(zones[self.supply.allowed(required)]))
            self._zones_of[key] = (feasible, domains)
        return self._zones_of[key]

    def _count_zones(self) -> ZoneCounts:
        known = len(self.supply.zone_names)
        zones = self.counters.zones
        counts = ZoneCounts(zones, [*self._cheapest_first(), *range(known, len(zones))])
        position = {name: i for i, name in enumerate(counts.zones)}
        running: dict[tuple[int, str], tuple[Rules, int]] = {}
        for rules_there, zone in zip(self.existing.rules, self.existing.zones, strict=True):
            for rules in rules_there if zone != NO_ZONE else ():
                _, pods = running.get((id(rules), zone), (rules, 0))
                running[id(rules), zone] = rules, pods + 1
        for (_, zone), (rules, pods) in running.items():
            counts.add(rules, position[zone], pods)
        return counts

    def _cheapest_first(self) -> list[int]:
        """The zones in the order of their lowest price per unit of resources."""
        capacity = self.classifier.capacity / np.maximum(
            self.classifier.capacity.max(axis=0, initial=1), 1
        )
        costs = self.supply.prices / np.maximum(capacity.sum(axis=1), 1e-12)
        zones = range(len(self.supply.zone_names))
        return sorted(zones, key=lambda z: costs[self.supply.zones == z].min(initial=np.inf))


def _numbers(positions: Ints) -> list[int]:
    """The distinct numbers."""
    found: list[int] = np.flatnonzero(np.bincount(positions)).tolist()
    return found


def _zones(supply: Supply, nodes: Sequence[ExistingNode]) -> tuple[str, ...]:
    """The zones with offerings, then the other zones with nodes."""
    known = supply.zone_names
    found = {labels_of(node).get(ZONE, NO_ZONE) for node in nodes} - {NO_ZONE, *known}
    return known + tuple(sorted(found))


def _leading(group: PodGroup) -> frozenset[int]:
    """The counters that a group's pods add to without requiring another pod of them."""
    return group.rules.counted - set(group.rules.affinity_in_zone)


def limits_of(supply: Supply, nodes: Sequence[ExistingNode], planned: int) -> Limits:
    """Return the limits of the pools less the capacity of their nodes, and the room of reservations
    less the last `planned` nodes: what EC2 calls free leaves out the nodes that exist."""
    budgets = {}
    for pool in supply.pools:
        if pool.limits is None:
            continue
        own = [node for node in nodes if node.pool == pool.name]
        used = Resources({"nodes": len(own)})
        for node in own:
            used = used + node.capacity
        budget = pool.left(used)
        if budget is not None:
            budgets[pool.name] = dict(budget)
    free: dict[str, int] = {}
    for one in (one for pool in supply.pools for one in pool.reservations):
        free[one.id] = min(one.free, free.get(one.id, one.free))
    for node in nodes[len(nodes) - planned :] if free else ():
        if (reservation := node.labels.get(RESERVATION_ID, "")) in free:
            free[reservation] -= 1
    return Limits(budgets, free)


SHARE = 0.15
"""The share of the nodes that is packed again."""

MIN_NODES = 12

type Pack = Callable[[Sequence[PodBatch]], list[NewNode] | None]
"""Packs batches onto new nodes; None if some batch remains."""


def repack(nodes: list[NewNode], classifier: Classifier, pack: Pack) -> list[NewNode]:
    """Return nodes for the same pods that cost no more."""
    count = max(MIN_NODES, round(SHARE * len(nodes)))
    if count >= len(nodes):
        return nodes
    ranked = _ranked(nodes, classifier)
    found = ranked[count:]
    for worst in _parted(ranked[:count]):
        again = pack(_lots(worst))
        if again is not None and _price(again, classifier) < _price(worst, classifier) - 1e-9:
            found += again
        else:
            found += worst
    return found


def _parted(nodes: Sequence[NewNode]) -> Iterator[list[NewNode]]:
    """Yield the nodes in parts whose pods are packed one by one."""
    part, held = list[NewNode](), 0
    for node in nodes:
        units = sum(len(units) for _, units in node.batches)
        if part and held + units > MAX_ONE_BY_ONE:
            yield part
            part, held = [], 0
        part.append(node)
        held += units
    yield part


def _ranked(nodes: Sequence[NewNode], classifier: Classifier) -> list[NewNode]:
    """The nodes in the order of their pods' share of all requests per price, the lowest first."""
    requested = np.array([load_of(node, classifier) for node in nodes])
    part = (requested / np.maximum(requested.sum(axis=0), 1)).sum(axis=1)
    prices = classifier.supply.prices[[node.offering for node in nodes]]
    order = np.argsort(part / np.maximum(prices, 1e-12), kind="stable")
    return [nodes[at] for at in order]


def _lots(nodes: Sequence[NewNode]) -> list[PodBatch]:
    """The batches of nodes, merged if they were one batch."""
    found: dict[object, PodBatch] = {}
    for node in nodes:
        for batch, units in node.batches:
            key = (batch.zone, tuple(id(group) for group, _ in batch.parts))
            known = found.get(key)
            found[key] = batch.having((*known.units, *units) if known else units)
    return list(found.values())


def _price(nodes: Sequence[NewNode], classifier: Classifier) -> float:
    kept, _ = meeting_min_values(nodes, classifier)
    return float(classifier.supply.prices[first_offerings(kept, classifier)].sum())
