"""Finds the pods of a plan whose required affinity, anti-affinity or spread does not hold in it.

A pod that others were placed next to, or were counted with, may have no node in the end. So each
plan is checked as it ends: first as a whole, which costs little. If a spread or an affinity does
not hold in the whole, kube-scheduler may still bind the pods in some order, on existing nodes
before new ones: a few orders are tried, and the one that leaves out the fewest pods counts. Pods
without such terms cost nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from leeway.reasons import Reason
from leeway.selection.labels import HOSTNAME
from leeway.selection.packing.existing_nodes import ExistingNodes
from leeway.selection.packing.plan import TOPOLOGY_UNSATISFIABLE
from leeway.selection.packing.pod_groups import (
    PodGroup,
    affinity_unsatisfiable,
    fully_relaxed,
    spread_unsatisfiable,
)
from leeway.selection.packing.supply import Supply
from leeway.selection.packing.topology import EVERY_NODE, Cap, CountedNodes, Counters, Rules
from leeway.selection.pods import PodSpec
from leeway.selection.solver.problem import Bools, Floats, Ints

type Placed = tuple[int, PodGroup, tuple[str, ...]]
"""The number of a node, existing nodes before new ones, and pods that the plan places there."""

_CAUSE = "it depends on pods that are unschedulable themselves"
_APART = TOPOLOGY_UNSATISFIABLE(
    why="The pod anti-affinity of the pod cannot be met: it excludes other pods of the plan"
)


def unmet(
    placed: Sequence[Placed],
    existing: ExistingNodes,
    supply: Supply,
    offerings: Sequence[int],
    counters: Counters,
) -> dict[str, Reason]:
    """Return the pods whose terms do not hold, with the reason of each. `offerings` are those of
    the new nodes."""
    specs = {id(group): group.declared for _, group, _ in placed}
    required = {key: fully_relaxed(spec, soft_taints=False) for key, spec in specs.items()}
    nodes = _Nodes(existing, supply, offerings, counters)
    terms = {key: _Terms.of(spec, counters) for key, spec in required.items()}
    plan = _Plan(placed, terms, nodes, counters)
    return {} if plan.holds() else plan.left_out()


def has_required_terms(spec: PodSpec) -> bool:
    """Whether a pod requires anything of other pods."""
    required = any(spread.required for spread in spec.spreads)
    return bool(required or spec.pod_affinity or spec.pod_anti_affinity)


class _Nodes:
    """The existing nodes of a plan, then its new nodes: N."""

    def __init__(
        self,
        existing: ExistingNodes,
        supply: Supply,
        offerings: Sequence[int],
        counters: Counters,
    ) -> None:
        self._existing = existing
        self.existing = len(existing.nodes)
        self.labels = [
            *existing.labels,
            *({**supply.labels(at), HOSTNAME: f"new {n}"} for n, at in enumerate(offerings)),
        ]
        self.taints = [
            *(node.taints for node in existing.nodes),
            *(supply.candidates[at].pool.taints for at in offerings),
        ]
        self._daemons = [supply.daemons_on(at) for at in offerings] if supply.daemons else []
        self._counters = counters
        self._domains: dict[str, Ints] = {}
        self._counting: dict[CountedNodes, Bools] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def running(self, counter: int) -> Floats:
        """The pods of a counter on the nodes before the plan, DaemonSets on new ones: N."""
        before = self._existing.before
        found = np.zeros(len(self))
        if counter < before.shape[1]:
            found[: self.existing] = before[:, counter]
        else:  # the first run of the draft left out the pods with this term
            for row, node in enumerate(self._existing.nodes):
                found[row] = self._of(node.present, row, counter)
        for row, daemons in enumerate(self._daemons, self.existing):
            found[row] = self._of(daemons, row, counter)
        return found

    def _of(self, pods: Iterable[PodSpec], row: int, counter: int) -> int:
        """How many of some pods on a node a counter counts."""
        if not self._counters.nodes_of(counter).has(self.labels[row], self.taints[row]):
            return 0
        return sum(counter in self._counters.selecting(pod) for pod in pods)

    def domains(self, topology: str) -> Ints:
        """The domain of each node as a number, -1 without one: N."""
        if topology not in self._domains:
            numbers: dict[str, int] = {}
            values = (labels.get(topology) for labels in self.labels)
            found = [numbers.setdefault(value, len(numbers)) if value else -1 for value in values]
            self._domains[topology] = np.array(found, dtype=np.int64)
        return self._domains[topology]

    def counting(self, counted: CountedNodes) -> Bools:
        """Which nodes are counted: N."""
        if counted not in self._counting:
            new = range(self.existing, len(self))
            some = [counted.has(self.labels[at], self.taints[at]) for at in new]
            there = self._existing.counting(counted)
            self._counting[counted] = np.concatenate([there, np.array(some, dtype=bool)])
        return self._counting[counted]


@dataclass(frozen=True)
class _Terms:
    """What the pods of a group require of other pods."""

    spec: PodSpec
    rules: Rules
    affinities: tuple[tuple[int, str], ...]
    apart: tuple[Cap, ...]
    spreads: tuple[tuple[int, str, int, int, CountedNodes], ...]

    @classmethod
    def of(cls, spec: PodSpec, counters: Counters) -> "_Terms":
        """Return the required terms of a pod, which must be registered."""
        rules = counters.rules(spec)
        caps = (*rules.caps_on_node, *rules.caps_in_zone, *rules.caps_by_label)
        return cls(
            spec,
            rules,
            tuple(counters.affinities(spec)),
            tuple(cap for cap in caps if not cap.skew),
            tuple(
                (each.counter, each.topology, each.max_skew, each.min_domains, each.domains)
                for each in counters.spread_rules(spec)
            ),
        )


@dataclass
class _Tally:
    """The pods of a counter by domain, on some of the nodes. `found` are the domains of these
    nodes, `existing` those of the nodes that exist. `excluded`: how many pods keep others of the
    counter out of each domain."""

    domains: list[int]
    found: Ints
    existing: Ints
    running: Floats
    pods: Floats
    excluded: Floats

    def least(self, min_domains: int, by_node: bool, all_nodes: bool) -> float:
        """The minimum over the domains. An empty node may join at any time."""
        found = self.found if all_nodes else self.existing
        if len(found) < max(min_domains, 1) or (by_node and all_nodes):
            return 0.0
        return float(self.pods[found].min())


@dataclass
class _Entry:
    """Pods of one group on one node, and how many of them are bound."""

    row: int
    terms: _Terms
    names: tuple[str, ...]
    counted: tuple[int, ...]
    bound: int = 0


@dataclass
class _Plan:
    """The pods of a plan that matter to the terms of others, or have terms."""

    placed: Sequence[Placed]
    terms: dict[int, _Terms]
    nodes: _Nodes
    counters: Counters
    _entries: list[_Entry] = field(default_factory=list)
    _tallies: dict[object, _Tally] = field(default_factory=dict)
    _of_counter: dict[int, list[_Tally]] = field(default_factory=dict)
    _everywhere: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._wanted = {
            counter
            for each in self.terms.values()
            for counter in (
                *(counter for counter, _ in each.affinities),
                *(cap.counter for cap in each.apart),
                *(spread[0] for spread in each.spreads),
            )
        }
        for row, group, names in self.placed:
            terms = self.terms[id(group)]
            counted = self._counted(terms, row)
            if counted or has_required_terms(terms.spec):
                self._entries.append(_Entry(row, terms, names, counted))
        for each in self.terms.values():
            for counter, topology in each.affinities:
                self._tally(counter, topology)
            for cap in each.apart:
                self._tally(cap.counter, self.counters.topology(cap.counter))
            for number, spread in enumerate(each.spreads):
                self._spread(each, number, spread[0])

    def _counted(self, terms: _Terms, row: int) -> tuple[int, ...]:
        """The counters that count a group's pods on a node."""
        rules = terms.rules
        if rules.conditional:
            nodes = self.nodes
            rules = self.counters.rules_on(terms.spec, nodes.labels[row], nodes.taints[row])
            return tuple(rules.counted & self._wanted)
        if id(terms) not in self._everywhere:
            self._everywhere[id(terms)] = tuple(rules.counted & self._wanted)
        return self._everywhere[id(terms)]

    def _tally(
        self, counter: int, topology: str, key: object = EVERY_NODE, mask: Bools | None = None
    ) -> _Tally:
        """The tally of a counter on some nodes, on all nodes without a mask."""
        found = self._tallies.get((counter, key))
        if found is not None:
            return found
        domains = self.nodes.domains(topology)
        if mask is not None:
            domains = np.where(mask, domains, -1)
        inside = domains >= 0
        count = int(domains.max(initial=-1)) + 1
        running = self.nodes.running(counter)
        made = _Tally(
            domains.tolist(),
            np.unique(domains[inside]),
            np.unique(domains[: self.nodes.existing][inside[: self.nodes.existing]]),
            np.bincount(domains[inside], running[inside], count),
            np.zeros(count),
            np.zeros(count),
        )
        self._tallies[counter, key] = made
        self._of_counter.setdefault(counter, []).append(made)
        return made

    def _spread(self, terms: _Terms, number: int, counter: int) -> _Tally:
        """The tally of a spread: on the nodes that it compares and that have the labels of all
        spreads of the pod."""
        topologies = tuple(sorted({topology for _, topology, _, _, _ in terms.spreads}))
        _, topology, _, _, compared = terms.spreads[number]
        key = (compared, topologies)
        if (counter, key) not in self._tallies:
            mask = self.nodes.counting(compared).copy()
            for each in topologies:
                mask &= self.nodes.domains(each) >= 0
            self._tally(counter, topology, key, mask)
        return self._tallies[counter, key]

    def _restart(self) -> None:
        """Bind no pod."""
        for tally in self._tallies.values():
            tally.pods = tally.running.copy()
            tally.excluded[:] = 0
        for entry in self._entries:
            entry.bound = 0

    def _bind(self, entry: _Entry, pods: int) -> None:
        entry.bound += pods
        for counter in entry.counted:
            for tally in self._of_counter[counter]:
                if (domain := tally.domains[entry.row]) >= 0:
                    tally.pods[domain] += pods
        for cap in entry.terms.apart:
            tally = self._tallies[cap.counter, EVERY_NODE]
            if (domain := tally.domains[entry.row]) >= 0:
                tally.excluded[domain] += pods

    def holds(self) -> bool:
        """Whether all terms hold in any order: on the whole plan, where pods with affinity are
        bound after all others."""
        self._restart()
        later = [entry for entry in self._entries if entry.terms.affinities]
        for entry in self._entries:
            if not entry.terms.affinities:
                self._bind(entry, len(entry.names))
        while later:
            left = [entry for entry in later if not self._bind_near(entry, first=False)]
            if len(left) == len(later) and not sum(self._bind_near(e, first=True) for e in left):
                return False
            later = [entry for entry in left if entry.bound < len(entry.names)]
        return all(self._are_apart(e) and self._is_even(e) for e in self._entries)

    def _bind_near(self, entry: _Entry, first: bool) -> bool:
        """Bind all pods of an entry if pods of their affinity are there. `first`: or one of them,
        as the first."""
        if not self._is_near(entry, first):
            return False
        self._bind(entry, 1 if first else len(entry.names) - entry.bound)
        return True

    def _is_near(self, entry: _Entry, first: bool = True) -> bool:
        """Whether pods of the affinity are in the domains of a node. `first`: or a pod is itself
        the first of them."""
        for counter, _ in entry.terms.affinities:
            tally = self._tallies[counter, EVERY_NODE]
            domain = tally.domains[entry.row]
            if domain < 0:
                return False
            if tally.pods[domain] <= 0 and not (
                first and counter in entry.counted and not tally.pods.any()
            ):
                return False
        return True

    def _are_apart(self, entry: _Entry, coming: int = 0) -> bool:
        """Whether the anti-affinity of bound pods holds, or with some `coming` ones."""
        for cap in entry.terms.apart:
            tally = self._tallies[cap.counter, EVERY_NODE]
            domain = tally.domains[entry.row]
            adds = coming * (cap.counter in entry.counted)
            if domain >= 0 and tally.pods[domain] + adds > cap.most:
                return False
        return not coming or not any(self._is_excluded(entry, c) for c in entry.counted)

    def _is_excluded(self, entry: _Entry, counter: int) -> bool:
        """Whether the anti-affinity of bound pods keeps the counter's pods off a node."""
        tally = self._tallies.get((counter, EVERY_NODE))
        if tally is None or (domain := tally.domains[entry.row]) < 0:
            return False
        return bool(tally.excluded[domain])

    def _is_even(self, entry: _Entry, coming: int = 0, all_nodes: bool = True) -> bool:
        """Whether the spreads of bound pods hold, or with some `coming` ones."""
        return self._uneven(entry, coming, all_nodes) is None

    def _uneven(self, entry: _Entry, coming: int, all_nodes: bool) -> str | None:
        """The topology of a spread that does not hold."""
        for number, (counter, topology, most, min_domains, _) in enumerate(entry.terms.spreads):
            tally = self._spread(entry.terms, number, counter)
            domain = tally.domains[entry.row]
            there = tally.pods[domain] if domain >= 0 else 0.0
            least = tally.least(min_domains, topology == HOSTNAME, all_nodes)
            if there + coming * (counter in entry.counted) - least > most:
                return topology
        return None

    def left_out(self) -> dict[str, Reason]:
        """Return the pods that remain in the best of some orders."""
        numbered = list(enumerate(self._entries))
        orders = (
            numbered,
            sorted(numbered, key=lambda e: (not e[1].terms.spreads, bool(e[1].terms.affinities))),
            sorted(numbered, key=lambda e: (bool(e[1].terms.affinities), bool(e[1].terms.spreads))),
        )
        best: dict[str, Reason] | None = None
        lowest: list[tuple[int, int]] = []
        for order in orders:
            self._bind_in_order([entry for _, entry in order])
            missed = {
                name: self._reason(entry)
                for entry in self._entries
                for name in entry.names[entry.bound :]
            }
            counts: dict[int, int] = {}
            for entry in self._entries:
                priority = entry.terms.spec.priority
                left = len(entry.names) - entry.bound
                counts[priority] = counts.get(priority, 0) + left
            ranked = sorted(((-p, n) for p, n in counts.items()))
            if best is None or ranked < lowest:
                best, lowest = missed, ranked
            if not best:
                break
        return best or {}

    def _bind_in_order(self, order: Iterable[_Entry]) -> None:
        """Bind pods as kube-scheduler does: a pod that is not admitted is tried again later."""
        self._restart()
        entries = list(order)
        there = [entry for entry in entries if entry.row < self.nodes.existing]
        for waiting, all_nodes in ((there, False), (entries, True)):
            bound = True
            while bound:
                bound = False
                for entry in waiting:
                    while entry.bound < len(entry.names) and self._admits(entry, all_nodes):
                        self._bind(entry, 1)
                        bound = True
                        if entry.terms.spreads:
                            break
                waiting = [entry for entry in waiting if entry.bound < len(entry.names)]

    def _admits(self, entry: _Entry, all_nodes: bool) -> bool:
        return (
            self._is_near(entry)
            and self._are_apart(entry, 1)
            and self._is_even(entry, 1, all_nodes)
        )

    def _reason(self, entry: _Entry) -> Reason:
        """Why no further pod of an entry is bound."""
        if not self._is_near(entry):
            return affinity_unsatisfiable(_CAUSE)
        if (topology := self._uneven(entry, 1, all_nodes=True)) is not None:
            return spread_unsatisfiable(topology, _CAUSE)
        return _APART
