"""Karpenter's published rules, as decisions of a simulated day: first fit, then disruption.

Written from its documentation, its designs and its suites of August 2026, for what the simulated
workload asks: resources, taints, node requirements, spreads over zones and anti-affinity by
hostname. It is the better Karpenter in what a simulation leaves out: no decision takes time, each
loop of disruption ends in the 15 seconds of its validation, and none is lost.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from leeway.disruption import reasons
from leeway.disruption.rules import Cause
from leeway.disruption.snapshot import NodeReturn
from leeway.reasons import some
from leeway.selection.labels import CAPACITY_TYPES, HOSTNAME, SPOT, ZONE
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import PodSpec, PodTerm
from leeway.selection.resources import Resources
from leeway.selection.solver.problem import Bools, Floats, Ints
from leeway_cli.simulated_day.cluster import MIDNIGHT, Cluster, Machine, SimulatedPod
from leeway_cli.simulated_day.day import MINUTE, begin, chosen_by_ec2, start
from leeway_cli.simulated_day.workload import catalog, supply

RESOURCES = ("cpu", "memory", "pods")

LOOPS = 4
"""Disruptions in a minute: each is validated for 15 seconds before the next one. Source:
`controllers/disruption/consolidation.go`, commandValidationDelay."""

MOST_TYPES = 60
"""Instance types of a launch request, the cheapest ones. Source:
`controllers/provisioning/scheduling`, MaxInstanceTypes."""

SPOT_TYPES = 15
"""Cheaper types without which one Spot node is not replaced with Spot. Source: documentation,
"Spot consolidation"."""

MOST_TOGETHER = 100
"""Nodes that are consolidated together."""

BALANCED = 2
"""A move is approved if its part of the pool's price is at least one of so many parts of its part
of the pool's disruption. Source: `apis/v1/nodepool.go`, BalancedK."""


@dataclass
class Claim:
    """A node that is not launched yet: the pods on it, and the offerings that still hold them."""

    offerings: Bools
    requests: Floats
    pods: list[SimulatedPod] = field(default_factory=list)


@dataclass(frozen=True)
class Solution:
    """Where pods go: by the names of nodes, to new ones, or nowhere."""

    placed: Mapping[str, str]
    claims: Sequence[Claim]
    homeless: Sequence[SimulatedPod]


