"""The types and capacity types of a launch request, and their order."""

from leeway.selection.labels import CAPACITY_TYPE, INSTANCE, INSTANCE_TYPE, ZONE
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool
from leeway.selection.requirements import Requirement, Requirements

from tests.selection.workloads import GIB, catalog, instance_type, pods, spec

MANY = [
    instance_type(f"t{i}.large", 2000 + i, 4096, 0.1 + i / 1000, spot=0.03 + i / 1000)
    for i in range(80)
]


def plan_for(*types: object, pool: NodePool | None = None, cpu: int = 1500) -> Plan:
    made = catalog(*types) if types else catalog(*MANY)  # type: ignore[arg-type]
    return pack(pods("web", 1, spec(cpu)), Supply([pool or NodePool("plain")], made))


def test_up_to_sixty_types_the_cheapest_first_and_on_demand_as_the_alternative() -> None:
    spot, on_demand = plan_for().launches[0].choices
    assert spot.capacity_type == "spot"
    assert on_demand.capacity_type == "on-demand"
    assert list(spot.instance_types) == [f"t{i}.large" for i in range(60)]
    assert spot.price == 0.03
    assert spot.zones == ("a", "b", "c")


def test_spot_that_costs_more_than_on_demand_is_dropped() -> None:
    types = (
        instance_type("cheap", 2000, 4096, 0.05, spot=0.02),
        instance_type("dear", 2000, 4096, 0.2, spot=0.06),
    )
    spot, on_demand = plan_for(*types).launches[0].choices
    assert spot.instance_types == ("cheap",)
    assert on_demand.instance_types == ("cheap", "dear")


def test_spot_that_costs_more_than_on_demand_stays_if_min_values_may_count_it() -> None:
    dear = instance_type("dear", 2000, 4096, 0.05, spot=0.06)
    two = Requirement.of(CAPACITY_TYPE, "In", ["spot", "on-demand"], min_values=2)
    plan = plan_for(dear, pool=NodePool("plain", Requirements([two])))
    assert [one.capacity_type for one in plan.launches[0].choices] == ["spot", "on-demand"]


def test_a_type_is_not_usable_in_the_zone_in_which_a_daemon_set_fills_it() -> None:
    types = [instance_type(f"t{cores}", 1000 * cores, 4096, 0.05 * cores) for cores in (2, 4)]
    agent = spec(500, terms=(Requirements.from_labels({ZONE: "a"}),))
    supply = Supply([NodePool("plain")], catalog(*types), daemons=[agent])
    (choice,) = pack(pods("web", 1, spec(1800)), supply).launches[0].choices
    assert (choice.instance_types, choice.zones) == (("t2", "t4"), ("b", "c", "a"))
    assert choice.unusable == {("t2", "a")}


def test_a_type_is_not_usable_in_the_zone_of_another_term_of_the_pod() -> None:
    types = [instance_type(name, 2000, 4096, 0.1) for name in ("one", "two")]
    places = [("one", "a"), ("two", "b")]
    either = tuple(Requirements.from_labels({INSTANCE_TYPE: t, ZONE: z}) for t, z in places)
    supply = Supply([NodePool("plain")], catalog(*types))
    (choice,) = pack(pods("web", 1, spec(terms=either)), supply).launches[0].choices
    assert choice.unusable == {("one", "b"), ("two", "a")}


def test_exotic_types_are_requested_only_if_no_other_type_fits() -> None:
    types = (
        instance_type("plain", 2000, 4096, 0.2),
        instance_type("gpu", 8000, 8192, 0.1, devices={"nvidia.com/gpu": 1}),
        instance_type("big.metal", 64000, 65536, 0.05),
    )
    assert plan_for(*types).launches[0].choices[0].instance_types == ("plain",)
    (choice,) = plan_for(*types, cpu=7000).launches[0].choices
    assert choice.instance_types == ("big.metal", "gpu")


def test_min_values_reserve_places_for_their_label_values() -> None:
    families = [instance_type(f"t{i}.large", 2000, 4096, 0.1 + i / 1000) for i in range(80)]
    generations = [
        type(each)(
            each.name,
            {**each.labels, f"{INSTANCE}generation": "6" if i == 79 else "5"},
            each.capacity,
            each.allocatable,
            each.offerings,
        )
        for i, each in enumerate(families)
    ]
    two = Requirement.of(f"{INSTANCE}generation", "Exists", min_values=2)
    pool = NodePool("plain", Requirements([two]))
    (choice,) = plan_for(*generations, pool=pool).launches[0].choices
    assert len(choice.instance_types) == 60
    assert choice.instance_types[-1] == "t79.large"


