"""Lots as the arrays that are packed: those that nothing tells apart are one kind.

Where lots differ so much that there would be too many kinds, they are told apart by size, place and
the counters on which they themselves count, and the rest is seen to when pods are put onto nodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from leeway.selection.packing.groups import Lot
from leeway.selection.packing.supply import Supply
from leeway.selection.solver.arrays import Bools, Floats, Ints, Problem

MOST_KINDS = 60

FEW = 500
"""Units that are packed one by one (see `leeway.selection.solver.ruin_and_recreate`)."""

MINDING = 2
"""How many pods that mind others' pods are taken to go onto one node, where there are too many
kinds to know."""

MAJOR = 0.5
"""Of the nodes that the counter needs which needs most: what another has to need to be heeded
where there are too many kinds."""

DEAR = 1.1
"""Of what the cheapest zone costs: where a zone costs more, its pods are a matter of their own."""


type _Counters = tuple[Floats, Floats, Floats, Bools]
"""A problem's `matches`, `caps`, `alone` and `firm`."""


@dataclass(frozen=True)
class Kinds:
    """What is to be packed. `lots` are each kind's; `index` says which offering of the supply each
    of the problem's is, `allowed` where each kind may go (G x all offerings); `exact`: whatever the
    problem admits, all lots admit; `few`: each pod is to be placed by itself."""

    problem: Problem
    lots: tuple[tuple[Lot, ...], ...]
    index: Ints
    allowed: Bools
    exact: bool
    few: bool = False


@dataclass(frozen=True)
class _Seen:
    """A lot with what its packing depends on."""

    lot: Lot
    size: Floats
    allowed: Bools
    place: int  # the same for the same `allowed`
    counted: dict[int, int]
    caps: dict[int, int]


