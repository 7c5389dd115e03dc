"""Pods that have to share a node, as one unit to be packed."""

from collections.abc import Callable, Iterator, Sequence

from leeway.selection.packing.groups import Group, Lot, Misplaced

TOO_LARGE = "no node has room for all the pods that have to share it with it"
ALONE = "it has to share a node with pods that are not there"

type Fits = Callable[[Lot], bool]
"""Whether one unit of a lot could go onto some node."""


def bundled(
    lots: Sequence[Lot], running: frozenset[int], launched: frozenset[int], fits: Fits
) -> tuple[list[Lot], list[Misplaced]]:
    """Join the lots that pod affinity by hostname holds together.

    `running` are the counters that have pods on nodes: who has to be near one of those is packed
    by itself, onto such a node. `launched` are those that have pods on new nodes, which are full.
    The scheduler binds pods in any order: a pod may be the first of those that it has to be near
    itself only where there are no others anywhere.
    """
    wanting = [lot for lot in lots if set(_wanted(lot)) - running]
    if not wanting:
        return list(lots), []
    rest = [lot for lot in lots if not set(_wanted(lot)) - running]
    joined: list[Lot] = []
    misplaced: list[Misplaced] = []
    while wanting:
        together = _together(wanting)
        chosen = {id(lot) for lot in together}
        wanting = [lot for lot in wanting if id(lot) not in chosen]
        mates, rest = _mates(together, rest, running, launched, fits)
        if mates is None:
            misplaced += [_misplaced(lot, lot.units, ALONE) for lot in together]
            continue
        others = launched | {counter for lot in (*rest, *wanting) for counter in lot.counted}
        unit, left = _unit(together, mates, others, fits)
        if unit is None:
            rest += mates
        else:
            joined.append(unit)
        misplaced += left
    return rest + joined, misplaced


def _wanted(lot: Lot) -> Iterator[int]:
    for group, _ in lot.parts:
        yield from group.rules.with_node


def _together(lots: Sequence[Lot]) -> list[Lot]:
    """The first lot, and all that are bound to it by counters that they want or add to."""
    together, rest = [lots[0]], list(lots[1:])
    while True:
        wanted = {counter for lot in together for counter in _wanted(lot)}
        had = {counter for lot in together for counter in lot.counted}
        joining = [lot for lot in rest if wanted & lot.counted.keys() or had & set(_wanted(lot))]
        if not joining:
            return together
        together += joining
        chosen = {id(lot) for lot in joining}
        rest = [lot for lot in rest if id(lot) not in chosen]


def _mates(
    together: Sequence[Lot],
    rest: list[Lot],
    running: frozenset[int],
    launched: frozenset[int],
    fits: Fits,
) -> tuple[list[Lot] | None, list[Lot]]:
    """One pod of another lot for each counter that these want and that none of them adds to
    without wanting it, and what is left of the others; None where there is no such pod, and no pod
    of these may be the first."""
    mates: list[Lot] = []
    zone = next((lot.zone for lot in together if lot.zone is not None), None)
    for counter in sorted({c for lot in together for c in _wanted(lot)} - running):
        if any(_leads(lot, counter) for lot in (*together, *mates)):
            continue
        others = [lot for lot in rest if counter in lot.counted]
        near = (lot for lot in others if lot.zone in {None, zone} or zone is None)
        found = next((lot for lot in near if fits(_beside(lot, together[0]))), None)
        if found is not None:
            mates.append(found.having(found.units[:1]))
            kept = [found.having(found.units[1:])] if len(found.units) > 1 else []
            rest = [lot for lot in rest if lot is not found] + kept
        elif others or counter in launched or not any(counter in lot.counted for lot in together):
            return None, rest
    return mates, rest


def _leads(lot: Lot, counter: int) -> bool:
    """Whether a lot's pods may come before those that have to be near the counter's."""
    return counter in lot.counted and counter not in set(_wanted(lot))


def _beside(mate: Lot, lot: Lot) -> Lot:
    """One pod of each, as a unit."""
    ((one, _),), ((other, _),) = mate.parts, lot.parts
    zone = mate.zone if mate.zone is not None else lot.zone
    return Lot(((one, 1), (other, 1)), (), zone, joined=True)


def _unit(
    together: Sequence[Lot], mates: Sequence[Lot], others: frozenset[int], fits: Fits
) -> tuple[Lot | None, list[Misplaced]]:
    """One unit of as many of the pods as fit onto one node, the mates first; None where somebody
    on it would miss whom they have to be near. `others` are the counters of pods besides these."""
    parts: dict[int, tuple[Group, int]] = {}
    names: dict[int, list[str]] = {}
    zones = {lot.zone for lot in (*mates, *together) if lot.zone is not None}
    zone = next(iter(zones), None)
    misplaced: list[Misplaced] = []
    for lot in (*mates, *together):
        ((group, _),) = lot.parts
        taken = 0 if len(zones) > 1 and lot.zone != zone else _most(group, lot, parts, zone, fits)
        if taken:
            parts[id(group)] = (group, parts.get(id(group), (group, 0))[1] + taken)
            own = names.setdefault(id(group), [])
            own += [name for unit in lot.units[:taken] for name in unit]
        if taken < len(lot.units):
            misplaced.append(_misplaced(lot, lot.units[taken:], TOO_LARGE))
    left = {id(miss.group): miss.group.rules for miss in misplaced}.values()
    elsewhere = others | {c for rules in left for c in rules.counted - set(rules.with_node)}
    unit = (tuple(name for own in names.values() for name in own),)
    made = Lot(tuple(parts.values()), unit, zone, joined=True)
    if sum(map(len, unit)) <= len(mates) or _lonely(made, elsewhere):
        return None, [_misplaced(lot, lot.units, TOO_LARGE) for lot in together]
    return made, misplaced


def _lonely(unit: Lot, elsewhere: frozenset[int]) -> bool:
    """Whether a unit's pods could not all be bound one after another, each near whom it has to be;
    `elsewhere` are the counters of pods besides these."""
    bound: set[int] = set()
    waiting = [group.rules for group, _ in unit.parts]
    while waiting:
        going = [rules for rules in waiting if bound.issuperset(rules.with_node)]
        going = (
            going
            or [
                rules
                for rules in waiting
                if all(c in bound or c in rules.counted - elsewhere for c in rules.with_node)
            ][:1]
        )
        if not going:
            return True
        bound.update(counter for rules in going for counter in rules.counted)
        waiting = [rules for rules in waiting if not any(rules is each for each in going)]
    return False


def _most(
    group: Group,
    lot: Lot,
    parts: dict[int, tuple[Group, int]],
    zone: int | None,
    fits: Fits,
) -> int:
    """How many pods of a lot may join the unit: by halving, since fewer fit where more do."""
    low, high = 0, len(lot.units)
    before = parts.get(id(group), (group, 0))[1]
    while low < high:
        middle = (low + high + 1) // 2
        tried = {**parts, id(group): (group, before + middle)}
        if fits(Lot(tuple(tried.values()), (), zone, joined=True)):
            low = middle
        else:
            high = middle - 1
    return low


def _misplaced(lot: Lot, units: Sequence[tuple[str, ...]], reason: str) -> Misplaced:
    names = tuple(name for unit in units for name in unit)
    return Misplaced(lot.parts[0][0], names, reason, lot.zone)
