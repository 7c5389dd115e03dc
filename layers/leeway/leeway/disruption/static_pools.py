"""Static pools (NodePool, spec.replicas): which nodes are surplus, and which may be replaced now.

Pure. Consolidation and emptiness never take their nodes: somebody has chosen the number. A smaller
number is the user's decision, which no disruption budget of the pool holds back.

Source: Karpenter, `designs/static-capacity.md`, and its controllers `static/deprovisioning` and
`disruption/staticdrift.go`.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property

from leeway.disruption import reasons
from leeway.disruption.snapshot import OwnNode, Snapshot
from leeway.reasons import Reason


@dataclass
class StaticPools:
    """The static pools of a snapshot. `begun` counts the replacements that were decided, `gone` the
    nodes that go and are not replaced."""

    snapshot: Snapshot
    begun: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    gone: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @cached_property
    def _standing(self) -> dict[str, list[OwnNode]]:
        """The nodes of each static pool that do not go. One that only its tags name does not count:
        who may tag instances must not decide which nodes go."""
        found: dict[str, list[OwnNode]] = {
            name: [] for name, rules in self.snapshot.rules.items() if rules.replicas is not None
        }
        for one in self.snapshot.own:
            stays = not (one.going or one.gone) and one.node.pool in {one.pool, ""}
            if stays and one.pool in found:
                found[one.pool].append(one)
        return found

    @cached_property
    def surplus_of(self) -> dict[str, int]:
        """How many nodes each static pool has too many."""
        rules = self.snapshot.rules
        return {
            pool: max(0, len(nodes) - (rules[pool].replicas or 0))
            for pool, nodes in self._standing.items()
        }

    @cached_property
    def _room(self) -> dict[str, int]:
        """How many more nodes limits.nodes allows, besides those that a pool lacks already; pools
        without this limit are left out. An instance that goes counts until it has ended."""
        limits = {one.name: (one.limits or {}).get("nodes") for one in self.snapshot.pools}
        found = {}
        for pool, standing in self._standing.items():
            if (limit := limits.get(pool)) is None:
                continue
            own = {one.name for one in self.snapshot.own if one.pool == pool}
            others = {one.name for one in self.snapshot.others if one.pool == pool}
            lacks = (self.snapshot.rules[pool].replicas or 0) - len(standing) - len(others)
            found[pool] = max(0, limit - len(own | others) - max(0, lacks))
        return found

    def surplus(self, free: Iterable[OwnNode]) -> list[OwnNode]:
        """Return the nodes that are given back because their pools have more than their replicas,
        of the nodes that may go (`free`): those that nothing protects first, of these those without
        pods, then the cheapest to disrupt.

        Instances on their way count when they have joined: they are empty then, and go first.
        """
        may_go = {one.name for one in free}
        found = []
        for pool, count in sorted(self.surplus_of.items()):
            nodes = [one for one in self._standing[pool] if count and one.name in may_go]
            found += sorted(nodes, key=self._cost)[:count]
        return found

    def _cost(self, one: OwnNode) -> tuple[object, ...]:
        """What it costs to disrupt a node: its pods, and less for a node that expires soon. A node
        that is not Ready, or has drifted, goes before an equal one."""
        now, expires = self.snapshot.now, self.snapshot.rules[one.pool].expires
        protected = one.protected or any(
            pod.blocked_by or (pod.protected_until is not None and now < pod.protected_until)
            for pod in (*one.pods, *one.staying)
        )
        age = max(timedelta(0), now - one.created_at)
        lifetime = 1.0 if not expires else max(0.0, 1.0 - age / expires)
        cost = one.disruption_cost * lifetime
        last = (one.ready, not one.drift, cost, one.created_at, one.name)
        return (protected, bool(one.pods), *last)

    def why_not_replaced(self, one: OwnNode) -> Reason | None:
        """Return why a drifted node of a static pool is not replaced now; None if it may be, and
        for nodes of other pools and of pools that hibernate, which launch nothing in its place."""
        if self.snapshot.rules[one.pool].hibernates:
            return None
        if count := self.surplus_of.get(one.pool, 0):
            return reasons.STATIC_POOL_SHRINKS(node=one.name, pool=one.pool, count=count)
        if not self._has_room(one.pool):
            return reasons.NO_ROOM_TO_REPLACE(node=one.name, pool=one.pool)
        return None

    def takes_its_place(self, one: OwnNode) -> bool:
        """Whether another node takes the place of one that goes in any case, because it has
        expired: there is room for both, and the pool has none too many that still stay."""
        surplus = self.surplus_of.get(one.pool, 0) - self.gone[one.pool]
        return surplus <= 0 and self._has_room(one.pool)

    def _has_room(self, pool: str) -> bool:
        return pool not in self._room or self.begun[pool] < self._room[pool]
