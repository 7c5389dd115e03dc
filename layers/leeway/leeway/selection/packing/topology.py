"""Counts pods by topology domain, for spreads, affinities and host ports.

A counter stands for some pods (a selector in some namespaces, or the users of a host port) within
one topology. It counts every pod that it selects, pending or bound. The counter of a spread by zone
considers only some nodes. Source: kube-scheduler's PodTopologySpread.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from leeway.selection.labels import HOSTNAME, ZONE
from leeway.selection.pods import HostPort, PodSpec, PodTerm, Spread, Taint, Toleration
from leeway.selection.requirements import Requirements

HANDLED_ELSEWHERE = frozenset({HOSTNAME, ZONE})
"""The topologies that the filling of nodes and the choice of zones handle. Every other one is a
label whose values are chosen (see `label_domains`)."""


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """A spread constraint when a pod is bound: the counter of its pods, and the nodes whose domains
    are compared."""

    counter: int
    topology: str
    max_skew: int
    min_domains: int
    domains: "CountedNodes"


@dataclass(frozen=True, slots=True)
class Cap:
    """The maximum of a counter in the domain of a pod. `skew`: relative to the minimum over the
    pod's domains, which is 0 with fewer than `min_domains` of them."""

    counter: int
    most: int
    skew: bool = False
    min_domains: int = 1


@dataclass(frozen=True, slots=True)
class Rules:
    """The topology terms of a pod, as counters (numbers).

    `counted` are the counters that count the pod. Those in `conditional` count it only on some of
    the nodes that it may use. `by_zone` are the rules in each zone, if the zone decides what counts
    the pod; empty if they are the same in every zone. `caps_on_node` and `caps_in_zone` cap
    counters on its node and in its zone. `affinity_on_node` and `affinity_in_zone` require a pod of
    the counter there; sharing a node implies sharing its zone. `caps_by_label` and
    `affinity_by_label` are those by any other label of nodes.
    """

    counted: frozenset[int]
    caps_on_node: tuple[Cap, ...]
    caps_in_zone: tuple[Cap, ...]
    affinity_on_node: tuple[int, ...]
    affinity_in_zone: tuple[int, ...]
    conditional: frozenset[int] = frozenset()
    by_zone: tuple["Rules", ...] = ()
    caps_by_label: tuple[Cap, ...] = ()
    affinity_by_label: tuple[int, ...] = ()

    def at(self, zone: int) -> "Rules":
        """The rules of the pod in a zone (a position)."""
        return self.by_zone[zone] if self.by_zone else self


