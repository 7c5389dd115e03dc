"""Types with a fraction of a GPU: a pod that requests one GPU expects a whole one."""

import pytest
from leeway.selection.labels import FAMILY, INSTANCE, INSTANCE_TYPE
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.plan import NO_NODE_POOL_MATCHES, Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, Pod, PodSpec
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

ASKED = Resources.parsed({"cpu": 1, "nvidia.com/gpu": 1, "pods": 1})
L4 = Requirement.of(f"{INSTANCE}gpu-name", "In", ["l4"])
LARGE = Requirement.of(INSTANCE_TYPE, "In", ["g6f.large"])


def packed(
    catalog: Catalog, pool: list[Requirement], pod: list[Requirement], *daemons: PodSpec
) -> Plan:
    """One pod that asks for a GPU, by one pool."""
    spec = PodSpec(requests=ASKED, terms=(Requirements(pod),) if pod else ())
    supply = Supply([NodePool("gpu", Requirements(pool))], catalog, daemons=daemons)
    return pack([Pod("default/model", spec)], supply)


def test_a_pod_that_requests_a_gpu_gets_a_whole_one(catalog: Catalog) -> None:
    (launch,) = packed(catalog, [L4], []).launches
    types = {name for choice in launch.choices for name in choice.instance_types}
    assert "g6.xlarge" in types
    assert not {name for name in types if "6f." in name}


@pytest.mark.parametrize(
    ("pool", "pod"),
    [([LARGE], []), ([], [LARGE]), ([Requirement.of(FAMILY, "In", ["g6f"])], [L4])],
)
def test_a_fractional_gpu_is_launched_if_the_pool_or_the_pod_names_it(
    catalog: Catalog, pool: list[Requirement], pod: list[Requirement]
) -> None:
    (launch,) = packed(catalog, pool, pod).launches
    assert launch.cheapest.type.name == "g6f.large"


def test_daemons_count_on_a_named_type_without_naming_it_themselves(catalog: Catalog) -> None:
    agent = PodSpec(requests=Resources.parsed({"cpu": "950m", "pods": 1}))
    (launch,) = packed(catalog, [Requirement.of(FAMILY, "In", ["g6f"])], [], agent).launches
    assert launch.cheapest.type.name == "g6f.xlarge"


def test_the_reason_names_fractional_gpus_that_are_not_named(catalog: Catalog) -> None:
    small = Requirement.of(f"{INSTANCE}size", "In", ["large"])
    (miss,) = packed(catalog, [L4, small], []).unschedulable
    assert miss.reason.code == NO_NODE_POOL_MATCHES.name
    assert "g6f.large has a fraction of a GPU" in miss.reason.message
