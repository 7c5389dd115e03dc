"""How much a cluster may still launch: the brakes against faults that cost money."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from leeway.capacity_requests import CapacityRequest
from leeway.launch.intent import (
    POD_WITHOUT_NODE,
    LaunchedNode,
    LaunchIntent,
    LaunchOutcome,
    PodWithoutNode,
)
from leeway.launch.prices import PriceCeiling, Prices, SpendingLimit
from leeway.provisioning.cluster_state import CORDONED, ClusterState
from leeway.provisioning.demand import ClusterRead, Demand
from leeway.reasons import Reason, ReasonCode
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod
from leeway.selection.resources import Resources

LAUNCHES_IN_VAIN = ReasonCode(
    "LaunchesInVain",
    "Leeway launches nothing more for the pods of {workload}: {count:node} that it launched for "
    "them in the last hour joined and stayed empty ({nodes}). Compare the labels, taints and "
    "allocatable resources of these nodes with the node pool and with the pod.",
    "launches-are-held-back",
)

WINDOW = timedelta(minutes=10)
"""The period in which launches are counted."""


def remaining_launches(intents: Iterable[LaunchIntent], most: int, now: datetime) -> int:
    """Return how many instances may be launched at the time `now`. A request without an answer
    counts with all of its instances."""
    recent = (one for one in intents if now - one.created_at < WINDOW)
    counted = sum(
        len(one.instances) if one.request is None else one.request.count for one in recent
    )
    return max(0, most - counted)


def price_ceiling(
    most: float,
    demand: Demand,
    requests: Iterable[CapacityRequest],
    state: ClusterState,
    intents: Collection[LaunchIntent],
    prices: Prices,
) -> PriceCeiling:
    """Return the ceiling of a run, `most` in USD per hour. A node of a pool that retires may be
    replaced at its price, once: what was launched for its pods before is subtracted."""
    pools = {node.name: node.pool for node in demand.nodes}
    uncounted = {state.joined.get(one.instance, one.instance) for one in state.claimed}
    moving: dict[str, str] = {}
    retiring: dict[str, tuple[str, float]] = {}
    for one in requests:
        name = state.joined.get(one.instance, one.instance)
        if pools.get(name) and name not in uncounted:
            moving |= dict.fromkeys((p.name for p in demand.moving[one.instance]), one.instance)
            price = prices.of(one.instance_type, one.zone, one.capacity_type)
            retiring[one.instance] = (pools[name], price)
        uncounted.add(name)
    replacing: dict[str, float] = defaultdict(float)
    for pool, price in retiring.values():
        replacing[pool] += price
    for intent in intents:
        if retiring.keys() & set(intent.replaces):
            replaced = sum(map(prices.of_instance, intent.instances))
            replacing = _without(replacing, replaced, intent.pool)
    launched = {
        state.joined.get(one.instance, one.instance): prices.of_instance(one)
        for intent in intents
        for one in intent.instances
    }
    return PriceCeiling(most, frozenset(uncounted), moving, replacing, launched)


def spending(
    read: ClusterRead,
    pools: Sequence[NodePool],
    coming: Sequence[ExistingNode],
    most: float,
    launched: Iterable[LaunchedNode],
) -> tuple[SpendingLimit, ...]:
    """Return what the nodes of pools cost after a run, and the limits: first `most` of the cluster,
    in USD per hour. `coming` are the nodes that have not joined."""
    prices, state = Prices(read.catalog), read.state
    ceiling = price_ceiling(most, read.demand, read.requests, state, read.intents, prices)
    nodes = [*read.demand.nodes, *coming]
    added: dict[str, float] = defaultdict(float)
    for one in launched:
        if all(one.instance.instance != each.name for each in coming):
            added[one.pool] += prices.of_instance(one.instance)
    limits = ceiling.spending_limits(read.cluster, pools, nodes, prices)
    return tuple(one.after(added) for one in limits)


def _without(replacing: Mapping[str, float], price: float, pool: str) -> dict[str, float]:
    """Subtract the price of what was launched: from its own pool first, and the rest from the
    others, whose nodes it replaces then."""
    left = dict(replacing)
    for name in sorted(left, key=lambda one: one != pool):
        taken = min(left[name], price)
        left[name] -= taken
        price -= taken
    return left


MOST_IN_VAIN = 3
"""Nodes that joined for a workload and stay empty, after which nothing is launched for it."""

FILLED_WITHIN = timedelta(minutes=3)
"""How long after its launch a node may be empty: most nodes join within a minute, and the scheduler
places pods on a Ready node within seconds."""

# The end of a generated name. Source: k8s.io/apimachinery, `util/rand`: names end with five
# characters of this alphabet.
_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")


def workload_of(pod: str) -> str:
    """Return the name of a pod without its generated end: a pod that is created anew by its
    controller, with another name, has the same one."""
    return _GENERATED.sub("", pod)


def vain_launches(
    intents: Iterable[LaunchIntent],
    joined: Mapping[str, str],
    nodes: Iterable[ExistingNode],
    now: datetime,
) -> Mapping[str, tuple[str, ...]]:
    """Return the workloads for which enough was launched in vain, with the nodes that are empty.

    `joined` are the names of the Nodes of instances. Only the launches of the last hour are known,
    so that a launch is tried again after an hour.
    """
    empty = {node.name for node in nodes if _is_empty(node)}
    found: dict[str, set[str]] = defaultdict(set)
    for intent in intents:
        if now - intent.created_at < FILLED_WITHIN:
            continue
        vain = {joined.get(one.instance, "") for one in intent.instances} & empty
        for workload in {workload_of(pod) for pod in intent.pods} if vain else ():
            found[workload] |= vain
    return {
        workload: tuple(sorted(names))
        for workload, names in found.items()
        if len(names) >= MOST_IN_VAIN
    }


def stopped_pods(
    pods: Sequence[Pod],
    nodes: Sequence[ExistingNode],
    catalog: Catalog,
    vain: Mapping[str, Sequence[str]],
) -> Mapping[str, Reason]:
    """Return the pods for which nothing is launched, each with the reason of its workload.

    They have no place on nodes that exist. An empty node on which other pods of these workloads
    have one is not in vain: pods that wait, or that a drain has yet to move, are about to use it.
    """
    suspects = [pod for pod in pods if workload_of(pod.name) in vain]
    if not suspects:
        return {}
    plan = pack(suspects, Supply((), catalog), nodes)
    used = {one.node for one in plan.existing}
    causes = {
        workload: LAUNCHES_IN_VAIN(workload=workload, count=len(unused), nodes=", ".join(unused))
        for workload, names in vain.items()
        if len(unused := [name for name in names if name not in used]) >= MOST_IN_VAIN
    }
    without = ((one.pod, causes.get(workload_of(one.pod))) for one in plan.unschedulable)
    return {pod: cause for pod, cause in without if cause is not None}


def _is_empty(node: ExistingNode) -> bool:
    """Whether only DaemonSets have pods on a node, and none is terminating. A cordoned node is
    empty for another reason: for example, its drain has ended."""
    if any(taint.key == CORDONED for taint in node.taints):
        return False
    used = sum((pod.requests for pod in node.pods), Resources())
    return not node.terminating and all(used.of(name) <= node.daemons.of(name) for name in used)


def with_stopped(outcome: LaunchOutcome, stopped: Mapping[str, Reason]) -> LaunchOutcome:
    """Add the pods for which launches are in vain, each with the reason of its workload."""
    without = tuple(
        PodWithoutNode(pod, POD_WITHOUT_NODE(pod=pod, why=cause.message), cause)
        for pod, cause in stopped.items()
    )
    return replace(
        outcome,
        without_node=(*outcome.without_node, *without),
        reasons=(*outcome.reasons, *dict.fromkeys(stopped.values())),
    )
