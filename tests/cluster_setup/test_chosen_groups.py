"""Which Auto Scaling groups come under care."""

import pytest
from leeway.reasons import Reason
from leeway_cli.cluster_setup.chosen_groups import chosen_groups
from leeway_cli.cluster_setup.ports import ScalingGroup

OWN = ScalingGroup("web", {})
MANAGED = ScalingGroup("eks-ng-1", {}, node_group="ng")


def test_all_groups_of_the_cluster_but_managed_ones_are_chosen() -> None:
    assert chosen_groups((), [OWN, MANAGED], "us-east-1") == ("web",)


def test_a_group_is_chosen_once() -> None:
    assert chosen_groups(["web", "web"], [OWN], "us-east-1") == ("web",)


@pytest.mark.parametrize(
    ("name", "code"), [("gone", "GroupNotFound"), ("eks-ng-1", "GroupOfManagedNodeGroup")]
)
def test_a_group_that_cannot_be_chosen_is_named(name: str, code: str) -> None:
    found = chosen_groups(["web", name], [OWN, MANAGED], "us-east-1")

    assert isinstance(found, Reason)
    assert found.code == code
