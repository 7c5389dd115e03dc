"""Packing: pods → existing nodes, nodes to launch, and unschedulable pods with reasons.

Pure: it imports neither AWS nor Kubernetes clients and has no side effects. A draft of a plan is a
run over all pods, then runs over the pods that have no node yet.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from leeway.reasons import Reason
from leeway.selection.labels import INITIALIZED, JOINED
from leeway.selection.on_demand import Balances
from leeway.selection.packing.binding import ORDERS, Order
from leeway.selection.packing.existing_nodes import ExistingNodes
from leeway.selection.packing.new_nodes import NewNode
from leeway.selection.packing.plan import Placement, Plan, Unschedulable
from leeway.selection.packing.pod_classes import Classifier
from leeway.selection.packing.pod_groups import (
    PodBatch,
    PodGroup,
    Units,
    fully_relaxed,
    pinned,
    with_preferences_required,
)
from leeway.selection.packing.requests import (
    first_offerings,
    make_requests,
    meeting_min_values,
)
from leeway.selection.packing.run import PackingRun, Search, limits_of
from leeway.selection.packing.supply import UNKNOWN_PRICE, Supply
from leeway.selection.packing.topology import Counters, Rules
from leeway.selection.packing.unmet_terms import has_required_terms, unmet
from leeway.selection.packing.unschedulable import Explanations
from leeway.selection.pods import ExistingNode, Pod, PodSpec, PodTerm
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources
from leeway.selection.solver.problem import Proceed
from leeway.selection.solver.programs import least

STARTUP_TAINTS = frozenset(
    {"node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized"}
)
"""Taints that every node has when it joins."""


class Draft:
    """The assignments of some pods so far, initially empty."""

    def __init__(
        self,
        pods: Sequence[Pod],
        supply: Supply,
        nodes: Sequence[ExistingNode],
        search: Search,
        balances: Balances | None = None,
    ) -> None:
        self._search, self._balances = search, balances
        self._existing: ExistingNodes | None = None
        self._pods = pods
        self._specs = {pod.name: pod.spec for pod in pods}
        distinct = {id(pod.spec): pod.spec for pod in pods}.values()
        self._have_terms = any(map(has_required_terms, distinct))
        resources = {name for spec in distinct for name in spec.requests}
        self._base_supply, self._input_nodes = supply, nodes
        self._classifier = Classifier(
            supply.with_variants_for(distinct, nodes), sorted(resources | {"pods"})
        )
        self._explanations = Explanations(supply, self._classifier.supply)
        self._nodes = [_when_initialized(node, self._classifier.supply) for node in nodes]
        self._counters: Counters | None = None
        self._new: list[NewNode] = []
        self._placed: list[tuple[int, PodBatch]] = []
        self._unplaced: dict[str, Reason | None] = dict.fromkeys(self._specs)
        self._infeasible: set[str] = set()
        self._limited: set[str] = set()
        self._bounds: list[float | None] = []

    def restarted(self, orders: Sequence[Order] = ()) -> "Draft":
        """Return an empty draft of the same pods, whose new nodes are not improved, and whose pods
        are bound in other `orders` if there are any."""
        search = replace(self._search, improvements=0, orders=orders or self._search.orders)
        return Draft(self._pods, self._base_supply, self._input_nodes, search, self._balances)

    @cached_property
    def specs(self) -> tuple[PodSpec, ...]:
        """The distinct pod specs in the order in which they are given, higher priorities first."""
        found = dict.fromkeys(pod.spec for pod in self._pods)
        return tuple(sorted(found, key=lambda spec: -spec.priority))

    @property
    def has_labels(self) -> bool:
        """Whether terms have other topologies than zone and hostname."""
        return self._counters is not None and bool(self._counters.labels)

    @property
    def order_dependent(self) -> set[PodSpec]:
        """The pods without a node that another order could have placed."""
        names = self._unplaced.keys() - self._infeasible - self._limited
        return {self._specs[name] for name in names}

    @property
    def unplaced_by_priority(self) -> list[int]:
        """How many pods of each priority have no node, the highest priority first."""
        counts = Counter(self._specs[name].priority for name in self._unplaced)
        return [counts[p] for p in sorted({s.priority for s in self._specs.values()}, reverse=True)]

    def plan_all(self, ranks: Mapping[PodSpec, int] | None = None) -> None:
        """Plan all pods at once. Relax the preferences that cannot be satisfied. `ranks` orders
        pods by spec: a lower rank is placed earlier."""
        by_name = {pod.name: ranks[pod.spec] for pod in self._pods} if ranks else {}
        waiting, excluded = self._pods, dict[str, Reason | None]()
        while True:
            run = PackingRun(
                waiting,
                self._classifier,
                self._explanations,
                self._nodes,
                self._search,
                ranks=by_name,
            )
            if run.plan():
                left_out = self._others_depend_on(run)
                if not left_out:
                    break
                excluded |= left_out
                waiting = [pod for pod in waiting if pod.name not in left_out]
                continue
            # Relax all pods of a spec alike, because they may have to share a node or zone.
            names = run.given_up
            given_up = {pod.spec: names[pod.name] for pod in waiting if pod.name in names}
            waiting = [Pod(pod.name, given_up.get(pod.spec, pod.spec)) for pod in waiting]
        self._bounds = run.outcome.bounds
        self._unplaced = {**excluded, **run.outcome.unplaced}
        self._limited |= excluded.keys()
        self._merge(run)

    def _others_depend_on(self, run: PackingRun) -> dict[str, Reason | None]:
        """Return the pods that the limits of pools exclude from a run, with their reasons, if its
        other pods were placed by counting them: they are then planned again without these.
        Empty if no affinity or spread of another pod selects one of them."""
        limited = run.outcome.limited
        if not limited:
            return {}
        specs = {self._specs[name] for name in limited}
        others = {spec for name, spec in self._specs.items() if name not in limited}
        terms = [term for spec in others for term in _required_terms(spec)]
        if not any(term.selects(spec) for term in terms for spec in specs):
            return {}
        return {name: run.outcome.unplaced[name] for name in limited}

    def bind_all(self) -> None:
        """Assign pods to existing nodes and plan no new nodes."""
        run = PackingRun(
            self._pods, self._classifier, self._explanations, self._nodes, self._search
        )
        self._unplaced = {name: None for group in run.bind() for name in group.pods}
        self._merge(run)

    def add_unplaced(self, rounds: int) -> None:
        """Plan the pods without a node again, on top of the draft, up to this many rounds.

        Does nothing if the limits of pools excluded pods: they have no room for more nodes.
        """
        for _ in range(0 if self._limited else rounds):
            if not self._add([name for name in self._unplaced if name not in self._infeasible]):
                return

    def add_sequentially(self) -> None:
        """Plan the pods without a node spec by spec, as kube-scheduler binds pods, until no further
        pod gets a node."""
        found = True
        while found:
            found = False
            for spec in self.specs:
                names = [n for n in self._unplaced if self._specs[n] == spec]
                found |= self._add([name for name in names if name not in self._infeasible])

    def _add(self, names: Sequence[str], closed: Collection[str] = ()) -> bool:
        """Plan some of the pods without a node, on no new node of `closed` pools. Returns whether
        any of them has a node now."""
        if not names:
            return False
        waiting = [Pod(name, fully_relaxed(self._specs[name], soft_taints=True)) for name in names]
        new = itertools.starmap(self._as_existing, enumerate(self._new))
        nodes = [
            *self._existing_nodes(),
            *(node.full() if node.pool in closed else node for node in new),
        ]
        run = PackingRun(
            waiting,
            self._classifier,
            self._explanations,
            nodes,
            self._search,
            len(self._new),
            self._counters,
            closed=closed,
        )
        run.plan()
        before = len(self._unplaced)
        self._pin_those_that_decided(run)
        for name in names:
            self._unplaced[name] = self._unplaced[name] or run.outcome.unplaced.get(name)
        found = set(names) - run.outcome.unplaced.keys()
        self._bounds += [None] if found else []
        self._unplaced = {name: why for name, why in self._unplaced.items() if name not in found}
        self._merge(run)
        return len(self._unplaced) < before

    def _pin_those_that_decided(self, run: PackingRun) -> None:
        """Restrict pods of earlier runs to the zone and the labels of their nodes if pods of this
        run were placed by counting them there."""
        placed = [batch for _, batch in run.existing.placed]
        placed += [batch for node in run.outcome.nodes for batch, _ in node.batches]
        rules = [group.rules for batch in placed for group, _ in batch.parts]
        needed = {c for each in rules for c in (*each.affinity_in_zone, *each.affinity_by_label)}
        caps = (cap for each in rules for cap in (*each.caps_in_zone, *each.caps_by_label))
        needed.update(cap.counter for cap in caps)
        for row, node in enumerate(self._new if needed else ()):
            batches = [
                (self._pinned(batch, node.offering), units)
                if any(self._rules(group).counted & needed for group, _ in batch.parts)
                else (batch, units)
                for batch, units in node.batches
            ]
            self._new[row] = replace(node, batches=tuple(batches))

    def _merge(self, run: PackingRun) -> None:
        """Add the assignments of a run to the draft, except for pods whose terms they do not
        meet."""
        self._counters = run.counters
        self._existing = self._existing or run.existing
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
        self._leave_out_unmet()

    def _unmet(self) -> dict[str, Reason]:
        """The pods whose required terms the draft does not meet as a whole."""
        if self._existing is None or self._counters is None or not self._have_terms:
            return {}
        known = len(self._nodes)
        new = (
            (row, batch, units)
            for row, node in enumerate(self._new, known)
            for batch, units in node.batches
        )
        placed = [
            (row, group, names)
            for row, batch, units in (*((r, b, b.units) for r, b in self._placed), *new)
            for group, names in batch.having(units).pods_by_group()
        ]
        offerings = first_offerings(self._new, self._classifier)
        supply = self._classifier.supply
        return unmet(placed, self._existing, supply, offerings, self._counters)

    def _meet_min_values(self) -> None:
        """Split nodes until enough types fit, and leave out the pods with too few types, and those
        that depend on them or on a node that was split. They are planned again once without each
        pool that could not launch their nodes."""
        supply, closed = self._classifier.supply, set[str]()
        while any(pool.has_min_values for pool in supply.pools):
            limits = limits_of(supply, self._nodes, 0)
            nodes, rejected = meeting_min_values(self._new, self._classifier, limits)
            done = len(nodes) == len(self._new) and not rejected
            further = {
                supply.candidates[node.offering].pool.name
                for node in self._new
                for _, units in node.batches
                if any(name in rejected for unit in units for name in unit)
            } - closed
            before = set(self._unplaced)
            self._new = nodes
            self._unplaced |= rejected
            self._leave_out_unmet()
            if done:
                return
            closed |= further
            if further and any(pool.name not in closed for pool in supply.pools):
                self._add([name for name in self._unplaced if name not in before], closed)

    def _leave_out_unmet(self) -> None:
        """Remove the pods whose terms do not hold. What is left of a node may be launched as
        another type, for which the terms have to hold too."""
        while reasons := self._unmet():
            self._leave_out(reasons)

    def _leave_out(self, reasons: Mapping[str, Reason]) -> None:
        """Remove pods from their nodes."""
        self._placed = [
            (row, kept) for row, batch in self._placed for kept in batch.without(reasons.keys())
        ]
        nodes = [
            replace(
                node,
                batches=tuple(
                    (kept, kept.units)
                    for batch, units in node.batches
                    for kept in batch.having(units).without(reasons.keys())
                ),
            )
            for node in self._new
        ]
        self._new = [node for node in nodes if node.batches]
        self._unplaced |= reasons
        self._bounds.append(None)

    def _pinned(self, batch: PodBatch, offering: int) -> PodBatch:
        """Restrict a batch to the label values of its node that its spreads depend on."""
        labels = self._classifier.supply.labels(offering)
        parts = []
        for group, pods in batch.parts:
            used = {key: labels[key] for key in self._labels_of(group) if key in labels}
            spec = pinned(group.spec, Requirements.from_labels(used)) if used else group.spec
            parts.append((replace(group, spec=spec), pods))
        return replace(batch, parts=tuple(parts), zone=int(self._classifier.supply.zones[offering]))

    def _labels_of(self, group: PodGroup) -> set[str]:
        """The labels that the terms of a group's pods, or those of others that select them, depend
        on."""
        if self._counters is None or not self.has_labels:
            return set()
        rules = self._rules(group)
        counters = {
            *rules.counted,
            *rules.affinity_by_label,
            *(c.counter for c in rules.caps_by_label),
        }
        return set(self._counters.labels) & {self._counters.topology(each) for each in counters}

    def _rules(self, group: PodGroup) -> Rules:
        """The rules of a group by all counters: a later run may have registered further ones."""
        return group.rules if self._counters is None else self._counters.rules(group.spec)

    def _existing_nodes(self) -> list[ExistingNode]:
        """The existing nodes with the pods that were assigned to them."""
        added: dict[int, list[PodSpec]] = {}
        for row, batch in self._placed:
            added.setdefault(row, []).extend(self._specs_of(batch.units))
        return [
            replace(node, pods=(*node.pods, *added[row])) if row in added else node
            for row, node in enumerate(self._nodes)
        ]

    def _as_existing(self, number: int, node: NewNode) -> ExistingNode:
        """A new node of the draft with its DaemonSets and pods."""
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
        """Return the plan of all assignments."""
        balances = self._balances or Balances.among(self._base_supply.pools, self._nodes)
        self._meet_min_values()
        nodes = self._as_counted() if balances.of and self.has_labels else self._new
        launched = make_requests(nodes, self._classifier, balances)
        prices = [node.cheapest.price for node in launched]
        unplaced = [
            Unschedulable(name, why or _not_planned(name)) for name, why in self._unplaced.items()
        ]
        return Plan(
            tuple(launched),
            self._placements(),
            tuple(unplaced),
            sum(price for price in prices if price < UNKNOWN_PRICE),
            self._bound(),
        )

    def _as_counted(self) -> list[NewNode]:
        """The new nodes, with the pods that terms by labels count restricted to the values that
        were counted: an on-demand share must not change the capacity type of their node."""
        offerings = first_offerings(self._new, self._classifier)
        return [
            replace(
                node,
                batches=tuple(
                    (self._pinned(batch, offering), units)
                    if any(self._labels_of(group) for group, _ in batch.parts)
                    else (batch, units)
                    for batch, units in node.batches
                ),
            )
            for node, offering in zip(self._new, offerings, strict=True)
        ]

    def _placements(self) -> tuple[Placement, ...]:
        names: dict[int, list[str]] = {}
        for row, batch in self._placed:
            names.setdefault(row, []).extend(name for unit in batch.units for name in unit)
        return tuple(Placement(self._nodes[row].name, tuple(names[row])) for row in sorted(names))

    def _bound(self) -> float:
        """A lower bound of the price of nodes of any pool for the pods on new nodes."""
        match self._bounds:
            case []:
                return 0.0
            case [float(known)]:
                return known
        placed = [batch.having(units) for node in self._new for batch, units in node.batches]
        everywhere = np.ones(len(self._classifier.supply), dtype=bool)
        pod_classes, _ = self._classifier.classify(placed, everywhere)
        return least(pod_classes.problem) if pod_classes else 0.0


def _required_terms(spec: PodSpec) -> Iterator[PodTerm]:
    """Yield what the pod requires of other pods in its topology: affinities and spreads."""
    required = fully_relaxed(spec, soft_taints=False)
    yield from required.pod_affinity
    yield from (spread.pods for spread in required.spreads)


def _not_planned(pod: str) -> Reason:
    raise AssertionError(f"no run has planned pod {pod}")


def _when_initialized(node: ExistingNode, supply: Supply) -> ExistingNode:
    """A starting node of a pool as it will be when it is initialized: without its startup
    taints."""
    pool = next((pool for pool in supply.pools if pool.name == node.pool), None)
    if pool is None or node.labels.get(INITIALIZED) == "true":
        return node
    temporary = {(t.key, t.effect) for t in pool.startup_taints}
    kept = [
        t for t in node.taints if t.key not in STARTUP_TAINTS and (t.key, t.effect) not in temporary
    ]
    return replace(node, taints=tuple(kept), labels={**node.labels, **JOINED})


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of planning if a plan leaves pods without a node.

    `rounds`: how often those pods are planned again, on top of the plan. `attempts`: the maximum
    number of plans for up to `pods` pods; each plan places first the pods that the one before left
    out. `singly`: up to this many distinct pod specs are planned one after another, as
    kube-scheduler binds them. `orders`: the maximum number of orders in which pods are bound to
    existing nodes. `improvements`: rounds that make the new nodes of a small batch cheaper; a round
    takes about a millisecond for a hundred pods. `stranded`: what each new node costs besides its
    price, in pods (see LAUNCHES).
    """

    rounds: int = 3
    attempts: int = 4
    pods: int = 500
    singly: int = 40
    orders: int = len(ORDERS)
    improvements: int = 200
    stranded: float = 0.0