class Sorter:
    """Sorts lots into kinds, for one supply and one set of resources."""

    def __init__(self, supply: Supply, resources: Sequence[str]) -> None:
        self.supply = supply
        self.resources = tuple(resources)
        self.capacity = supply.capacity(self.resources)
        self._everywhere = np.ones(len(supply), dtype=bool)
        self._places: dict[bytes, int] = {}
        self._fitting: dict[object, Bools] = {}
        self._sizes: dict[object, Floats] = {}

    def allowed(self, lot: Lot, open_to: Bools | None = None) -> Bools:
        """Where a unit of a lot may go and fits, of the offerings that are open: O."""
        return self._allowed(lot, lot.zone, open_to)

    def _allowed(self, lot: Lot, zone: int | None, open_to: Bools | None) -> Bools:
        key = (zone, lot.shape)
        if key not in self._fitting:
            fitting = (self.capacity >= self.size(lot)).all(axis=1)
            for group, _ in lot.parts:
                fitting &= self.supply.allowed(group.spec)
            if zone is not None:
                fitting &= self.supply.zones == zone
            self._fitting[key] = fitting
        found = self._fitting[key]
        if open_to is not None:
            found = found & open_to
        plain = found & ~self.supply.exotic
        return plain if plain.any() else found

    def place(self, lot: Lot) -> int:
        """A number that lots have in common which may go to the same offerings."""
        return self._place(self.allowed(lot))

    def _place(self, allowed: Bools) -> int:
        return self._places.setdefault(allowed.tobytes(), len(self._places))

    def size(self, lot: Lot) -> Floats:
        """What one unit asks for: R."""
        key = lot.shape
        if key not in self._sizes:
            size = np.zeros(len(self.resources))
            for group, pods in lot.parts:
                asked = [group.spec.requests.of(name) for name in self.resources]
                size += pods * np.array(asked, dtype=float)
            self._sizes[key] = size
        return self._sizes[key]

    def kinds(
        self, lots: Sequence[Lot], open_to: Bools, one_by_one: bool = True
    ) -> tuple[Kinds | None, list[Lot]]:
        """Sort lots into kinds; those that fit nowhere come back as they are.

        Where all zones offer the same at the same prices, and where there would be too many kinds,
        lots of different zones may be one kind, but for zones where much the same costs more. Few
        units are told apart by everything, if they are to be packed one by one.
        """
        seen, lost = self._see(lots, open_to, frozenset())
        if not seen:
            return None, lost
        kinds = _sorted(seen, _exactly)
        if one_by_one and sum(len(each.lot.units) for each in seen) <= FEW:
            return self._arrays(kinds, _exact_counters(kinds), True, few=True), lost
        pinned = {lot.zone for lot in lots if lot.zone is not None}
        blind = frozenset(pinned) if self.supply.zones_alike else frozenset[int]()
        if blind:
            seen, lost = self._see(lots, open_to, blind)
            kinds = _sorted(seen, _exactly)
        if len(kinds) > MOST_KINDS and pinned and not blind:
            blind = frozenset(pinned - self._dear(seen, open_to))
            seen, _ = self._see([each.lot for each in seen], open_to, blind)
            kinds = _sorted(seen, _exactly)
        if len(kinds) <= MOST_KINDS:
            return self._arrays(kinds, _exact_counters(kinds), not blind), lost
        majors = _majors(seen)
        kinds = _sorted(seen, _roughly(majors))
        return self._arrays(kinds, _rough_counters(kinds, majors), False), lost

    def _see(
        self, lots: Sequence[Lot], open_to: Bools, blind: frozenset[int]
    ) -> tuple[list[_Seen], list[Lot]]:
        """Look at lots; those that fit nowhere are apart. Lots of the zones `blind` are looked at
        as if they might go to any zone."""
        seen, lost = [], []
        for lot in lots:
            if not self.allowed(lot, open_to).any():
                lost.append(lot)
                continue
            allowed = self._allowed(lot, None if lot.zone in blind else lot.zone, open_to)
            size, place = self.size(lot), self._place(allowed)
            seen.append(_Seen(lot, size, allowed, place, lot.counted, lot.caps))
        return seen, lost

    def _dear(self, seen: Sequence[_Seen], open_to: Bools) -> set[int]:
        """The zones where nodes of any one offering for all these lots cost much more than where
        they cost least."""
        total = sum((len(each.lot.units) * each.size for each in seen), np.zeros(()))
        with np.errstate(divide="ignore", invalid="ignore"):
            nodes = np.nan_to_num(total / self.capacity, posinf=np.inf).max(axis=1)
        costs = np.where(open_to, nodes * self.supply.prices, np.inf)
        zones = range(len(self.supply.zone_names))
        least = [float(costs[self.supply.zones == zone].min(initial=np.inf)) for zone in zones]
        return {zone for zone in zones if least[zone] > DEAR * min(least)}

    def homes(self, kinds: Kinds, offering: int, pods: Sequence[int]) -> dict[int, int]:
        """For each zone where these kinds may go: the offering there that stands for another one,
        the same if there is one, else the cheapest of its pool that holds no less."""
        supply = self.supply
        able = kinds.allowed[list(pods)].all(axis=0)
        able &= supply.of_pool == supply.of_pool[offering]
        able &= (self.capacity >= self.capacity[offering]).all(axis=1)
        found = {}
        for zone in range(len(supply.zone_names)):
            twin = supply.twins.get((offering, zone))
            there = np.flatnonzero(able & (supply.zones == zone))
            if twin is not None and able[twin]:
                found[zone] = twin
            elif len(there):
                found[zone] = int(there[supply.prices[there].argmin()])
        return found

    def _arrays(
        self, kinds: list[list[_Seen]], counters: _Counters, exact: bool, few: bool = False
    ) -> Kinds:
        matches, caps, alone, firm = counters
        allowed = np.array([kind[0].allowed for kind in kinds])
        index = self._distinct(allowed)
        problem = Problem(
            sizes=np.array([kind[0].size for kind in kinds]),
            counts=np.array([sum(len(s.lot.units) for s in kind) for kind in kinds], dtype=float),
            matches=matches,
            caps=caps,
            alone=alone,
            firm=firm,
            capacity=self.capacity[index],
            prices=self.supply.prices[index],
            allowed=allowed[:, index],
        )
        lots = tuple(tuple(s.lot for s in kind) for kind in kinds)
        return Kinds(problem, lots, index, allowed, exact, few)

    def _distinct(self, allowed: Bools) -> Ints:
        """Of offerings that the same kinds may go to and that hold the same, the cheapest."""
        able = np.flatnonzero(allowed.any(axis=0))
        able = able[np.argsort(self.supply.prices[able], kind="stable")]
        marks = np.packbits(allowed[:, able], axis=0).T
        held = np.ascontiguousarray(self.capacity[able]).view(np.uint8).reshape(len(able), -1)
        rows = np.ascontiguousarray(np.concatenate([held, marks], axis=1))
        keys = rows.view(np.dtype((np.void, rows.shape[1]))).ravel()
        _, first = np.unique(keys, return_index=True)
        return np.sort(able[first])


