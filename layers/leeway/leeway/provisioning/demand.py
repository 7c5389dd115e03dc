"""The pods that need a node, and the nodes that may take them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from leeway.capacity_requests.request import CapacityRequest, PriceLimit
from leeway.provisioning.cluster_state import ClusterState, WaitingPod
from leeway.provisioning.starting_nodes import StartingNode
from leeway.selection.offers.catalog import Unavailable
from leeway.selection.pods import ExistingNode, Pod


@dataclass(frozen=True, slots=True)
class Demand:
    """The pods without a place and the nodes of a cluster.

    `moving` are the pods of each retiring instance that need a place, and the pods that wait in
    place of evicted ones; they are among `pods`.
    `unavailable` are the offerings of the retiring instances.
    `price_limits` are those of what is launched for pods that still run, by pod.
    """

    pods: tuple[Pod, ...]
    nodes: tuple[ExistingNode, ...]
    moving: Mapping[str, tuple[Pod, ...]]
    unavailable: frozenset[Unavailable]
    price_limits: Mapping[str, PriceLimit] = field(default_factory=dict)


def demand_of(
    state: ClusterState,
    requests: Iterable[CapacityRequest],
    starting: Mapping[str, StartingNode],
    promised: Mapping[str, ExistingNode],
    coming: Iterable[ExistingNode] = (),
    upcoming: Iterable[Pod] = (),
) -> Demand:
    """Return the demand of a cluster. `requests` are open, `starting` the nodes that start,
    `promised` what was promised of launched instances, `coming` the nodes that will join, and
    `upcoming` the pods that are due soon."""
    moving: dict[str, tuple[Pod, ...]] = {}
    retiring: set[str] = set()
    unavailable: set[Unavailable] = set()
    limits: dict[str, PriceLimit] = {}
    waiting = [one.pod for one in state.waiting]
    known = {pod.name for pod in waiting}
    needed = list(waiting)
    unclaimed = list(state.waiting)
    for request in requests:
        # By its instance: a later node may have the name of an earlier one.
        name = state.joined.get(request.instance)
        moving[request.instance] = ()
        if not request.keeps_offering:
            offering = Unavailable(request.instance_type, request.zone, request.capacity_type)
            unavailable.add(offering)
        if name is not None:
            retiring.add(name)
            pods = tuple(pod for pod in state.movable.get(name, ()) if pod.name not in known)
            known |= {pod.name for pod in pods}
            needed += pods
            evicted = _in_place_of(state.leaving.get(name, ()), request, unclaimed)
            moving[request.instance] = (*pods, *evicted)
            if request.price_limit is not None:
                # A pod that was evicted already gets a node at any price.
                limits |= dict.fromkeys((pod.name for pod in pods), request.price_limit)
    return Demand(
        pods=(*needed, *upcoming),
        nodes=(*_nodes(state, retiring, starting, promised), *coming),
        moving=moving,
        unavailable=frozenset(unavailable),
        price_limits=limits,
    )


def _in_place_of(
    controllers: Iterable[str], request: CapacityRequest, unclaimed: list[WaitingPod]
) -> tuple[Pod, ...]:
    """Take from the pods that wait those that were created in place of pods that a retirement has
    evicted, for its answer: each counts for one retirement. An interruption evicts before a run can
    read the pods."""
    since = request.requested_at.replace(microsecond=0)
    found = []
    for controller in controllers:
        for one in unclaimed:
            if one.controller == controller and one.created_at >= since:
                found.append(one.pod)
                unclaimed.remove(one)
                break
    return tuple(found)


def _nodes(
    state: ClusterState,
    retiring: set[str],
    starting: Mapping[str, StartingNode],
    promised: Mapping[str, ExistingNode],
) -> Iterable[ExistingNode]:
    """The Nodes, each with the pool whose limits it counts against. Admission puts on the label of
    the pool, and does not if the node retires as soon as it has joined."""
    promises = {name: promised[one] for one, name in state.joined.items() if one in promised}
    for node in state.nodes:
        if node.name in retiring:
            yield _in_pool(node, promises.get(node.name)).closed()
        elif node.name in starting:
            yield starting[node.name].node
        else:
            yield _in_pool(node, promises.get(node.name))
    for node in state.unusable:
        yield _in_pool(node, promises.get(node.name)).closed()


def _in_pool(node: ExistingNode, promise: ExistingNode | None) -> ExistingNode:
    if promise is None:
        return node
    capacity = node.capacity or promise.capacity
    return replace(node, pool=node.pool or promise.pool, capacity=capacity)
