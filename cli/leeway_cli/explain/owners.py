"""Finds who launched the nodes of a cluster: by EC2, or without it by the labels of the nodes."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from leeway.instances.facts import InstanceFacts
from leeway.instances.owners import Owner, OwnerKind, owner_of
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, ZONE

from leeway_cli.errors import aws_errors
from leeway_cli.output import write_stderr

if TYPE_CHECKING:
    from leeway.disruption.explain import GroupSize
    from leeway.provisioning.cluster_state import ClusterState
    from leeway.selection.pods import ExistingNode

_NODE_GROUP = "eks.amazonaws.com/nodegroup"
_EKS_CAPACITY_TYPE = "eks.amazonaws.com/capacityType"
"""Labels of the nodes of managed node groups; values of the second are SPOT and ON_DEMAND."""


def owners_by_ec2(state: "ClusterState") -> dict[str, InstanceFacts]:
    """Return the facts of all instances that have a node, by id. Those that EC2 does not know, or
    whose tags do not name exactly one cluster, have the owner that their labels name, and never
    Leeway.

    Raises:
        CannotBeDoneError: AWS does not answer or refuses.
    """
    from leeway.wiring.clients import instances

    with aws_errors("the instances of the cluster"):
        found = instances().describe_all(state.joined.keys())
    if unknown := state.joined.keys() - found.keys():
        write_stderr(
            f"warning: {len(unknown)} nodes are of instances that EC2 does not know in this "
            "region, or that do not name one cluster in their tags; their labels are used."
        )
    return {**owners_by_labels(state, ()), **found}


def owners_by_labels(state: "ClusterState", pools: Collection[str]) -> dict[str, InstanceFacts]:
    """Return the facts of instances by the labels of their nodes. A node of one of these pools
    counts as Leeway's."""
    nodes = {node.name: node for node in state.nodes}
    return {
        instance: facts_by_labels(instance, nodes[name], pools)
        for instance, name in state.joined.items()
        if name in nodes
    }


def facts_by_labels(instance: str, node: "ExistingNode", pools: Collection[str]) -> InstanceFacts:
    """Return the facts of an instance by the labels of its node. A node of one of these pools
    counts as Leeway's."""
    labels = node.labels
    managed = labels.get(_EKS_CAPACITY_TYPE, "").lower().replace("_", "-")
    return InstanceFacts(
        instance=instance,
        cluster="",
        private_dns_name=node.name,
        zone=labels.get(ZONE, ""),
        instance_type=labels.get(INSTANCE_TYPE, ""),
        capacity_type=labels.get(CAPACITY_TYPE) or managed,
        owner=_owner(labels, pools),
        joined=True,
        from_fleet=True,
    )


def _owner(labels: Mapping[str, str], pools: Collection[str]) -> Owner:
    pool = labels.get(NODEPOOL, "")
    if pool and pool in pools:
        return Owner(OwnerKind.LEEWAY, pool)
    if group := labels.get(_NODE_GROUP):
        return Owner(OwnerKind.MANAGED_NODE_GROUP, group)
    found = owner_of({}, labels)
    karpenter = pool and found.kind is OwnerKind.NONE
    return Owner(OwnerKind.KARPENTER, pool) if karpenter else found


def group_sizes(facts: Iterable[InstanceFacts]) -> "dict[str, GroupSize]":
    """Read the sizes of the Auto Scaling groups that own these instances, by name.

    Raises:
        CannotBeDoneError: AWS does not answer or refuses.
    """
    from leeway.disruption.explain import GroupSize
    from leeway.wiring.clients import groups

    kind = OwnerKind.AUTO_SCALING_GROUP
    members = {one.owner.name: one.instance for one in facts if one.owner.kind is kind}
    found = {}
    for name, instance in members.items():
        with aws_errors(f"Auto Scaling group {name}"):
            group = groups().facts(instance)
        if group is not None:
            found[name] = GroupSize(group.minimum, group.desired, group.units)
    return found