class Scheduling:
    """Places pods first fit, the largest CPU first: on nodes that exist, in their order; on new
    ones with the fewest pods; on a further one. Source: `controllers/provisioning/scheduling`,
    `scheduler.go` and `queue.go`.

    `nodes` take pods; pods of `leaving` nodes are not counted in spreads. `resting` nodes take only
    the pods that have to move anyway.
    """

    def __init__(
        self,
        offered: Supply,
        nodes: Sequence[Machine],
        minute: int,
        resting: Iterable[str] = (),
    ) -> None:
        self._offered = offered
        self._nodes = sorted(nodes, key=lambda one: (not one.is_ready(minute), one.name))
        kept = frozenset(resting)
        self._resting = np.array([one.name in kept for one in self._nodes], dtype=bool)
        self._free = np.array([_amounts(one.free) for one in self._nodes], dtype=float)
        self._free = self._free.reshape(-1, len(RESOURCES))
        self._zone = np.array([one.labels[ZONE] for one in self._nodes])
        self._claims: list[Claim] = []
        self._able: dict[PodSpec, Bools] = {}
        self._of_zone: dict[PodTerm, Counter[str]] = {}
        self._apart: dict[PodTerm, Bools] = {}

    def solve(self, pods: Iterable[SimulatedPod], moved: frozenset[str] = frozenset()) -> Solution:
        """Place pods; `moved` are the names of those that would not have to move."""
        placed: dict[str, str] = {}
        homeless = []
        for pod in sorted(pods, key=_size):
            number = self._first_node(pod, pod.pod.name in moved)
            if number is not None:
                placed[pod.pod.name] = self._nodes[number].name
            elif not self._on_claim(pod):
                homeless.append(pod)
        return Solution(placed, self._claims, homeless)

    def _first_node(self, pod: SimulatedPod, moved: bool) -> int | None:
        spec, requests = pod.pod.spec, _amounts(pod.pod.spec.requests)
        able = self._compatible(spec) & (self._free >= requests).all(axis=1)
        if moved:
            able &= ~self._resting
        for spread in spec.spreads:
            able &= np.isin(self._zone, self._open_zones(spread.pods, spread.max_skew, spec))
        for term in spec.pod_anti_affinity:
            able &= ~self._holding(term)
        if not able.any():
            return None
        number = int(np.argmax(able))
        self._free[number] -= requests
        self._count(spec, str(self._zone[number]))
        for term, holding in self._apart.items():
            holding[number] |= term.selects(spec)
        return number

    def _on_claim(self, pod: SimulatedPod) -> bool:
        spec, requests = pod.pod.spec, np.array(_amounts(pod.pod.spec.requests), dtype=float)
        allowed = self._offered.allowed(spec)
        fresh = (Claim(pool, np.zeros(len(RESOURCES))) for pool in self._pools)
        for claim in (*sorted(self._claims, key=lambda one: len(one.pods)), *fresh):
            if any(
                term.selects(other.pod.spec)
                for term in spec.pod_anti_affinity
                for other in claim.pods
            ):
                continue
            total = claim.requests + requests
            left = claim.offerings & allowed & (self._capacity >= total).all(axis=1)
            for spread in spec.spreads:
                left = self._in_least_zone(left, spread.pods, spread.max_skew, spec)
            if left.any():
                claim.offerings, claim.requests = left, total
                if not claim.pods:
                    self._claims.append(claim)
                claim.pods.append(pod)
                zones = {self._offered.zone_names[zone] for zone in self._offered.zones[left]}
                if len(zones) == 1:
                    self._count(spec, zones.pop())
                return True
        return False

    def _in_least_zone(self, left: Bools, term: PodTerm, skew: int, spec: PodSpec) -> Bools:
        names = self._offered.zone_names
        counts = self._counts(term)
        able = [
            zone
            for zone in self._open_zones(term, skew, spec)
            if (left & (self._offered.zones == names.index(zone))).any()
        ]
        if not able:
            return np.zeros_like(left)
        least = min(able, key=lambda zone: (counts[zone], zone))
        found: Bools = left & (self._offered.zones == names.index(least))
        return found

    def _open_zones(self, term: PodTerm, skew: int, spec: PodSpec) -> list[str]:
        counts = self._counts(term)
        most = min(counts[zone] for zone in self._offered.zone_names) + skew - term.selects(spec)
        return [zone for zone in self._offered.zone_names if counts[zone] <= most]

    def _counts(self, term: PodTerm) -> Counter[str]:
        if term not in self._of_zone:
            counts: Counter[str] = Counter()
            for one in self._nodes:
                counts[one.labels[ZONE]] += _selected(term, one)
            self._of_zone[term] = counts
        return self._of_zone[term]

    def _count(self, spec: PodSpec, zone: str) -> None:
        for term, counts in self._of_zone.items():
            counts[zone] += term.selects(spec)

    def _holding(self, term: PodTerm) -> Bools:
        if term not in self._apart:
            assert term.topology == HOSTNAME
            self._apart[term] = np.array([_selected(term, one) > 0 for one in self._nodes], bool)
        return self._apart[term]

    def _compatible(self, spec: PodSpec) -> Bools:
        if spec not in self._able:
            self._able[spec] = np.array(
                [
                    spec.untolerated(one.offering.pool.taints) is None
                    and (not spec.terms or any(term.admits(one.labels) for term in spec.terms))
                    for one in self._nodes
                ],
                dtype=bool,
            )
        return self._able[spec]

    @cached_property
    def _capacity(self) -> Floats:
        return self._offered.capacity(RESOURCES)

    @cached_property
    def _pools(self) -> list[Bools]:
        return [self._offered.of_pool == number for number in range(len(self._offered.pools))]


def _selected(term: PodTerm, machine: Machine) -> int:
    return sum(term.selects(one.pod.spec) for one in machine.pods.values())


