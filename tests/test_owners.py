"""Owners and clusters, as instances' tags tell them."""

import pytest
from leeway.owners import Owner, OwnerKind, cluster_of, owner_of


@pytest.mark.parametrize(
    ("tags", "owner"),
    [
        ({}, Owner(OwnerKind.NONE)),
        ({"aws:autoscaling:groupName": "ng"}, Owner(OwnerKind.AUTO_SCALING_GROUP, "ng")),
        (
            {"aws:autoscaling:groupName": "eks-ng-1", "eks:nodegroup-name": "ng"},
            Owner(OwnerKind.MANAGED_NODE_GROUP, "ng"),
        ),
        ({"karpenter.sh/nodepool": "default"}, Owner(OwnerKind.KARPENTER, "default")),
        ({"karpenter.sh/provisioner-name": "old"}, Owner(OwnerKind.KARPENTER, "old")),
        ({"eks:eks-cluster-name": "prod"}, Owner(OwnerKind.AUTO_MODE)),
        ({"leeway.sh/detached-from": "ng"}, Owner(OwnerKind.DETACHED, "ng")),
    ],
)
def test_tags_tell_who_started_an_instance(tags: dict[str, str], owner: Owner) -> None:
    assert owner_of(tags) == owner


def test_a_fargate_node_is_known_by_its_label() -> None:
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
def test_tags_tell_the_cluster(tags: dict[str, str], cluster: str | None) -> None:
    assert cluster_of(tags) == cluster
