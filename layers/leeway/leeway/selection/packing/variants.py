"""Splits node pools by the values of their own labels: a node has one value of a label.

A pool whose requirements leave several values of a label becomes one variant for each value that
pods name or need, and one for all other values. Nodes of the last one do not have the label.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product

from leeway.selection.labels import WELL_KNOWN
from leeway.selection.pods import ExistingNode, NodePool, PodSpec
from leeway.selection.requirements import Requirement, Requirements

MAX_VARIANTS = 100
"""Maximum number of variants that a plan adds to all pools together."""

MAX_OFFERINGS = 500_000
"""Maximum number of offerings of these variants. Each has the offerings of its pool, 12,766 if the
pool has no requirements in us-east-1, and 100,000 offerings take 100 MB and 2 seconds."""


def variants(
    pools: Sequence[NodePool],
    specs: Iterable[PodSpec],
    nodes: Sequence[ExistingNode] = (),
    daemons: Iterable[PodSpec] = (),
    pools_for: Callable[[PodSpec], Collection[int]] | None = None,
    offerings: Sequence[int] | None = None,
) -> tuple[NodePool, ...]:
    """Return the pools, each in as many variants as these pods, the DaemonSets, and the pods of the
    nodes can distinguish, in the given order.

    `pools_for` returns the positions of the pools with a node for a pod, apart from the values of
    labels; without it, each pool has one. `offerings` are the number of those of each pool. If the
    pods distinguish more variants than the maximum, each pod gets one value of each label that it
    requires, those of a higher priority first. Of equal priorities, namespaces take turns, so that
    the pods of one do not use all variants.
    """
    split = _Split(pools, offerings or [0] * len(pools))
    keys = frozenset[str]().union(*split.undecided)
    if not keys:
        return tuple(pools)
    given = list(specs)
    concerned = [
        (spec, sorted(admitting, key=lambda at: -pools[at].weight))
        for spec in _by_turns(spec for spec in given if not keys.isdisjoint(_keys(spec)))
        if (admitting := range(len(pools)) if pools_for is None else pools_for(spec))
    ]
    for spec, admitting in concerned:
        split.provide(spec.terms, admitting)
    for spec, admitting in concerned:
        for term, at in product(spec.terms, admitting):
            split.provide([term], [at])
    placeable = [spec for spec, _ in concerned]
    for key, value in _listed_values(keys, pools, given, placeable, nodes, daemons):
        split.name_everywhere(key, value)
    for spec, admitting in concerned:
        for preferred, at in product(spec.preferred_terms, admitting):
            split.provide([preferred.preference], [at])
    return tuple(chain.from_iterable(map(split.variants, range(len(pools)))))


def undecided(pool: NodePool) -> Mapping[str, Requirement]:
    """Return the requirements of a pool on labels that its nodes do not have, because it allows
    several values: those of its own labels, not of labels that come with the instance."""
    return {
        key: requirement
        for key, requirement in pool.requirements.items()
        if key not in WELL_KNOWN
        and key not in pool.labels
        and (requirement.complement or len(requirement.values) > 1)
    }


def missing(term: Requirements, labels: Iterable[str]) -> list[str]:
    """Return those of the labels without which a node does not match a term."""
    return [key for key in labels if not term.of_key(key).absent]


def _keys(spec: PodSpec) -> Iterator[str]:
    """The labels of all terms of node affinity of a pod, required or preferred."""
    yield from chain(*spec.terms, *(each.preference for each in spec.preferred_terms))


def _by_turns(specs: Iterable[PodSpec]) -> list[PodSpec]:
    """The pods, those of higher priorities first; of equal ones, one of each namespace in turn."""
    turns: Counter[tuple[int, str]] = Counter()
    ranked: list[tuple[int, int, PodSpec]] = []
    for spec in specs:
        turns[spec.priority, spec.namespace] += 1
        ranked.append((-spec.priority, turns[spec.priority, spec.namespace], spec))
    return [spec for *_, spec in sorted(ranked, key=lambda each: each[:2])]


def _listed_values(
    keys: Collection[str],
    pools: Sequence[NodePool],
    specs: Iterable[PodSpec],
    placeable: Sequence[PodSpec],
    nodes: Sequence[ExistingNode],
    daemons: Iterable[PodSpec],
) -> Iterator[tuple[str, str]]:
    """The values of these labels that pods list: in topologies, in required terms, in preferences,
    and in terms of DaemonSets. A topology lists all values that the pools list, and those of
    nodes."""
    running = {id(pod): pod for node in nodes for pod in node.present}.values()
    topologies = {term.topology for pod in running for term in pod.pod_anti_affinity}
    topologies.update(chain.from_iterable(map(_topologies, specs)))
    for key in sorted(topologies.intersection(keys)):
        values = {node.labels[key] for node in nodes if node.labels.get(key)}
        for requirement in (pool.requirements.of_key(key) for pool in pools):
            values.update(() if requirement.complement else requirement.values)
        yield from ((key, value) for value in sorted(values))
    terms = chain(
        (term for spec in placeable for term in spec.terms),
        (each.preference for spec in placeable for each in spec.preferred_terms),
        (term for daemon in daemons for term in daemon.terms),
    )
    found = {
        (key, value): None
        for term in terms
        for key, requirement in term.items()
        if key in keys
        for value in sorted(requirement.values)
    }
    yield from found


def _topologies(spec: PodSpec) -> Iterator[str]:
    """The topologies of all terms of a pod, required or preferred."""
    yield from (spread.pods.topology for spread in spec.spreads)
    yield from (term.topology for term in (*spec.pod_affinity, *spec.pod_anti_affinity))
    preferred = (*spec.preferred_pod_affinity, *spec.preferred_pod_anti_affinity)
    yield from (each.preference.topology for each in preferred)


class _Split:
    """The values by which pools are split so far. Pods launch no nodes of static pools, so these
    are not split."""

    def __init__(self, pools: Sequence[NodePool], offerings: Sequence[int]) -> None:
        self.undecided = [{} if pool.replicas is not None else undecided(pool) for pool in pools]
        self._pools, self._offerings = pools, offerings
        self._named: list[dict[str, frozenset[str]]] = [{} for _ in pools]
        self._added, self._added_offerings = 0, 0

    def provide(self, terms: Sequence[Requirements], positions: Sequence[int]) -> None:
        """Let one of these pools, the first that can, have a variant with the labels that one of
        the terms requires."""
        options = [
            (at, values)
            for at in positions
            for term in terms
            if (values := self._required(at, term)) is not None
        ]
        if all(values for _, values in options):
            any(self._name(at, values) for at, values in options)

    def name_everywhere(self, key: str, value: str) -> None:
        """Give all pools that allow it a variant with this value, up to the maximum."""
        for at, requirements in enumerate(self.undecided):
            if key in requirements and requirements[key].has(value):
                self._name(at, {key: value})

    def variants(self, at: int) -> Sequence[NodePool]:
        """Return the variants of a pool."""
        choices = [
            _choices(requirement, self._named[at][key])
            for key, requirement in self._pools[at].requirements.items()
            if key in self._named[at]
        ]
        several = [choice for choice in choices if len(choice) > 1]
        pool = self._pools[at]
        return [_narrowed(pool, chosen) for chosen in product(*several)] if several else [pool]

    def _required(self, at: int, term: Requirements) -> dict[str, str] | None:
        """A value for each label that a term requires and no variant of a pool has yet. None if the
        pool has no value for the term."""
        values: dict[str, str] = {}
        for key in missing(term, self.undecided[at]):
            requirement = self.undecided[at][key].intersection(term[key])
            if any(map(requirement.has, self._named[at].get(key, ()))):
                continue
            value = _value(requirement, self._pools[at].name)
            if value is None:
                return None
            values[key] = value
        return values

    def _name(self, at: int, values: Mapping[str, str]) -> bool:
        """Split a pool by these values too. Returns whether the maximum allows it."""
        known = self._named[at]
        named = known | {k: known.get(k, frozenset()) | {value} for k, value in values.items()}
        more = self._count(at, named) - self._count(at, known)
        added = self._added + more
        added_offerings = self._added_offerings + more * self._offerings[at]
        if added > MAX_VARIANTS or added_offerings > MAX_OFFERINGS:
            return False
        self._named[at], self._added, self._added_offerings = named, added, added_offerings
        return True

    def _count(self, at: int, named: Mapping[str, frozenset[str]]) -> int:
        """The number of variants of a pool that is split by these values."""
        count = 1
        for key, values in named.items():
            requirement = self.undecided[at][key]
            others = requirement.complement or len(requirement.values) > len(values)
            count *= len(values) + others
        return count


def _value(requirement: Requirement, preferred: str) -> str | None:
    """A valid label value that matches, always the same; None if there is none."""
    if not requirement.complement:
        return min(requirement.values, default=None)
    excluded = len(requirement.values)
    least = requirement.at_least
    if least is None:
        least = 0 if requirement.at_most is None else requirement.at_most - excluded
    least = max(least, 0)  # a label value has no sign
    numbers = map(str, range(least, least + excluded + 1))
    return next(filter(requirement.has, chain([preferred], numbers)), None)


def _choices(requirement: Requirement, named: frozenset[str]) -> list[Requirement]:
    """One requirement for each of the values, and one for all other values together."""
    values = sorted(named)
    separate = [
        requirement.intersection(Requirement.of(requirement.key, "In", [v])) for v in values
    ]
    rest = requirement.intersection(Requirement.of(requirement.key, "NotIn", values))
    return separate if rest.is_empty else [*separate, rest]


def _narrowed(pool: NodePool, chosen: Iterable[Requirement]) -> NodePool:
    narrowed = tuple(chosen)
    labels = {
        r.key: next(iter(r.values)) for r in narrowed if not r.complement and len(r.values) == 1
    }
    return replace(
        pool,
        requirements=pool.requirements.intersection(Requirements(narrowed)),
        labels={**pool.labels, **labels},
    )
