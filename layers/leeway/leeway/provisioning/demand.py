"""The pods that need a node, and the nodes that may take them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from leeway.capacity_requests.request import CapacityRequest
from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.starting_nodes import StartingNode
from leeway.selection.offers.unavailable import Unavailable
from leeway.selection.pods import ExistingNode, Pod


@dataclass(frozen=True, slots=True)
class Demand:
    """The pods without a place and the nodes of a cluster.

    `moving` are the pods of each retiring instance that will need a place; they are among `pods`.
    `unavailable` are the offerings of the retiring instances.
    """

    pods: tuple[Pod, ...]
    nodes: tuple[ExistingNode, ...]
    moving: Mapping[str, tuple[Pod, ...]]
    unavailable: frozenset[Unavailable]


def demand_of(
    state: ClusterState,
    requests: Iterable[CapacityRequest],
    starting: Mapping[str, StartingNode],
    coming: Iterable[ExistingNode] = (),
) -> Demand:
    """Return the demand of a cluster. `requests` are open, `starting` the nodes that start, and
    `coming` those that will join."""
    moving: dict[str, tuple[Pod, ...]] = {}
    retiring: set[str] = set()
    unavailable: set[Unavailable] = set()
    waiting = [one.pod for one in state.waiting]
    known = {pod.name for pod in waiting}
    for request in requests:
        # By its instance: a later node may have the name of an earlier one.
        name = state.joined.get(request.instance)
        moving[request.instance] = ()
        unavailable.add(Unavailable(request.instance_type, request.zone, request.capacity_type))
        if name is not None:
            retiring.add(name)
            pods = tuple(pod for pod in state.movable.get(name, ()) if pod.name not in known)
            known |= {pod.name for pod in pods}
            moving[request.instance] = pods
    return Demand(
        pods=(*waiting, *(pod for pods in moving.values() for pod in pods)),
        nodes=(*_nodes(state.nodes, retiring, starting), *coming),
        moving=moving,
        unavailable=frozenset(unavailable),
    )


def _nodes(
    nodes: Sequence[ExistingNode], retiring: set[str], starting: Mapping[str, StartingNode]
) -> Iterable[ExistingNode]:
    for node in nodes:
        if node.name in retiring:
            yield node.closed()
        elif node.name in starting:
            yield starting[node.name].node
        else:
            yield node
