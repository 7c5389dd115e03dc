"""Pods counted by where they are: what spreads, affinities and host ports are decided by.

A counter stands for some pods (a selector in some namespaces, or whoever takes a host port) within
one topology; every pod that it selects counts, waiting or bound, whoever asked for the counting.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from leeway.selection.labels import HOSTNAME, ZONE
from leeway.selection.pods import HostPort, PodSpec, PodTerm

KNOWN = frozenset({HOSTNAME, ZONE})
"""The topologies that are understood."""


@dataclass(frozen=True, slots=True)
class Cap:
    """The most pods that a counter may have where a pod is. `skew`: beyond the least in any of
    the pod's domains (`min_domains`: with fewer of them that least is 0)."""

    counter: int
    most: int
    skew: bool = False
    min_domains: int = 1


@dataclass(frozen=True, slots=True)
class Rules:
    """What a pod's topology terms come to. Counters are numbers.

    `counted` are the counters that count the pod. `on_node`, `in_zone` cap counters on its node and
    in its zone; `with_node`, `with_zone` have to have a pod there (who shares a node shares its
    zone).
    """

    counted: frozenset[int]
    on_node: tuple[Cap, ...]
    in_zone: tuple[Cap, ...]
    with_node: tuple[int, ...]
    with_zone: tuple[int, ...]


NO_RULES = Rules(frozenset(), (), (), (), ())


@dataclass
class Counters:
    """Numbers for what is counted, in the order in which it was met."""

    _terms: dict[PodTerm | HostPort, int] = field(default_factory=dict)
    _by_label: dict[tuple[str, str], list[tuple[PodTerm, int]]] = field(default_factory=dict)
    _by_other: list[tuple[PodTerm, int]] = field(default_factory=list)
    _selecting: dict[tuple[str, frozenset[tuple[str, str]]], frozenset[int]] = field(
        default_factory=dict
    )

    def __len__(self) -> int:
        return len(self._terms)

    @property
    def by_zone(self) -> frozenset[int]:
        """The counters of terms whose topology is the zone."""
        return frozenset(
            number
            for what, number in self._terms.items()
            if isinstance(what, PodTerm) and what.topology == ZONE
        )

    def learn(self, specs: Iterable[PodSpec]) -> None:
        """Number all that these pods' terms and ports ask to be counted."""
        for spec in specs:
            for term in _terms(spec):
                self._number(term)
            for port in spec.ports:
                self._number(port)

    def _number(self, what: PodTerm | HostPort) -> int:
        number = self._terms.get(what)
        if number is None:
            number = self._terms[what] = len(self._terms)
            self._selecting.clear()
            if isinstance(what, PodTerm):
                self._index(what, number)
        return number

    def _index(self, term: PodTerm, number: int) -> None:
        """By a label that it needs, so that a pod is held only against what may select it."""
        for key, requirement in term.selector.requirements.items() if term.selector else ():
            if not requirement.complement and not requirement.admits_absence:
                for value in requirement.values:
                    self._by_label.setdefault((key, value), []).append((term, number))
                return
        self._by_other.append((term, number))

    def selecting(self, spec: PodSpec) -> frozenset[int]:
        """Return the counters that count this pod."""
        ports = frozenset(
            number
            for port in spec.ports
            for other, number in self._terms.items()
            if isinstance(other, HostPort) and clashing(port, other)
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
        """Return what a pod's required terms come to; its terms have been learned."""
        counted = self.selecting(spec)
        return Rules(
            counted,
            tuple(self._caps(spec, counted, HOSTNAME)),
            tuple(self._caps(spec, counted, ZONE)),
            tuple(self._terms[term] for term in spec.near if term.topology == HOSTNAME),
            tuple(self._terms[term] for term in spec.near if term.topology in KNOWN),
        )

    def _caps(self, spec: PodSpec, counted: frozenset[int], topology: str) -> Iterator[Cap]:
        for term in spec.apart:
            if term.topology == topology:
                number = self._terms[term]
                yield Cap(number, int(number in counted))
        for spread in spec.spreads:
            if spread.required and spread.pods.topology == topology:
                number = self._terms[spread.pods]
                yield Cap(number, spread.max_skew, True, spread.min_domains)
        if topology == HOSTNAME:
            for port in spec.ports:
                yield Cap(self._terms[port], 1)


def unknown_topology(spec: PodSpec) -> str | None:
    """Return a topology that a pod requires and that is not understood."""
    required = [*spec.near, *spec.apart, *(s.pods for s in spec.spreads if s.required)]
    return next((term.topology for term in required if term.topology not in KNOWN), None)


def clashing(one: HostPort, other: HostPort) -> bool:
    """Whether two containers can't have these ports on one node."""
    if (one.port, one.protocol) != (other.port, other.protocol):
        return False
    return one.address == other.address or not one.address or not other.address


def _terms(spec: PodSpec) -> Iterator[PodTerm]:
    yield from spec.near
    yield from spec.apart
    for spread in spec.spreads:
        if spread.required:
            yield spread.pods