def test_nodes_are_split_until_enough_types_fit_their_pods() -> None:
    types = [instance_type(f"t{i}", 1000 * (i + 1), 8192, 0.1 * (i + 1)) for i in range(4)]
    three = Requirement.of(INSTANCE_TYPE, "Exists", min_values=3)
    pool = NodePool("plain", Requirements([three]))
    plan = pack(pods("web", 4, spec(900)), Supply([pool], catalog(*types)))
    assert plan.launches
    assert all(len(launch.choices[0].instance_types) >= 3 for launch in plan.launches)
    assert not plan.unschedulable


def test_too_few_types_for_min_values_are_reported() -> None:
    three = Requirement.of(INSTANCE_TYPE, "Exists", min_values=3)
    pool = NodePool("plain", Requirements([three]))
    plan = plan_for(instance_type("one", 2000, 4096, 0.1), pool=pool)
    assert "minValues 3 of instance-type" in plan.unschedulable[0].reason.message


def test_limits_leave_the_types_that_min_values_need() -> None:
    """The types that hold the pod have more memory, or more CPU, than the cheapest one."""
    types = [instance_type("c", 2000, 4096, 0.05), instance_type("m", 2000, 8192, 0.06)]
    two = Requirements([Requirement.of(INSTANCE_TYPE, "Exists", min_values=2)])
    pool = NodePool("plain", two, limits={"cpu": 10**6, "memory": 2**50})
    plan = plan_for(*types, pool=pool, cpu=500)
    assert not plan.unschedulable
    assert plan.launches[0].choices[0].instance_types == ("c", "m")


def test_each_node_counts_as_the_largest_type_of_its_request_in_limits() -> None:
    types = [instance_type("c", 2000, 4096, 0.05), instance_type("m", 2000, 8192, 0.06)]
    two = Requirements([Requirement.of(INSTANCE_TYPE, "Exists", min_values=2)])
    pool = NodePool("plain", two, limits={"cpu": 10**6, "memory": 20 * GIB})
    plan = pack(pods("web", 4, spec(1500)), Supply([pool], catalog(*types)))
    assert [node.choices[0].instance_types for node in plan.launches] == [("c", "m")] * 2
    assert [miss.reason.code for miss in plan.unschedulable] == ["PoolLimitReached"] * 2


def test_pods_with_too_few_types_for_the_min_values_of_a_pool_get_a_node_of_another() -> None:
    three = Requirements([Requirement.of(INSTANCE_TYPE, "Exists", min_values=3)])
    pools = [NodePool("flexible", three, weight=10), NodePool("fallback")]
    waiting = [*pods("web", 2, spec(1500)), *pods("small", 1, spec(700))]
    types = [instance_type(f"t{cores}", 1000 * cores, 4096, 0.1 * cores) for cores in (1, 2, 3)]
    plan = pack(waiting, Supply(pools, catalog(*types)))
    assert not plan.unschedulable
    assert {(node.pool, node.pods) for node in plan.launches} >= {
        ("flexible", ("default/small-0",)),
    }
    assert {node.pool for node in plan.launches if "default/web-0" in node.pods} == {"fallback"}


def test_pods_for_which_limits_leave_too_few_types_get_a_node_of_another_pool() -> None:
    types = [instance_type("c", 2000, 4096, 0.05), instance_type("m", 2000, 8192, 0.06)]
    two = Requirements([Requirement.of(INSTANCE_TYPE, "Exists", min_values=2)])
    limited = NodePool("limited", two, limits={"memory": 12 * GIB}, weight=10)
    supply = Supply([limited, NodePool("fallback")], catalog(*types))
    plan = pack(pods("web", 3, spec(1500)), supply)
    assert not plan.unschedulable
    assert sorted(node.pool for node in plan.launches) == ["fallback", "fallback", "limited"]


def test_reserved_capacity_comes_first_and_costs_nothing_more() -> None:
    reserved = instance_type("m", 2000, 4096, 0.1)
    both = type(reserved)(
        "m",
        reserved.labels,
        reserved.capacity,
        reserved.allocatable,
        (*reserved.offerings, type(reserved.offerings[0])("a", "reserved", None)),
    )
    plan = plan_for(both)
    assert [c.capacity_type for c in plan.launches[0].choices] == ["reserved", "on-demand"]
    only = Requirement.of(CAPACITY_TYPE, "In", ["on-demand"])
    plan = plan_for(both, pool=NodePool("plain", Requirements([only])))
    assert [c.capacity_type for c in plan.launches[0].choices] == ["on-demand"]
