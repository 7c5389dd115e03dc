"""Launches while a pool is paused."""

from leeway.launch.intent import REPEAT_WITHIN
from leeway.pool_pauses import NODES_NEVER_JOINED, POOL, PoolRecord
from leeway.selection.offers.catalog import Catalog

from tests.launch.launching import NOW, World, codes, order
from tests.launch.pools import node_class, pool


def pause(world: World, name: str = "web") -> PoolRecord:
    reason = NODES_NEVER_JOINED(cluster="prod", pool=name, count=3, instances="i-1, i-2, i-3")
    record = PoolRecord(cluster="prod", pool=name, paused=reason, paused_at=NOW)
    world.pools[name] = record
    return record


def test_a_paused_pool_launches_nothing_and_its_pods_get_the_reason(
    world: World, catalog: Catalog
) -> None:
    pause(world)
    outcome = world.launch_nodes.launch(order(catalog))
    assert world.fleets.requests == []
    assert [*world.table.items] == [("POOLS#prod", "POOL#web")]
    assert codes(outcome) == {"NodesNeverJoined"}
    assert len(outcome.without_node) == 3
    for one in outcome.without_node:
        assert "leeway resume prod --pool web" in one.reason.message
    preview = world.launch_nodes.preview(order(catalog))
    assert preview.prepared == ()
    assert codes(preview.outcome) == {"NodesNeverJoined"}


def test_another_pool_is_used_while_one_is_paused(world: World, catalog: Catalog) -> None:
    pause(world)
    documents = (pool(weight=9), pool("other"), node_class())
    outcome = world.launch_nodes.launch(order(catalog, *documents))
    assert outcome.complete
    assert {one.pool for one in outcome.launched} == {"other"}


def test_the_pause_of_another_clusters_pool_stops_nothing(world: World, catalog: Catalog) -> None:
    world.table.put(POOL, pause(world).model_copy(update={"cluster": "staging"}))
    world.table.delete(POOL, cluster="prod", pool="web")
    assert world.launch_nodes.launch(order(catalog)).complete


def test_the_request_of_a_pool_that_was_paused_meanwhile_is_not_repeated(
    world: World, catalog: Catalog
) -> None:
    world.fleets.lost = 100
    world.launch_nodes.launch(order(catalog))
    world.fleets.lost = 0
    requests = len(world.fleets.requests)
    pause(world)
    world.launch_nodes.launch(order(catalog))
    assert len(world.fleets.requests) == requests
    assert world.admitted() == []
    world.time = NOW + REPEAT_WITHIN
    world.launch_nodes.launch(order(catalog))
    assert len(world.fleets.requests) == requests
    assert sorted(world.admitted()) == sorted(world.fleets.running), "found by their tag"