def _amounts(of: Resources) -> tuple[int, ...]:
    return tuple(of.of(name) for name in RESOURCES)


def _size(pod: SimulatedPod) -> tuple[int, int, int, str]:
    requests = pod.pod.spec.requests
    return (-requests.of("cpu"), -requests.of("memory"), pod.created_at, pod.pod.name)


@dataclass
class Karpenter:
    """Decides as Karpenter does. `spot_to_spot`: its feature gate SpotToSpotConsolidation.
    `balanced`: `consolidationPolicy: Balanced`."""

    spot_to_spot: bool = False
    balanced: bool = False
    _successors: dict[str, str] = field(default_factory=dict)
    _expecting: frozenset[str] = frozenset()

    def may_drain(self, cluster: Cluster, one: Machine) -> bool:
        """Whether the successor of a node is Ready. If EC2 took it, the node stays."""
        successor = cluster.machines.get(self._successors[one.name])
        if successor is None or successor.reclaimed_at is not None:
            one.retirement = None
            return False
        return successor.is_ready(cluster.minute)

    def launch(self, cluster: Cluster) -> None:
        """Launch nodes for pending pods, and for pods of nodes that go."""
        pods = [*cluster.controllers.pending, *_leaving(cluster)]
        if not pods:
            self._expecting = frozenset()
            return
        offered = _offered(cluster)
        nodes = [one for one in cluster.machines.values() if not one.going]
        solution = Scheduling(offered, nodes, cluster.minute).solve(pods)
        for claim in solution.claims:
            _launch(cluster, claim.offerings, offered, claim.pods)
        self._expecting = frozenset(solution.placed.values())

    def give_back(self, cluster: Cluster) -> None:
        """Disrupt empty nodes, else several together, else one, as often as a minute allows."""
        for _ in range(LOOPS):
            round_ = _Round(self, cluster)
            if not (round_.remove_empty() or round_.consolidate_several() or round_.consolidate()):
                return

    def expects(self, one: Machine) -> bool:
        """Whether pods are about to be bound to a node."""
        return one.name in self._expecting

    def replaced_by(self, nodes: Iterable[Machine], successor: Machine) -> None:
        """Remember for which node others wait."""
        self._successors.update(dict.fromkeys((one.name for one in nodes), successor.name))


def _leaving(cluster: Cluster) -> Iterator[SimulatedPod]:
    for one in cluster.machines.values():
        if one.going:
            yield from one.pods.values()


def _offered(cluster: Cluster) -> Supply:
    if not cluster.closed:
        return supply(cluster.options.seed, cluster.hour)
    return Supply(cluster.pools, catalog(cluster.options.seed, cluster.hour), cluster.closed)


def _launch(
    cluster: Cluster,
    offerings: Bools,
    offered: Supply,
    pods: Sequence[SimulatedPod],
    replaces: Iterable[str] = (),
) -> Machine:
    """Launch a node: Spot where an offering is Spot, by the price of the types."""
    order = offered.by_price(np.flatnonzero(offerings))
    cheapest = _by_type(offered, order)
    able = frozenset(cheapest[:MOST_TYPES])
    spot = CAPACITY_TYPES.index(SPOT)
    order = np.array([at for at in order if offered.candidates[at].type.name in able])
    of_spot = order[offered.capacity_types[order] == spot]
    order = of_spot if len(of_spot) else order
    first = offered.candidates[order[0]]
    zone = offered.zones[order] == offered.zones[order[0]]
    kinds = _by_type(offered, order[zone])
    chosen = chosen_by_ec2(cluster, first.pool.name, kinds, first, offered)
    return start(cluster, chosen, offered, pods, replaces)


def _by_type(offered: Supply, order: Ints) -> list[str]:
    """The types of offerings, each once, in their order."""
    return list(dict.fromkeys(offered.candidates[at].type.name for at in order))


