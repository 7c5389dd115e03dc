"""Bundles pods that must share a node into one unit."""

from collections.abc import Callable, Iterator, Sequence

from leeway.reasons import Reason
from leeway.selection.packing.pod_groups import PodBatch, PodGroup, Unplaced
from leeway.selection.reasons import POD_AFFINITY_UNSATISFIABLE

_TOO_LARGE = POD_AFFINITY_UNSATISFIABLE(
    cause="no node has room for all pods that have to share a node"
)
_NO_SUCH_PODS = POD_AFFINITY_UNSATISFIABLE(
    cause="the pods that it has to share a node with do not exist"
)

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
    while dependent:
        together = _together(dependent)
        chosen = {id(batch) for batch in together}
        dependent = [batch for batch in dependent if id(batch) not in chosen]
        partners, rest = _partners(together, rest, running, launched, fits)
        if partners is None:
            unplaced += [_unplaced(batch, batch.units, _NO_SUCH_PODS) for batch in together]
            continue
        others = launched | {counter for batch in (*rest, *dependent) for counter in batch.counted}
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


def _together(batches: Sequence[PodBatch]) -> list[PodBatch]:
    """The first batch, and all batches that affinity connects with it."""
    together, rest = [batches[0]], list(batches[1:])
    while True:
        affinities = {counter for batch in together for counter in _affinities(batch)}
        had = {counter for batch in together for counter in batch.counted}
        joining = [
            batch
            for batch in rest
            if affinities & batch.counted.keys() or had & set(_affinities(batch))
        ]
        if not joining:
            return together
        together += joining
        chosen = {id(batch) for batch in joining}
        rest = [batch for batch in rest if id(batch) not in chosen]


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
    if sum(map(len, unit)) <= len(partners) or _unbindable(made, elsewhere):
        return None, [_unplaced(batch, batch.units, _TOO_LARGE) for batch in together]
    return made, unplaced


def _unbindable(unit: PodBatch, elsewhere: frozenset[int]) -> bool:
    """Whether the pods of a unit could not be bound one after another with their affinity met.
    `elsewhere` are the counters of all other pods."""
    bound: set[int] = set()
    waiting = [group.rules for group, _ in unit.parts]
    while waiting:
        ready = [rules for rules in waiting if bound.issuperset(rules.affinity_on_node)]
        ready = (
            ready
            or [
                rules
                for rules in waiting
                if all(c in bound or c in rules.counted - elsewhere for c in rules.affinity_on_node)
            ][:1]
        )
        if not ready:
            return True
        bound.update(counter for rules in ready for counter in rules.counted)
        waiting = [rules for rules in waiting if not any(rules is each for each in ready)]
    return False


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
