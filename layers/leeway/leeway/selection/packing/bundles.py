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
        mates, rest = _mates(together, rest, running, launched)
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
    together: Sequence[Lot], rest: list[Lot], running: frozenset[int], launched: frozenset[int]
) -> tuple[list[Lot] | None, list[Lot]]:
    """One pod of another lot for each counter that these want and do not come to themselves, and
    what is left of the others; None where there is no such pod.

    A pod that only itself is near to may come first of all, but only if there is no other.
    """
    had: dict[int, int] = {}
    for lot in together:
        for counter, adds in lot.counted.items():
            had[counter] = had.get(counter, 0) + adds * len(lot.units)
    mates: list[Lot] = []
    zone = next((lot.zone for lot in together if lot.zone is not None), None)
    for counter in sorted({c for lot in together for c in _wanted(lot)} - running):
        if had.get(counter, 0) > 1 or any(counter in mate.counted for mate in mates):
            continue
        found = next(
            (lot for lot in rest if counter in lot.counted and lot.zone in {None, zone}), None
        )
        if found is not None:
            mates.append(found.having(found.units[:1]))
            kept = [found.having(found.units[1:])] if len(found.units) > 1 else []
            rest = [lot for lot in rest if lot is not found] + kept
        elif counter not in had or counter in launched:
            return None, rest
    return mates, rest


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
    elsewhere = others | {c for miss in misplaced for c in miss.group.rules.counted}
    unit = (tuple(name for own in names.values() for name in own),)
    made = Lot(tuple(parts.values()), unit, zone, joined=True)
    if sum(map(len, unit)) <= len(mates) or _lonely(made, elsewhere):
        return None, [_misplaced(lot, lot.units, TOO_LARGE) for lot in together]
    return made, misplaced


def _lonely(unit: Lot, elsewhere: frozenset[int]) -> bool:
    """Whether a pod of a unit is near nobody whom it has to be near; a pod that has to be near
    its like may be the first of them, but only if there is no other."""
    counted = unit.counted
    for group, _ in unit.parts:
        for counter in group.rules.with_node:
            itself = counter in group.rules.counted
            if counted.get(counter, 0) > itself or (itself and counter not in elsewhere):
                continue
            return True
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
