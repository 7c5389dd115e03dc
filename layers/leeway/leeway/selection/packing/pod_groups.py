"""Groups of interchangeable pods: many replicas cost one decision.

Preferences are treated as requirements, and relaxed one after another. Preferred node affinity that
no node satisfies is relaxed first, regardless of its weight. Then, each kind by weight, the
lightest first: pod affinity, pod anti-affinity, node affinity, spreads with ScheduleAnyway, and
finally avoiding nodes with a PreferNoSchedule taint.

Pods that must share a node are bundled into one unit.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from leeway.reasons import Reason
from leeway.selection.packing.plan import TOPOLOGY_UNSATISFIABLE
from leeway.selection.packing.topology import Counters, Rules
from leeway.selection.pods import Pod, PodSpec, Toleration, Weighted
from leeway.selection.requirements import Requirements

_TOLERATES_SOFT_TAINTS = Toleration(operator="Exists", effect="PreferNoSchedule")


def with_preferences_required(spec: PodSpec) -> PodSpec:
    """Return the pod with all its preferences as requirements."""
    if not has_preferences(spec):
        return spec
    wanted = Requirements(r for w in spec.preferred_terms for r in w.preference.values())
    terms = spec.terms
    if spec.preferred_terms:
        terms = tuple(term.intersection(wanted) for term in spec.terms or (Requirements(),))
    return replace(
        spec,
        terms=terms,
        affinity=spec.own_terms,
        pod_affinity=spec.pod_affinity + tuple(w.preference for w in spec.preferred_pod_affinity),
        pod_anti_affinity=spec.pod_anti_affinity
        + tuple(w.preference for w in spec.preferred_pod_anti_affinity),
        spreads=tuple(replace(spread, required=True) for spread in spec.spreads),
        preferred_terms=(),
        preferred_pod_affinity=(),
        preferred_pod_anti_affinity=(),
    )


def without_preferences(spec: PodSpec) -> PodSpec:
    """Return the pod without its preferences, except for soft taints."""
    return replace(
        spec,
        spreads=tuple(spread for spread in spec.spreads if spread.required),
        preferred_terms=(),
        preferred_pod_affinity=(),
        preferred_pod_anti_affinity=(),
    )


def fully_relaxed(spec: PodSpec, soft_taints: bool) -> PodSpec:
    """Return the pod as kube-scheduler's filters see it: with nothing but what it requires.

    `soft_taints`: there are nodes with a PreferNoSchedule taint.
    """
    if has_preferences(spec):
        spec = without_preferences(spec)
    return tolerating_soft_taints(spec) if soft_taints else spec


@lru_cache(maxsize=4096)
def tolerating_soft_taints(spec: PodSpec) -> PodSpec:
    """Return the pod without its preference for nodes that have no PreferNoSchedule taint."""
    if _TOLERATES_SOFT_TAINTS in spec.tolerations:
        return spec
    return replace(spec, tolerations=(*spec.tolerations, _TOLERATES_SOFT_TAINTS))


def has_preferences(spec: PodSpec) -> bool:
    """Whether the pod has preferences other than soft taints."""
    return bool(
        spec.preferred_terms
        or spec.preferred_pod_affinity
        or spec.preferred_pod_anti_affinity
        or not all(spread.required for spread in spec.spreads)
    )


@lru_cache(maxsize=4096)
def relaxed(spec: PodSpec, soft_taints: bool) -> PodSpec | None:
    """Return the pod without its next preference, None if there is none.

    `soft_taints`: there are nodes with a PreferNoSchedule taint.
    """
    if spec.preferred_pod_affinity:
        return replace(spec, preferred_pod_affinity=_without_lightest(spec.preferred_pod_affinity))
    if spec.preferred_pod_anti_affinity:
        return replace(
            spec, preferred_pod_anti_affinity=_without_lightest(spec.preferred_pod_anti_affinity)
        )
    if spec.preferred_terms:
        return replace(spec, preferred_terms=_without_lightest(spec.preferred_terms))
    if not all(spread.required for spread in spec.spreads):
        kept = tuple(spread for spread in spec.spreads if spread.required)
        return replace(spec, spreads=kept)
    tolerant = tolerating_soft_taints(spec) if soft_taints else spec
    return None if tolerant is spec else tolerant


def _without_lightest[T](preferences: tuple[Weighted[T], ...]) -> tuple[Weighted[T], ...]:
    lightest = min(range(len(preferences)), key=lambda i: preferences[i].weight)
    return preferences[:lightest] + preferences[lightest + 1 :]


type Units = tuple[tuple[str, ...], ...]
"""The names of the pods of each unit."""


@dataclass(frozen=True, slots=True)
class ChosenValue:
    """A value of a label as the domain of pods: a position, and the compared positions."""

    label: str
    value: int
    compared: tuple[bool, ...]


@dataclass(frozen=True)
class PodGroup:
    """Pending pods that differ only in their names.

    `spec` has the remaining preferences as requirements. `declared` is the pod as it was read,
    without the preferences that were relaxed. `chosen` are the values of labels that their terms by
    these labels have led to.
    """

    declared: PodSpec
    spec: PodSpec
    rules: Rules
    pods: tuple[str, ...]
    chosen: tuple[ChosenValue, ...] = ()


@dataclass(frozen=True)
class PodBatch:
    """Equal units that are packed together. A unit is one pod, or several pods that must share a
    node.

    `parts` are the groups of a unit's pods with their numbers. `zone` is the zone of all units (a
    position; None: any zone). `joined`: the unit itself contains the pods that its affinity
    requires.
    """

    parts: tuple[tuple[PodGroup, int], ...]
    units: Units
    zone: int | None = None
    joined: bool = False

    @classmethod
    def of(cls, group: PodGroup, pods: Sequence[str], zone: int | None = None) -> "PodBatch":
        """Return a batch in which each pod is a unit."""
        return cls(((group, 1),), tuple((pod,) for pod in pods), zone)

    def having(self, units: Units) -> "PodBatch":
        """Return the batch with these units only."""
        return replace(self, units=units)

    def pods_by_group(self) -> Iterator[tuple[PodGroup, tuple[str, ...]]]:
        """Yield each group with the names of its pods."""
        start = 0
        for group, pods in self.parts:
            yield group, tuple(n for unit in self.units for n in unit[start : start + pods])
            start += pods

    def without(self, names: Collection[str]) -> Iterator["PodBatch"]:
        """Yield the batch without some pods. If it loses any, each of the others is a unit."""
        if all(name not in names for unit in self.units for name in unit):
            yield self
            return
        for group, own in self.pods_by_group():
            kept = [name for name in own if name not in names]
            if kept:
                yield PodBatch.of(group, kept, self.zone)

    @cached_property
    def shape(self) -> object:
        """Equal for batches whose units have equal requests and the same candidate nodes, apart
        from zones."""
        return tuple(
            (g.spec.terms, g.spec.tolerations, g.spec.ports, g.spec.requests, pods)
            for g, pods in self.parts
        )

    @property
    def priority(self) -> int:
        """The highest priority of its pods."""
        return max(group.spec.priority for group, _ in self.parts)

    @cached_property
    def counted(self) -> dict[int, int]:
        """The number of pods that one unit adds to each counter."""
        found: dict[int, int] = {}
        for group, pods in self.parts:
            for counter in group.rules.counted:
                found[counter] = found.get(counter, 0) + pods
        return found

    @cached_property
    def caps(self) -> dict[int, int]:
        """The maximum of each counter on its node."""
        found: dict[int, int] = {}
        for group, _ in self.parts:
            for cap in group.rules.caps_on_node:
                found[cap.counter] = min(cap.most, found.get(cap.counter, cap.most))
        return found


@dataclass(frozen=True)
class Unplaced:
    """Pods of a group without a node, and the reason. `zone`: the zone in which they are counted
    already. `infeasible`: no existing node and no offering fits them."""

    group: PodGroup
    pods: tuple[str, ...]
    reason: Reason
    zone: int | None = None
    infeasible: bool = False


def group_pods(pods: Sequence[Pod], counters: Counters) -> list[PodGroup]:
    """Group pods in the order in which they are given, and register their terms with the
    counters."""
    distinct = {id(pod.spec): pod.spec for pod in pods}
    strict = {key: with_preferences_required(spec) for key, spec in distinct.items()}
    counters.register(strict.values())
    keys = {key: (counters.selecting(strict[key]), spec.shape) for key, spec in distinct.items()}
    names: dict[object, list[str]] = {}
    first: dict[object, int] = {}
    for pod in pods:
        key = keys[id(pod.spec)]
        names.setdefault(key, []).append(pod.name)
        first.setdefault(key, id(pod.spec))
    return [
        PodGroup(distinct[i], strict[i], counters.rules(strict[i]), tuple(names[key]))
        for key, i in first.items()
    ]


def pinned(spec: PodSpec, wanted: Requirements) -> PodSpec:
    """Return the pod restricted to nodes with these labels. Its spreads compare the same nodes as
    before."""
    terms = tuple(term.intersection(wanted) for term in spec.terms or (Requirements(),))
    return replace(spec, terms=terms, affinity=spec.own_terms)


def spread_unsatisfiable(topology: str, cause: str) -> Reason:
    """Return why a topology spread constraint of a pod cannot be met."""
    constraint = f"The topology spread constraint of the pod on {topology}"
    return TOPOLOGY_UNSATISFIABLE(why=f"{constraint} cannot be met: {cause}")


def affinity_unsatisfiable(cause: str) -> Reason:
    """Return why the affinity of a pod to other pods cannot be met."""
    return TOPOLOGY_UNSATISFIABLE(why=f"The pod affinity of the pod cannot be met: {cause}")


_TOO_LARGE = affinity_unsatisfiable("no node has room for all pods that have to share a node")
_NO_SUCH_PODS = affinity_unsatisfiable("the pods that it has to share a node with do not exist")

type Fits = Callable[[PodBatch], bool]
"""Whether one unit of a batch fits on some node."""


def bundle(
    batches: Sequence[PodBatch], running: frozenset[int], launched: frozenset[int], fits: Fits
) -> tuple[list[PodBatch], list[Unplaced]]:
    """Join the batches that pod affinity by hostname connects.

    `running` are the counters with pods on nodes: pods that require one of them are packed
    individually onto such nodes. `launched` are the counters with pods on new nodes, which are
    full. kube-scheduler may bind pods in any order, so a pod may be the first that its own affinity
    selects only if there is no other such pod.
    """
    dependent = [batch for batch in batches if set(_affinities(batch)) - running]
    if not dependent:
        return list(batches), []
    rest = [batch for batch in batches if not set(_affinities(batch)) - running]
    joined: list[PodBatch] = []
    unplaced: list[Unplaced] = []
    sets = list(connected(dependent, _terms))
    for number, together in enumerate(sets, 1):
        partners, rest = _partners(together, rest, running, launched, fits)
        if partners is None:
            unplaced += [_unplaced(batch, batch.units, _NO_SUCH_PODS) for batch in together]
            continue
        later = (batch for each in sets[number:] for batch in each)
        others = launched | {counter for batch in (*rest, *later) for counter in batch.counted}
        unit, remaining = _unit(together, partners, others, fits)
        if unit is None:
            rest += partners
        else:
            joined.append(unit)
        unplaced += remaining
    return rest + joined, unplaced


def _affinities(batch: PodBatch) -> Iterator[int]:
    for group, _ in batch.parts:
        yield from group.rules.affinity_on_node


type Terms = tuple[Collection[int], Collection[int]]
"""The counters that count some pods, and those of which their affinity requires another pod."""


def connected[T](items: Iterable[T], terms: Callable[[T], Terms]) -> Iterator[list[T]]:
    """Yield the sets of items that affinity connects, in either direction."""
    rest = list(items)
    while rest:
        together, joining = [], [rest[0]]
        while joining:
            together += joining
            chosen = set(map(id, joining))
            rest = [item for item in rest if id(item) not in chosen]
            counted = {counter for item in together for counter in terms(item)[0]}
            required = {counter for item in together for counter in terms(item)[1]}
            joining = [
                item
                for item in rest
                if not required.isdisjoint(terms(item)[0]) or not counted.isdisjoint(terms(item)[1])
            ]
        yield together


def bindable[T](
    items: Iterable[T], terms: Callable[[T], Terms], bound: Iterable[int], others: Collection[int]
) -> list[T]:
    """Return the items whose pods can be bound one after another with their affinity met, after
    pods of the counters `bound`. A pod may be the first that its own affinity selects only if no
    other such pod exists, now or later: `others` are the counters of other pods."""
    present, waiting, found = set(bound), list(items), list[T]()
    while waiting:
        ready = [item for item in waiting if present.issuperset(terms(item)[1])]
        ready = ready or [item for item in waiting if _may_lead(*terms(item), present, others)][:1]
        if not ready:
            break
        found += ready
        present.update(counter for item in ready for counter in terms(item)[0])
        chosen = set(map(id, ready))
        waiting = [item for item in waiting if id(item) not in chosen]
    return found


def _may_lead(
    counted: Collection[int],
    required: Collection[int],
    present: Collection[int],
    others: Collection[int],
) -> bool:
    return all(c in present or (c in counted and c not in others) for c in required)


def _terms(batch: PodBatch) -> Terms:
    return batch.counted.keys(), [*_affinities(batch)]


def _partners(
    together: Sequence[PodBatch],
    rest: list[PodBatch],
    running: frozenset[int],
    launched: frozenset[int],
    fits: Fits,
) -> tuple[list[PodBatch] | None, list[PodBatch]]:
    """One pod of another batch for each counter that these batches require and that none of them
    can lead, and the batches that remain. None if no such pod exists and none of these pods may be
    the first."""
    partners: list[PodBatch] = []
    zone = next((batch.zone for batch in together if batch.zone is not None), None)
    for counter in sorted({c for batch in together for c in _affinities(batch)} - running):
        if any(_can_lead(batch, counter) for batch in (*together, *partners)):
            continue
        others = [batch for batch in rest if counter in batch.counted]
        near = (batch for batch in others if batch.zone in {None, zone} or zone is None)
        found = next((batch for batch in near if fits(_pair(batch, together[0]))), None)
        if found is not None:
            partners.append(found.having(found.units[:1]))
            kept = [found.having(found.units[1:])] if len(found.units) > 1 else []
            rest = [batch for batch in rest if batch is not found] + kept
        elif (
            others or counter in launched or not any(counter in batch.counted for batch in together)
        ):
            return None, rest
    return partners, rest


def _can_lead(batch: PodBatch, counter: int) -> bool:
    """Whether the pods of a batch may be placed before the pods that require the counter."""
    return counter in batch.counted and counter not in set(_affinities(batch))


def _pair(partner: PodBatch, batch: PodBatch) -> PodBatch:
    """One pod of each batch, as a unit."""
    ((one, _),), ((other, _),) = partner.parts, batch.parts
    zone = partner.zone if partner.zone is not None else batch.zone
    return PodBatch(((one, 1), (other, 1)), (), zone, joined=True)


def _unit(
    together: Sequence[PodBatch], partners: Sequence[PodBatch], others: frozenset[int], fits: Fits
) -> tuple[PodBatch | None, list[Unplaced]]:
    """One unit of as many pods as fit on one node, the partners first; None if the affinity of a
    pod in it could not be met. `others` are the counters of all other pods."""
    parts: dict[int, tuple[PodGroup, int]] = {}
    names: dict[int, list[str]] = {}
    zones = {batch.zone for batch in (*partners, *together) if batch.zone is not None}
    zone = next(iter(zones), None)
    unplaced: list[Unplaced] = []
    for batch in (*partners, *together):
        ((group, _),) = batch.parts
        taken = (
            0 if len(zones) > 1 and batch.zone != zone else _most(group, batch, parts, zone, fits)
        )
        if taken:
            parts[id(group)] = (group, parts.get(id(group), (group, 0))[1] + taken)
            own = names.setdefault(id(group), [])
            own += [name for unit in batch.units[:taken] for name in unit]
        if taken < len(batch.units):
            unplaced.append(_unplaced(batch, batch.units[taken:], _TOO_LARGE))
    remaining = {id(entry.group): entry.group.rules for entry in unplaced}.values()
    elsewhere = others | {
        c for rules in remaining for c in rules.counted - set(rules.affinity_on_node)
    }
    unit = (tuple(name for own in names.values() for name in own),)
    made = PodBatch(tuple(parts.values()), unit, zone, joined=True)
    rules = [group.rules for group, _ in made.parts]
    in_order = bindable(rules, lambda each: (each.counted, each.affinity_on_node), (), elsewhere)
    if sum(map(len, unit)) <= len(partners) or len(in_order) < len(rules):
        return None, [_unplaced(batch, batch.units, _TOO_LARGE) for batch in together]
    return made, unplaced


def _most(
    group: PodGroup,
    batch: PodBatch,
    parts: dict[int, tuple[PodGroup, int]],
    zone: int | None,
    fits: Fits,
) -> int:
    """How many pods of a batch may join the unit, by binary search."""
    low, high = 0, len(batch.units)
    before = parts.get(id(group), (group, 0))[1]
    while low < high:
        middle = (low + high + 1) // 2
        tried = {**parts, id(group): (group, before + middle)}
        if fits(PodBatch(tuple(tried.values()), (), zone, joined=True)):
            low = middle
        else:
            high = middle - 1
    return low


def _unplaced(batch: PodBatch, units: Sequence[tuple[str, ...]], reason: Reason) -> Unplaced:
    names = tuple(name for unit in units for name in unit)
    return Unplaced(batch.parts[0][0], names, reason, batch.zone)
