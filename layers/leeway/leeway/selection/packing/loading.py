"""Takes pods for a node from what waits, so that no counter on the node is exceeded."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from leeway.selection.packing.groups import Lot, Units
from leeway.selection.solver.arrays import Floats, Problem

type Load = tuple[tuple[Lot, Units], ...]
"""Lots on one node, with the units of each."""


class Queue:
    """One kind's lots, from which units are taken, by zone."""

    def __init__(self, lots: Sequence[Lot], zones: int) -> None:
        self.lots = lots
        self._taken = [0] * len(lots)
        self._turn = 0
        self._counted = [lot.counted for lot in lots]
        self._caps = [lot.caps for lot in lots]
        self._of_zone: list[list[int]] = [[] for _ in range(zones)]
        self._free: list[int] = []
        for at, lot in enumerate(lots):
            (self._free if lot.zone is None else self._of_zone[lot.zone]).append(at)
        self._turns = [0] * (zones + 1)
        self.waiting = [sum(len(lots[at].units) for at in own) for own in self._of_zone]
        self.free = sum(len(lots[at].units) for at in self._free)

    def left(self) -> Iterator[Lot]:
        """What has not been taken."""
        for lot, taken in zip(self.lots, self._taken, strict=True):
            if taken < len(lot.units):
                yield lot.having(lot.units[taken:])

    def take(self, units: int) -> Iterator[tuple[Lot, Units]]:
        """Take units of whichever lot has some."""
        while units > 0 and self._turn < len(self.lots):
            lot, start = self.lots[self._turn], self._taken[self._turn]
            found = lot.units[start : start + units]
            if found:
                self._taken[self._turn] += len(found)
                units -= len(found)
                yield lot, found
            else:
                self._turn += 1

    def take_one(
        self, counts: dict[int, int], limits: dict[int, int], zone: int
    ) -> tuple[Lot, tuple[str, ...]] | None:
        """Take one unit that the counters of a node in a zone admit, of the lots by turns; those
        that may go to any zone last."""
        at = self._next(self._of_zone[zone], zone, counts, limits) if zone >= 0 else None
        if at is not None:
            self.waiting[zone] -= 1
        else:
            at = self._next(self._free, -1, counts, limits)
            if at is None:
                return None
            self.free -= 1
        for counter, adds in self._counted[at].items():
            counts[counter] = counts.get(counter, 0) + adds
        for counter, most in self._caps[at].items():
            limits[counter] = min(most, limits.get(counter, most))
        unit = self.lots[at].units[self._taken[at]]
        self._taken[at] += 1
        return self.lots[at], unit

    def _next(
        self, own: list[int], turn: int, counts: dict[int, int], limits: dict[int, int]
    ) -> int | None:
        start = self._turns[turn]
        for step in range(len(own)):
            at = own[(start + step) % len(own)]
            if self._taken[at] >= len(self.lots[at].units):
                continue
            if _admits(self._counted[at], self._caps[at], counts, limits):
                self._turns[turn] = (start + step + 1) % len(own)
                return at
        return None


def _admits(
    counted: Mapping[int, int],
    caps: Mapping[int, int],
    counts: Mapping[int, int],
    limits: Mapping[int, int],
) -> bool:
    for counter, adds in counted.items():
        if counter in limits and counts.get(counter, 0) + adds > limits[counter]:
            return False
    return all(
        counts.get(counter, 0) + counted.get(counter, 0) <= most for counter, most in caps.items()
    )


def best_zone(pods: Sequence[tuple[Queue, int]], prices: Mapping[int, float]) -> int:
    """Of the zones that a node costs so much in, the one that has most of what it is to hold; of
    equal ones the cheapest, and of those that with most left."""
    return max(
        prices,
        key=lambda zone: (
            sum(min(units, queue.waiting[zone] + queue.free) for queue, units in pods),
            -prices[zone],
            sum(queue.waiting[zone] for queue, _ in pods),
        ),
    )


def taken(pods: Sequence[tuple[Queue, int]]) -> Load:
    """Take what a node is to hold, of kinds that the counters have been seen to for."""
    return tuple(entry for queue, units in pods for entry in queue.take(units))


class Careful:
    """Loads nodes as far as their counters admit, and fills what stays free with other pods."""

    def __init__(self, problem: Problem, queues: Sequence[Queue]) -> None:
        self._problem = problem
        self._queues = queues
        self._waiting = problem.counts.copy()
        capacity = problem.capacity.max(axis=0, initial=1)
        self._large = (problem.sizes / np.maximum(capacity, 1)).sum(axis=1)

    def load(self, pods: Sequence[tuple[int, int]], offering: int, zone: int) -> Load:
        """Take units of kinds for a node of an offering in a zone."""
        counts: dict[int, int] = {}
        limits: dict[int, int] = {}
        load: dict[int, tuple[Lot, list[tuple[str, ...]]]] = {}
        free = self._problem.capacity[offering].copy()
        missed = set()
        for kind, units in pods:
            for _ in range(units):
                found = self._queues[kind].take_one(counts, limits, zone)
                if found is None:
                    missed.add(kind)
                    break
                self._account(kind, found, free, load)
        if missed and load:
            self._fill(missed, offering, zone, free, counts, limits, load)
        return tuple((lot, tuple(units)) for lot, units in load.values())

    def _account(
        self,
        kind: int,
        found: tuple[Lot, tuple[str, ...]],
        free: Floats,
        load: dict[int, tuple[Lot, list[tuple[str, ...]]]],
    ) -> None:
        lot, unit = found
        self._waiting[kind] -= 1
        free -= self._problem.sizes[kind]
        load.setdefault(id(lot), (lot, []))[1].append(unit)

    def _fill(
        self,
        missed: set[int],
        offering: int,
        zone: int,
        free: Floats,
        counts: dict[int, int],
        limits: dict[int, int],
        load: dict[int, tuple[Lot, list[tuple[str, ...]]]],
    ) -> None:
        """The largest pods that fit, one by one."""
        problem = self._problem
        able = problem.fits[:, offering] & (self._waiting > 0)
        able[list(missed)] = False
        while True:
            able &= (problem.sizes <= free).all(axis=1) & (self._waiting > 0)
            if not able.any():
                return
            kind = int(np.where(able, self._large, -1).argmax())
            found = self._queues[kind].take_one(counts, limits, zone)
            if found is None:
                able[kind] = False
            else:
                self._account(kind, found, free, load)
