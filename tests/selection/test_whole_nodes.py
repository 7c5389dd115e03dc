"""Pods without constraints: nodes are chosen before a place for each pod; few nodes and many follow
the same rules."""

import pytest
from leeway.selection.labels import ZONE
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, Pod, PodSpec
from leeway.selection.resources import Resources
from leeway.selection.solver import one_by_one
from leeway_cli.simulated_day.bound import covering_bound

from bench.packing import CATALOGS, EVERY, USUAL
from bench.workloads import (
    diverse_pods,
    equal_pods,
    generic_pods,
    spread_pods,
    synthetic_catalog,
)


@pytest.mark.parametrize("count", [100, 500, 3000])
def test_unconstrained_pods_on_real_types_cost_little_more_than_the_bound(count: int) -> None:
    supply, pods = CATALOGS[USUAL](), generic_pods(count, seed=43)
    plan = pack(pods, supply)
    assert not plan.unschedulable
    # The plans of 500 and 3,000 pods cost 1.063 and 1.02 of it before whole nodes came first.
    assert plan.price <= 1.013 * covering_bound(pods, supply)


def test_equal_pods_whose_cheapest_nodes_are_small_get_the_nodes_of_patterns() -> None:
    supply, pods = CATALOGS[EVERY](), equal_pods(10)(1000)
    plan = pack(pods, supply)
    assert not plan.unschedulable
    # Whole nodes cannot hold them all; the search without patterns ended at the same price.
    assert plan.price <= 1.061 * plan.bound


def test_pods_in_one_zone_each_are_packed_zone_by_zone() -> None:
    supply, pods = CATALOGS[USUAL](), spread_pods(2100)
    plan = pack(pods, supply)
    assert not plan.unschedulable
    assert plan.price <= 1.01 * plan.bound
    assert len({launch.cheapest.labels[ZONE] for launch in plan.launches}) > 2


@pytest.mark.parametrize("few", [0, 2, 48])
def test_few_and_many_nodes_have_first_plans_of_the_same_price(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    supply = Supply([NodePool("default")], synthetic_catalog(60))
    first_plan = Effort(improvements=0)
    usual = pack(diverse_pods(60), supply, effort=first_plan)
    monkeypatch.setattr(one_by_one, "FEW", few)
    again = pack(diverse_pods(60), supply, effort=first_plan)
    assert again.price == pytest.approx(usual.price)
    assert len(again.launches) == len(usual.launches)
    assert not again.unschedulable


@pytest.mark.parametrize("count", [1, 3])
def test_pods_that_request_what_few_types_have_get_as_many_nodes_as_they_need(count: int) -> None:
    requests = Resources({"cpu": 500, "memory": 2**30, "nvidia.com/gpu": 1, "pods": 1})
    pods = [Pod(f"default/gpu-{number}", PodSpec(requests=requests)) for number in range(count)]
    beside = generic_pods(3, seed=43)
    plan = pack([*pods, *beside], CATALOGS[EVERY]())
    assert not plan.unschedulable
    assert len(plan.launches) <= len(pods) + len(beside)
