"""Where the pods of nodes would go if the nodes went: simulated with the packing that launches, and
drafted before by resources only, which is quick."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from leeway.disruption.snapshot import OwnNode, Snapshot
from leeway.selection.labels import HOSTNAME
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.on_demand import Balances
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.packing.pod_groups import has_preferences, with_preferences_required
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec, PodTerm, Spread
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources
from leeway.selection.solver.problem import Bools, Floats

SIMULATED = Effort(improvements=0)
"""The effort of a simulation. A replacement is one node, which no improvement makes cheaper."""


@lru_cache(maxsize=8)
def _supply(
    pools: tuple[NodePool, ...],
    catalog: Catalog,
    unavailable: frozenset[Unavailable],
    daemons: tuple[PodSpec, ...],
) -> Supply:
    """The supply, which a warm function uses again: it takes longer to build than to pack."""
    return Supply(pools, catalog, unavailable, daemons)


@dataclass
class Moving:
    """Simulates what becomes of pods if some nodes go."""

    snapshot: Snapshot

    @cached_property
    def _open(self) -> tuple[ExistingNode, ...]:
        """The nodes that can take pods that wait."""
        own = (one.node for one in self.snapshot.own if not one.going)
        awaited = self.snapshot.awaited
        return (*own, *(one for one in self.snapshot.others if one.name not in awaited))

    @cached_property
    def nodes(self) -> tuple[ExistingNode, ...]:
        """The same nodes for pods of nodes that are consolidated: some of them are full, with the
        pods that wait and have their place there."""
        full = self._full
        if not full:
            return self._open
        plan, specs = self._plan_for_homeless, {pod.name: pod.spec for pod in self.homeless}
        placed = plan.existing if plan else ()
        expected = {one.node: [specs[pod] for pod in one.pods] for one in placed}
        return tuple(
            one.full(expected.get(one.name, ())) if one.name in full else one for one in self._open
        )

    @cached_property
    def closed(self) -> int:
        """How many nodes take pods that wait, and none of nodes that are consolidated."""
        return sum(one.name in self._full for one in self._open)

    @cached_property
    def _full(self) -> frozenset[str]:
        own = (one.name for one in self.snapshot.own if self.snapshot.is_full(one))
        return self.snapshot.starting.union(own)

    @cached_property
    def balances(self) -> Balances:
        """The on-demand shares of the pools, without the nodes that go."""
        return Balances.among(self.snapshot.pools, self._open)

    def keeping_shares(
        self, nodes: Iterable[OwnNode], gone: Iterable[OwnNode] = ()
    ) -> list[OwnNode]:
        """Return those of some nodes that may go, one after another, without a pool missing more
        on-demand capacity. `gone` are nodes that go before them."""
        balances = self.balances.changed((one.node for one in gone), -1)
        kept: list[OwnNode] = []
        for one in nodes:
            after = balances.changed([one.node], -1)
            if balances.are_kept_by(after):
                balances = after
                kept.append(one)
        return kept

    def after(self, gone: Iterable[OwnNode], plan: Plan) -> Balances:
        """Return the on-demand shares after nodes have gone and those of a plan have come."""
        found = self.balances.changed((one.node for one in gone), -1)
        for new in plan.launches:
            offering, cpu = new.cheapest.offering, new.cheapest.type.capacity.of("cpu")
            found = found.plus(new.pool, offering.capacity_type, cpu)
        return found

    @property
    def offers(self) -> Supply:
        """What could be launched: nothing of pools in doubt."""
        return self._supply_of(self._trusted)

    def _offers_without(self, gone: Collection[OwnNode]) -> Supply:
        """What could be launched in place of nodes: nothing of other pools that are full."""
        full = self._full_pools - {one.pool for one in gone}
        if not full:
            return self.offers
        return self._supply_of(tuple(one for one in self._trusted if one.name not in full))

    @property
    def _trusted(self) -> tuple[NodePool, ...]:
        doubted = self.snapshot.doubted
        return tuple(one for one in self.snapshot.pools if one.name not in doubted)

    @cached_property
    def _full_pools(self) -> frozenset[str]:
        """The pools whose limit in money has no room for one more node."""
        return frozenset(
            limit.pool
            for limit in self.snapshot.spending_limits
            if not any(
                one.pool.name == limit.pool and one.price <= limit.left
                for one in self.offers.candidates
            )
        )

    @property
    def _nothing(self) -> Supply:
        """What could be launched if nothing were allowed: spreads still compare its zones."""
        return self._supply_of(tuple(replace(p, limits={"nodes": 0}) for p in self.snapshot.pools))

    def _supply_of(self, pools: tuple[NodePool, ...]) -> Supply:
        snapshot = self.snapshot
        return _supply(pools, snapshot.catalog, snapshot.unavailable, snapshot.daemons)

    @cached_property
    def homeless(self) -> tuple[Pod, ...]:
        """The pods that need a place anyway: those that wait, and those of nodes that go."""
        going = (m.pod for one in self.snapshot.own if one.going for m in one.pods)
        return (*self.snapshot.waiting, *going)

    @cached_property
    def _plan_for_homeless(self) -> Plan | None:
        """Where they go if no further node goes; None if there are none."""
        nodes = self._without((), self._open)
        return pack(self.homeless, self._nothing, nodes) if self.homeless else None

    def _to_place(self, full: Collection[str]) -> list[Pod]:
        """The homeless pods that have their place on nodes which are not full."""
        plan = self._plan_for_homeless
        if plan is None:
            return []
        placed = {pod for one in plan.existing if one.node not in full for pod in one.pods}
        return [pod for pod in self.homeless if pod.name in placed]

    @cached_property
    def expected(self) -> dict[str, int]:
        """How many of the homeless pods have their place on each node."""
        plan = self._plan_for_homeless
        return {one.node: len(one.pods) for one in plan.existing} if plan else {}

    def without(
        self,
        gone: Collection[OwnNode],
        launch: bool,
        loose: Collection[str] = (),
        consolidates: bool = True,
    ) -> Plan:
        """Plan for the pods of nodes that are gone, on the nodes that stay; with `launch`, on new
        ones too, which are launched while the nodes that go still count against limits.

        Nodes that go take no pods, but spreads compare them as long as they exist. The pods keep
        the preferences that hold where they are, except for those of the pods `loose`. Only pods of
        nodes that are replaced for another reason than consolidation come to nodes that are full
        for it.
        """
        placed = self._to_place(self._full if consolidates else ())
        for one in gone:
            for pod in (movable.pod for movable in one.pods):
                kept = pod.spec if pod.name in loose else self._as_here(pod.spec, one.node)
                placed.append(Pod(pod.name, kept))
        offers = self._offers_without(gone) if launch else self._nothing
        nodes = self._without(gone, self.nodes if consolidates else self._open)
        balances = self.balances.changed((one.node for one in gone), -1)
        return pack(placed, offers, nodes, effort=SIMULATED, balances=balances)

    def _without(
        self, gone: Collection[OwnNode], nodes: Iterable[ExistingNode]
    ) -> tuple[ExistingNode, ...]:
        """The nodes if some are gone: they and those that go anyway take no pods."""
        names = {one.name for one in gone}
        leaving = (one for one in self.snapshot.own if one.going or one.name in names)
        staying = (one for one in nodes if one.name not in names)
        return (*staying, *(one.node.closed() for one in leaving))

    def pays(self, one: OwnNode, broken: int = 0) -> bool:
        """Whether the price of a node is worth the moves of its pods to nodes that stay, if so many
        of them lose preferences."""
        snapshot, price = self.snapshot, one.price or 0.0
        return snapshot.worth.pays(price, len(one.pods), snapshot.quiet([one]), broken)

    def prefers(self, pod: Pod, node: ExistingNode) -> bool:
        """Whether a pod of a node has a preference that holds there."""
        return self._as_here(pod.spec, node) is not pod.spec

    def _as_here(self, spec: PodSpec, node: ExistingNode) -> PodSpec:
        """Return a pod of a node that requires its preferences which hold there."""
        if not has_preferences(spec):
            return spec
        held = replace(
            spec,
            preferred_terms=tuple(
                w for w in spec.preferred_terms if w.preference.admits(node.labels)
            ),
            preferred_pod_affinity=tuple(
                w for w in spec.preferred_pod_affinity if self._beside(w.preference, spec, node)
            ),
            preferred_pod_anti_affinity=tuple(
                w
                for w in spec.preferred_pod_anti_affinity
                if not self._beside(w.preference, spec, node)
            ),
            spreads=tuple(
                one for one in spec.spreads if one.required or self._is_spread(one, spec, node)
            ),
        )
        return _requiring(spec, held) if has_preferences(held) else spec

    def _beside(self, term: PodTerm, spec: PodSpec, node: ExistingNode) -> int:
        """How many other pods that a term selects are in the domain of a node."""
        domain = _domain(node, term.topology)
        there = self._selected(term)[domain] if domain is not None else 0
        return there - (there > 0 and term.selects(spec))

    def _is_spread(self, spread: Spread, spec: PodSpec, node: ExistingNode) -> bool:
        counts = self._selected(spread.pods)
        key = spread.pods, spec.own_terms if spread.honors_affinity else ()
        if key not in self._least:
            compared = (one for one in self._everywhere if _is_within(key[1], one))
            domains = {_domain(one, spread.pods.topology) for one in compared} - {None}
            self._least[key] = min((counts[one] for one in domains), default=0)
        return counts[_domain(node, spread.pods.topology)] - self._least[key] <= spread.max_skew

    @cached_property
    def _least(self) -> dict[tuple[PodTerm, tuple[Requirements, ...]], int]:
        """The least number of pods that a term selects in a domain of nodes that match terms."""
        return {}

    @cached_property
    def _everywhere(self) -> tuple[ExistingNode, ...]:
        return (*(one.node for one in self.snapshot.own), *self.snapshot.others)

    @cached_property
    def _pods_by_labels(self) -> Mapping[object, tuple[PodSpec, Counter[int]]]:
        """For each set of labels in a namespace: a pod, and how many are on each node."""
        found: dict[object, tuple[PodSpec, Counter[int]]] = {}
        for row, node in enumerate(self._everywhere):
            for pod in node.pods:
                key = pod.namespace, frozenset(pod.labels.items())
                found.setdefault(key, (pod, Counter()))[1][row] += 1
        return found

    @cached_property
    def _counts(self) -> dict[PodTerm, Counter[str | None]]:
        return {}

    def _selected(self, term: PodTerm) -> Counter[str | None]:
        """How many pods a term selects in each domain."""
        if term not in self._counts:
            counts = self._counts[term] = Counter()
            for pod, rows in self._pods_by_labels.values():
                if term.selects(pod):
                    for row, pods in rows.items():
                        counts[_domain(self._everywhere[row], term.topology)] += pods
        return self._counts[term]


def _domain(node: ExistingNode, topology: str) -> str | None:
    return node.name if topology == HOSTNAME else node.labels.get(topology)


@lru_cache(maxsize=4096)
def _requiring(spec: PodSpec, held: PodSpec) -> PodSpec:
    """Return the pod `held` with its preferences required, and the others of `spec` as they are.
    Equal pods stay one object, which packing needs to be quick."""

    def other[T](now: tuple[T, ...], required: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(one for one in now if one not in required)

    required = with_preferences_required(held)
    return replace(
        required,
        preferred_terms=other(spec.preferred_terms, held.preferred_terms),
        preferred_pod_affinity=other(spec.preferred_pod_affinity, held.preferred_pod_affinity),
        preferred_pod_anti_affinity=other(
            spec.preferred_pod_anti_affinity, held.preferred_pod_anti_affinity
        ),
        spreads=(*required.spreads, *other(spec.spreads, held.spreads)),
    )


def pods_of(nodes: Iterable[OwnNode]) -> tuple[Pod, ...]:
    """Return the pods of nodes that need another place if the nodes go."""
    return tuple(movable.pod for one in nodes for movable in one.pods)


class Room:
    """The free resources of nodes (R x N), each as a share of what the largest node has."""

    def __init__(self, nodes: Sequence[ExistingNode]) -> None:
        self._nodes = nodes
        names = sorted({name for node in nodes for pod in node.pods for name in pod.requests})
        largest = [max((node.allocatable.of(name) for node in nodes), default=1) for name in names]
        self._of_amounts: dict[Resources, Floats] = {}
        self._sums: dict[Resources, float] = {}
        self._scale = {name: max(most, 1) for name, most in zip(names, largest, strict=True)}
        left = np.array([self._left(node) for node in nodes]).reshape(len(nodes), len(names))
        self._free = np.ascontiguousarray(left.T)
        self._here = np.ones(len(nodes), dtype=bool)
        self._admitted: dict[object, Bools] = {}

    def _left(self, node: ExistingNode) -> Floats:
        left = self._shares(node.allocatable) - self._shares(node.terminating)
        for pod in node.pods:
            left -= self._shares(pod.requests)
        return left

    def _shares(self, amounts: Resources) -> Floats:
        if amounts not in self._of_amounts:
            shares = [amounts.of(name) / most for name, most in self._scale.items()]
            self._of_amounts[amounts] = np.array(shares)
        return self._of_amounts[amounts]

    def _sum(self, amounts: Resources) -> float:
        if amounts not in self._sums:
            self._sums[amounts] = float(self._shares(amounts).sum())
        return self._sums[amounts]

    def place(self, pods: Sequence[PodSpec], row: int) -> set[int] | None:
        """Place the pods of a node on the others, each where the least room is left; return their
        rows, and None, changing nothing, if one does not fit."""
        before = self._free.copy()
        self._here[row] = False
        rows: set[int] = set()
        for pod in self._largest_first(pods):
            best = self._place(pod)
            if best is None:
                self._free, self._here[row] = before, True
                return None
            rows.add(best)
        return rows

    def leftover(self, pods: Sequence[PodSpec], gone: Collection[int]) -> list[PodSpec]:
        """Return the pods of nodes, by their rows, that fit on no other node; change nothing."""
        before = self._free.copy()
        self._here[list(gone)] = False
        left: list[PodSpec] = []
        without_room: set[object] = set()
        for pod in self._largest_first(pods):
            kind = (pod.requests, pod.terms, pod.tolerations)
            if kind in without_room or self._place(pod) is None:
                without_room.add(kind)
                left.append(pod)
        self._free, self._here[list(gone)] = before, True
        return left

    def _largest_first(self, pods: Sequence[PodSpec]) -> list[PodSpec]:
        return sorted(pods, key=lambda pod: -self._sum(pod.requests))

    def _place(self, pod: PodSpec) -> int | None:
        size = self._shares(pod.requests)
        fits = self._here & self._admits(pod)
        for free, requested in zip(self._free, size.tolist(), strict=True):
            fits &= free >= requested - 1e-9
        found = np.flatnonzero(fits)
        if not len(found):
            return None
        best = int(found[np.argmin(self._free[:, found].sum(axis=0))])
        self._free[:, best] -= size
        return best

    def _admits(self, spec: PodSpec) -> Bools:
        key = (spec.terms, spec.tolerations)
        if key not in self._admitted:
            self._admitted[key] = np.array([_admits(spec, node) for node in self._nodes])
        return self._admitted[key]


def _admits(spec: PodSpec, node: ExistingNode) -> bool:
    if spec.untolerated(node.taints, soft=True) is not None:
        return False
    return _is_within(spec.terms, node)


def _is_within(terms: Sequence[Requirements], node: ExistingNode) -> bool:
    return not terms or any(term.admits(node.labels) for term in terms)
