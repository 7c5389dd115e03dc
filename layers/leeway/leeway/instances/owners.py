"""Decides which controller owns an instance, from its tags and the labels of its node."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

EKS_CLUSTER_TAG = "aws:eks:cluster-name"
"""The tag with the name of the cluster that an instance has joined. Only EKS can write it."""

CLUSTER_TAGS = (EKS_CLUSTER_TAG, "eks:cluster-name", "eks:eks-cluster-name")
"""The tags whose value is the name of the cluster."""

FLEET_TAG = "aws:ec2:fleet-id"
"""The tag with the id of the EC2 fleet that launched an instance. Only EC2 can write it. Source:
AWS managed policy AWSEC2FleetServiceRolePolicy, which terminates only instances that have it."""

OWNED_PREFIX = "kubernetes.io/cluster/"
"""The prefix of a tag key that ends with the name of the cluster, if the value is `owned`."""

GROUP_TAG = "aws:autoscaling:groupName"
"""The tag with the name of the Auto Scaling group. Only EC2 Auto Scaling can write it."""

NODE_GROUP_TAG = "eks:nodegroup-name"
"""The tag with the name of the EKS managed node group."""

AUTO_MODE_TAG = "eks:kubernetes-node-pool-name"
"""The tag with the name of the node pool of EKS Auto Mode. Source: AWS managed policy
AmazonEKSComputePolicy, which requires this tag for every launch. `eks:eks-cluster-name` does not
identify Auto Mode, because Karpenter writes it too, since 1.0. Source: Karpenter, "v1
migration"."""

OWNER_TAG = "leeway.sh/owner"
"""Its value is `leeway` on what Leeway has launched."""

POOL_TAG = "leeway.sh/nodepool"
"""The tag with the name of the node pool from which Leeway launched an instance."""

INTENT_TAG = "leeway.sh/intent"
"""The tag with the id of the launch intent that an instance belongs to."""

SETTINGS_TAG = "leeway.sh/launch-settings"
"""The tag with the hashes of the settings that an instance was launched with."""

# EKS manages only Auto Scaling groups whose names begin with `eks-`, and ends each name with a
# UUID. Source: AWS managed policy AWSServiceRoleForAmazonEKSNodegroup.
_EKS_GROUP = re.compile(r"eks-(?:.+-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class OwnerKind(StrEnum):
    """The controller that launched the instance and would launch its replacement."""

    AUTO_SCALING_GROUP = "auto-scaling-group"
    MANAGED_NODE_GROUP = "managed-node-group"
    AUTO_MODE = "auto-mode"
    KARPENTER = "karpenter"
    LEEWAY = "leeway"
    FARGATE = "fargate"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of an instance. `name` is the name of the group or pool, empty if it has none."""

    kind: OwnerKind
    name: str = ""

    @property
    def retires_itself(self) -> bool:
        """Whether this owner drains and replaces its own nodes, so that Leeway does not."""
        return self.kind in {
            OwnerKind.MANAGED_NODE_GROUP,
            OwnerKind.AUTO_MODE,
            OwnerKind.KARPENTER,
            OwnerKind.FARGATE,
        }


def owner_of(tags: Mapping[str, str], labels: Mapping[str, str] | None = None) -> Owner:
    """Return the owner of an instance with these EC2 tags. `labels` are those of its node, None if
    they are not known.

    The tag of EC2 Auto Scaling takes precedence, because nobody else can write it. Everybody who
    has the right to tag instances can write the other tags. Leeway's take precedence over those of
    Karpenter, which stay on an instance that `leeway switch` has taken over.
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
    own = tags.get(POOL_TAG) if tags.get(OWNER_TAG) == "leeway" else None
    karpenters = tags.get("karpenter.sh/nodepool") or tags.get("karpenter.sh/provisioner-name")
    if karpenters and not own:
        return Owner(OwnerKind.KARPENTER, karpenters)
    if pool := tags.get(AUTO_MODE_TAG):
        return Owner(OwnerKind.AUTO_MODE, pool)
    if labels.get("eks.amazonaws.com/compute-type") == "auto":
        return Owner(OwnerKind.AUTO_MODE)
    if own:
        return Owner(OwnerKind.LEEWAY, own)
    return Owner(OwnerKind.NONE)


def cluster_of(tags: Mapping[str, str]) -> str | None:
    """Return the cluster that the tags of an instance name, or None if they name none.

    The tags that EKS writes take precedence. None also if plain tags name several clusters: only
    one of them has the node, and a wrong guess could terminate an instance with pods of another
    one.
    """
    for key in CLUSTER_TAGS:
        if name := tags.get(key):
            return name
    owned = [
        key for key, value in tags.items() if key.startswith(OWNED_PREFIX) and value == "owned"
    ]
    return owned[0].removeprefix(OWNED_PREFIX) if len(owned) == 1 else None
