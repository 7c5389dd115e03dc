"""Branch interfaces of instance types, which pods with their own security groups use."""

import pytest
from leeway.selection.labels import FAMILY, INSTANCE, INSTANCE_TYPE
from leeway.selection.offers.allocatable import AmiFamily, NodeClass
from leeway.selection.offers.catalog import Catalog
from leeway.selection.offers.machines import POD_ENI, PRIVATE_IPV4, branch_interfaces
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, Pod, PodSpec
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

HYPERVISOR = f"{INSTANCE}hypervisor"


BRANCHES = {
    "m5.large": (3, 9),
    "c5.9xlarge": (8, 54),
    "c5.metal": (15, 107),
    "c6a.8xlarge": (8, 84),
    "c6a.12xlarge": (8, 114),
    "c6g.12xlarge": (8, 54),
    "c6in.32xlarge": (16, 106),
    "c7g.medium": (2, 4),
    "c7i.metal-24xl": (15, 107),
    "c7i-flex.large": (3, 3),
    "c7i-flex.2xlarge": (4, 18),
    "c7i-flex.12xlarge": (8, 114),
    "c8gn.8xlarge": (10, 52),
    "c8gn.48xlarge": (24, 98),
    "c8i.8xlarge": (10, 82),
    "c8i.96xlarge": (24, 98),
    "m8i-flex.4xlarge": (8, 34),
    "m8g-flex.medium": (2, 1),
    "m8g-flex.16xlarge": (15, 47),
    "c8g-flex.12xlarge": (8, 54),
    "c8g-flex.16xlarge": (15, 47),
    "a1.medium": (2, 10),
    "c8ib.large": (4, 8),
    "c9g.8xlarge": (10, 52),
    "m5.metal": (15, 120),
    "m5d.metal": (15, 107),
    "m5zn.large": (3, 13),
    "m8a.8xlarge": (10, 82),
    "m8azn.3xlarge": (8, 34),
    "r7iz.12xlarge": (8, 114),
    "r8idn.96xlarge": (24, 98),
    "d3en.xlarge": (4, 24),
    "g4dn.16xlarge": (4, 118),
    "g6e.48xlarge": (40, 82),
    "g7e.48xlarge": (40, 120),
    "hpc7g.4xlarge": (4, 118),
    "i4i.24xlarge": (15, 105),
    "i7ie.xlarge": (4, 27),
    "inf2.8xlarge": (8, 84),
    "is4gen.8xlarge": (8, 54),
    "mac2.metal": (8, 6),
    "p5.48xlarge": (64, 120),
    "trn1.2xlarge": (4, 17),
    "u7in-32tb.224xlarge": (16, 106),
    "vt1.3xlarge": (4, 38),
    "x2gd.medium": (2, 10),
    "x2iedn.8xlarge": (8, 114),
    "x8i.8xlarge": (10, 82),
    "z1d.3xlarge": (8, 54),
}
"""The interfaces and the branches of types, as the VPC resource controller has them."""


def test_a_type_has_the_branches_of_the_vpc_resource_controller() -> None:
    for name, (interfaces, branches) in BRANCHES.items():
        assert branch_interfaces(name, interfaces) == branches, name


@pytest.mark.parametrize(
    "name", ["t3.large", "m4.large", "p3.2xlarge", "u-6tb1.56xlarge", "i3.large", "hpc7a.12xlarge"]
)
def test_types_without_branches_and_unknown_types_have_none(name: str) -> None:
    assert branch_interfaces(name, 3) == 0


def test_only_burstable_types_old_ones_and_one_large_family_have_no_branches(
    catalog: Catalog,
) -> None:
    types = catalog.for_node_class(NodeClass()).types()
    without = {each.labels[FAMILY] for each in types if not each.capacity.of(POD_ENI)}
    burstable = {"t1", "t2", "t3", "t3a", "t4g", "t8i"}
    xen = {each.labels[FAMILY] for each in types if each.labels.get(HYPERVISOR) == "xen"}
    assert without - burstable - xen == {"u-6tb1"}


def test_pods_with_security_groups_of_their_own_are_packed_by_branches(catalog: Catalog) -> None:
    large = NodePool(
        "large", Requirements([Requirement.of(INSTANCE_TYPE, "In", ["m5.large", "t3.large"])])
    )
    asked = Resources({"cpu": 10, "pods": 1, POD_ENI: 1})
    waiting = [Pod(f"default/web-{i}", PodSpec(requests=asked)) for i in range(12)]
    plan = pack(waiting, Supply([large], catalog))
    assert [node.cheapest.type.name for node in plan.launches] == ["m5.large", "m5.large"]
    assert not plan.unschedulable


def test_pods_without_security_groups_use_all_types(catalog: Catalog) -> None:
    table = catalog.for_node_class(NodeClass())
    assert not table.type(catalog.index["m5.large"]).exotic
    assert table.type(catalog.index["m5.large"]).capacity.of(POD_ENI) == 9


def test_windows_has_no_branches(catalog: Catalog) -> None:
    table = catalog.for_node_class(NodeClass(family=AmiFamily.WINDOWS_2022))
    assert table.type(catalog.index["m5.large"]).capacity.of(POD_ENI) == 0


def test_a_pod_of_windows_gets_a_node_with_an_address_for_it(catalog: Catalog) -> None:
    """EKS makes each pod that selects Windows request one."""
    asked = Resources({"cpu": 10, "pods": 1, PRIVATE_IPV4: 1})
    waiting = [Pod("default/web", PodSpec(requests=asked))]
    windows = NodePool("windows", node_class=NodeClass(family=AmiFamily.WINDOWS_2022))
    plan = pack(waiting, Supply([windows], catalog))
    assert [node.pods for node in plan.launches] == [("default/web",)]
    assert pack(waiting, Supply([NodePool("linux")], catalog)).unschedulable
