"""Preemption: deletes pods of lower priority to make room for a pod.

Rules: kube-scheduler's default preemption. PodDisruptionBudgets are ignored; a real scheduler
prefers victims whose budgets allow it, but does not require that.
"""

from __future__ import annotations

import collections

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.scheduling_info import NodeInfo, PodInfo
from leeway_sandbox.kubernetes.controllers.topology import Topology
from leeway_sandbox.kubernetes.deletion import delete
from leeway_sandbox.kubernetes.objects import is_terminating

type NodeInfos = dict[str, NodeInfo]


NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


def why_not(info: PodInfo, refused: dict[str, tuple[list[str], bool]], nodes: NodeInfos) -> str:
    """Return kube-scheduler's message about preemption that does not help.

    `refused` has, by node, the reasons and whether they remain without the other pods.
    """
    if not info.preempts:
        return "not eligible due to preemptionPolicy=Never."
    reasons: collections.Counter[str] = collections.Counter()
    for name, (refusal, stays) in refused.items():
        lower = any(one.priority < info.priority for one in nodes[name].pods.values())
        if stays:
            reasons[NOT_HELPFUL] += 1
        else:
            reasons.update(refusal if lower else [_NO_VICTIMS])
    text = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{len(nodes)} nodes are available: {text}."


def preempt(cluster: Cluster, nodes: NodeInfos, topology: Topology, info: PodInfo) -> str | None:
    """Delete the cheapest victims on one node; return the node, or None if it does not help."""
    if not info.preempts:
        return None
    for node_info in nodes.values():
        if info.uid in node_info.nominated:
            return node_info.name
    best: tuple[tuple[int, int], NodeInfo, list[PodInfo]] | None = None
    for node_info in nodes.values():
        if (
            node_info.taint_reason(info)
            or not node_info.matches(info)
            or topology.refusal(info, node_info)
        ):
            continue
        if not all(test(node_info.labels) for test in info.volume_terms):
            continue
        victims = _victims(node_info, info)
        if not victims:
            continue
        cost = (max(one.priority for one in victims), len(victims))
        if best is None or cost < best[0]:
            best = (cost, node_info, victims)
    if best is None:
        return None
    _, node_info, victims = best
    node_info.nominated[info.uid] = info
    for victim in victims:
        pod = cluster.store.get(registry.POD, victim.namespace, victim.name)
        if pod is not None and not is_terminating(pod):
            message = f"Preempted by pod {info.uid} on node {node_info.name}"
            cluster.events.write(registry.POD, pod, "Preempted", message, "default-scheduler")
            delete(cluster, registry.POD, pod, via="preemption")
    return node_info.name


def _victims(node_info: NodeInfo, info: PodInfo) -> list[PodInfo]:
    """Return the pods of the lowest priorities without which this pod fits; empty if none."""
    freed: dict[str, int] = {}
    victims = []
    lower = [one for one in node_info.pods.values() if one.priority < info.priority]
    takers = {one.uid for one in node_info.port_holders(info.ports)}
    if not takers <= {one.uid for one in lower}:
        return []
    # Pods that hold a needed port are the first victims.
    for one in sorted(lower, key=lambda other: (other.uid not in takers, other.priority)):
        victims.append(one)
        for name, value in one.requests.items():
            freed[name] = freed.get(name, 0) + value
        takers.discard(one.uid)
        if not takers and not node_info.insufficient(info, freed=freed):
            return victims
    return []
