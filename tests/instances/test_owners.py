"""Owners and clusters, read from the tags of instances."""

import pytest
from leeway.instances.facts import Owner, OwnerKind, cluster_of, owner_of

UUID = "0ac1b6a3-4d3e-9f0b-6c56-3f1c2e9a7b10"
EKS_GROUP = f"eks-ng-{UUID}"
"""What EKS calls the Auto Scaling group of its node group `ng`."""


@pytest.mark.parametrize(
    ("tags", "owner"),
    [
        ({}, Owner(OwnerKind.NONE)),
        ({"aws:autoscaling:groupName": "ng"}, Owner(OwnerKind.AUTO_SCALING_GROUP, "ng")),
        (
            {"aws:autoscaling:groupName": EKS_GROUP, "eks:nodegroup-name": "ng"},
            Owner(OwnerKind.MANAGED_NODE_GROUP, "ng"),
        ),
        (
            {"aws:autoscaling:groupName": f"eks-{UUID}", "eks:nodegroup-name": "ng"},
            Owner(OwnerKind.MANAGED_NODE_GROUP, "ng"),
        ),
        ({"karpenter.sh/nodepool": "default"}, Owner(OwnerKind.KARPENTER, "default")),
        ({"karpenter.sh/provisioner-name": "old"}, Owner(OwnerKind.KARPENTER, "old")),
        (
            {"eks:eks-cluster-name": "prod", "eks:kubernetes-node-pool-name": "system"},
            Owner(OwnerKind.AUTO_MODE, "system"),
        ),
        ({"eks:eks-cluster-name": "prod"}, Owner(OwnerKind.NONE)),
        ({"leeway.sh/detached-from": "ng", "eks:cluster-name": "prod"}, Owner(OwnerKind.NONE)),
    ],
)
def test_the_owner_is_read_from_the_tags(tags: dict[str, str], owner: Owner) -> None:
    assert owner_of(tags) == owner


@pytest.mark.parametrize(
    "plain",
    [
        {"eks:nodegroup-name": "ng"},
        {"karpenter.sh/nodepool": "default"},
        {"karpenter.sh/provisioner-name": "old"},
        {"eks:eks-cluster-name": "prod", "eks:kubernetes-node-pool-name": "system"},
    ],
)
@pytest.mark.parametrize("group", ["workers", "eks-workers", f"workers-{UUID}"])
def test_the_tag_of_auto_scaling_takes_precedence_over_plain_tags(
    group: str, plain: dict[str, str]
) -> None:
    owner = owner_of({"aws:autoscaling:groupName": group, **plain})
    assert owner == Owner(OwnerKind.AUTO_SCALING_GROUP, group)


def test_a_node_of_karpenter_is_not_treated_as_one_of_auto_mode() -> None:
    """The tags that Karpenter 1.0 and later write."""
    tags = {
        "eks:eks-cluster-name": "prod",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "karpenter.sh/nodeclaim": "general-x7k2p",
        "karpenter.sh/nodepool": "general",
        "kubernetes.io/cluster/prod": "owned",
    }
    assert owner_of(tags) == Owner(OwnerKind.KARPENTER, "general")
    assert cluster_of(tags) == "prod"


def test_an_instance_that_leeway_took_over_keeps_the_tags_of_karpenter() -> None:
    karpenters = {"eks:eks-cluster-name": "prod", "karpenter.sh/nodepool": "general"}
    own = {"leeway.sh/owner": "leeway", "leeway.sh/nodepool": "general"}
    assert owner_of({**karpenters, **own}) == Owner(OwnerKind.LEEWAY, "general")
    pool = {"leeway.sh/nodepool": "general"}
    assert owner_of({**karpenters, **pool}) == Owner(OwnerKind.KARPENTER, "general")
    other = {**karpenters, **own, "leeway.sh/owner": "other"}
    assert owner_of(other) == Owner(OwnerKind.KARPENTER, "general")


def test_a_fargate_node_is_identified_by_its_label() -> None:
    owner = owner_of({}, {"eks.amazonaws.com/compute-type": "fargate"})
    assert owner.kind is OwnerKind.FARGATE
    assert owner.retires_itself


@pytest.mark.parametrize(
    ("tags", "cluster"),
    [
        ({"aws:eks:cluster-name": "prod"}, "prod"),
        ({"eks:cluster-name": "prod"}, "prod"),
        ({"kubernetes.io/cluster/prod": "owned"}, "prod"),
        ({"kubernetes.io/cluster/prod": "shared"}, None),
        ({"kubernetes.io/cluster/prod": "owned", "kubernetes.io/cluster/dev": "shared"}, "prod"),
        ({"kubernetes.io/cluster/prod": "owned", "kubernetes.io/cluster/dev": "owned"}, None),
        ({"kubernetes.io/cluster/dev": "owned", "aws:eks:cluster-name": "prod"}, "prod"),
        ({"Name": "prod", "disk": "owned"}, None),
    ],
)
def test_the_cluster_is_read_from_the_tags(tags: dict[str, str], cluster: str | None) -> None:
    assert cluster_of(tags) == cluster
