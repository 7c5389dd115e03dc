"""Binds pods to nodes that are there, one after another, as kube-scheduler's filters admit them.

A filter looks at the pods that are bound already, and at none that is still to come. So the order
decides how many pods find a place: several orders are tried, and the best one stays.
Sources: kube-scheduler's plugins PodTopologySpread, InterPodAffinity, NodePorts, NodeResourcesFit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from leeway.selection.labels import HOSTNAME, ZONE
from leeway.selection.packing.groups import Group, Lot
from leeway.selection.packing.standing import Standing
from leeway.selection.packing.topology import Cap, Counters
from leeway.selection.solver.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Demand:
    """Pods that wait. `forms` are the group with what it prefers required, then with that given up.
    `zones` are those where a node can be launched for it. Of one priority, those of a lower rank
    come first."""

    group: Group
    forms: tuple[Group, ...]
    zones: frozenset[str]
    rank: int = 0


@dataclass(frozen=True)
class _Even:
    """A spread that a pod minds: each node's domain, the nodes that are compared (N), and their
    domains; `adds`: whether the pod itself counts."""

    counter: int
    max_skew: int
    min_domains: int
    domains: Ints
    compared: Bools
    found: Ints
    adds: bool
    hostname: bool


@dataclass(frozen=True)
class _Filters:
    """What the filters need of one form of a group: arrays by node (N), and counters."""

    admitted: Bools
    size: Floats
    counted: Ints
    adds: Bools  # N x counted: whether a pod on this node counts
    apart: tuple[Cap, ...]  # of pods that do not count for themselves
    zone_apart: tuple[Cap, ...]
    even: tuple[_Even, ...]
    near: tuple[tuple[int, Ints, bool, Bools], ...]
    """Of each: the counter, the domains (N), whether the pod itself counts, and on which nodes the
    domain grows by nodes that can be launched for the pod, or no node can be (N)."""

    @property
    def by_domain(self) -> bool:
        """Whether each pod that is bound changes where the next one may go."""
        return bool(self.even or self.near or self.zone_apart)


@dataclass(frozen=True)
class Order:
    """In which order pods are bound, by a key of them and of the number of nodes that have room for
    one of them; and onto which nodes: the fullest that will do, or the emptiest."""

    key: Callable[[Group, float], tuple[float, ...]]
    fullest: bool


def _constrained_first(group: Group, choices: float) -> tuple[float, ...]:
    return not _constrained(group), choices, *(-n for n in _size(group))


def _constrained_then_small(group: Group, choices: float) -> tuple[float, ...]:
    return not _constrained(group), choices, *_size(group)


def _small_first(group: Group, choices: float) -> tuple[float, ...]:
    return *_size(group), choices


def _as_they_come(group: Group, choices: float) -> tuple[float, ...]:
    return ()


ORDERS = (
    Order(_constrained_first, fullest=True),
    Order(_constrained_then_small, fullest=True),
    Order(_small_first, fullest=True),
    Order(_constrained_then_small, fullest=False),
    Order(_as_they_come, fullest=False),
)
"""The orders that are tried until one finds a place for all pods. The last one is most like
kube-scheduler's own."""


def schedule(
    standing: Standing,
    counters: Counters,
    demands: Sequence[Demand],
    orders: Sequence[Order],
) -> list[int]:
    """Bind as many pods as one of the orders can, higher priorities first; returns how many of
    each of the demands have no place."""
    scheduler = _Scheduler(standing, counters, demands)
    before, left = standing.state(), scheduler.run(orders[0])
    best = standing.state()
    for order in orders[1:]:
        if not scheduler.contended(left):
            break
        standing.restore(before)
        tried = scheduler.run(order)
        if _by_priority(demands, tried) < _by_priority(demands, left):
            left, best = tried, standing.state()
    standing.restore(best)
    return left


