"""Zone IDs in nodes, pods and pools."""

from leeway.selection.labels import ZONE, ZONE_ID
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.catalog import Catalog, mismatch
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, Pod, PodSpec
from leeway.selection.reading.cluster_objects import pending_pods
from leeway.selection.requirements import Requirement, Requirements


def test_zones_can_be_selected_by_their_ids(catalog: Catalog) -> None:
    table = catalog.for_node_class(NodeClass())
    by_name = list(table.markets_of(Requirements.from_labels({ZONE: "us-east-1b"})))
    by_id = list(table.markets_of(Requirements.from_labels({ZONE_ID: "use1-az1"})))
    assert by_name
    assert by_id == by_name
    elsewhere = Requirements([Requirement.of(ZONE_ID, "NotIn", ["use1-az1"])])
    assert {market.zone for market, _ in table.markets_of(elsewhere)} == {
        zone for zone in catalog.zones if zone != "us-east-1b"
    }


def test_an_unknown_zone_id_gets_a_suggestion(catalog: Catalog) -> None:
    table = catalog.for_node_class(NodeClass())
    asked = Requirements.from_labels({ZONE_ID: "use1-az9"})
    assert table.matching(asked) == 0
    assert mismatch(table, asked).startswith("zone-id In [use1-az9]: nothing is offered there; did")


def test_pods_that_require_a_zone_id_are_placed_in_that_zone(catalog: Catalog) -> None:
    asked = (Requirements.from_labels({ZONE_ID: "use1-az1"}),)
    waiting = [Pod("default/web", PodSpec(terms=asked))]
    plan = pack(waiting, Supply([NodePool("any")], catalog))
    (choice, *_) = plan.launches[0].choices
    assert choice.zones == ("us-east-1b",)


def test_a_pool_may_require_zones_by_their_ids(catalog: Catalog) -> None:
    asked = Requirements([Requirement.of(ZONE_ID, "In", ["use1-az1", "use1-az2"])])
    supply = Supply([NodePool("two", asked)], catalog)
    assert supply.zone_names == ("us-east-1b", "us-east-1c")


def test_a_spread_by_zone_id_is_a_spread_by_zone() -> None:
    constraint = {"maxSkew": 1, "topologyKey": ZONE_ID, "whenUnsatisfiable": "DoNotSchedule"}
    spec = {"containers": [{"name": "c"}], "topologySpreadConstraints": [constraint]}
    (pod,) = pending_pods([{"kind": "Pod", "metadata": {"name": "web"}, "spec": spec}], {})
    assert [spread.pods.topology for spread in pod.spec.spreads] == [ZONE]
