"""Explains where a pending pod gets its node, or why no pool has one and which pool comes nearest.

Pure: it plans for all pending pods, as provision_nodes does, and reads the result for one of them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leeway.launch.prices import (
    Affordable,
    PriceCeiling,
    Prices,
    SpendingLimit,
    affordable,
    within_limit,
)
from leeway.provisioning.cluster_state import DEFAULT_SCHEDULER
from leeway.reasons import Reason, counted, some
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.packing.plan import Plan, PlannedNode
from leeway.selection.packing.planning import LAUNCHES, pack
from leeway.selection.packing.refused_offerings import refused_offerings
from leeway.selection.packing.supply import Supply
from leeway.selection.packing.unschedulable import unmet_requirements
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec

from leeway_cli.output import as_json, picked, stdout_console
from leeway_cli.selection.select import launch_as_data


@dataclass(frozen=True, slots=True)
class PoolMiss:
    """Why a pool has no node for a pod. `unmet` are the requirements of the pod that the pool does
    not meet; it is empty if only limits, topology or other pods are in the way."""

    pool: str
    reason: Reason
    unmet: tuple[str, ...]

    @property
    def distance(self) -> int:
        """How much keeps the pod from the pool, at least 1."""
        return max(1, len(self.unmet))


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Where a pod gets its node: on the existing `node` (`joining`: it was launched and has not
    joined yet), on the new node `launch`, or nowhere, for this `reason`. `misses` are the pools
    then, the nearest first."""

    pod: str
    node: str = ""
    joining: bool = False
    launch: PlannedNode | None = None
    reason: Reason | None = None
    misses: tuple[PoolMiss, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """What a plan depends on: all pods that need a node, all nodes, those that were launched and
    have not joined yet, the pods of DaemonSets, the pools, the catalog, the offerings that are not
    launched, what all nodes may cost, None for no maximum, why nothing is launched from pools that
    are paused or hibernate, and why nothing is launched for pods, by their names."""

    waiting: Sequence[Pod]
    nodes: Sequence[ExistingNode]
    joining: Sequence[ExistingNode]
    daemons: Sequence[PodSpec]
    pools: Sequence[NodePool]
    catalog: Catalog
    unavailable: frozenset[Unavailable] = frozenset()
    ceiling: PriceCeiling | None = None
    cluster: str = ""
    stopped: Mapping[str, Reason] = field(default_factory=dict)
    vain: Mapping[str, Reason] = field(default_factory=dict)


def explain_pod(name: str, now: Situation) -> PodPlan:
    """Plan for all pending pods, and explain the plan for one of them, `namespace/name`.

    Raises:
        KeyError: the pod is not among the pending pods.
    """
    pods = {pod.name: pod for pod in now.waiting}
    pod = pods[name]
    if pod.spec.unmet is not None:
        return PodPlan(name, reason=pod.spec.unmet)
    if name in now.vain:
        return PodPlan(name, reason=now.vain[name])
    prices, ceiling = Prices(now.catalog), now.ceiling or PriceCeiling()
    limits = ceiling.spending_limits(now.cluster, now.pools, [*now.nodes, *now.joining], prices)
    waiting = [one for one in now.waiting if one.name not in now.vain]
    launching = [one for one in now.pools if one.name not in now.stopped]
    within = [within_limit(one, limits, prices) for one in launching]
    plan, full = _plan(waiting, now, within), dict[str, Reason]()
    while refused := _refused(
        name, affordable(plan.launches, limits, ceiling.moving, prices), plan
    ):
        limit, why = refused
        if not limit.pool:
            return PodPlan(name, reason=why)
        # A pool at its limit in money: provision_nodes plans again with the other pools.
        full[limit.pool] = why
        plan = _plan(waiting, now, [one for one in within if one.name not in full])
    for placement in plan.existing:
        if name in placement.pods:
            joining = placement.node in {node.name for node in now.joining}
            return PodPlan(name, node=placement.node, joining=joining)
    for launch in plan.launches:
        if name in launch.pods:
            return PodPlan(name, launch=launch)
    reason = next(one.reason for one in plan.unschedulable if one.pod == name)
    over = next(iter(full.values()), None) or _over_limit(pod, limits, prices, now)
    reason = over or _refused_by_ec2(pod, now, launching) or _why_stopped(pod, now) or reason
    misses = sorted(_misses(pod, reason, now), key=lambda miss: miss.distance)
    return PodPlan(name, reason=reason, misses=tuple(misses))


def _plan(pods: Sequence[Pod], now: Situation, pools: Collection[NodePool]) -> Plan:
    supply = Supply(pools, now.catalog, now.unavailable, now.daemons)
    return pack(pods, supply, [*now.nodes, *now.joining], LAUNCHES)


def _refused(pod: str, allowed: Affordable, plan: Plan) -> tuple[SpendingLimit, Reason] | None:
    """Return the limit in money that keeps the planned node of a pod from being launched, with the
    reason; None if none does."""
    launch = next((one for one in plan.launches if pod in one.pods), None)
    if launch is None or allowed.keep([launch]):
        return None
    return next(each for each in allowed.refused.items() if each[0].covers(launch.pool))


def _over_limit(
    pod: Pod, limits: Sequence[SpendingLimit], prices: Prices, now: Situation
) -> Reason | None:
    """Return the limit in money that keeps a node for the pod alone from being launched."""
    for node in _plan([pod], now, now.pools).launches:
        price = prices.of_planned(node)
        for limit in limits:
            if limit.pool == node.pool and price > limit.widest:
                return limit.reached(price)
    return None


def _refused_by_ec2(pod: Pod, now: Situation, pools: Sequence[NodePool]) -> Reason | None:
    """Return which offerings EC2 has refused, if the pod has no node because of that."""
    nodes = [*now.nodes, *now.joining]
    found = refused_offerings([pod], pools, now.catalog, now.unavailable, now.daemons, nodes)
    return found.get(pod.name)


def _why_stopped(pod: Pod, now: Situation) -> Reason | None:
    """Return why the pool that has a node for the pod alone launches none: it is paused, or
    hibernates."""
    stopped = [one for one in now.pools if one.name in now.stopped]
    found = _plan([pod], now, stopped).launches if stopped else ()
    return next((now.stopped[one.pool] for one in found), None)


def _misses(pod: Pod, reason: Reason, now: Situation) -> Iterator[PoolMiss]:
    """Plan the pod alone, for one pool after the other. `reason` applies to pools that have a node
    for the pod alone."""
    for pool in now.pools:
        alone = _plan([pod], now, [pool])
        why = next((one.reason for one in alone.unschedulable), now.stopped.get(pool.name, reason))
        why = _refused_by_ec2(pod, now, [pool]) or why
        table = now.catalog.for_node_class(pool.node_class)
        # Without limits, the pool's own nodes show whether anything else is in the way.
        fits = bool(_plan([pod], now, [replace(pool, limits=None)]).launches)
        unmet = () if fits else unmet_requirements(pod.spec, pool, table, now.daemons)
        yield PoolMiss(pool.name, why, unmet)


_MOST_NAMES = 5


def pod_as_data(name: str, pod: Mapping[str, Any], plan: PodPlan | None) -> dict[str, Any]:
    """Render a pod and its plan for JSON. A pod that does not wait for a node has no plan."""
    if plan is None:
        return {"pod": name, "decision": "none", "node": _node_of(pod), "why": not_waiting(pod)}
    decision = "unschedulable"
    if plan.node:
        decision = "joining" if plan.joining else "existing"
    elif plan.launch:
        decision = "launch"
    return {
        "pod": name,
        "decision": decision,
        "node": plan.node or None,
        "launch": launch_as_data(plan.launch) if plan.launch else None,
        "reason": as_json(plan.reason),
        "nearest": plan.misses[0].pool if plan.misses else None,
        "pools": [picked(one, "pool", "unmet", "reason") for one in plan.misses],
    }


def _node_of(pod: Mapping[str, Any]) -> str | None:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return spec.get("nodeName") or status.get("nominatedNodeName") or None


def not_waiting(pod: Mapping[str, Any]) -> str:
    """Say why a pod does not wait for a node."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    metadata = pod.get("metadata") or {}
    if status.get("phase") in {"Succeeded", "Failed"}:
        return f"It has ended: {status['phase']}."
    if metadata.get("deletionTimestamp"):
        return "It is being deleted."
    if node := spec.get("nodeName"):
        return f"It is on node {node}."
    if gates := spec.get("schedulingGates"):
        names = ", ".join(str(gate.get("name")) for gate in gates)
        return f"Its scheduling gates keep it from every node: {names}."
    if any(owner.get("kind") == "DaemonSet" for owner in metadata.get("ownerReferences") or ()):
        return "It belongs to a DaemonSet, which has chosen its node already."
    if node := status.get("nominatedNodeName"):
        return f"kube-scheduler preempts pods for it on node {node}."
    if (scheduler := spec.get("schedulerName")) not in (None, "", DEFAULT_SCHEDULER):
        return f"Its scheduler {scheduler} has not reported that no node holds it."
    return "Leeway cannot read it; see the warning."


def show_pod(name: str, pod: Mapping[str, Any], plan: PodPlan | None) -> None:
    """Print a pod and its plan."""
    console = stdout_console()

    def show(line: str) -> None:
        console.print(line, soft_wrap=True, markup=False)

    if plan is None:
        show(f"pod/{name} waits for no node. {not_waiting(pod)}")
    elif plan.node:
        joining = ", which was launched and has not joined yet" if plan.joining else ""
        show(f"pod/{name} gets a place on node {plan.node}{joining}.")
    elif plan.launch is not None:
        first = plan.launch.choices[0]
        price = "unknown" if first.price is None else f"{first.price:.4f} USD per hour"
        show(f"pod/{name} gets a new node of pool {plan.launch.pool}.")
        show(f"  types     {some(first.instance_types, _MOST_NAMES)}")
        show(f"  zones     {some(first.zones, _MOST_NAMES)}")
        show(f"  capacity  {first.capacity_type}")
        show(f"  price     {price}")
        show(f"  pods      {some(plan.launch.pods, _MOST_NAMES)}")
    elif plan.reason is not None:
        show(f"pod/{name} gets no node: {plan.reason.code}: {plan.reason.message}")
        for number, miss in enumerate(plan.misses):
            show(_miss_line(miss, nearest=number == 0 and len(plan.misses) > 1))
            for text in miss.unmet:
                show(f"    - {text}")


def _miss_line(miss: PoolMiss, *, nearest: bool) -> str:
    title = f"  pool {miss.pool}{' (nearest)' if nearest else ''}"
    if miss.unmet:
        return f"{title}: {counted(len(miss.unmet), 'requirement')} not met"
    return f"{title}: {miss.reason.code}: {miss.reason.message}"
