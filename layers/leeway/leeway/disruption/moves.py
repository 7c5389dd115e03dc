"""Where the pods of nodes would go if the nodes went: simulated with the packing that launches, and
drafted before by resources only, which is quick."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from leeway.disruption.snapshot import OwnNode, Snapshot
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec
from leeway.selection.resources import Resources
from leeway.selection.solver.problem import Bools, Floats

SIMULATED = Effort(improvements=0)
"""The effort of a simulation. A replacement is one node, which no improvement makes cheaper."""


@lru_cache(maxsize=8)
def _supply(
    pools: tuple[NodePool, ...],
    catalog: Catalog,
    unavailable: frozenset[Unavailable],
    daemons: tuple[PodSpec, ...],
) -> Supply:
    """The supply, which a warm function uses again: it takes longer to build than to pack."""
    return Supply(pools, catalog, unavailable, daemons)


@dataclass
class Moving:
    """Simulates what becomes of pods if some nodes go."""

    snapshot: Snapshot

    @cached_property
    def nodes(self) -> tuple[ExistingNode, ...]:
        """The nodes that can take pods."""
        own = (one.node for one in self.snapshot.own if not one.going)
        return (*own, *self.snapshot.others)

    @property
    def _nothing(self) -> Supply:
        return _supply((), self.snapshot.catalog, frozenset(), self.snapshot.daemons)

    @property
    def offers(self) -> Supply:
        """What could be launched."""
        snapshot = self.snapshot
        pools = tuple(snapshot.pools)
        return _supply(pools, snapshot.catalog, snapshot.unavailable, snapshot.daemons)

    @cached_property
    def homeless(self) -> tuple[Pod, ...]:
        """The pods that need a place anyway: those that wait, and those of nodes that go."""
        going = (m.pod for one in self.snapshot.own if one.going for m in one.pods)
        return (*self.snapshot.waiting, *going)

    @cached_property
    def _plan_for_homeless(self) -> Plan | None:
        """Where they go if no further node goes; None if there are none."""
        return pack(self.homeless, self._nothing, self.nodes) if self.homeless else None

    @cached_property
    def _without_place(self) -> frozenset[str]:
        """The pods that have no place even if no further node goes."""
        plan = self._plan_for_homeless
        return frozenset(one.pod for one in plan.unschedulable) if plan else frozenset()

    @cached_property
    def expected(self) -> dict[str, int]:
        """How many of the homeless pods have their place on each node."""
        plan = self._plan_for_homeless
        return {one.node: len(one.pods) for one in plan.existing} if plan else {}

    def without(self, gone: Collection[str], pods: Iterable[Pod], launch: bool) -> Plan:
        """Plan for the pods of nodes that are gone, on the nodes that stay; with `launch`, on new
        ones too, which are launched while the nodes that go still count against limits."""
        staying: Sequence[ExistingNode] = [one for one in self.nodes if one.name not in gone]
        if launch and any(pool.limits is not None for pool in self.snapshot.pools):
            leaving = [one for one in self.snapshot.own if one.going or one.name in gone]
            staying = [*staying, *(one.node.closed() for one in leaving)]
        placed = [pod for pod in self.homeless if pod.name not in self._without_place]
        offers = self.offers if launch else self._nothing
        return pack([*placed, *pods], offers, staying, effort=SIMULATED)


def pods_of(nodes: Iterable[OwnNode]) -> tuple[Pod, ...]:
    """Return the pods of nodes that need another place if the nodes go."""
    return tuple(movable.pod for one in nodes for movable in one.pods)


class Room:
    """The free resources of nodes (R x N), each as a share of what the largest node has."""

    def __init__(self, nodes: Sequence[ExistingNode]) -> None:
        self._nodes = nodes
        names = sorted({name for node in nodes for pod in node.pods for name in pod.requests})
        largest = [max((node.allocatable.of(name) for node in nodes), default=1) for name in names]
        self._of_amounts: dict[Resources, Floats] = {}
        self._sums: dict[Resources, float] = {}
        self._scale = {name: max(most, 1) for name, most in zip(names, largest, strict=True)}
        left = np.array([self._left(node) for node in nodes]).reshape(len(nodes), len(names))
        self._free = np.ascontiguousarray(left.T)
        self._here = np.ones(len(nodes), dtype=bool)
        self._admitted: dict[object, Bools] = {}

    def _left(self, node: ExistingNode) -> Floats:
        left = self._shares(node.allocatable) - self._shares(node.terminating)
        for pod in node.pods:
            left -= self._shares(pod.requests)
        return left

    def _shares(self, amounts: Resources) -> Floats:
        if amounts not in self._of_amounts:
            shares = [amounts.of(name) / most for name, most in self._scale.items()]
            self._of_amounts[amounts] = np.array(shares)
        return self._of_amounts[amounts]

    def _sum(self, amounts: Resources) -> float:
        if amounts not in self._sums:
            self._sums[amounts] = float(self._shares(amounts).sum())
        return self._sums[amounts]

    def place(self, pods: Sequence[PodSpec], row: int) -> set[int] | None:
        """Place the pods of a node on the others, each where the least room is left; return their
        rows, and None, changing nothing, if one does not fit."""
        before = self._free.copy()
        self._here[row] = False
        rows: set[int] = set()
        for pod in self._largest_first(pods):
            best = self._place(pod)
            if best is None:
                self._free, self._here[row] = before, True
                return None
            rows.add(best)
        return rows

    def leftover(self, pods: Sequence[PodSpec], gone: Collection[int]) -> list[PodSpec]:
        """Return the pods of nodes, by their rows, that fit on no other node; change nothing."""
        before = self._free.copy()
        self._here[list(gone)] = False
        left: list[PodSpec] = []
        without_room: set[object] = set()
        for pod in self._largest_first(pods):
            kind = (pod.requests, pod.terms, pod.tolerations)
            if kind in without_room or self._place(pod) is None:
                without_room.add(kind)
                left.append(pod)
        self._free, self._here[list(gone)] = before, True
        return left

    def _largest_first(self, pods: Sequence[PodSpec]) -> list[PodSpec]:
        return sorted(pods, key=lambda pod: -self._sum(pod.requests))

    def _place(self, pod: PodSpec) -> int | None:
        size = self._shares(pod.requests)
        fits = self._here & self._admits(pod)
        for free, requested in zip(self._free, size.tolist(), strict=True):
            fits &= free >= requested - 1e-9
        found = np.flatnonzero(fits)
        if not len(found):
            return None
        best = int(found[np.argmin(self._free[:, found].sum(axis=0))])
        self._free[:, best] -= size
        return best

    def _admits(self, spec: PodSpec) -> Bools:
        key = (spec.terms, spec.tolerations)
        if key not in self._admitted:
            self._admitted[key] = np.array([_admits(spec, node) for node in self._nodes])
        return self._admitted[key]


def _admits(spec: PodSpec, node: ExistingNode) -> bool:
    if spec.untolerated(node.taints, soft=True) is not None:
        return False
    return not spec.terms or any(term.admits(node.labels) for term in spec.terms)