def _sorted(seen: Sequence[_Seen], key: Callable[[_Seen], object]) -> list[list[_Seen]]:
    found: dict[object, list[_Seen]] = {}
    for each in seen:
        found.setdefault(key(each), []).append(each)
    return list(found.values())


def _exactly(seen: _Seen) -> object:
    counted, caps = frozenset(seen.counted.items()), frozenset(seen.caps.items())
    return seen.size.tobytes(), seen.place, counted, caps


def _roughly(majors: frozenset[int]) -> Callable[[_Seen], object]:
    """Tell lots apart by the counters that matter most only."""

    def key(seen: _Seen) -> object:
        return seen.size.tobytes(), seen.place, _own(seen, majors), _minds(seen, majors)

    return key


def _majors(seen: Sequence[_Seen]) -> frozenset[int]:
    """The counters that keep about as many pods apart as any does."""
    apart: dict[int, float] = {}
    for each in seen:
        for counter, adds in each.counted.items():
            if counter in each.caps:
                share = len(each.lot.units) * adds / max(each.caps[counter], 1)
                apart[counter] = apart.get(counter, 0.0) + share
    most = max(apart.values(), default=0)
    return frozenset(counter for counter, needed in apart.items() if needed >= MAJOR * most)


def _own(seen: _Seen, majors: frozenset[int]) -> frozenset[tuple[int, int, int]]:
    """The major counters that a lot both caps and adds to: counter, pods of a unit, cap."""
    return frozenset(
        (c, n, seen.caps[c]) for c, n in seen.counted.items() if c in majors and c in seen.caps
    )


def _minds(seen: _Seen, majors: frozenset[int]) -> bool:
    """Whether it caps any other counter."""
    return any(c not in majors or c not in seen.counted for c in seen.caps)


def _exact_counters(kinds: Sequence[Sequence[_Seen]]) -> _Counters:
    """Counters that several kinds are concerned with: G x K twice; and the most of a kind alone."""
    concerned: dict[int, set[int]] = {}
    capped = {counter for kind in kinds for counter in kind[0].caps}
    for number, kind in enumerate(kinds):
        for counter in (kind[0].counted.keys() | kind[0].caps.keys()) & capped:
            concerned.setdefault(counter, set()).add(number)
    shared = sorted(counter for counter, by in concerned.items() if len(by) > 1)
    column = {counter: k for k, counter in enumerate(shared)}
    matches = np.zeros((len(kinds), len(shared)))
    caps = np.full((len(kinds), len(shared)), np.inf)
    alone = np.full(len(kinds), np.inf)
    for number, kind in enumerate(kinds):
        for counter, adds in kind[0].counted.items():
            if counter in column:
                matches[number, column[counter]] = adds
        for counter, most in kind[0].caps.items():
            if counter in column:
                caps[number, column[counter]] = most
            elif counter in kind[0].counted:
                alone[number] = min(alone[number], most // kind[0].counted[counter])
    return matches, caps, np.maximum(alone, 1), np.ones(len(shared), dtype=bool)


def _rough_counters(kinds: Sequence[Sequence[_Seen]], majors: frozenset[int]) -> _Counters:
    """The same by the major counters; and as if those who mind others did not share nodes."""
    own: dict[int, list[tuple[int, int, int]]] = {}
    alone = np.full(len(kinds), np.inf)
    for number, kind in enumerate(kinds):
        for counter, adds, most in _own(kind[0], majors):
            own.setdefault(counter, []).append((number, adds, most))
        if _minds(kind[0], majors):
            own.setdefault(-1, []).append((number, 1, MINDING))
    for counter, concerned in list(own.items()):
        if len(concerned) == 1:
            ((number, adds, most),) = own.pop(counter)
            alone[number] = min(alone[number], max(1, most // adds))
    matches = np.zeros((len(kinds), len(own)))
    caps = np.full((len(kinds), len(own)), np.inf)
    for column, concerned in enumerate(own.values()):
        for number, adds, most in concerned:
            matches[number, column], caps[number, column] = adds, most
    return matches, caps, alone, np.array([counter >= 0 for counter in own], dtype=bool)
