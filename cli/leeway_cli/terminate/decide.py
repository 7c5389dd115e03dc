"""Decides whether `leeway terminate` may end the instance of a node, and by which call."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from leeway.instances.facts import InstanceFacts
from leeway.instances.groups import GroupFacts
from leeway.instances.owners import OwnerKind, owner_of
from leeway.ports.kubernetes_objects import Node

INSTANCE = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")
"""Ids of EC2 instances."""

_PROVIDER_ID = re.compile(rf"aws:///[^/]+/({INSTANCE.pattern})")
"""The provider id of a node on EC2. Source: cloud-provider-aws, InstanceID."""

TERMINATED = frozenset({"shutting-down", "terminated"})
"""States of an instance that EC2 terminates or has terminated."""

_NODES_OF_KARPENTER = "Run `kubectl delete node {node}`"
_INSTEAD = {
    OwnerKind.KARPENTER: _NODES_OF_KARPENTER,
    OwnerKind.AUTO_MODE: _NODES_OF_KARPENTER,
    OwnerKind.MANAGED_NODE_GROUP: (
        "Run `aws autoscaling terminate-instance-in-auto-scaling-group "
        "--no-should-decrement-desired-capacity --instance-id {instance}`"
    ),
}
"""The commands that end the nodes of owners which drain them. Source: Karpenter documentation,
"Disruption"; EKS user guide, "Simplify node lifecycle with managed node groups"."""


class Call(StrEnum):
    """The call that ends an instance; `none` if it is terminated already, or its group does it."""

    TERMINATE = "TerminateInstances"
    IN_GROUP = "TerminateInstanceInAutoScalingGroup"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Target:
    """A node and the instance that it names. `node` is None if only the instance is known."""

    instance: str
    node: Node | None

    @property
    def title(self) -> str:
        """The name of the node, or else the id of the instance."""
        return self.node.name if self.node is not None else self.instance


@dataclass(frozen=True, slots=True)
class InstanceNow:
    """An instance as AWS describes it now. `state` is empty if EC2 does not know the instance.
    `facts` is None if its tags do not name exactly one cluster, `group` if it is in no group."""

    state: str
    facts: InstanceFacts | None
    group: GroupFacts | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How an instance is ended. `over`: EC2 terminates it already, so its node is not drained.
    `freed` is the capacity that its group gives up, in the group's units."""

    call: Call
    owner: str = ""
    group: str = ""
    freed: int = 0
    over: bool = False

    @property
    def decrement(self) -> bool:
        """Whether the desired capacity of its group is lowered."""
        return self.freed > 0


def find_target(given: str, nodes: Sequence[Node]) -> Target | str:
    """Find the node with a name or an instance id. `nodes` are all nodes of the cluster.

    Everybody who may create nodes can copy a provider id, and a copy has no pods: it would count as
    drained, and the pods of the real node would end with its instance. So exactly one node may name
    the instance.
    """
    if INSTANCE.fullmatch(given):
        instance, node = given, None
    else:
        node = next((one for one in nodes if one.name == given), None)
        if node is None:
            return f"The cluster has no node {given}."
        found = _PROVIDER_ID.fullmatch(node.provider_id)
        if found is None:
            shown = repr(node.provider_id)
            return (
                f"Node {node.name} is not terminated: its provider id {shown} names no EC2 "
                "instance."
            )
        instance = found[1]
    same = [one for one in nodes if one.runs_on(instance)]
    if len(same) > 1:
        names = ", ".join(sorted(one.name for one in same))
        return (
            f"Instance {instance} is not terminated: the nodes {names} all name it. Delete the "
            "Node objects that do not run on it."
        )
    return Target(instance, same[0] if same else None)


def decide_ending(
    target: Target, now: InstanceNow, *, region: str, decrement: bool, freed: int = 0
) -> Ending | str:
    """Decide by which call an instance is ended, or why it is not.

    `freed` is the capacity that other nodes of the same command free in the same group.
    """
    instance, node = target.instance, target.node
    if not now.state:
        return (
            f"EC2 has no instance {instance} in region {region}. Check AWS_REGION and the account."
        )
    if now.facts is None:
        return f"Instance {instance} is not terminated: its tags do not name exactly one cluster."
    owner = now.facts.owner
    if owner.kind is OwnerKind.NONE and node is not None:
        owner = owner_of({}, node.labels)
    owned_by = " ".join(filter(None, (owner.kind.value, owner.name)))
    if now.state in TERMINATED:
        return Ending(Call.NONE, owned_by, over=True)
    if node is None:
        return (
            f"Instance {instance} is not terminated: it is {now.state}, and no node of the cluster "
            "names it."
        )
    if owner.kind in _INSTEAD:
        instead = _INSTEAD[owner.kind].format(node=node.name, instance=instance)
        return (
            f"Node {node.name} is not terminated: its owner, {owned_by}, drains and terminates it. "
            f"{instead}."
        )
    group = now.group
    if group is None:
        return Ending(Call.TERMINATE, owned_by)
    if group.lifecycle_state.startswith("Terminating"):
        return Ending(Call.NONE, owned_by, group.name)
    if not decrement:
        return Ending(Call.IN_GROUP, owned_by, group.name)
    if group.desired - freed - group.units < group.minimum:
        desired = group.desired - freed
        return (
            f"Node {node.name} is not terminated: --decrement would take group {group.name} from "
            f"{desired} below its minimum of {group.minimum}. Lower the minimum, or leave out "
            "--decrement."
        )
    return Ending(Call.IN_GROUP, owned_by, group.name, freed=group.units)
