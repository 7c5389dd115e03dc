"""The pods that need a node, and the nodes that may take them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from leeway.capacity_requests import CapacityRequest, PriceLimit
from leeway.hibernation import Sleeping
from leeway.instances.facts import InstanceFacts, ObservedInstance
from leeway.launch.intent import JOIN_WITHIN, LaunchIntent
from leeway.manifests.base import Manifest
from leeway.ports.kubernetes_objects import RETIRING
from leeway.provisioning.cluster_state import CORDONED, ClaimedNode, ClusterState, ObservedPod
from leeway.reasons import Reason
from leeway.selection.labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INITIALIZED,
    INSTANCE_TYPE,
    JOINED,
    NODEPOOL,
    STARTING,
    ZONE,
    ZONE_ID,
    is_startup_taint,
)
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.offers.overlays import is_published_later, with_promised
from leeway.selection.pods import ExistingNode, Pod, Taint
from leeway.selection.resources import EBS_VOLUMES, Resources


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


@dataclass(frozen=True, slots=True)
class StartingNode:
    """A Node that starts, as it was promised, and its instance."""

    instance: str
    node: ExistingNode


def demand_of(
    state: ClusterState,
    requests: Collection[CapacityRequest],
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
    limit_of = _limits_of_decisions(requests)
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
                limit = limit_of[request.price_limit.decision]
                limits |= dict.fromkeys((pod.name for pod in pods), limit)
    return Demand(
        pods=(*needed, *upcoming),
        nodes=(*_nodes(state, retiring, starting, promised), *coming),
        moving=moving,
        unavailable=frozenset(unavailable),
        price_limits=limits,
    )


def _limits_of_decisions(requests: Iterable[CapacityRequest]) -> Mapping[str, PriceLimit]:
    """Return the limit of each decision. Only nodes with a request count: another one of them has
    stayed, and saves nothing."""
    prices: dict[str, float] = defaultdict(float)
    found: dict[str, PriceLimit] = {}
    for limit in (one.price_limit for one in requests if one.price_limit is not None):
        name = limit.decision
        prices[name] += limit.below if limit.own is None else limit.own
        found[name] = PriceLimit(decision=name, below=min(limit.below, prices[name]))
    return found


def _in_place_of(
    controllers: Iterable[str], request: CapacityRequest, unclaimed: list[ObservedPod]
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


def starting_nodes(
    nodes: Iterable[ExistingNode],
    joined: Mapping[str, str],
    promised: Mapping[str, ExistingNode],
    intents: Iterable[LaunchIntent],
    now: datetime,
) -> Mapping[str, StartingNode]:
    """Return the nodes that start, by the name of the Node.

    `joined` are the names of the Nodes of instances, and `promised` what was promised of the nodes
    that were launched, by the id of the instance. A node starts for 15 minutes at most after its
    launch.
    """
    startup = dict(_startup_taints(intents, now))
    known = joined.keys() & startup.keys() & promised.keys()
    promises = {joined[instance]: promised[instance] for instance in known}
    found = {}
    for node in nodes:
        promise = promises.get(node.name)
        if promise is not None and _starts(node, promise, startup[promise.name]):
            merged = _merged(node, promise, startup[promise.name])
            found[node.name] = StartingNode(promise.name, merged)
    return found


def starting_in_groups(
    nodes: Iterable[ExistingNode],
    joined: Mapping[str, str],
    launched: Iterable[ObservedInstance],
    members: Mapping[str, Collection[str]],
) -> tuple[Mapping[str, StartingNode], tuple[ExistingNode, ...]]:
    """Return the Nodes that start of instances that groups launched, by name, and nodes for the
    instances that have no Node, each by the id of its instance.

    A node of the same group and type that is Ready shows what such a node offers: `members` are the
    instances of each group. An instance without such a node does not count.
    """
    by_name = {node.name: node for node in nodes}
    starting: dict[str, StartingNode] = {}
    coming = []
    for one in launched:
        instance, group = one.facts, members.get(one.group, ())
        own = by_name.get(joined.get(instance.instance, ""))
        if own is not None:
            if _transient(own):
                taints = tuple(taint for taint in own.taints if not is_startup_taint(taint.key))
                starting[own.name] = StartingNode(instance.instance, replace(own, taints=taints))
            continue
        fellows = (by_name.get(joined.get(member, "")) for member in group)
        sample = next((node for node in fellows if node and _shows(node, instance)), None)
        if sample is not None:
            coming.append(_like(sample, instance))
    return starting, tuple(coming)


def starting_of_karpenter(
    nodes: Iterable[ExistingNode],
    joined: Mapping[str, str],
    claimed: Iterable[ClaimedNode],
    now: datetime,
) -> tuple[Mapping[str, StartingNode], tuple[ExistingNode, ...]]:
    """Return the Nodes that start of instances that Karpenter launched, by name, and the nodes of
    those that have no Node, each by the id of its instance.

    A NodeClaim counts for 15 minutes after its creation: Karpenter ends an instance that has not
    joined until then.
    """
    by_name = {node.name: node for node in nodes}
    starting: dict[str, StartingNode] = {}
    coming: dict[str, ExistingNode] = {}
    for one in claimed:
        if now - one.created_at >= JOIN_WITHIN:
            continue
        labels = {**one.node.labels, **JOINED}
        promise = replace(one.node, name=one.instance, labels=labels)
        if one.instance not in joined:
            coming[one.instance] = promise
            continue
        own, startup = by_name.get(joined[one.instance]), STARTING | one.startup_taints
        if own is not None and _starts(own, promise, startup):
            starting[own.name] = StartingNode(one.instance, _merged(own, promise, startup))
    return starting, tuple(coming.values())


def _transient(node: ExistingNode) -> bool:
    return any(is_startup_taint(taint.key) for taint in node.taints)


def uninitialized(nodes: Iterable[ExistingNode]) -> frozenset[str]:
    """Return the names of the Nodes of pools that have never been ready for pods, also of those
    that have been starting for too long. A plan gives pods a place on them all the same."""
    return frozenset(
        one.name
        for one in nodes
        if NODEPOOL in one.labels and one.labels.get(INITIALIZED) != "true"
    )


def nodes_in_service(state: ClusterState, instances: Iterable[str]) -> Mapping[str, str]:
    """Return which of these instances have Nodes that take pods now, by the name of the Node."""
    by_name = {node.name: node for node in state.nodes}
    found = ((instance, by_name.get(state.joined.get(instance, ""))) for instance in instances)
    return {node.name: instance for instance, node in found if node and _in_service(node)}


def _in_service(node: ExistingNode) -> bool:
    return not (_transient(node) or any(t.key in {CORDONED, RETIRING} for t in node.taints))


def _shows(node: ExistingNode, instance: InstanceFacts) -> bool:
    return node.labels.get(INSTANCE_TYPE) == instance.instance_type and _in_service(node)


def _like(sample: ExistingNode, instance: InstanceFacts) -> ExistingNode:
    own = {HOSTNAME, ZONE, ZONE_ID, CAPACITY_TYPE}
    labels = {key: value for key, value in sample.labels.items() if key not in own}
    return replace(
        sample,
        name=instance.instance,
        labels={**labels, ZONE: instance.zone},
        pods=(),
        terminating=Resources(),
        daemons=Resources(),
        terminating_pods=(),
    )


def _startup_taints(
    intents: Iterable[LaunchIntent], now: datetime
) -> Iterator[tuple[str, frozenset[str]]]:
    for intent in intents:
        for instance in intent.joining(now):
            yield instance.instance, STARTING | frozenset(intent.startup_taints)


def _starts(node: ExistingNode, promise: ExistingNode, startup: frozenset[str]) -> bool:
    tainted = any(is_startup_taint(taint.key, startup) for taint in node.taints)
    return tainted or NODEPOOL not in node.labels or bool(_missing_devices(node, promise))


def _missing_devices(node: ExistingNode, promise: ExistingNode) -> dict[str, int]:
    """The promised devices that the node does not offer yet, such as nvidia.com/gpu, and huge
    pages."""
    return {
        name: amount
        for name, amount in promise.allocatable.items()
        if is_published_later(name) and name != EBS_VOLUMES and not node.allocatable.of(name)
    }


def _merged(node: ExistingNode, promise: ExistingNode, startup: frozenset[str]) -> ExistingNode:
    kept: dict[Taint, None] = dict.fromkeys(
        taint
        for taint in (*promise.taints, *node.taints)
        if not is_startup_taint(taint.key, startup)
    )
    allocatable = with_promised(node.allocatable, _missing_devices(node, promise))
    return replace(
        node,
        labels={**promise.labels, **node.labels},
        allocatable=allocatable if node.allocatable else promise.allocatable,
        capacity=node.capacity or promise.capacity,
        taints=tuple(kept),
        pool=promise.pool,
    )


@dataclass(frozen=True, slots=True)
class ClusterRead:
    """What a run knows about its cluster before it launches.

    - `intents`: the launches of the last hour, read before the `state`.
    - `starting`: the nodes that start, by name. `requests`: the open ones of retirements.
    - `problems`: why the pods that are due soon are not all known.
    - `sleeping`: the pools that hibernate.
    """

    cluster: str
    manifests: Sequence[Manifest]
    catalog: Catalog
    state: ClusterState
    intents: Sequence[LaunchIntent]
    requests: Sequence[CapacityRequest]
    starting: Mapping[str, StartingNode]
    demand: Demand
    problems: tuple[Reason, ...] = ()
    sleeping: Sleeping = field(default_factory=dict)