class _Scheduler:
    """The demands, with what the filters need of each."""

    def __init__(self, standing: Standing, counters: Counters, demands: Sequence[Demand]) -> None:
        self._standing = standing
        self._counters = counters
        self._demands = demands
        self._filters = [
            [self._of(form, demand.zones) for form in demand.forms] for demand in demands
        ]
        self._choices = [
            float((self._room(each[-1]) > 0).sum()) if each[-1].admitted.any() else 0.0
            for each in self._filters
        ]

    def contended(self, left: Sequence[int]) -> bool:
        """Whether any pod without a place could have had one if it had come first."""
        return any(n and choices for n, choices in zip(left, self._choices, strict=True))

    def run(self, order: Order) -> list[int]:
        """Bind pods in an order; returns how many of each demand have no place."""
        left = [len(demand.group.pods) for demand in self._demands]
        able = [at for at, choices in enumerate(self._choices) if choices]
        able.sort(key=lambda at: -self._demands[at].group.spec.priority)
        for _, level in groupby(able, key=lambda at: self._demands[at].group.spec.priority):
            ranked = sorted(
                level, key=lambda at: order.key(self._demands[at].group, self._choices[at])
            )
            ranked.sort(key=lambda at: self._demands[at].rank)
            self._bind_all(ranked, left, order.fullest)
        return left

    def _bind_all(self, ranked: Sequence[int], left: list[int], fullest: bool) -> None:
        """Bind demands one after another; those again that others may have made room for."""
        waiting = list(ranked)
        while waiting:
            before = sum(left[at] for at in waiting)
            for at in waiting:
                self._bind(at, left, fullest)
            if sum(left[at] for at in waiting) == before:
                return
            waiting = [at for at in waiting if left[at] and self._filters[at][-1].by_domain]

    def _bind(self, at: int, left: list[int], fullest: bool) -> None:
        demand = self._demands[at]
        for form, filters in zip(demand.forms, self._filters[at], strict=True):
            if left[at] and filters.admitted.any():
                pods = form.pods[len(form.pods) - left[at] :]
                left[at] -= self._put(form, filters, pods, fullest)

    def _put(self, form: Group, filters: _Filters, pods: Sequence[str], fullest: bool) -> int:
        """Bind pods of one form while there is a place; returns how many."""
        room, bound = self._room(filters), 0
        singly = filters.by_domain or not fullest
        while bound < len(pods):
            able, level = self._open(filters, room, len(pods) - bound)
            rows = np.flatnonzero(able)
            if not len(rows):
                return bound
            empty = self._standing.emptiness(rows)
            ranked = rows[np.lexsort((empty if fullest else -empty, level[rows]))]
            for row in ranked[:1] if singly else ranked:
                most = 1 if singly else int(min(room[row], len(pods) - bound))
                names = pods[bound : bound + most]
                self._standing.put(int(row), Lot.of(form, names), tuple((n,) for n in names))
                room[row] = self._room(filters, np.array([row]))[0]
                bound += len(names)
        return bound

    def _room(self, filters: _Filters, rows: Ints | None = None) -> Floats:
        """How many pods some nodes have room for by what is on each of them alone."""
        standing = self._standing
        at = np.arange(len(standing.nodes)) if rows is None else rows
        room = np.where(filters.admitted[at], standing.fitting(filters.size, at), 0)
        if len(filters.counted):
            spare = standing.limits[np.ix_(at, filters.counted)]
            spare = spare - standing.counts[np.ix_(at, filters.counted)]
            spare = np.where(filters.adds[at], spare, np.inf)
            room = np.minimum(room, spare.min(axis=1))
        for cap in filters.apart:
            there = standing.counts[at, cap.counter]
            counts = cap.counter in filters.counted
            room = (
                np.minimum(room, cap.most - there)
                if counts
                else np.where(there > cap.most, 0, room)
            )
        found: Floats = np.maximum(room, 0)
        return found

    def _open(self, filters: _Filters, room: Floats, pods: int) -> tuple[Bools, Floats]:
        """Which nodes the next pod may go to, and how many like it their domains have: N."""
        able: Bools = room > 0
        level = np.zeros(len(able))
        able &= self._apart_by_zone(filters)
        for even in filters.even:
            sums = self._sums(even.counter, even.domains, even.compared)
            enough = len(even.found) >= max(even.min_domains, 1)
            least = np.full(len(able), sums[even.found].min() if enough else 0.0)
            there = sums[even.domains]
            if even.hostname:  # an empty node may come before one that is still to be launched
                least[self._standing.coming] = 0
            able &= (even.domains >= 0) & (there + even.adds - least <= even.max_skew)
            level += there
        if filters.near:
            able = self._beside(filters, np.where(able, room, 0), pods)
        return able, level

    def _sums(self, counter: int, domains: Ints, among: Bools) -> Floats:
        """A counter's pods by domain, on some of the nodes."""
        chosen = among & (domains >= 0)
        return np.bincount(
            domains[chosen],
            weights=self._standing.counts[chosen, counter],
            minlength=int(domains.max(initial=0)) + 1,
        )

    def _apart_by_zone(self, filters: _Filters) -> Bools:
        """The nodes in whose zone nobody is that the pod keeps apart from, or the other way."""
        standing = self._standing
        able = np.ones(len(standing.nodes), dtype=bool)
        zones = standing.domains_of(ZONE)
        everywhere = np.ones(len(zones), dtype=bool)
        for counter in set(filters.counted.tolist()) & standing.zone_limits.keys():
            sums = self._sums(counter, zones, everywhere)
            able &= (zones < 0) | (sums[zones] + 1 <= standing.zone_limits[counter][zones])
        for cap in filters.zone_apart:
            sums = self._sums(cap.counter, zones, everywhere)
            counts = cap.counter in filters.counted
            able &= (zones < 0) | (sums[zones] + counts <= cap.most)
        return able

    def _beside(self, filters: _Filters, room: Floats, pods: int) -> Bools:
        """The nodes with room that are near the pods that the next one has to be near.

        Where there are none of these pods anywhere, it may be the first itself: in the domain with
        most room for all of its like, of those with enough or where nodes can be launched.
        """
        able: Bools = room > 0
        first = []
        for counter, domains, own, grows in filters.near:
            if self._standing.counts[:, counter].any():
                sums = self._sums(counter, domains, np.ones(len(domains), dtype=bool))
                able &= (domains >= 0) & (sums[domains] > 0)
            elif own:
                first.append((domains, grows))
                able &= domains >= 0
            else:
                return np.zeros(len(able), dtype=bool)
        for domains, grows in first:
            if not able.any():
                break
            sums = np.bincount(domains[able], room[able], int(domains.max()) + 1)
            able &= (sums[domains] >= pods) | grows
            best = np.where(able, sums[domains], -1).argmax()
            able &= domains == domains[best]
        return able

    def _of(self, form: Group, zones: frozenset[str]) -> _Filters:
        standing, counters, rules = self._standing, self._counters, form.rules
        counted = np.array(sorted(rules.counted), dtype=np.int64)
        adds = np.ones((len(standing.nodes), len(counted)), dtype=bool)
        for column, counter in enumerate(counted.tolist()):
            if counter in rules.unsure:
                adds[:, column] = standing.counting(counters.nodes_of(counter))
        return _Filters(
            standing.admits(form.spec),
            standing.amounts(form.spec.requests),
            counted,
            adds,
            tuple(cap for cap in rules.on_node if not cap.skew),
            tuple(cap for cap in rules.in_zone if not cap.skew),
            tuple(self._even(form)),
            tuple(
                (
                    counter,
                    standing.domains_of(topology),
                    counter in rules.counted,
                    self._grows(topology, zones),
                )
                for counter, topology in counters.near(form.spec)
            ),
        )

    def _grows(self, topology: str, zones: frozenset[str]) -> Bools:
        standing = self._standing
        if not zones:
            return np.ones(len(standing.nodes), dtype=bool)
        return np.array([topology == ZONE and zone in zones for zone in standing.zones], dtype=bool)

    def _even(self, form: Group) -> Iterator[_Even]:
        """A form's spreads. A node that lacks the label of any of them counts in none."""
        standing = self._standing
        spreads = list(self._counters.evenness(form.spec))
        labelled = np.ones(len(standing.nodes), dtype=bool)
        for even in spreads:
            labelled &= standing.domains_of(even.topology) >= 0
        for even in spreads:
            domains = standing.domains_of(even.topology)
            compared = labelled & standing.counting(even.domains)
            yield _Even(
                even.counter,
                even.max_skew,
                even.min_domains,
                domains,
                compared,
                np.unique(domains[compared]),
                even.counter in form.rules.counted,
                even.topology == HOSTNAME,
            )


def _constrained(group: Group) -> bool:
    spec = group.spec
    return bool(spec.spreads or spec.near or spec.apart or spec.ports)


def _size(group: Group) -> list[int]:
    requests = group.spec.requests
    return [requests.of("cpu"), requests.of("memory")]


def _by_priority(demands: Sequence[Demand], left: Sequence[int]) -> list[int]:
    """How many pods of each priority have no place, the highest first."""
    found: dict[int, int] = {}
    for demand, pods in zip(demands, left, strict=True):
        priority = demand.group.spec.priority
        found[priority] = found.get(priority, 0) + pods
    return [found[priority] for priority in sorted(found, reverse=True)]
