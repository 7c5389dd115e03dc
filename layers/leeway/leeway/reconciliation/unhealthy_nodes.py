"""Finds the unhealthy nodes of a cluster that are due for repair, and what holds their repair.

Pure. A kubelet writes what it likes about its own node, and so do agents with the right to it: an
instance is known by the name of its Node as EC2 gives it, its owner by EC2's tags, and at most a
fifth of the nodes may be unhealthy, both of its owner and of the cluster. So a network that fails,
or an API server that was restored from a backup, leads to no repair.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from leeway.instances.facts import InstanceFacts, ObservedInstance, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.repair import Unhealthy, too_many, why_unhealthy
from leeway.policy.rules import ClusterPolicy
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import Reason
from leeway.retirement.reasons import REPAIRS_HELD


@dataclass(frozen=True, slots=True)
class DueRepairs:
    """The instances whose nodes are unhealthy for longer than that is tolerated, and why; `held`
    says why others of them are not repaired."""

    due: Mapping[str, Unhealthy]
    held: tuple[Reason, ...] = ()


def repairs(policy: ClusterPolicy, facts: InstanceFacts) -> bool:
    """Whether the policy repairs the node of an instance. Only EC2 and EKS write the tags that
    confirm that Leeway launched it."""
    owner = facts.owner
    if not policy.acts_on(NoticeKind.UNHEALTHY_NODE) or not policy.retires_nodes_of(owner):
        return False
    if owner.kind is OwnerKind.LEEWAY:
        return facts.joined and facts.from_fleet
    return policy.notices[NoticeKind.UNHEALTHY_NODE].groups and owner.kind is not OwnerKind.NONE


def due_repairs(
    cluster: str,
    nodes: Sequence[Node],
    here: Mapping[str, ObservedInstance],
    policy: ClusterPolicy,
    now: datetime,
) -> DueRepairs:
    """Return which nodes are due for repair. `here` are the instances of the cluster by id."""
    joined = by_instance(nodes, here)
    unhealthy = {one.name: why for one in nodes if (why := why_unhealthy(one.conditions))}
    owners = {name: here[name].facts.owner for name in joined}
    of_owner = Counter(owners.values())
    bad = Counter(owners[name] for name, node in joined.items() if node.name in unhealthy)
    found = {
        name: unhealthy[node.name]
        for name, node in joined.items()
        if node.name in unhealthy
        and now >= unhealthy[node.name].due
        and here[name].state == "running"
        and repairs(policy, here[name].facts)
    }
    if found and too_many(len(unhealthy), len(nodes)):
        counts = {"unhealthy": len(unhealthy), "nodes": len(nodes)}
        return DueRepairs({}, (REPAIRS_HELD(where=f"cluster {cluster}", **counts),))
    held = {owners[name] for name in found}
    held = {one for one in held if too_many(bad[one], of_owner[one])}
    reasons = (
        REPAIRS_HELD(
            where=f"{'pool' if one.kind is OwnerKind.LEEWAY else 'group'} {one.name}",
            unhealthy=bad[one],
            nodes=of_owner[one],
        )
        for one in sorted(held, key=lambda each: (each.kind, each.name))
    )
    due = {name: why for name, why in found.items() if owners[name] not in held}
    return DueRepairs(due, tuple(reasons))


def by_instance(nodes: Iterable[Node], here: Mapping[str, ObservedInstance]) -> dict[str, Node]:
    """Return the node of each instance that is known: the one with its name; else the only one that
    has its provider id, which whoever creates a Node may choose."""
    claimed: dict[str, list[Node]] = {}
    for node in nodes:
        instance = node.provider_id.rsplit("/", 1)[-1]
        if instance in here:
            claimed.setdefault(instance, []).append(node)
    found = {}
    for instance, those in claimed.items():
        names = {here[instance].facts.private_dns_name, instance}
        own = [one for one in those if one.name in names] or those
        if len(own) == 1:
            found[instance] = own[0]
    return found
