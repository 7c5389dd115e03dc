"""The state of a cluster after nodes were given back: simulated, as if nothing else changed."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from leeway.capacity_return.decision import NodeReturn
from leeway.capacity_return.moving import Moving, pods_of
from leeway.capacity_return.snapshot import MovablePod, OwnNode, Snapshot
from leeway.selection.labels import HOSTNAME
from leeway.selection.packing.plan import Plan, PlannedNode
from leeway.selection.pods import ExistingNode, PodSpec


@dataclass(frozen=True, slots=True)
class Outcome:
    """A cluster after one or more returns, and the nodes that are launched for each of them."""

    snapshot: Snapshot
    launches: tuple[tuple[PlannedNode, ...], ...]


def outcome_of(snapshot: Snapshot, returns: Iterable[NodeReturn]) -> Outcome:
    """Return the cluster after these returns, which a decision about `snapshot` has found.

    Pods of nodes that are not replaced move to the places of one common plan, as the decision has
    confirmed it. A pod that has no place then waits for a node.
    """
    returns = tuple(returns)
    together = [name for one in returns if not one.replaced for name in one.nodes]
    now, launches = snapshot, dict[int, tuple[PlannedNode, ...]]()
    if together:
        now, _ = _without(now, together, launch=False)
    for number, one in enumerate(returns):
        if one.replaced:
            now, launches[number] = _without(now, one.nodes, launch=True)
    return Outcome(now, tuple(launches.get(number, ()) for number in range(len(returns))))


def _without(
    snapshot: Snapshot, names: Collection[str], launch: bool
) -> tuple[Snapshot, tuple[PlannedNode, ...]]:
    gone = [one for one in snapshot.own if one.name in names]
    plan = Moving(snapshot).without(names, pods_of(gone), launch)
    moving = {movable.pod.name: movable for one in gone for movable in one.pods}
    coming = {one.node: [moving[n] for n in one.pods if n in moving] for one in plan.existing}
    own = [
        _received(one, coming.get(one.name, ()), snapshot)
        for one in snapshot.own
        if one.name not in names
    ]
    own += _launched(plan, moving, snapshot)
    others = [_with_pods(one, coming.get(one.name, ())) for one in snapshot.others]
    unplaced = {one.pod for one in plan.unschedulable}
    waiting = [movable.pod for name, movable in moving.items() if name in unplaced]
    after = replace(
        snapshot,
        own=tuple(own),
        others=tuple(others),
        waiting=(*snapshot.waiting, *waiting),
    )
    return after, plan.launches


def _received(one: OwnNode, pods: Collection[MovablePod], snapshot: Snapshot) -> OwnNode:
    if not pods:
        return one
    node = _with_pods(one.node, pods)
    return replace(one, node=node, pods=(*one.pods, *pods), quiet_since=snapshot.now)


def _with_pods(node: ExistingNode, pods: Iterable[MovablePod]) -> ExistingNode:
    added: tuple[PodSpec, ...] = tuple(movable.pod.spec for movable in pods)
    return replace(node, pods=(*node.pods, *added)) if added else node


def _launched(plan: Plan, moving: dict[str, MovablePod], snapshot: Snapshot) -> Iterator[OwnNode]:
    taken = {one.name for one in snapshot.own} | {one.name for one in snapshot.others}
    names = (name for n in range(1, 10**9) if (name := f"new-{n}") not in taken)
    for new, name in zip(plan.launches, names, strict=False):
        offered, kind = new.cheapest.offering, new.cheapest.type
        pods = tuple(moving[pod] for pod in new.pods if pod in moving)
        node = ExistingNode(
            name=name,
            labels={**new.cheapest.labels, HOSTNAME: name},
            allocatable=kind.allocatable,
            capacity=kind.capacity,
            taints=new.cheapest.pool.taints,
            pods=tuple(movable.pod.spec for movable in pods),
            pool=new.pool,
        )
        yield OwnNode(
            node=node,
            instance="",
            pool=new.pool,
            instance_type=kind.name,
            zone=offered.zone,
            capacity_type=offered.capacity_type,
            price=offered.price,
            created_at=snapshot.now,
            quiet_since=snapshot.now,
            pods=pods,
        )