class _Round:
    """One loop of the disruption controller: one method acts at most.

    Source: `controllers/disruption`, `controller.go`, `consolidation.go` and its two methods.
    """

    def __init__(self, by: Karpenter, cluster: Cluster) -> None:
        self._by = by
        self._cluster = cluster
        self._offered = _offered(cluster)
        self._nodes = [one for one in cluster.machines.values() if not one.going]
        self._resting = [one.name for one in self._nodes if not self._is_quiet(one)]
        found = [one for one in self._nodes if self._is_candidate(one)]
        self._candidates = sorted(found, key=self._ratio)

    def remove_empty(self) -> bool:
        """Delete empty nodes within the budgets; False if there are none."""
        empty = [one for one in self._within(self._candidates, Cause.EMPTY) if not one.pods]
        for one in empty:
            price = self._cluster.price(one)
            since = MIDNIGHT + one.quiet_since * MINUTE
            reason = reasons.NODE_EMPTY(node=one.name, since=since, saving=price)
            begin(self._cluster, NodeReturn((one.name,), Cause.EMPTY, reason, price))
        return bool(empty)

    def consolidate_several(self) -> bool:
        """Find by bisection how many of the best candidates one node or none can replace."""
        able = self._within(
            [one for one in self._candidates if one.pods and not self._only_empty],
            Cause.UNDERUTILIZED,
        )[:MOST_TOGETHER]
        least, most = 2, len(able)
        best: tuple[Sequence[Machine], Claim | None] | None = None
        while least <= most:
            middle = (least + most) // 2
            found = self._option(able[:middle])
            if found is not None:
                best, least = (able[:middle], found[0]), middle + 1
            else:
                most = middle - 1
        if best is not None:
            self._disrupt(*best)
        return best is not None

    def consolidate(self) -> bool:
        """Replace or delete the first candidate that can be."""
        for one in self._candidates:
            if one.pods and not self._only_empty and self._within([one], Cause.UNDERUTILIZED):
                found = self._option([one])
                if found is not None:
                    self._disrupt([one], found[0])
                    return True
        return False

    @property
    def _only_empty(self) -> bool:
        return self._cluster.options.only_empty

    def _is_quiet(self, one: Machine) -> bool:
        return (self._cluster.minute - one.quiet_since) * MINUTE >= self._cluster.options.after

    def _is_candidate(self, one: Machine) -> bool:
        allows = self._cluster.controllers.allows_eviction
        return (
            one.is_ready(self._cluster.minute)
            and self._is_quiet(one)
            and not self._by.expects(one)
            and not any(pod.protected or not allows(pod) for pod in one.pods.values())
        )

    def _ratio(self, one: Machine) -> tuple[float, str]:
        """What a node saves for its disruption, the most first: one for the node and one for each
        of its pods."""
        return -self._cluster.price(one) / (1 + len(one.pods)), one.name

    def _within(self, candidates: Iterable[Machine], cause: Cause) -> list[Machine]:
        """The candidates that the budgets of their pools allow."""
        now = self._cluster.minute
        left: dict[str, int] = {}
        for pool in self._cluster.pools:
            fellows = [
                one
                for one in self._cluster.machines.values()
                if one.is_ready(now) and one.offering.pool.name == pool.name
            ]
            going = sum(one.going for one in fellows)
            limits = (budget.limit(len(fellows)) for budget in self._cluster.options.budgets)
            left[pool.name] = min(limits, default=len(fellows)) - going
        found = []
        for one in candidates:
            if (not one.pods) is (cause is Cause.EMPTY) and left[one.offering.pool.name] > 0:
                left[one.offering.pool.name] -= 1
                found.append(one)
        return found

    def _option(self, nodes: Sequence[Machine]) -> tuple[Claim | None] | None:
        """Return the new node that replaces nodes, None in a tuple if none is needed; None if that
        is impossible or saves nothing."""
        names = {one.name for one in nodes}
        stay = [one for one in self._nodes if one.name not in names]
        moving = [pod for one in nodes for pod in one.pods.values()]
        mine = frozenset(pod.pod.name for pod in moving)
        others = [*self._cluster.controllers.pending, *_leaving(self._cluster)]
        scheduling = Scheduling(self._offered, stay, self._cluster.minute, self._resting)
        solution = scheduling.solve([*others, *moving], mine)
        starting = {one.name for one in stay if not one.is_ready(self._cluster.minute)}
        if any(pod.pod.name in mine for pod in solution.homeless):
            return None
        if any(solution.placed.get(name) in starting for name in mine):
            return None
        if not solution.claims:
            return (None,) if self._is_approved(nodes, 0.0) else None
        if len(solution.claims) > 1:
            return None
        claim = solution.claims[0]
        claim.offerings = self._cheaper(claim.offerings, nodes)
        if not claim.offerings.any():
            return None
        price = float(self._offered.prices[claim.offerings].min())
        return (claim,) if self._is_approved(nodes, price) else None

    def _cheaper(self, offerings: Bools, nodes: Sequence[Machine]) -> Bools:
        """The offerings of the types that certainly cost less than the nodes."""
        spot = self._offered.capacity_types == CAPACITY_TYPES.index(SPOT)
        none = np.zeros_like(offerings)
        all_spot = all(one.kind[1] == SPOT for one in nodes)
        by_spot = bool((offerings & spot).any())
        if all_spot and by_spot and not self._by.spot_to_spot:
            return none
        able = offerings & spot if by_spot else offerings
        price = sum(map(self._cluster.price, nodes))
        if len(nodes) > 1:
            price = min(price, self._cheapest_alike(able, nodes))
        worst: dict[int, float] = {}
        for at in np.flatnonzero(able):
            kind = int(self._offered.of_type[at])
            worst[kind] = max(worst.get(kind, 0.0), float(self._offered.prices[at]))
        cheaper = sorted((cost, kind) for kind, cost in worst.items() if cost < price)
        if all_spot and by_spot and len(nodes) == 1:
            if len(cheaper) < SPOT_TYPES:
                return none
            cheaper = cheaper[:SPOT_TYPES]
        found: Bools = able & np.isin(self._offered.of_type, [kind for _, kind in cheaper])
        return found

    def _cheapest_alike(self, offerings: Bools, nodes: Sequence[Machine]) -> float:
        """The price of the cheapest of the nodes whose type could be launched again: it is kept
        rather than replaced with a like one."""
        kinds = {self._offered.type_names[at] for at in self._offered.of_type[offerings]}
        alike = (self._cluster.price(one) for one in nodes if one.kind[0] in kinds)
        return min(alike, default=float("inf"))

    def _is_approved(self, nodes: Sequence[Machine], successor: float) -> bool:
        """Whether a move saves enough for what it disrupts. Source: `balanced.go`."""
        if not self._by.balanced:
            return True
        source = sum(map(self._cluster.price, nodes))
        for pool in {one.offering.pool.name for one in nodes}:
            own = [one for one in nodes if one.offering.pool.name == pool]
            every = [one for one in self._nodes if one.offering.pool.name == pool]
            share = sum(map(self._cluster.price, own)) / source
            saved = (source - successor) * share / sum(map(self._cluster.price, every))
            disrupted = sum(1 + len(one.pods) for one in own)
            disrupted_part = disrupted / sum(1 + len(one.pods) for one in every)
            if saved < disrupted_part / BALANCED:
                return False
        return True

    def _disrupt(self, nodes: Sequence[Machine], claim: Claim | None) -> None:
        names = tuple(one.name for one in nodes)
        price = sum(map(self._cluster.price, nodes))
        moves = sum(len(one.pods) for one in nodes)
        successor = None
        if claim is not None:
            mine = [pod for pod in claim.pods if pod.node in names]
            successor = _launch(self._cluster, claim.offerings, self._offered, mine, names)
            self._by.replaced_by(nodes, successor)
        saving = price - (self._cluster.price(successor) if successor else 0.0)
        reason = reasons.NODE_NOT_NEEDED(
            node=some(names), pods=moves, targets="others", saving=saving
        )
        replaced = successor is not None
        begin(
            self._cluster,
            NodeReturn(names, Cause.UNDERUTILIZED, reason, saving, moves, replaced),
        )
