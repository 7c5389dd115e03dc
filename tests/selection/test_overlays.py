"""Overlays change what types cost and offer as nodes of a pool."""

from dataclasses import replace
from math import isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from leeway.selection.offers.allocatable import GIB, NodeClass
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.offers.overlays import Overlay, in_order
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, Pod, PodSpec
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from tests.selection.workloads import catalog as catalog_of
from tests.selection.workloads import instance_type

FUSE = "smarter-devices/fuse"


def asked(**values: str) -> Requirements:
    keys = {"type": INSTANCE_TYPE, "zone": ZONE, "market": CAPACITY_TYPE}
    return Requirements(Requirement.of(keys[k], "In", [v]) for k, v in values.items())


def priced(catalog: Catalog, *overlays: Overlay) -> dict[tuple[str, str, str], float | None]:
    """The price of each offering."""
    table = catalog.for_node_class(NodeClass(overlays=in_order(overlays)))
    return {
        (kind.name, one.zone, one.capacity_type): one.price
        for kind in table.types()
        for one in kind.offerings
    }


TYPES = (
    instance_type("small", 2000, 4096, 0.1, spot=0.03),
    instance_type("large", 4000, 8192, 0.2, spot=0.06),
)


@pytest.mark.parametrize(
    ("change", "price"),
    [
        ("0.5", 0.5),
        ("0", 0.0),
        ("+0.1", 0.2),
        ("-0.05", 0.05),
        ("-5", 0.0),
        ("+50%", 0.15),
        ("-15.5%", 0.0845),
        ("-100%", 0.0),
    ],
)
def test_a_price_is_set_or_changed_and_never_negative(change: str, price: float) -> None:
    assert Overlay("x", price=change).priced(0.1) == pytest.approx(price)


def test_an_unknown_price_stays_unknown_unless_an_overlay_says_it() -> None:
    assert isnan(Overlay("x", price="+10%").priced(nan))
    assert isnan(Overlay("x", price="-1").priced(nan))
    assert Overlay("x", price="0.7").priced(nan) == 0.7


def test_only_offerings_that_match_have_another_price() -> None:
    made = catalog_of(*TYPES)
    before = priced(made)
    after = priced(made, Overlay("x", asked(type="small", zone="b", market="spot"), price="9"))
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {("small", "b", "spot")}
    assert after["small", "b", "spot"] == 9


def test_the_largest_weight_sets_the_price_and_each_resource() -> None:
    made = catalog_of(*TYPES)
    heavy = Overlay("a", asked(type="small"), 10, "+1", Resources({FUSE: 5}))
    light = Overlay("z", Requirements(), 1, "-50%", Resources({FUSE: 1, "example.com/x": 2}))
    table = made.for_node_class(NodeClass(overlays=in_order([light, heavy])))
    small, large = (table.type(made.index[name]) for name in ("small", "large"))
    assert small.capacity.of(FUSE) == small.allocatable.of(FUSE) == 5
    assert small.capacity.of("example.com/x") == 2
    assert large.capacity.of(FUSE) == 1
    prices = priced(made, heavy, light)
    assert prices["small", "a", "on-demand"] == pytest.approx(1.1)
    assert prices["large", "a", "on-demand"] == pytest.approx(0.1)


def test_resources_apply_to_the_type_if_one_of_its_offerings_matches() -> None:
    made = catalog_of(*TYPES)
    only_spot = Overlay("x", asked(market="spot", zone="a"), capacity=Resources({FUSE: 1}))
    table = made.for_node_class(
        NodeClass(overlays=(only_spot,)), [Unavailable("small", "a", "spot")]
    )
    assert table.type(made.index["small"]).capacity.of(FUSE) == 1, "available or not"
    nowhere = Overlay("x", asked(zone="elsewhere"), capacity=Resources({FUSE: 1}))
    assert not made.for_node_class(NodeClass(overlays=(nowhere,))).type(0).capacity.of(FUSE)


