"""Who owns an instance, and so who may replace it: read from its tags and its node's labels."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

EKS_CLUSTER_TAG = "aws:eks:cluster-name"
"""Names the cluster that an instance has joined. EKS alone writes it."""

CLUSTER_TAGS = (EKS_CLUSTER_TAG, "eks:cluster-name", "eks:eks-cluster-name")
"""Tags whose value is the name of the cluster."""

OWNED_PREFIX = "kubernetes.io/cluster/"
"""Begins the key of a tag that ends in the name of the cluster, where its value is `owned`."""

GROUP_TAG = "aws:autoscaling:groupName"
"""Names the Auto Scaling group that an instance is in. EC2 Auto Scaling alone writes it."""

NODE_GROUP_TAG = "eks:nodegroup-name"
"""Names the EKS managed node group that an instance is in."""

AUTO_MODE_TAG = "eks:kubernetes-node-pool-name"
"""Names the node pool of EKS Auto Mode that launched an instance. Source: AWS managed policy
AmazonEKSComputePolicy, which lets Auto Mode launch nothing without it. `eks:eks-cluster-name` does
not tell: Karpenter writes it too, from 1.0 on. Source: Karpenter, "v1 migration"."""

# EKS may only work on Auto Scaling groups whose names begin with `eks-`, and ends each name in a
# UUID. Source: AWS managed policy AWSServiceRoleForAmazonEKSNodegroup.
_EKS_GROUP = re.compile(r"eks-(?:.+-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class OwnerKind(StrEnum):
    """What started the instance and would start its successor."""

    AUTO_SCALING_GROUP = "auto-scaling-group"
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

    The tag that EC2 Auto Scaling writes comes first, because nobody else can write it. The other
    tags are plain: whoever may tag instances can write them.
    """
    labels = labels or {}
    if labels.get("eks.amazonaws.com/compute-type") == "fargate":
        return Owner(OwnerKind.FARGATE)
    managed = tags.get(NODE_GROUP_TAG)
    if group := tags.get(GROUP_TAG):
        if managed and _EKS_GROUP.fullmatch(group):
            return Owner(OwnerKind.MANAGED_NODE_GROUP, managed)
        return Owner(OwnerKind.AUTO_SCALING_GROUP, group)
    if managed:
        return Owner(OwnerKind.MANAGED_NODE_GROUP, managed)
    if pool := tags.get("karpenter.sh/nodepool") or tags.get("karpenter.sh/provisioner-name"):
        return Owner(OwnerKind.KARPENTER, pool)
    if pool := tags.get(AUTO_MODE_TAG):
        return Owner(OwnerKind.AUTO_MODE, pool)
    if labels.get("eks.amazonaws.com/compute-type") == "auto":
        return Owner(OwnerKind.AUTO_MODE)
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
