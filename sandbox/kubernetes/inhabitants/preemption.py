"""Makes room for a pod by deleting pods of lower priority.

Rules: kube-scheduler's default preemption, without regard for PodDisruptionBudgets (a real one
prefers victims whose budgets allow it, but goes on where there are none).
"""

from __future__ import annotations

import collections

from sandbox.kubernetes import registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.deletion import delete
from sandbox.kubernetes.inhabitants.needs import Need, NodeRoom
from sandbox.kubernetes.inhabitants.topology import Topology
from sandbox.kubernetes.objects import is_terminating

type Rooms = dict[str, NodeRoom]


NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


def why_not(need: Need, refused: dict[str, tuple[list[str], bool]], nodes: Rooms) -> str:
    """Say why no node's pods give way, in kube-scheduler's words.

    `refused` has by node why it was refused, and whether that stays so whoever goes.
    """
    if not need.preempts:
        return "not eligible due to preemptionPolicy=Never."
    reasons: collections.Counter[str] = collections.Counter()
    for name, (refusal, stays) in refused.items():
        lower = any(one.priority < need.priority for one in nodes[name].pods.values())
        if stays:
            reasons[NOT_HELPFUL] += 1
        else:
            reasons.update(refusal if lower else [_NO_VICTIMS])
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{len(nodes)} nodes are available: {told}."


def preempt(cluster: Cluster, nodes: Rooms, topology: Topology, need: Need) -> str | None:
    """Delete the cheapest victims on one node; returns the node, None where it does not help."""
    if not need.preempts:
        return None
    for room in nodes.values():
        if need.uid in room.nominated:
            return room.name
    best: tuple[tuple[int, int], NodeRoom, list[Need]] | None = None
    for room in nodes.values():
        if room.tolerated(need) or not room.matches(need) or topology.refusal(need, room):
            continue
        if not all(test(room.labels) for test in need.volume_terms):
            continue
        victims = _victims(room, need)
        if not victims:
            continue
        cost = (max(one.priority for one in victims), len(victims))
        if best is None or cost < best[0]:
            best = (cost, room, victims)
    if best is None:
        return None
    _, room, victims = best
    room.nominated[need.uid] = need
    for victim in victims:
        pod = cluster.store.get(registry.POD, victim.namespace, victim.name)
        if pod is not None and not is_terminating(pod):
            message = f"Preempted by pod {need.uid} on node {room.name}"
            cluster.events.write(registry.POD, pod, "Preempted", message, "default-scheduler")
            delete(cluster, registry.POD, pod, via="preemption")
    return room.name


def _victims(room: NodeRoom, need: Need) -> list[Need]:
    """Return the pods that must go for this one to fit, of the lowest priorities; maybe none."""
    freed: dict[str, int] = {}
    victims = []
    lower = [one for one in room.pods.values() if one.priority < need.priority]
    takers = {one.uid for one in room.takers(need.ports)}
    if not takers <= {one.uid for one in lower}:
        return []
    # Who holds a port that is needed goes first.
    for one in sorted(lower, key=lambda other: (other.uid not in takers, other.priority)):
        victims.append(one)
        for name, value in one.requests.items():
            freed[name] = freed.get(name, 0) + value
        takers.discard(one.uid)
        if not takers and not room.lacks(need, freed=freed):
            return victims
    return []
