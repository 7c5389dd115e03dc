"""A plan becomes fleet requests: equal launches together, types times subnets, one token each."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from leeway.launch.fleets import (
    MOST_OVERRIDES,
    MOST_TEMPLATES,
    FleetRequest,
    LaunchGroup,
    Offers,
    Override,
    Selected,
    groups_of,
    request_of,
    select_overrides,
    token_of,
)
from leeway.manifests.node_pool import pools_of
from leeway.selection.offers.catalog import ANY, Catalog, Unavailable
from leeway.selection.offers.reservations import ReservedCapacity
from leeway.selection.packing.plan import Choice, Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import Pod

from tests.launch.pools import node_class, pods, pool
from tests.manifests.texts import manifests

SUBNETS = {f"us-east-1{zone}": f"subnet-{zone}" for zone in "abcdf"}


def plan(catalog: Catalog, waiting: Sequence[Pod], *unavailable: Unavailable) -> Plan:
    pools = pools_of(manifests(pool(), node_class()))
    return pack(waiting, Supply(pools, catalog, unavailable))


@pytest.fixture(scope="module")
def group(catalog: Catalog) -> LaunchGroup:
    (found,) = groups_of(plan(catalog, pods(1)))
    return found


def test_equal_launches_are_one_group(catalog: Catalog) -> None:
    spread = [*pods(4, cpu=90_000, memory=2**30), *pods(1, cpu=3_000, name="small")]
    made = plan(catalog, spread)
    assert len(made.launches) > 1
    found = groups_of(made)
    assert sum(len(one.nodes) for one in found) == len(made.launches)
    assert len(found) < len(made.launches)
    planned = sorted(pod for one in found for pod in one.pods)
    assert planned == sorted(pod for node in made.launches for pod in node.pods)
    for one in found:
        assert {node.choices for node in one.nodes} == {one.choices}


def test_the_first_choice_is_spot_in_every_zone_with_a_subnet(
    catalog: Catalog, group: LaunchGroup
) -> None:
    offers = Offers(catalog)
    selected = select_overrides(group.choices, SUBNETS, offers)
    assert selected is not None
    assert selected.choice.capacity_type == "spot"
    assert selected.overrides
    assert len(selected.overrides) <= MOST_OVERRIDES
    assert {one.instance_type for one in selected.overrides} == {*selected.choice.instance_types}
    for one in selected.overrides:
        assert SUBNETS[one.zone] == one.subnet
        assert offers.price(one.instance_type, one.zone, "spot") is not None
    pools_once = {(one.instance_type, one.zone) for one in selected.overrides}
    assert len(pools_once) == len(selected.overrides)


def test_spot_that_costs_more_than_on_demand_is_left_out(
    catalog: Catalog, group: LaunchGroup
) -> None:
    offers = Offers(catalog)
    cheap = [replace(one, price=0.04) for one in group.choices]
    selected = select_overrides(cheap, SUBNETS, offers)
    assert selected is not None
    prices = [offers.price(o.instance_type, o.zone, "spot") or 9 for o in selected.overrides]
    assert prices
    assert max(prices) <= 0.04


def test_spot_that_costs_more_than_on_demand_is_requested_if_min_values_may_count_it(
    catalog: Catalog, group: LaunchGroup
) -> None:
    dear = [replace(one, price=0.001) for one in group.choices]
    selected = select_overrides(dear, SUBNETS, Offers(catalog), dear_spot=True)
    assert selected is not None
    assert selected.choice.capacity_type == "spot"


def test_a_type_is_not_requested_in_a_zone_where_the_pods_have_no_place(
    catalog: Catalog, group: LaunchGroup
) -> None:
    spot, *_ = group.choices
    unusable = (spot.instance_types[0], spot.zones[0])
    choice = replace(spot, unusable=frozenset({unusable}))
    selected = select_overrides([choice], SUBNETS, Offers(catalog))
    assert selected is not None
    requested = {(one.instance_type, one.zone) for one in selected.overrides}
    assert unusable not in requested
    assert {kind for kind, _ in requested} == {*spot.instance_types}


def test_without_spot_the_next_choice_is_used(catalog: Catalog, group: LaunchGroup) -> None:
    offers = Offers(catalog, [Unavailable(ANY, ANY, "spot")])
    selected = select_overrides(group.choices, SUBNETS, offers)
    assert selected is not None
    assert selected.choice.capacity_type == "on-demand"


def test_without_a_subnet_in_the_zones_nothing_is_selected(
    catalog: Catalog, group: LaunchGroup
) -> None:
    assert select_overrides(group.choices, {}, Offers(catalog)) is None
    assert select_overrides(group.choices, {"us-west-2a": "s"}, Offers(catalog)) is None


def test_reserved_capacity_is_requested_in_the_subnet_of_its_zone(catalog: Catalog) -> None:
    reservation = ReservedCapacity("cr-1")
    reserved = Choice("reserved", ("m5.large",), ("us-east-1a",), 0.0, reservation)
    selected = select_overrides([reserved], SUBNETS, Offers(catalog))
    assert selected is not None
    (override,) = selected.overrides
    assert override == Override("m5.large", "us-east-1a", SUBNETS["us-east-1a"])
    request = request_of(selected, 2, lambda _: "template", {})
    assert (request.capacity_type, request.reservation) == ("reserved", reservation)
    assert select_overrides([reserved], {}, Offers(catalog)) is None


def test_every_type_stays_if_there_are_too_many_overrides(catalog: Catalog) -> None:
    types = tuple(
        name for name in catalog.names if Offers(catalog).price(name, "us-east-1a", "on-demand")
    )[:100]
    choice = Choice("on-demand", types, tuple(SUBNETS), None)
    selected = select_overrides([choice], SUBNETS, Offers(catalog))
    assert selected is not None
    assert len(selected.overrides) == MOST_OVERRIDES
    assert {one.instance_type for one in selected.overrides} == {*types}


def request(count: int = 2, types: int = 3) -> FleetRequest:
    overrides = tuple(
        Override(f"m5.{n}", f"us-east-1{zone}", SUBNETS[f"us-east-1{zone}"])
        for zone in "ab"
        for n in range(types)
    )
    selected = Selected(Choice("spot", (), (), None), overrides)
    return request_of(selected, count, lambda name: f"template-{name}", {"k": "v"})


def test_types_that_need_different_templates_are_in_one_request() -> None:
    made = request()
    assert [one.template for one in made.templates] == [f"template-m5.{n}" for n in range(3)]
    assert all(len(one.overrides) == 2 for one in made.templates)
    assert len(made.overrides) == 6


def test_a_request_has_as_many_templates_as_ec2_accepts() -> None:
    made = request(types=MOST_TEMPLATES + 10)
    assert len(made.templates) == MOST_TEMPLATES
    kept = {one.instance_type for one in made.overrides}
    assert kept == {f"m5.{n}" for n in range(MOST_TEMPLATES)}


def test_a_token_depends_on_the_intent_and_on_the_request() -> None:
    token = token_of("intent-1", request())
    assert token == token_of("intent-1", request())
    assert len(token) == 64
    different = {token, token_of("intent-2", request()), token_of("intent-1", request(count=3))}
    assert len(different) == 3


def test_nodes_of_a_group_have_the_labels_that_selection_counted(catalog: Catalog) -> None:
    own = pool(labels={"team": "a"})
    tier = {"key": "example.com/tier", "operator": "In", "values": ["gold"]}
    own["spec"]["template"]["spec"]["requirements"].append(tier)
    pools = pools_of(manifests(own, node_class()))
    (group,) = groups_of(pack(pods(1), Supply(pools, catalog)))
    assert group.labels["team"] == "a"
    assert group.labels["example.com/tier"] == "gold"
    assert group.labels["karpenter.sh/nodepool"] == "web"
    assert "kubernetes.io/arch" not in group.labels