USUAL = Effort()

LAUNCHES = Effort(stranded=1.0)
"""For plans whose nodes are launched."""


def always() -> bool:
    """Allow every improvement within the effort: the plan then depends on its input alone."""
    return True


def pack(
    pods: Sequence[Pod],
    supply: Supply,
    nodes: Sequence[ExistingNode] = (),
    effort: Effort = USUAL,
    proceed: Proceed = always,
    balances: Balances | None = None,
) -> Plan:
    """Plan a node for every pod: existing nodes first, then new nodes.

    A first plan is made in any case. It is made cheaper while `proceed` returns True, within the
    `effort`: a caller with a deadline passes a function that compares it with its clock. The
    number of pods that get a node does not depend on it.

    `balances` are those of the on-demand shares of pools before the plan; by default of those of
    the nodes that take pods.

    Preferences are treated as requirements, and relaxed one after another if pods would have no
    node otherwise (see `leeway.selection.packing.pod_groups`). Pods with a need that no node meets
    are left out from the beginning.
    """
    unmet = [Unschedulable(pod.name, pod.spec.unmet) for pod in pods if pod.spec.unmet]
    if unmet:
        pods = [pod for pod in pods if not pod.spec.unmet]
    search = Search(ORDERS[: effort.orders], effort.improvements, proceed, effort.stranded)
    draft = Draft(pods, supply, nodes, search, balances)
    draft.plan_all()
    draft.add_unplaced(effort.rounds)
    if len(pods) <= effort.pods and _contested(draft.order_dependent, draft.specs):
        draft = _best(draft, effort)
    plan = draft.plan()
    return replace(plan, unschedulable=(*plan.unschedulable, *unmet)) if unmet else plan