@dataclass(frozen=True, slots=True)
class CountedNodes:
    """The nodes that a spread considers: nodes that match one of the terms (all nodes without
    terms) and whose taints are tolerated (None: taints are ignored)."""

    terms: tuple[Requirements, ...] = ()
    tolerations: frozenset[Toleration] | None = None

    @classmethod
    def of(cls, spec: PodSpec, spread: Spread) -> "CountedNodes":
        """Return the nodes whose pods a spread counts. By hostname, these are all nodes: only the
        pod's own node matters, and the minimum is 0 because an empty node can be launched at any
        time."""
        return EVERY_NODE if spread.pods.topology == HOSTNAME else cls.compared(spec, spread)

    @classmethod
    def compared(cls, spec: PodSpec, spread: Spread) -> "CountedNodes":
        """Return the nodes whose domains a pod's spread compares."""
        return cls(
            spec.own_terms if spread.honors_affinity else (),
            _hard(spec.tolerations) if spread.honors_taints else None,
        )

    def has(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        """Whether a node is considered."""
        if self.terms and not any(term.admits(labels) for term in self.terms):
            return False
        if self.tolerations is None:
            return True
        bearing = PodSpec(tolerations=tuple(self.tolerations))
        return bearing.untolerated(taints) is None

    def includes_all_of(self, spec: PodSpec) -> bool:
        """Whether every node that a pod may use is considered."""
        if self.tolerations is not None and not _hard(spec.tolerations) <= self.tolerations:
            return False
        own_terms = spec.terms or (_ANYTHING,)
        return not self.terms or all(
            any(own.within(term) for term in self.terms) for own in own_terms
        )

    def includes_none_of(self, spec: PodSpec) -> bool:
        """Whether no node that a pod may use is considered."""
        return bool(self.terms and spec.terms) and not any(
            own.agrees(term) for own in spec.terms for term in self.terms
        )


_ANYTHING = Requirements()
EVERY_NODE = CountedNodes()


@dataclass(frozen=True, slots=True)
class CountedPods:
    """Pods to count within a topology, on some nodes."""

    pods: PodTerm
    nodes: CountedNodes = EVERY_NODE


NO_RULES = Rules(frozenset(), (), (), (), ())


@dataclass(frozen=True, slots=True)
class _KnownRules:
    """The counters that select a PodSpec, and its rules by the counters that a node leaves out."""

    spec: PodSpec
    counted: frozenset[int]
    without: dict[frozenset[int], Rules] = field(default_factory=dict)


@dataclass
class Counters:
    """Numbers the counters in the order of their registration. `zones` are all zones."""

    zones: tuple[str, ...] = ()
    _terms: dict[CountedPods | HostPort, int] = field(default_factory=dict)
    _of_some: dict[int, CountedNodes] = field(default_factory=dict)
    _topologies: list[str] = field(default_factory=list)
    _by_label: dict[tuple[str, str], list[tuple[PodTerm, int]]] = field(default_factory=dict)
    _by_other: list[tuple[PodTerm, int]] = field(default_factory=list)
    _by_port: dict[int, list[tuple[HostPort, int]]] = field(default_factory=dict)
    _selecting: dict[tuple[str, frozenset[tuple[str, str]]], frozenset[int]] = field(
        default_factory=dict
    )
    _known: dict[int, "_KnownRules"] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._terms)

    @property
    def by_zone(self) -> frozenset[int]:
        """The counters of terms whose topology is the zone."""
        return frozenset(n for n, topology in enumerate(self._topologies) if topology == ZONE)

    @property
    def labels(self) -> list[str]:
        """The topologies of terms other than zone and hostname."""
        found = dict.fromkeys(self._topologies)
        return [topology for topology in found if topology not in HANDLED_ELSEWHERE]

    def topology(self, counter: int) -> str:
        """The topology of a counter."""
        return self._topologies[counter]

    def within(self, rules: Rules, label: str) -> Rules:
        """The rules of a pod in the domains of a label, as if its values were zones. Pods on one
        node share its labels."""
        return Rules(
            rules.counted,
            (),
            tuple(cap for cap in rules.caps_by_label if self._topologies[cap.counter] == label),
            (),
            tuple(c for c in rules.affinity_by_label if self._topologies[c] == label)
            + rules.affinity_on_node,
            rules.conditional,
        )

    def register(self, specs: Iterable[PodSpec]) -> None:
        """Register all terms and host ports of these pods."""
        for spec in {id(spec): spec for spec in specs if _has_terms(spec)}.values():
            for counted_pods in _counted_pods(spec):
                self._number(counted_pods)
            for port in spec.ports:
                self._number(port)

    def _number(self, what: CountedPods | HostPort) -> int:
        number = self._terms.get(what)
        if number is None:
            number = self._terms[what] = len(self._terms)
            topology = HOSTNAME if isinstance(what, HostPort) else what.pods.topology
            self._topologies.append(topology)
            self._selecting.clear()
            self._known.clear()
            if isinstance(what, HostPort):
                self._by_port.setdefault(what.port, []).append((what, number))
            else:
                self._index(what.pods, number)
                if what.nodes != EVERY_NODE:
                    self._of_some[number] = what.nodes
        return number

    def _index(self, term: PodTerm, number: int) -> None:
        """Index a term by a label that it requires, so that a pod is compared only with candidate
        terms."""
        for key, requirement in term.selector.requirements.items() if term.selector else ():
            if not requirement.complement and not requirement.absent:
                for value in requirement.values:
                    self._by_label.setdefault((key, value), []).append((term, number))
                return
        self._by_other.append((term, number))

    def selecting(self, spec: PodSpec) -> frozenset[int]:
        """Return the counters that select this pod, on any node."""
        ports = frozenset(
            number
            for port in spec.ports
            for other, number in self._by_port.get(port.port, ())
            if ports_conflict(port, other)
        )
        labels = frozenset(spec.labels.items())
        key = (spec.namespace, labels)
        if key not in self._selecting:
            candidates = [pair for label in labels for pair in self._by_label.get(label, ())]
            self._selecting[key] = frozenset(
                number for term, number in candidates + self._by_other if term.selects(spec)
            )
        return self._selecting[key] | ports

    def rules(self, spec: PodSpec) -> Rules:
        """Return the rules of a pod's required terms, which must be registered."""
        rules = self._rules_of(spec)
        if not rules.conditional:
            return rules
        own_terms = spec.terms or (_ANYTHING,)
        pinned = [Requirements.from_labels({ZONE: zone}) for zone in self.zones]
        there = [
            tuple(term.intersection(pin) for term in own_terms if term.compatible(pin))
            for pin in pinned
        ]
        by_zone = (
            self._rules_of(replace(spec, terms=t, affinity=spec.own_terms)) if t else rules
            for t in there
        )
        return replace(rules, by_zone=tuple(by_zone))

    def _rules_of(self, spec: PodSpec) -> Rules:
        counted = self.selecting(spec)
        some = [(number, self._of_some[number]) for number in counted & self._of_some.keys()]
        counted -= {number for number, nodes in some if nodes.includes_none_of(spec)}
        conditional = counted & {
            number for number, nodes in some if not nodes.includes_all_of(spec)
        }
        return self._rules(spec, counted, conditional)

    def rules_everywhere(self, spec: PodSpec) -> Rules | None:
        """Return the rules of a pod on any node; None if they depend on the node."""
        counted = self.selecting(spec)
        return None if counted & self._of_some.keys() else self._rules(spec, counted, frozenset())

    def rules_on(
        self, spec: PodSpec, labels: Mapping[str, str], taints: tuple[Taint, ...]
    ) -> Rules:
        """Return the rules of a pod on a node with these labels and taints.

        Known ones are found by the identity of the PodSpec: most pods of a workload share one, and
        to hash or compare it takes longer than all else.
        """
        known = self._known.get(id(spec))
        if known is None:
            known = self._known[id(spec)] = _KnownRules(spec, self.selecting(spec))
        some = known.counted & self._of_some.keys()
        out = frozenset(one for one in some if not self._of_some[one].has(labels, taints))
        rules = known.without.get(out)
        if rules is None:
            rules = known.without[out] = self._rules(spec, known.counted - out, frozenset())
        return rules

    def _rules(self, spec: PodSpec, counted: frozenset[int], conditional: frozenset[int]) -> Rules:
        if not _has_terms(spec):
            return Rules(counted, (), (), (), (), conditional)
        caps, near = list(self._caps(spec, counted)), list(self.affinities(spec))
        return Rules(
            counted,
            tuple(cap for topology, cap in caps if topology == HOSTNAME),
            tuple(cap for topology, cap in caps if topology == ZONE),
            tuple(number for number, topology in near if topology == HOSTNAME),
            tuple(number for number, topology in near if topology in HANDLED_ELSEWHERE),
            conditional,
            caps_by_label=tuple(cap for topology, cap in caps if topology not in HANDLED_ELSEWHERE),
            affinity_by_label=tuple(n for n, topology in near if topology not in HANDLED_ELSEWHERE),
        )

    def spread_rules(self, spec: PodSpec) -> Iterator[SpreadRule]:
        """Return a pod's required spreads, which must be registered."""
        for spread in spec.spreads:
            if spread.required:
                number = self._terms[CountedPods(spread.pods, CountedNodes.of(spec, spread))]
                yield SpreadRule(
                    number,
                    spread.pods.topology,
                    spread.max_skew,
                    spread.min_domains,
                    CountedNodes.compared(spec, spread),
                )

    def nodes_of(self, counter: int) -> "CountedNodes":
        """The nodes that a counter considers."""
        return self._of_some.get(counter, EVERY_NODE)

    def affinities(self, spec: PodSpec) -> Iterator[tuple[int, str]]:
        """Return the counters of a pod's required affinity, with their topologies."""
        return ((self._terms[CountedPods(term)], term.topology) for term in spec.pod_affinity)

    def _caps(self, spec: PodSpec, counted: frozenset[int]) -> Iterator[tuple[str, Cap]]:
        """Yield the maxima of counters with their topologies."""
        for term in spec.pod_anti_affinity:
            number = self._terms[CountedPods(term)]
            yield term.topology, Cap(number, int(number in counted))
        for one in self.spread_rules(spec):
            yield one.topology, Cap(one.counter, one.max_skew, True, one.min_domains)
        for port in spec.ports:
            yield HOSTNAME, Cap(self._terms[port], 1)


def _has_terms(spec: PodSpec) -> bool:
    """Whether a pod has topology terms or host ports."""
    return bool(spec.pod_affinity or spec.pod_anti_affinity or spec.spreads or spec.ports)


def ports_conflict(one: HostPort, other: HostPort) -> bool:
    """Whether two containers with these host ports cannot share a node."""
    if (one.port, one.protocol) != (other.port, other.protocol):
        return False
    return one.address == other.address or not one.address or not other.address


def _counted_pods(spec: PodSpec) -> Iterator[CountedPods]:
    for term in (*spec.pod_affinity, *spec.pod_anti_affinity):
        yield CountedPods(term)
    for spread in spec.spreads:
        if spread.required:
            yield CountedPods(spread.pods, CountedNodes.of(spec, spread))


def _hard(tolerations: Iterable[Toleration]) -> frozenset[Toleration]:
    """Without tolerations of soft taints, which do not matter for spreads."""
    return frozenset(each for each in tolerations if each.effect != "PreferNoSchedule")
