"""A supply is made once for equal pools, and never kept for others."""

from copy import copy
from dataclasses import replace

from leeway.launch.launch_run import MOST_ARRAYS, MOST_KEPT, Supplies
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.packing.planning import pack
from leeway.selection.pods import NodePool, PodSpec, Taint
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from tests.launch.pools import pods

SMALL = Requirements([Requirement.of("karpenter.k8s.aws/instance-family", "In", ["m5"])])
POOL = NodePool("web", SMALL)


def test_equal_pools_have_one_supply(catalog: Catalog) -> None:
    supplies = Supplies()
    first = supplies.of([POOL], catalog, (), ())
    pack(pods(3, cpu=1000), first)
    assert supplies.of([replace(POOL)], catalog, (), ()) is first


def test_each_change_makes_another_supply(catalog: Catalog) -> None:
    supplies = Supplies()
    agent = PodSpec("kube-system", requests=Resources({"cpu": 100}))
    gone = Unavailable("m5.large", "us-east-1a", "spot")
    tainted = replace(POOL, taints=(Taint("team", "a"),))
    found = [
        supplies.of([POOL], catalog, (), ()),
        supplies.of([tainted], catalog, (), ()),
        supplies.of([POOL], catalog, {gone}, ()),
        supplies.of([POOL], catalog, (), [agent]),
        supplies.of([POOL], copy(catalog), (), ()),
    ]
    assert len({id(one) for one in found}) == len(found)
    assert len(supplies._kept) == MOST_KEPT


def test_a_supply_with_too_many_arrays_is_not_kept(catalog: Catalog) -> None:
    supplies = Supplies()
    first = supplies.of([POOL], catalog, (), ())
    for number in range(MOST_ARRAYS + 1):
        first.values(f"example.com/{number}")
    assert supplies.of([POOL], catalog, (), ()) is not first
