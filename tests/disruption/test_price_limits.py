"""Consolidation keeps the limits of pools in money: what it replaces can be launched."""

from dataclasses import replace

import pytest
from leeway.disruption.decide import decide_returns
from leeway.launch.prices import SpendingLimit
from leeway.selection.labels import INSTANCE_TYPE
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.overlays import Overlay
from leeway.selection.requirements import Requirement, Requirements

from tests.disruption.snapshots import ON_DEMAND, own_node, snapshot
from tests.selection.workloads import spec

LARGE = own_node("large", spec(1500), kind="large")
"""A node of 0.40 USD per hour, whose pod fits on one of 0.05."""


def limit(pool: str, used: float, most: float) -> SpendingLimit:
    return SpendingLimit("prod", pool, most, used)


@pytest.mark.parametrize("most", [0.0, 0.1, 0.4, 1.0])
def test_a_cheaper_node_replaces_one_of_its_own_pool_at_the_limit(most: float) -> None:
    found = decide_returns(snapshot(LARGE, spending_limits=(limit("plain", 0.4, most),)))
    assert [one.nodes for one in found.returns] == [("large",)]


@pytest.mark.parametrize(("most", "target"), [(1.0, "other"), (0.04, "plain")])
def test_a_pool_that_is_full_takes_no_nodes_in_place_of_those_of_others(
    most: float, target: str
) -> None:
    other = replace(ON_DEMAND, name="other", weight=10)
    limits = (limit("other", 0.0, most),)
    found = decide_returns(snapshot(LARGE, pools=(other, ON_DEMAND), spending_limits=limits))
    assert [one.nodes for one in found.returns] == [("large",)], target


def test_no_node_goes_for_one_that_no_limit_has_room_for() -> None:
    """It would be cordoned, wait for its replacement, and be uncordoned, again and again."""
    other = replace(ON_DEMAND, name="other")
    gone = replace(ON_DEMAND, name="plain", limits={"nodes": 0})
    found = decide_returns(
        snapshot(LARGE, pools=(other, gone), spending_limits=(limit("other", 1.0, 1.0),))
    )
    assert not found.returns


@pytest.mark.parametrize(("most", "returned"), [(0.2, []), (0.5, [("medium",)])])
def test_a_node_that_only_an_overlay_makes_cheap_needs_room_on_the_bill(
    most: float, returned: list[tuple[str, ...]]
) -> None:
    large = Requirements([Requirement.of(INSTANCE_TYPE, "In", ["large"])])
    cheap = NodeClass(overlays=(Overlay("cheap", large, price="0.001"),))
    medium = own_node("medium", spec(1500), kind="medium")
    pools = (replace(ON_DEMAND, node_class=cheap),)
    found = decide_returns(
        snapshot(medium, pools=pools, spending_limits=(limit("plain", 0.11, most),))
    )
    assert [one.nodes for one in found.returns] == returned
    if not returned:
        assert found.kept["medium"].code == "PoolPriceLimitReached"
