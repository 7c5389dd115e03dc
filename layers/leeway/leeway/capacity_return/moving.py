"""Where the pods of nodes would go if the nodes went: simulated with the packing that launches."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from leeway.capacity_return.snapshot import OwnNode, Snapshot
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, Pod


@dataclass
class Moving:
    """Simulates what becomes of pods if some nodes go. `going` are nodes that go in any case."""

    snapshot: Snapshot

    @cached_property
    def _nodes(self) -> tuple[ExistingNode, ...]:
        """The nodes that can take pods."""
        own = (one.node for one in self.snapshot.own if not one.going)
        return (*own, *self.snapshot.others)

    @cached_property
    def _nothing(self) -> Supply:
        return Supply((), self.snapshot.catalog, daemons=self.snapshot.daemons)

    @cached_property
    def _offers(self) -> Supply:
        snapshot = self.snapshot
        return Supply(snapshot.pools, snapshot.catalog, snapshot.unavailable, snapshot.daemons)

    @cached_property
    def homeless(self) -> tuple[Pod, ...]:
        """The pods that need a place anyway: those that wait, and those of nodes that go."""
        going = (m.pod for one in self.snapshot.own if one.going for m in one.pods)
        return (*self.snapshot.waiting, *going)

    @cached_property
    def _without_place(self) -> frozenset[str]:
        """The pods that have no place even if no further node goes."""
        plan = pack(self.homeless, self._nothing, self._nodes)
        return frozenset(one.pod for one in plan.unschedulable)

    @cached_property
    def expected(self) -> dict[str, int]:
        """How many of the homeless pods have their place on each node."""
        plan = pack(self.homeless, self._nothing, self._nodes)
        return {one.node: len(one.pods) for one in plan.existing}

    def without(self, gone: Collection[str], pods: Iterable[Pod], launch: bool) -> Plan:
        """Plan for the pods of nodes that are gone, on the nodes that stay; with `launch`, on new
        ones too."""
        staying: Sequence[ExistingNode] = [one for one in self._nodes if one.name not in gone]
        placed = [pod for pod in self.homeless if pod.name not in self._without_place]
        return pack([*placed, *pods], self._offers if launch else self._nothing, staying)


def pods_of(nodes: Iterable[OwnNode]) -> tuple[Pod, ...]:
    """Return the pods of nodes that need another place if the nodes go."""
    return tuple(movable.pod for one in nodes for movable in one.pods)
