"""Puts pods onto nodes that run or are on their way, before anything is launched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leeway.selection.labels import HOSTNAME, ZONE, normalised
from leeway.selection.packing.groups import Lot
from leeway.selection.packing.topology import CountedNodes, Counters
from leeway.selection.pods import ExistingNode, PodSpec
from leeway.selection.solver.arrays import Bools, Floats, Ints

NO_ZONE = ""


@dataclass(frozen=True)
class Placement:
    """Pods that go onto a node which is there."""

    node: str
    pods: tuple[str, ...]


class Standing:
    """The nodes that are there (N), what is left of each, and who is on them."""

    def __init__(
        self,
        nodes: Sequence[ExistingNode],
        resources: Sequence[str],
        counters: Counters,
        daemons: Sequence[PodSpec] = (),
    ) -> None:
        self.nodes = nodes
        self._resources = tuple(resources)
        self.labels = [_labels(node) for node in nodes]
        self.zones = [labels.get(ZONE, NO_ZONE) for labels in self.labels]
        n = len(nodes)
        self._room = np.zeros((n, len(resources)))
        self._counts = np.zeros((n, len(counters)))
        self._limits = np.full((n, len(counters)), np.inf)
        self._admitted: dict[object, Bools] = {}
        self.placed: dict[int, list[str]] = {}
        for row, node in enumerate(nodes):
            self._room[row] = self._amounts(node.allocatable) - self._amounts(node.leaving)
            self._room[row] -= self._coming(node, row, daemons)
            for pod in node.pods:
                self._room[row] -= self._amounts(pod.requests)
                rules = counters.rules_on(pod, self.labels[row], node.taints)
                for counter in rules.counted:
                    self._counts[row, counter] += 1
                for cap in rules.on_node:
                    if not cap.skew:
                        self._limits[row, cap.counter] = min(
                            cap.most, self._limits[row, cap.counter]
                        )

    def _amounts(self, amounts: Mapping[str, int]) -> Floats:
        return np.array([amounts.get(name, 0) for name in self._resources], dtype=float)

    def _coming(self, node: ExistingNode, row: int, daemons: Sequence[PodSpec]) -> Floats:
        """What daemons will take of a node that are not on it yet."""
        due = np.zeros(len(self._resources))
        for daemon in daemons:
            # Their controller minds no soft taints.
            if daemon.untolerated(node.taints) is None and self._met(daemon, row):
                due += self._amounts(daemon.requests)
        return np.maximum(due - self._amounts(node.daemons), 0)

    def _met(self, spec: PodSpec, row: int) -> bool:
        """Whether a node meets a pod's requirements."""
        return not spec.terms or any(term.admits(self.labels[row]) for term in spec.terms)

    @property
    def running(self) -> frozenset[int]:
        """The counters that have pods on these nodes."""
        return frozenset(np.flatnonzero(self._counts.any(axis=0)).tolist())

    def admits(self, spec: PodSpec) -> Bools:
        """Which nodes a pod's node requirements and tolerations let it go to: N."""
        key = (spec.terms, spec.tolerations)
        if key not in self._admitted:
            self._admitted[key] = np.array(
                [
                    spec.untolerated(node.taints, soft=True) is None and self._met(spec, row)
                    for row, node in enumerate(self.nodes)
                ],
                dtype=bool,
            )
        return self._admitted[key]

    def domains(self, spec: PodSpec) -> frozenset[str]:
        """The zones of these nodes that count in a pod's spreads by zone, be there room or not: a
        zone without any pod keeps the others low."""
        found: set[str] = set()
        spreads = [spread for spread in spec.spreads if spread.pods.topology == ZONE]
        for counted in {CountedNodes.of(spec, spread) for spread in spreads}:
            for row, node in enumerate(self.nodes):
                if counted.has(self.labels[row], node.taints):
                    found.add(self.zones[row])
        return frozenset(found - {NO_ZONE})

    def room(self, lot: Lot, zone: str | None) -> Floats:
        """How many units of a lot each node could take: N."""
        counted, caps = lot.counted, lot.caps
        size = np.zeros(len(self._resources))
        open_to = np.ones(len(self.nodes), dtype=bool)
        for group, pods in lot.parts:
            size += pods * self._amounts(group.spec.requests)
            open_to &= self.admits(group.spec)
            for counter in group.rules.with_node:
                if not (lot.joined and counter in counted):
                    open_to &= self._counts[:, counter] > 0
        if zone is not None:
            open_to &= np.array([each == zone for each in self.zones], dtype=bool)
        asked = size > 0
        room = np.floor((self._room[:, asked] + 1e-6) / size[asked]).min(axis=1, initial=np.inf)
        for counter in counted.keys() | caps.keys():
            most = np.minimum(self._limits[:, counter], caps.get(counter, np.inf))
            adds = counted.get(counter, 0)
            if adds:
                room = np.minimum(room, np.floor((most - self._counts[:, counter]) / adds))
            else:
                room = np.where(self._counts[:, counter] > caps[counter], 0, room)
        found: Floats = np.where(open_to, np.maximum(room, 0), 0)
        return found

    def place(self, lot: Lot, zone: str | None) -> Lot:
        """Put as many units as fit, onto the fullest nodes first; returns what is left over."""
        room = self.room(lot, zone)
        able = np.flatnonzero(room)
        start = 0
        for row in able[np.argsort(self._fullness(able), kind="stable")].tolist():
            if start >= len(lot.units):
                break
            units = lot.units[start : start + int(min(room[row], len(lot.units) - start))]
            start += len(units)
            self._put(row, lot, units)
        return lot.having(lot.units[start:])

    def _fullness(self, rows: Ints) -> Floats:
        whole = np.array([self._amounts(self.nodes[row].allocatable) for row in rows])
        whole = whole.reshape(len(rows), len(self._resources))
        free: Floats = (self._room[rows] / np.maximum(whole, 1)).sum(axis=1)
        return free

    def _put(self, row: int, lot: Lot, units: Sequence[tuple[str, ...]]) -> None:
        for group, pods in lot.parts:
            self._room[row] -= len(units) * pods * self._amounts(group.spec.requests)
        for counter, adds in lot.counted.items():
            self._counts[row, counter] += len(units) * adds
        for counter, most in lot.caps.items():
            self._limits[row, counter] = min(most, self._limits[row, counter])
        self.placed.setdefault(row, []).extend(name for unit in units for name in unit)

    def placements(self) -> tuple[Placement, ...]:
        """What has been put where, in the order of the nodes."""
        return tuple(
            Placement(self.nodes[row].name, tuple(names))
            for row, names in sorted(self.placed.items())
        )


def _labels(node: ExistingNode) -> dict[str, str]:
    labels = {normalised(key): value for key, value in node.labels.items()}
    return {HOSTNAME: node.name, **labels}
