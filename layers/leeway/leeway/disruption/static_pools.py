"""Static pools (NodePool, spec.replicas): which nodes are surplus, and which may be replaced now.

Pure. Consolidation and emptiness never take their nodes: somebody has chosen the number. A smaller
number is the user's decision, which no disruption budget of the pool holds back.

Source: Karpenter, `designs/static-capacity.md`, and its controllers `static/deprovisioning` and
`disruption/staticdrift.go`.
"""

from collections.abc import Collection, Iterable
from datetime import timedelta

from leeway.disruption import reasons
from leeway.disruption.snapshot import OwnNode, Snapshot
from leeway.reasons import Reason


def standing(pool: str, snapshot: Snapshot) -> list[OwnNode]:
    """Return the nodes of a pool that do not go. One that only its tags name does not count: who
    may tag instances must not decide which nodes go."""
    return [
        one
        for one in snapshot.own
        if one.pool == pool and one.node.pool in {pool, ""} and not (one.going or one.gone)
    ]


def surplus_of(pool: str, snapshot: Snapshot) -> int:
    """Return how many nodes a static pool has too many; 0 for other pools."""
    rules = snapshot.rules.get(pool)
    if rules is None or rules.replicas is None:
        return 0
    return max(0, len(standing(pool, snapshot)) - rules.replicas)


def surplus(snapshot: Snapshot, free: Iterable[OwnNode]) -> list[OwnNode]:
    """Return the nodes that static pools give back because they have more than their replicas, of
    the nodes that may go (`free`): those without pods first, then those that nothing protects, then
    the cheapest to disrupt.

    Instances on their way count when they have joined: they are empty then, and go first.
    """
    may_go = [one for one in free if not (one.going or one.gone)]
    found = []
    for pool in sorted(snapshot.rules):
        count = surplus_of(pool, snapshot)
        names = {one.name for one in standing(pool, snapshot)} if count else frozenset()
        candidates = [one for one in may_go if one.name in names]
        found += sorted(candidates, key=lambda one: _cost(one, snapshot))[:count]
    return found


def _cost(one: OwnNode, snapshot: Snapshot) -> tuple[object, ...]:
    """What it costs to disrupt a node: its pods, and less for a node that expires soon. A node that
    is not Ready, or has drifted, goes before an equal one."""
    now = snapshot.now
    protected = one.protected or any(
        pod.blocked_by or (pod.protected_until is not None and now < pod.protected_until)
        for pod in one.pods
    )
    expires = snapshot.rules[one.pool].expires
    age = max(timedelta(0), now - one.created_at)
    lifetime = 1.0 if not expires else max(0.0, 1.0 - age / expires)
    return (
        protected,
        bool(one.pods),
        one.ready,
        not one.drift,
        len(one.pods) * lifetime,
        one.created_at,
        one.name,
    )


def room_in(pool: str, snapshot: Snapshot) -> int | None:
    """Return how many more nodes limits.nodes of a static pool allows, besides those that it lacks
    already; None without this limit. An instance that goes counts until it has ended."""
    limits = next((one.limits for one in snapshot.pools if one.name == pool), None)
    limit, replicas = (limits or {}).get("nodes"), snapshot.rules[pool].replicas
    if limit is None or replicas is None:
        return None
    own = {one.name for one in snapshot.own if one.pool == pool}
    others = {one.name for one in snapshot.others if one.pool == pool}
    stand = len(standing(pool, snapshot)) + len(others)
    return max(0, limit - len(own | others) - max(0, replicas - stand))


def why_not_replaced(
    one: OwnNode, snapshot: Snapshot, begun: Collection[str] = ()
) -> Reason | None:
    """Return why a drifted node of a static pool is not replaced now; None if it may be, and for
    nodes of other pools. `begun` are the pools of the nodes whose replacement was decided."""
    if snapshot.rules[one.pool].replicas is None:
        return None
    if count := surplus_of(one.pool, snapshot):
        return reasons.STATIC_POOL_SHRINKS(node=one.name, pool=one.pool, count=count)
    room = room_in(one.pool, snapshot)
    if room is not None and sum(pool == one.pool for pool in begun) >= room:
        return reasons.NO_ROOM_TO_REPLACE(node=one.name, pool=one.pool)
    return None
