"""What Leeway's nodes of a cluster cost per hour stays below a ceiling."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.launch.intent import LaunchOutcome
from leeway.launch.prices import PriceCeiling, Prices, SpendingLimit, affordable
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.plan import PlannedNode
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode
from leeway.selection.resources import Resources
from leeway_cli.selection.sources import sandbox_catalog

from tests.launch.conftest import catalog
from tests.launch.launching import World, order
from tests.launch.pools import node_class, pods, pool, settings

__all__ = ["catalog"]

OWN = pool(capacity=["on-demand"], only={"cpu": ["2"]})
PODS = pods(6, cpu=1500)
"""A node of the pool has room for one."""


@cache
def usual() -> Catalog:
    return sandbox_catalog("us-east-1")


@cache
def sample() -> PlannedNode:
    own = settings(OWN, node_class()).template.pool
    return pack(PODS[:1], Supply([own], usual(), (), ())).launches[0]


def planned(name: str, price: float | None) -> PlannedNode:
    """A planned node for one pod."""
    candidate = sample().cheapest
    cheapest = replace(candidate, offering=replace(candidate.offering, price=price))
    return replace(sample(), cheapest=cheapest, pods=(name,))


def limits(left: float, replacing: float = 0.0) -> list[SpendingLimit]:
    """The room of the cluster."""
    return [SpendingLimit("prod", "", most=left, replacing=replacing)]


def left(ceiling: PriceCeiling, nodes: list[ExistingNode]) -> float:
    """What further nodes of the cluster may cost."""
    (found,) = ceiling.spending_limits("prod", [], nodes, Prices(usual()))
    return found.left


PRICES = st.floats(0.001, 50, allow_nan=False)
NODES = st.lists(st.tuples(PRICES, st.booleans()), min_size=1, max_size=12)


@given(st.lists(PRICES, min_size=1, max_size=8), NODES)
def test_a_node_of_the_same_price_always_replaces_one_that_retires(
    retiring: list[float], others: list[tuple[float, bool]]
) -> None:
    moved = [planned(f"moved-{n}", price) for n, price in enumerate(retiring)]
    more = [planned(f"p-{n}", price) for n, (price, _) in enumerate(others)]
    moving = {one.pods[0] for one in moved}
    found = affordable([*more, *moved], limits(0.0, sum(retiring)), moving, Prices(usual()))
    assert set(found.below) == {one.pods for one in moved}


def test_a_node_that_is_too_dear_does_not_keep_cheaper_ones_from_being_launched() -> None:
    wanted = [planned("dear", 5.0), planned("cheap", 0.5)]
    found = affordable(wanted, limits(1.0), (), Prices(usual()))
    assert set(found.below) == {("cheap",)}


def test_a_type_without_a_price_does_not_escape_the_ceiling() -> None:
    prices = Prices(usual())
    assert prices.of_planned(planned("p", None)) >= prices.of("m5.large", "us-east-1a", "spot")
    unknown = node("n-1", INSTANCE_TYPE="x99.large")
    assert prices.of_node(unknown) > 0
    assert prices.of_node(replace(unknown, capacity=Resources({"cpu": 8000}))) == pytest.approx(
        4 * prices.of_node(unknown)
    )
    assert not affordable([planned("p", None)], limits(0.01), (), prices).below


def node(name: str, pool: str = "web", **labels: str) -> ExistingNode:
    keys = {"INSTANCE_TYPE": INSTANCE_TYPE, "ZONE": ZONE, "CAPACITY_TYPE": CAPACITY_TYPE}
    usual_ones = {INSTANCE_TYPE: "m5.large", ZONE: "us-east-1a", CAPACITY_TYPE: "on-demand"}
    given = {keys[key]: value for key, value in labels.items()}
    amounts = Resources({"cpu": 2000})
    return ExistingNode(name, {**usual_ones, **given}, amounts, amounts, pool=pool)


def test_only_nodes_of_pools_that_stay_count() -> None:
    prices = Prices(usual())
    price = prices.of("m5.large", "us-east-1a", "on-demand")
    nodes = [node("a"), node("b"), node("of-a-group", pool=""), node("retires")]
    ceiling = PriceCeiling(1.0, uncounted=frozenset({"retires"}))
    assert left(ceiling, nodes) == pytest.approx(1.0 - 2 * price)
    assert left(PriceCeiling(0.1), nodes) == 0.0, "prices have risen"


def launched(world: World, catalog: Catalog, most: float, **more: Any) -> LaunchOutcome:
    given = {"waiting": PODS, "ceiling": PriceCeiling(most), **more}
    return world.launch_nodes.launch(order(catalog, OWN, node_class(), **given))


def price_of(world: World, catalog: Catalog) -> float:
    return sum(map(Prices(catalog).of_instance, world.fleets.running.values()))


@pytest.mark.parametrize("most", [0.0, 0.3])
def test_launches_stop_at_the_ceiling_in_this_run_and_the_next(
    catalog: Catalog, most: float
) -> None:
    world = World()
    outcome = launched(world, catalog, most)
    count = len(world.fleets.running)
    assert count < len(PODS)
    assert price_of(world, catalog) <= most
    assert len(outcome.without_node) == len(PODS) - count
    assert {one.cause.code for one in outcome.without_node} == {"PriceCeilingReached"}
    again = launched(world, catalog, most)
    assert not again.launched
    assert price_of(world, catalog) <= most


def test_below_the_ceiling_all_is_launched(catalog: Catalog) -> None:
    world = World()
    outcome = launched(world, catalog, 100.0)
    assert len(outcome.launched) == len(PODS)
    assert not outcome.without_node


def test_a_preview_names_the_ceiling(catalog: Catalog) -> None:
    given = order(catalog, OWN, node_class(), waiting=PODS, ceiling=PriceCeiling(0.1))
    outcome = World().launch_nodes.preview(given).outcome
    assert "PriceCeilingReached" in {one.cause.code for one in outcome.without_node}


def test_a_node_without_labels_yet_counts_with_the_price_of_its_launch() -> None:
    """A node gets the label of its type seconds after it has joined: a burst of new nodes must not
    look dearer than it is."""
    amounts = Resources({"cpu": 64_000})
    bare = ExistingNode(name="new", labels={}, allocatable=amounts, pool="web")
    assert left(PriceCeiling(100, launched={"new": 1.5}), [bare]) == 98.5
    assert left(PriceCeiling(100), [bare]) < 98.5
