"""What a launch requests for static pools, and what it says if it cannot."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.launch.images import ImageVariant
from leeway.launch.intent import INTENT
from leeway.launch.static_pools import shortages
from leeway.pool_pauses import NODES_NEVER_JOINED, POOL, PoolRecord
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import ExistingNode, NodePool
from leeway.selection.resources import Resources

from tests.launch.launching import World, order
from tests.launch.pools import node_class, pool


def launch(world: World, catalog: Catalog, *documents: dict[str, Any], **more: Any) -> Any:
    given = {"waiting": [], "retiring": {}, **more}
    return world.launch_nodes.launch(order(catalog, *documents, node_class(), **given))


def test_one_request_has_all_types_and_zones_that_the_pool_allows(
    world: World, catalog: Catalog
) -> None:
    found = launch(world, catalog, pool(replicas=4))
    assert len(found.launched) == 4
    (request,) = world.fleets.requests
    assert request.count == 4
    assert len({one.zone for one in request.overrides}) == 3
    assert len({one.instance_type for one in request.overrides}) > 10
    (intent,) = world.table.list(INTENT, cluster="prod")
    assert (intent.pods, intent.replaces, intent.efa) == ((), (), False)


def test_each_static_pool_gets_its_own_nodes(world: World, catalog: Catalog) -> None:
    found = launch(world, catalog, pool("a", replicas=1), pool("b", replicas=2), pool("c"))
    assert sorted(one.pool for one in found.launched) == ["a", "b", "b"]


def test_static_pools_are_left_as_they_are_unless_the_order_is_to_fill_them(
    world: World, catalog: Catalog
) -> None:
    found = launch(world, catalog, pool(replicas=2), retiring=None)
    assert not found.launched
    assert not found.reasons


def test_a_pool_of_machines_that_pods_must_name_launches_them(
    world: World, catalog: Catalog
) -> None:
    world.offer_images(ImageVariant("x86_64", "nvidia"))
    found = launch(world, catalog, pool(categories=["g"], replicas=1))
    assert [one.instance.instance_type[0] for one in found.launched] == ["g"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"categories": ["nothing"]}, "No instance type matches"),
        ({"limits": {"nodes": 0}}, "limits.nodes is 0"),
    ],
)
def test_a_pool_that_gets_no_node_says_why(
    world: World, catalog: Catalog, spec: dict[str, Any], why: str
) -> None:
    found = launch(world, catalog, pool(replicas=1, **spec))
    assert not found.launched
    assert why in found.short["web"].message
    assert found.short["web"] in found.reasons


def test_a_paused_pool_launches_nothing_and_says_why(world: World, catalog: Catalog) -> None:
    paused = NODES_NEVER_JOINED(pool="web", cluster="prod", count=3, instances="i-1")
    world.table.put(POOL, PoolRecord(cluster="prod", pool="web", paused=paused))
    found = launch(world, catalog, pool(replicas=1))
    assert not found.launched
    assert "never joined" in found.short["web"].message


NAMES = st.lists(st.sampled_from("abcdefgh"), max_size=8)


@given(st.integers(0, 6), NAMES, NAMES, st.none() | st.integers(0, 8))
def test_a_shortage_fills_the_pool_within_its_limit(
    replicas: int, names: list[str], leaving: list[str], limit: int | None
) -> None:
    limits = None if limit is None else {"nodes": limit}
    static = NodePool("web", replicas=replicas, limits=limits)
    nodes = [ExistingNode(name, {}, Resources(), pool="web") for name in names]
    others = [replace(one, pool="other") for one in nodes]
    found = shortages([static, NodePool("other")], [*nodes, *others], leaving)
    stand = len(set(names) - set(leaving))
    if stand >= replicas:
        assert not found
        return
    (one,) = found
    assert one.count == stand
    assert stand + one.launched <= replicas
    assert limit is None or one.launched == 0 or len(set(names)) + one.launched <= limit
    filled = stand + one.launched == replicas
    assert filled == (not one.at_limit)
    assert filled or len(set(names)) + one.launched >= (limit or 0)
