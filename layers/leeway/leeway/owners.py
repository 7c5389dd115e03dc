"""Who owns an instance, and so who may replace it: read from its tags and its node's labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

CLUSTER_TAGS = ("aws:eks:cluster-name", "eks:cluster-name", "eks:eks-cluster-name")
"""Tags whose value is the name of the cluster."""

OWNED_PREFIX = "kubernetes.io/cluster/"
"""Begins the key of a tag that ends in the name of the cluster, where its value is `owned`."""

DETACHED_FROM_TAG = "leeway.sh/detached-from"
"""Names the group that an instance left, so that it stays known whose it was."""


class OwnerKind(StrEnum):
    """What started the instance and would start its successor."""

    AUTO_SCALING_GROUP = "auto-scaling-group"
    DETACHED = "detached"
    MANAGED_NODE_GROUP = "managed-node-group"
    AUTO_MODE = "auto-mode"
    KARPENTER = "karpenter"
    FARGATE = "fargate"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner: `name` is the group's or pool's, empty where there is none."""

    kind: OwnerKind
    name: str = ""

    @property
    def retires_itself(self) -> bool:
        """Whether this owner drains and replaces its own nodes, so that Leeway keeps out."""
        return self.kind in {
            OwnerKind.MANAGED_NODE_GROUP,
            OwnerKind.AUTO_MODE,
            OwnerKind.KARPENTER,
            OwnerKind.FARGATE,
        }


def owner_of(tags: Mapping[str, str], labels: Mapping[str, str] | None = None) -> Owner:
    """Decide who owns an instance with these EC2 tags, on a node with these labels if known.

    The order matters: a managed node group's instances carry their Auto Scaling group's tag too.
    """
    labels = labels or {}
    if labels.get("eks.amazonaws.com/compute-type") == "fargate":
        return Owner(OwnerKind.FARGATE)
    if labels.get("eks.amazonaws.com/compute-type") == "auto" or "eks:eks-cluster-name" in tags:
        return Owner(OwnerKind.AUTO_MODE)
    if group := tags.get("eks:nodegroup-name"):
        return Owner(OwnerKind.MANAGED_NODE_GROUP, group)
    if pool := tags.get("karpenter.sh/nodepool") or tags.get("karpenter.sh/provisioner-name"):
        return Owner(OwnerKind.KARPENTER, pool)
    if group := tags.get("aws:autoscaling:groupName"):
        return Owner(OwnerKind.AUTO_SCALING_GROUP, group)
    if group := tags.get(DETACHED_FROM_TAG):
        return Owner(OwnerKind.DETACHED, group)
    return Owner(OwnerKind.NONE)


def cluster_of(tags: Mapping[str, str]) -> str | None:
    """Return the cluster that an instance's tags name, or None where they name none.

    What EKS wrote tells more than what anybody may write. Where that names several clusters, only
    one has the node, and a guess could end an instance that another cluster's pods run on.
    """
    for key in CLUSTER_TAGS:
        if name := tags.get(key):
            return name
    owned = [
        key for key, value in tags.items() if key.startswith(OWNED_PREFIX) and value == "owned"
    ]
    return owned[0].removeprefix(OWNED_PREFIX) if len(owned) == 1 else None
