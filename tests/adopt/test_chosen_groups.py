"""Which Auto Scaling groups come under care."""

from dataclasses import replace

import pytest
from leeway_cli.adopt.settings.groups import GroupTag, ScalingGroup, chosen_groups
from leeway_cli.errors import CannotBeDoneError

OWN = ScalingGroup("web", {})
MANAGED = ScalingGroup("eks-ng-1", {}, node_group="ng")
PLACE = ("prod", "us-east-1")


def tagged(*keys: str, joined: str = "") -> ScalingGroup:
    """A group with these tags, as `key` or `key=value`, and an instance of a cluster."""
    pairs = [key.partition("=") for key in keys]
    tags = {key: GroupTag("web", value or "owned", tag=key) for key, _, value in pairs}
    return replace(OWN, tags=tags, joined=frozenset({joined} - {""}))


def test_all_groups_of_the_cluster_but_managed_ones_are_chosen() -> None:
    assert chosen_groups((), [OWN, MANAGED], *PLACE) == ("web",)


def test_a_group_is_chosen_once() -> None:
    assert chosen_groups(["web", "web"], [OWN], *PLACE) == ("web",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone", "Auto Scaling has no group gone in region us-east-1."),
        ("eks-ng-1", "Group eks-ng-1 belongs to the managed node group"),
    ],
)
def test_a_group_that_cannot_be_chosen_is_named(name: str, said: str) -> None:
    with pytest.raises(CannotBeDoneError, match=said):
        chosen_groups(["web", name], [OWN, MANAGED], *PLACE)


@pytest.mark.parametrize(
    "group",
    [
        tagged("kubernetes.io/cluster/dev"),
        tagged("k8s.io/cluster-autoscaler/dev", "k8s.io/cluster-autoscaler/enabled"),
        tagged("eks:cluster-name=dev"),
        tagged(joined="dev"),
    ],
)
def test_a_group_of_another_cluster_is_not_chosen(group: ScalingGroup) -> None:
    with pytest.raises(CannotBeDoneError, match="group web name cluster dev, and not prod"):
        chosen_groups(["web"], [group], *PLACE)


@pytest.mark.parametrize(
    "group",
    [
        tagged("k8s.io/cluster-autoscaler/enabled", "team=dev"),
        tagged("k8s.io/cluster-autoscaler/node-template/label/tier=dev"),
        tagged("kubernetes.io/cluster/prod", "eks:cluster-name=dev"),
        tagged("kubernetes.io/cluster/dev", joined="prod"),
        tagged("eks:cluster-name=prod", joined="dev"),
        tagged("kubernetes.io/cluster/dev=shared"),
        tagged("kubernetes.io/cluster/dev", "kubernetes.io/cluster/prod=shared"),
    ],
)
def test_a_group_of_several_clusters_or_of_none_is_chosen(group: ScalingGroup) -> None:
    assert chosen_groups(["web"], [group], *PLACE) == ("web",)