def _best(draft: Draft, effort: Effort) -> Draft:
    """The draft with the fewest pods without a node."""
    best = _reordered(draft, effort)
    if best.order_dependent and len(best.specs) <= effort.singly:
        best.add_sequentially()
    if best.order_dependent and len(best.specs) <= effort.singly:
        singly = best.restarted()
        singly.bind_all()
        singly.add_sequentially()
        best = min(best, singly, key=lambda each: each.unplaced_by_priority)
    if best.order_dependent and best.has_labels and len(best.specs) <= effort.singly:
        singly = best.restarted(ORDERS[-1:])
        singly.bind_all()
        singly.add_sequentially()
        best = min(best, singly, key=lambda each: each.unplaced_by_priority)
    return best


def _reordered(draft: Draft, effort: Effort) -> Draft:
    """The best of several drafts. Each draft places first the pods that the one before left out."""
    best, ranks = draft, dict.fromkeys(draft.specs, 0)
    tried: list[set[PodSpec]] = []
    for attempt in range(1, effort.attempts):
        first = _with_leaders(draft.order_dependent, draft.specs)
        behind = {rank for spec, rank in ranks.items() if spec not in first}
        if not first or not behind or first in tried:
            break
        tried.append(first)
        ranks |= dict.fromkeys(first, -attempt)
        draft = best.restarted()
        draft.plan_all(ranks)
        draft.add_unplaced(effort.rounds)
        best = min(best, draft, key=lambda each: each.unplaced_by_priority)
    return best


def _contested(order_dependent: Iterable[PodSpec], specs: Collection[PodSpec]) -> bool:
    """Whether topology terms relate any pod without a node to other pending pods."""
    terms = {spec: [*_terms(spec)] for spec in specs}
    return any(
        one is not other
        and (any(t.selects(other) for t in terms[one]) or any(t.selects(one) for t in terms[other]))
        for one in order_dependent
        for other in specs
    )


def _terms(spec: PodSpec) -> Iterator[PodTerm]:
    strict = with_preferences_required(spec)
    yield from (
        *strict.pod_affinity,
        *strict.pod_anti_affinity,
        *(spread.pods for spread in strict.spreads),
    )


def _with_leaders(order_dependent: Iterable[PodSpec], specs: Collection[PodSpec]) -> set[PodSpec]:
    """Add the pods that the affinity of these pods requires: they must be placed with them."""
    found = set(order_dependent)
    while True:
        terms = [term for spec in found for term in with_preferences_required(spec).pod_affinity]
        leading = {spec for spec in specs if any(term.selects(spec) for term in terms)}
        if leading <= found:
            return found
        found |= leading
