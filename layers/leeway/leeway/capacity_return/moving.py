"""Where the pods of nodes would go if the nodes went: simulated with the packing that launches."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from leeway.capacity_return.snapshot import OwnNode, Snapshot
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.pools import NodePool

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
