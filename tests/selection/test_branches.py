"""Branch interfaces of instance types: what pods with security groups of their own take one of."""

import pytest
from leeway.selection.labels import INSTANCE_TYPE
from leeway.selection.offers.branches import POD_ENI, branch_interfaces
from leeway.selection.offers.catalog import Catalog
from leeway.selection.offers.node_class import AmiFamily, NodeClass
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import Pod, PodSpec
from leeway.selection.pools import NodePool
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources


@pytest.mark.parametrize(
    ("name", "interfaces", "branches"),
    [
        ("m5.large", 3, 9),
        ("c5.9xlarge", 8, 54),
        ("c5.metal", 15, 107),
        ("c6a.8xlarge", 8, 84),
        ("c6a.12xlarge", 8, 114),
        ("c6g.12xlarge", 8, 54),
        ("c6in.32xlarge", 16, 106),
        ("c7g.medium", 2, 4),
        ("c7i.metal-24xl", 15, 107),
        ("c7i-flex.large", 3, 3),
        ("c7i-flex.2xlarge", 4, 18),
        ("c7i-flex.12xlarge", 8, 114),
        ("c8gn.8xlarge", 10, 52),
        ("c8gn.48xlarge", 24, 98),
        ("c8i.8xlarge", 10, 82),
        ("c8i.96xlarge", 24, 98),
        ("m8i-flex.4xlarge", 8, 34),
    ],
)
def test_a_type_has_the_branches_that_amazons_controller_gives_it(
    name: str, interfaces: int, branches: int
) -> None:
    assert branch_interfaces(name, interfaces) == branches


@pytest.mark.parametrize("name", ["t3.large", "m4.large", "m5zn.large", "p3.2xlarge", "mac1.metal"])
def test_types_that_have_none_and_those_that_are_not_known_take_no_such_pod(name: str) -> None:
    assert branch_interfaces(name, 3) == 0


def test_pods_with_security_groups_of_their_own_are_packed_by_branches(catalog: Catalog) -> None:
    large = NodePool(
        "large", Requirements([Requirement.of(INSTANCE_TYPE, "In", ["m5.large", "t3.large"])])
    )
    asked = Resources({"cpu": 10, "pods": 1, POD_ENI: 1})
    waiting = [Pod(f"default/web-{i}", PodSpec(requests=asked)) for i in range(12)]
    plan = pack(waiting, Supply([large], catalog))
    assert [node.cheapest.type.name for node in plan.launches] == ["m5.large", "m5.large"]
    assert not plan.unschedulable


def test_pods_without_them_go_to_the_same_types_as_ever(catalog: Catalog) -> None:
    table = catalog.for_node_class(NodeClass())
    assert not table.type(catalog.index["m5.large"]).exotic
    assert table.type(catalog.index["m5.large"]).capacity.of(POD_ENI) == 9


def test_windows_has_no_branches(catalog: Catalog) -> None:
    table = catalog.for_node_class(NodeClass(family=AmiFamily.WINDOWS_2022))
    assert table.type(catalog.index["m5.large"]).capacity.of(POD_ENI) == 0
