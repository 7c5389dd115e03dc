"""Binds pods to existing nodes one after another, with the filters of kube-scheduler.

A filter considers only the pods that are bound already, so the number of bound pods depends on the
order. Several orders are tried; the one that binds the most pods is used. Sources: kube-scheduler's
plugins PodTopologySpread, InterPodAffinity, NodePorts, NodeResourcesFit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from leeway.selection.labels import HOSTNAME, ZONE
from leeway.selection.packing.existing_nodes import ExistingNodes
from leeway.selection.packing.pod_groups import PodBatch, PodGroup
from leeway.selection.packing.topology import HANDLED_ELSEWHERE, Cap, Counters, Rules
from leeway.selection.solver.problem import Bools, Floats, Ints


@dataclass(frozen=True)
class Demand:
    """Pending pods. `forms` are the group with its preferences required, then with them relaxed.
    `zones` are those in which a node can be launched for it, `values` the values of each label that
    such a node can have. `offered` are the domains of each topology that nodes of the plan may add
    to those that its spreads compare. Within one priority, a lower rank comes first."""

    group: PodGroup
    forms: tuple[PodGroup, ...]
    zones: frozenset[str]
    rank: int = 0
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    offered: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Spread:
    """A spread constraint of a pod: the domain of each node, the compared nodes (N) and their
    domains. `planned` are these with the domains that new nodes may add, of which `unseen` have no
    node yet. `adds`: whether the pod itself is counted."""

    counter: int
    max_skew: int
    min_domains: int
    domains: Ints
    compared: Bools
    found: Ints
    planned: Ints
    unseen: int
    adds: bool
    hostname: bool


@dataclass(frozen=True)
class _Filters:
    """The input of the filters for one form of a group: arrays by node (N), and counters."""

    admitted: Bools
    size: Floats
    counted: Ints
    adds: Bools  # N x counted: whether a pod on this node counts
    exclusions: tuple[Cap, ...]  # anti-affinity
    domain_exclusions: tuple[Cap, ...]  # anti-affinity by zone or another label
    spreads: tuple[_Spread, ...]
    affinities: tuple[tuple[int, Ints, bool, Bools], ...]
    """For each affinity: the counter, the domains (N), whether the pod itself is counted, and the
    nodes whose domain may get new nodes for the pod, or all nodes if none can be launched (N)."""

    @property
    def by_domain(self) -> bool:
        """Whether each bound pod changes the nodes of the next one."""
        return bool(self.spreads or self.affinities or self.domain_exclusions)


@dataclass(frozen=True)
class Order:
    """The order in which pods are bound: a sort key of the group and of the number of nodes with
    room for one of its pods. `fullest`: prefer the fullest node, otherwise the emptiest."""

    key: Callable[[PodGroup, float], tuple[float, ...]]
    fullest: bool


def _constrained_first(group: PodGroup, choices: float) -> tuple[float, ...]:
    return not _constrained(group), choices, *(-n for n in _size(group))


def _constrained_then_small(group: PodGroup, choices: float) -> tuple[float, ...]:
    return not _constrained(group), choices, *_size(group)


def _small_first(group: PodGroup, choices: float) -> tuple[float, ...]:
    return *_size(group), choices


def _as_they_come(group: PodGroup, choices: float) -> tuple[float, ...]:
    return ()


ORDERS = (
    Order(_constrained_first, fullest=True),
    Order(_constrained_then_small, fullest=True),
    Order(_small_first, fullest=True),
    Order(_constrained_then_small, fullest=False),
    Order(_as_they_come, fullest=False),
)
"""The orders, tried until one binds all pods. The last one is the most similar to
kube-scheduler."""


def schedule(
    existing: ExistingNodes,
    counters: Counters,
    demands: Sequence[Demand],
    orders: Sequence[Order],
) -> list[int]:
    """Bind as many pods as the best order can, higher priorities first. Returns how many pods of
    each demand remain."""
    scheduler = _Scheduler(existing, counters, demands)
    before, remaining = existing.snapshot(), scheduler.run(orders[0])
    best = existing.snapshot()
    for order in orders[1:]:
        if not scheduler.contended(remaining):
            break
        existing.restore(before)
        tried = scheduler.run(order)
        if _by_priority(demands, tried) < _by_priority(demands, remaining):
            remaining, best = tried, existing.snapshot()
    existing.restore(best)
    return remaining


class _Scheduler:
    """The demands with the filter inputs of each."""

    def __init__(
        self, existing: ExistingNodes, counters: Counters, demands: Sequence[Demand]
    ) -> None:
        self._existing = existing
        self._counters = counters
        self._demands = demands
        self._filters = [[self._of(form, demand) for form in demand.forms] for demand in demands]
        self._choices = [
            float((self._room(each[-1]) > 0).sum()) if each[-1].admitted.any() else 0.0
            for each in self._filters
        ]

    def contended(self, remaining: Sequence[int]) -> bool:
        """Whether any remaining pod could have been bound if it had come first."""
        return any(n and choices for n, choices in zip(remaining, self._choices, strict=True))

    def run(self, order: Order) -> list[int]:
        """Bind pods in an order. Returns how many pods of each demand remain."""
        remaining = [len(demand.group.pods) for demand in self._demands]
        feasible = [at for at, choices in enumerate(self._choices) if choices]
        feasible.sort(key=lambda at: -self._demands[at].group.spec.priority)
        for _, level in groupby(feasible, key=lambda at: self._demands[at].group.spec.priority):
            ranked = sorted(
                level, key=lambda at: order.key(self._demands[at].group, self._choices[at])
            )
            ranked.sort(key=lambda at: self._demands[at].rank)
            self._bind_all(ranked, remaining, order.fullest)
        return remaining

    def _bind_all(self, ranked: Sequence[int], remaining: list[int], fullest: bool) -> None:
        """Bind demands one after another. Retry the demands that other pods may have made
        feasible."""
        waiting = list(ranked)
        while waiting:
            before = sum(remaining[at] for at in waiting)
            for at in waiting:
                self._bind(at, remaining, fullest)
            if sum(remaining[at] for at in waiting) == before:
                return
            waiting = [at for at in waiting if remaining[at] and self._filters[at][-1].by_domain]

    def _bind(self, at: int, remaining: list[int], fullest: bool) -> None:
        demand = self._demands[at]
        for form, filters in zip(demand.forms, self._filters[at], strict=True):
            if remaining[at] and filters.admitted.any():
                pods = form.pods[len(form.pods) - remaining[at] :]
                required = demand.forms[-1].rules
                remaining[at] -= self._put(form, required, filters, pods, fullest)

    def _put(
        self,
        form: PodGroup,
        required: Rules,
        filters: _Filters,
        pods: Sequence[str],
        fullest: bool,
    ) -> int:
        """Bind pods of one form while a node is feasible. Returns how many were bound. Only what
        they require keeps other pods off their nodes."""
        room, bound = self._room(filters), 0
        singly = filters.by_domain or not fullest
        while bound < len(pods):
            feasible, level = self._open(filters, room, len(pods) - bound)
            rows = np.flatnonzero(feasible)
            if not len(rows):
                return bound
            empty = self._existing.free_share(rows)
            ranked = rows[np.lexsort((empty if fullest else -empty, level[rows]))]
            for row in ranked[:1] if singly else ranked:
                if bound == len(pods):
                    break
                most = 1 if singly else int(min(room[row], len(pods) - bound))
                names = pods[bound : bound + most]
                batch = PodBatch.of(form, names)
                self._existing.put(int(row), batch, batch.units, (required,))
                room[row] = self._room(filters, np.array([row]))[0]
                bound += len(names)
        return bound

    def _room(self, filters: _Filters, rows: Ints | None = None) -> Floats:
        """The number of pods that fit on some nodes, considering each node alone."""
        existing = self._existing
        at = slice(None) if rows is None else rows
        room = np.where(filters.admitted[at], existing.fitting(filters.size, rows), 0)
        # One counter after another: minima along the last axis take several times as long.
        for column, counter in enumerate(filters.counted.tolist()):
            if counter not in existing.limited:
                continue
            spare = existing.limits[at, counter] - existing.counts[at, counter]
            np.minimum(room, np.where(filters.adds[at, column], spare, np.inf), out=room)
        for cap in filters.exclusions:
            there = existing.counts[at, cap.counter]
            counts = cap.counter in filters.counted
            room = (
                np.minimum(room, cap.most - there)
                if counts
                else np.where(there > cap.most, 0, room)
            )
        found: Floats = np.maximum(room, 0)
        return found

    def _open(self, filters: _Filters, room: Floats, pods: int) -> tuple[Bools, Floats]:
        """The nodes that are feasible for the next pod, and the number of counted pods in their
        domains: N."""
        feasible: Bools = room > 0
        level = np.zeros(len(feasible))
        feasible &= self._allowed_by_domain(filters)
        for spread in filters.spreads:
            sums = self._sums(spread.counter, spread.domains, spread.compared)
            enough = len(spread.found) >= max(spread.min_domains, 1)
            least = np.full(len(feasible), sums[spread.found].min() if enough else 0.0)
            there = sums[spread.domains]
            if self._existing.any_planned:
                # Another new node may join before a planned one, in any domain.
                enough = len(spread.planned) >= max(spread.min_domains, 1)
                none = spread.hostname or spread.unseen or not enough
                lowest = 0.0 if none else sums[spread.planned].min()
                least[self._existing.planned] = lowest
            feasible &= (spread.domains >= 0) & (there + spread.adds - least <= spread.max_skew)
            level += there
        if filters.affinities:
            feasible = self._near_affine_pods(filters, np.where(feasible, room, 0), pods)
        return feasible, level

    def _sums(self, counter: int, domains: Ints, among: Bools) -> Floats:
        """The number of a counter's pods by domain, on some of the nodes."""
        chosen = among & (domains >= 0)
        return np.bincount(
            domains[chosen],
            weights=self._existing.counts[chosen, counter],
            minlength=int(domains.max(initial=0)) + 1,
        )

    def _allowed_by_domain(self, filters: _Filters) -> Bools:
        """The nodes whose zone, or value of another label, no anti-affinity excludes, in either
        direction."""
        existing = self._existing
        feasible = np.ones(len(existing.nodes), dtype=bool)
        for counter in set(filters.counted.tolist()) & existing.domain_limits.keys():
            domains, there = self._there(counter)
            limits = existing.domain_limits[counter]
            feasible &= (domains < 0) | (there + 1 <= limits[domains])
        for cap in filters.domain_exclusions:
            domains, there = self._there(cap.counter)
            counts = cap.counter in filters.counted
            feasible &= (domains < 0) | (there + counts <= cap.most)
        return feasible

    def _there(self, counter: int) -> tuple[Ints, Floats]:
        """The domain of each node in the topology of a counter, and the counter's pods there: N."""
        domains = self._existing.domains_of(self._counters.topology(counter))
        sums = self._sums(counter, domains, np.ones(len(domains), dtype=bool))
        return domains, sums[domains]

    def _near_affine_pods(self, filters: _Filters, room: Floats, pods: int) -> Bools:
        """The nodes with room in the domains that the next pod's affinity requires.

        If the affinity selects no pod anywhere, the pod may be the first one. It then uses the
        domain with the most room for all its replicas, among those with enough room or where nodes
        can be launched.
        """
        feasible: Bools = room > 0
        first = []
        for counter, domains, itself, may_grow in filters.affinities:
            if self._existing.counts[:, counter].any():
                sums = self._sums(counter, domains, np.ones(len(domains), dtype=bool))
                feasible &= (domains >= 0) & (sums[domains] > 0)
            elif itself:
                first.append((domains, may_grow))
                feasible &= domains >= 0
            else:
                return np.zeros(len(feasible), dtype=bool)
        for domains, may_grow in first:
            if not feasible.any():
                break
            sums = np.bincount(domains[feasible], room[feasible], int(domains.max()) + 1)
            feasible &= (sums[domains] >= pods) | may_grow
            best = np.where(feasible, sums[domains], -1).argmax()
            feasible &= domains == domains[best]
        return feasible

    def _of(self, form: PodGroup, demand: Demand) -> _Filters:
        existing, counters, rules = self._existing, self._counters, form.rules
        counted = np.array(sorted(rules.counted), dtype=np.int64)
        adds = np.ones((len(existing.nodes), len(counted)), dtype=bool)
        for column, counter in enumerate(counted.tolist()):
            if counter in rules.conditional:
                adds[:, column] = existing.counting(counters.nodes_of(counter))
        return _Filters(
            existing.admits(form.spec),
            existing.amounts(form.spec.requests),
            counted,
            adds,
            tuple(cap for cap in rules.caps_on_node if not cap.skew),
            tuple(cap for cap in (*rules.caps_in_zone, *rules.caps_by_label) if not cap.skew),
            tuple(self._spreads(form, demand)),
            tuple(
                (
                    counter,
                    existing.domains_of(topology),
                    counter in rules.counted,
                    self._may_grow(topology, demand),
                )
                for counter, topology in counters.affinities(form.spec)
            ),
        )

    def _may_grow(self, topology: str, demand: Demand) -> Bools:
        existing = self._existing
        if topology in HANDLED_ELSEWHERE:
            growing = demand.zones if topology == ZONE else frozenset[str]()
            stuck = not demand.zones
        else:
            growing = demand.values.get(topology, frozenset())
            stuck = not growing
        if stuck:
            return np.ones(len(existing.nodes), dtype=bool)
        able = [name in growing for name in existing.domain_names(topology)]
        found: Bools = np.array([*able, False], dtype=bool)[existing.domains_of(topology)]
        return found

    def _spreads(self, form: PodGroup, demand: Demand) -> Iterator[_Spread]:
        """The spreads of a form. A node that lacks the label of any of them is counted in none."""
        existing = self._existing
        spreads = list(self._counters.spread_rules(form.spec))
        labelled = np.ones(len(existing.nodes), dtype=bool)
        for spread in spreads:
            labelled &= existing.domains_of(spread.topology) >= 0
        for spread in spreads:
            domains = existing.domains_of(spread.topology)
            compared = labelled & existing.counting(spread.domains)
            found = planned = np.unique(domains[compared])
            unseen = 0
            if offered := demand.offered.get(spread.topology):
                number = {name: n for n, name in enumerate(existing.domain_names(spread.topology))}
                known = [number[name] for name in offered if name in number]
                planned = np.union1d(found, np.array(known, dtype=np.int64))
                unseen = len(offered) - len(known)
            yield _Spread(
                spread.counter,
                spread.max_skew,
                spread.min_domains,
                domains,
                compared,
                found,
                planned,
                unseen,
                spread.counter in form.rules.counted,
                spread.topology == HOSTNAME,
            )


def _constrained(group: PodGroup) -> bool:
    spec = group.spec
    return bool(spec.spreads or spec.pod_affinity or spec.pod_anti_affinity or spec.ports)


def _size(group: PodGroup) -> list[int]:
    requests = group.spec.requests
    return [requests.of("cpu"), requests.of("memory")]


def _by_priority(demands: Sequence[Demand], remaining: Sequence[int]) -> list[int]:
    """How many pods of each priority remain, the highest priority first."""
    found: dict[int, int] = {}
    for demand, pods in zip(demands, remaining, strict=True):
        priority = demand.group.spec.priority
        found[priority] = found.get(priority, 0) + pods
    return [found[priority] for priority in sorted(found, reverse=True)]
