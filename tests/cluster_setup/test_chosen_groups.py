"""Which Auto Scaling groups come under care."""

import pytest
from leeway_cli.cluster_setup.chosen_groups import chosen_groups
from leeway_cli.cluster_setup.ports import ScalingGroup

OWN = ScalingGroup("web", {})
MANAGED = ScalingGroup("eks-ng-1", {}, node_group="ng")


def test_all_groups_of_the_cluster_but_managed_ones_are_chosen() -> None:
    assert chosen_groups((), [OWN, MANAGED], "us-east-1") == ("web",)


def test_a_group_is_chosen_once() -> None:
    assert chosen_groups(["web", "web"], [OWN], "us-east-1") == ("web",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone", "Auto Scaling has no group gone in region us-east-1."),
        ("eks-ng-1", "Group eks-ng-1 belongs to the managed node group"),
    ],
)
def test_a_group_that_cannot_be_chosen_is_named(name: str, said: str) -> None:
    found = chosen_groups(["web", name], [OWN, MANAGED], "us-east-1")

    assert isinstance(found, str)
    assert found.startswith(said)