def test_huge_pages_are_taken_from_the_memory_for_pods(catalog: Catalog) -> None:
    pages = Overlay("x", capacity=Resources({"hugepages-2Mi": GIB}))
    index = catalog.index["m5.large"]
    plain = catalog.for_node_class(NodeClass()).type(index)
    table = catalog.for_node_class(NodeClass(overlays=(pages,)))
    found = table.type(index)
    assert found.allocatable.of("hugepages-2Mi") == GIB
    assert found.allocatable.of("memory") == plain.allocatable.of("memory") - GIB
    assert found.capacity.of("memory") == plain.capacity.of("memory")
    small = table.type(catalog.index["t3.nano"])
    assert small.allocatable.of("memory") == 0, "never negative"


def plan_for(pod: Resources, *overlays: Overlay) -> Plan:
    pool = NodePool("web", node_class=NodeClass(overlays=in_order(overlays)))
    spec = PodSpec(requests=pod + Resources({"pods": 1}))
    return pack([Pod("default/p", spec)], Supply([pool], catalog_of(*TYPES)))


def test_a_pod_that_asks_for_a_resource_that_no_type_publishes_gets_a_promised_node() -> None:
    pod = Resources({"cpu": 100, FUSE: 1})
    without = plan_for(pod)
    assert [one.reason.code for one in without.unschedulable] == ["RequestTooLarge"]
    promise = Overlay("x", asked(type="large"), capacity=Resources({FUSE: 1}))
    (node,) = plan_for(pod, promise).launches
    assert node.cheapest.type.name == "large"
    assert not node.cheapest.type.exotic, "a promise makes no type exotic"


def test_an_adjusted_price_decides_which_type_is_launched() -> None:
    pod = Resources({"cpu": 100})
    assert plan_for(pod).launches[0].cheapest.type.name == "small"
    (node,) = plan_for(pod, Overlay("x", asked(type="small"), price="+100%")).launches
    assert node.cheapest.type.name == "small", "still the cheaper one, or as cheap"
    (node,) = plan_for(pod, Overlay("x", asked(type="large"), price="0")).launches
    assert node.cheapest.type.name == "large"
    assert node.cheapest.price == 0


def test_the_prices_of_a_catalog_stay_as_they_are(catalog: Catalog) -> None:
    cheap = NodeClass(overlays=(Overlay("x", price="-90%"),))
    first = catalog.for_node_class(cheap)
    again = catalog.for_node_class(replace(cheap, prefix_delegation=True))
    plain = catalog.for_node_class(NodeClass())
    assert [m for m, _ in plain.markets] == list(catalog.markets)
    pairs = zip(first.markets, again.markets, strict=True)
    assert all(one is other for (one, _), (other, _) in pairs), "computed once"


AMOUNTS = st.floats(0, 1e4, allow_nan=False).map(lambda n: f"{n:.4f}")
CHANGES = st.one_of(
    AMOUNTS,
    st.tuples(st.sampled_from("+-"), AMOUNTS).map("".join),
    st.floats(0, 99, allow_nan=False).map(lambda n: f"-{n:.2f}%"),
    AMOUNTS.map(lambda n: f"+{n}%"),
)
OVERLAYS = st.lists(
    st.builds(
        Overlay,
        st.text("abcdef", min_size=1, max_size=4),
        st.sampled_from([Requirements(), asked(type="small"), asked(market="spot")]),
        st.integers(0, 3),
        st.one_of(st.just(""), CHANGES),
    ),
    max_size=5,
    unique_by=lambda one: one.name,
)


@given(OVERLAYS)
def test_each_offering_has_the_price_of_the_first_overlay_that_sets_it(
    overlays: list[Overlay],
) -> None:
    made = catalog_of(*TYPES)
    plain = priced(made)
    for (kind, zone, market), price in priced(made, *overlays).items():
        labels = {INSTANCE_TYPE: kind, ZONE: zone, CAPACITY_TYPE: market}
        setting = [
            one for one in in_order(overlays) if one.price and one.requirements.admits(labels)
        ]
        before = plain[kind, zone, market]
        assert before is not None
        assert price == pytest.approx(setting[0].priced(before) if setting else before)
        assert (price or 0) >= 0
