"""Nodes are launched into the capacity reservations that a node class selects, before anything
else, and never more than EC2 has free."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from leeway.launch.fleets import FleetRequest
from leeway.launch.prices import PriceCeiling
from leeway.launch.reservations import CapacityReservation, usable_reservations
from leeway.selection.labels import (
    CAPACITY_TYPE,
    RESERVATION_ID,
    RESERVATION_INTERRUPTIBLE,
    RESERVATION_TYPE,
)
from leeway.selection.offers.allocatable import AmiFamily
from leeway.selection.offers.catalog import Catalog
from leeway.selection.offers.reservations import ReservedCapacity

from tests.launch.launching import NOW, World, codes, order
from tests.launch.pools import node_class, pods, pool

TYPE, ZONE = "m6i.4xlarge", "us-east-1a"
ALL = ("reserved", "spot", "on-demand")
BY_ID = {"capacityReservationSelectorTerms": [{"id": "cr-1"}]}


def reservation(name: str = "cr-1", free: int = 2, **more: Any) -> CapacityReservation:
    capacity = ReservedCapacity(name, more.pop("block", False), more.pop("interruptible", False))
    fields = {"owner": "123456789012", "instance_type": TYPE, "zone": ZONE, "total": free}
    return CapacityReservation(capacity, free=free, **{**fields, **more})


def documents(
    *capacity: str, terms: Any = BY_ID["capacityReservationSelectorTerms"], **spec: Any
) -> tuple[Mapping[str, Any], ...]:
    own = pool(capacity=capacity or ALL, **spec)
    return own, node_class(capacityReservationSelectorTerms=terms)


def launched_into(world: World) -> list[str]:
    """The reservation of each instance that runs; `-` for one without."""
    running = world.fleets.running.values()
    return sorted(one.reservation.id if one.reservation else "-" for one in running)


def template_of(world: World, request: FleetRequest) -> dict[str, Any]:
    config = request.templates[0]
    found: dict[str, Any] = json.loads(world.templates.existing[config.template].data)
    return found


def test_nodes_are_launched_into_a_reservation_first_and_the_rest_elsewhere(
    world: World, catalog: Catalog
) -> None:
    world.reservations.add(reservation(free=2))
    outcome = world.launch_nodes.launch(order(catalog, *documents(), waiting=pods(3, cpu=14_000)))
    assert outcome.complete
    assert launched_into(world) == ["-", "cr-1", "cr-1"]
    reserved, other = sorted(world.fleets.requests, key=lambda one: one.capacity_type)
    assert (reserved.capacity_type, reserved.count) == ("reserved", 2)
    assert [(one.instance_type, one.zone) for one in reserved.overrides] == [(TYPE, ZONE)]
    assert template_of(world, reserved)["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-1"},
    }
    assert other.capacity_type == "spot"
    assert "CapacityReservationSpecification" not in template_of(world, other)


def test_on_demand_nodes_of_such_a_pool_use_no_open_reservation(
    world: World, catalog: Catalog
) -> None:
    world.launch_nodes.launch(order(catalog, *documents("reserved", "on-demand")))
    specification = {"CapacityReservationPreference": "none"}
    for request in world.fleets.requests:
        assert template_of(world, request)["CapacityReservationSpecification"] == specification


def test_a_pool_without_terms_reads_no_reservation_and_keeps_the_default_of_ec2(
    world: World, catalog: Catalog
) -> None:
    world.reservations.add(reservation())
    world.launch_nodes.launch(order(catalog, pool(capacity=ALL), node_class()))
    world.launch_nodes.launch(order(catalog, *documents("spot", "on-demand", name="other")))
    assert world.reservations.reads == []
    assert "reserved" not in {one.capacity_type for one in world.fleets.requests}


def test_the_nodes_get_the_labels_of_their_reservation(world: World, catalog: Catalog) -> None:
    world.reservations.add(reservation(free=1))
    world.launch_nodes.launch(order(catalog, *documents(), waiting=pods(1)))
    (admission,) = world.admissions.values()
    wanted = {
        CAPACITY_TYPE: "reserved",
        RESERVATION_ID: "cr-1",
        RESERVATION_TYPE: "default",
        RESERVATION_INTERRUPTIBLE: "false",
    }
    assert wanted.items() <= dict(admission.labels).items()
    assert admission.facts.capacity_type == "reserved"


def test_a_reservation_that_somebody_else_has_filled_is_left_for_other_capacity(
    world: World, catalog: Catalog
) -> None:
    world.reservations.add(reservation(free=2))
    world.fleets.reserved["cr-1"] = 1
    outcome = world.launch_nodes.launch(order(catalog, *documents(), waiting=pods(2, cpu=14_000)))
    assert outcome.complete
    assert launched_into(world) == ["-", "cr-1"]
    assert "ReservationFull" in codes(outcome)
    (marked,) = world.offerings.marked
    assert (marked.instance_type, marked.capacity_type) == ("cr-1", "reserved")
    before, joined = len(world.fleets.requests), dict.fromkeys(world.fleets.running, "node-1")
    later = pods(1, cpu=14_000, name="later")
    world.launch_nodes.launch(order(catalog, *documents(), waiting=later, joined=joined))
    assert {one.capacity_type for one in world.fleets.requests[before:]} == {"spot"}


def test_pods_of_a_pool_of_reserved_capacity_alone_wait_if_there_is_none(
    world: World, catalog: Catalog
) -> None:
    world.reservations.add(reservation(free=1))
    some = pods(3, cpu=14_000)
    outcome = world.launch_nodes.launch(order(catalog, *documents("reserved"), waiting=some))
    assert launched_into(world) == ["cr-1"]
    assert {one.cause.code for one in outcome.without_node} == {"ReservationsFull"}
    assert len(outcome.without_node) == 2


def test_launches_that_ec2_has_not_counted_yet_take_their_room(
    world: World, catalog: Catalog
) -> None:
    world.reservations.add(reservation(free=1))
    world.launch_nodes.launch(order(catalog, *documents(), waiting=pods(1, cpu=14_000)))
    world.time += timedelta(seconds=10)
    more = pods(1, cpu=14_000, name="more")
    joined = dict.fromkeys(world.fleets.running, "node-1")
    world.launch_nodes.launch(order(catalog, *documents(), waiting=more, joined=joined))
    assert launched_into(world) == ["-", "cr-1"]
    world.time += timedelta(minutes=1)  # now EC2 has counted it: one more is free
    again = pods(1, cpu=14_000, name="again")
    joined = dict.fromkeys(world.fleets.running, "node-1")
    world.launch_nodes.launch(order(catalog, *documents(), waiting=again, joined=joined))
    assert launched_into(world) == ["-", "cr-1", "cr-1"]


def test_a_request_without_an_answer_keeps_its_room(world: World, catalog: Catalog) -> None:
    world.reservations.add(reservation(free=1))
    world.fleets.lost = 99
    world.launch_nodes.launch(order(catalog, *documents(), waiting=pods(1, cpu=14_000)))
    world.time += timedelta(seconds=20)
    waiting = pods(2, cpu=14_000)
    world.fleets.lost = 0
    world.launch_nodes.launch(order(catalog, *documents(), waiting=waiting))
    assert launched_into(world).count("cr-1") == 1


@pytest.mark.parametrize(
    ("tags", "terms", "used"),
    [
        ({}, [{"id": "cr-1"}], True),
        ({"team": "a"}, [{"tags": {"team": "*"}}], True),
        ({}, [{"instanceMatchCriteria": "targeted"}], False),
        ({"leeway.sh/cluster/prod": ""}, [{"instanceMatchCriteria": "targeted"}], True),
        ({"leeway.sh/cluster/other": ""}, [{"id": "cr-1"}], False),
        ({"leeway.sh/cluster/other": "", "leeway.sh/cluster/prod": ""}, [{"id": "cr-1"}], True),
        ({"team": "a"}, [{"tags": {"team": "b"}}], False),
        ({"team": "a"}, [{"tags": {"team": "a"}, "ownerID": "999999999999"}], False),
    ],
)
def test_a_reservation_is_used_only_by_the_clusters_that_may(
    world: World, catalog: Catalog, tags: dict[str, str], terms: Any, used: bool
) -> None:
    world.reservations.add(reservation(tags=tags))
    given = documents("reserved", "spot", terms=terms)
    outcome = world.launch_nodes.launch(order(catalog, *given, waiting=pods(1)))
    assert launched_into(world) == (["cr-1"] if used else ["-"])
    selected_and_refused = not used and "b" not in str(terms) and "owner" not in str(terms)
    assert ("ReservationNotUsed" in codes(outcome)) is selected_and_refused


@pytest.mark.parametrize(
    "unfit",
    [
        {"fits": False},
        {"platform": "Windows"},
        {"platform": "Red Hat Enterprise Linux"},
        {"platform": "Ubuntu Pro"},
        {"instance_type": "unknown.large"},
        {"free": 0},
    ],
)
def test_a_reservation_that_nodes_cannot_run_in_is_left_out(
    world: World, catalog: Catalog, unfit: dict[str, Any]
) -> None:
    world.reservations.add(reservation(**unfit))
    outcome = world.launch_nodes.launch(order(catalog, *documents(), waiting=pods(1)))
    assert outcome.complete
    assert launched_into(world) == ["-"]


@pytest.mark.parametrize(
    ("family", "platforms"),
    [
        (AmiFamily.BOTTLEROCKET, {"Linux/UNIX"}),
        (AmiFamily.WINDOWS_2022, {"Windows"}),
        (AmiFamily.CUSTOM, {"Linux/UNIX", "Red Hat Enterprise Linux", "Linux with SQL Server Web"}),
    ],
)
def test_a_reservation_has_the_platform_of_the_amis(family: AmiFamily, platforms: set[str]) -> None:
    names = [
        *("Linux/UNIX", "Red Hat Enterprise Linux", "Linux with SQL Server Web"),
        *("Windows", "Windows with SQL Server"),
    ]
    known = [reservation(name, platform=name) for name in names]
    usable = usable_reservations(known, {}, NOW, family)
    assert {one.capacity.id for one in usable} == platforms


def test_pods_do_not_wait_for_reservations_that_cannot_be_read(
    world: World, catalog: Catalog
) -> None:
    world.reservations.refused = "UnauthorizedOperation: not allowed"
    outcome = world.launch_nodes.launch(order(catalog, *documents(), waiting=pods(1)))
    assert outcome.complete
    assert "ReservationsNotRead" in codes(outcome)
    assert len(world.reservations.reads) == 1


@pytest.mark.parametrize(("minutes", "used"), [(39, False), (45, True)])
def test_nothing_is_launched_into_a_capacity_block_that_ends_soon(
    world: World, catalog: Catalog, minutes: int, used: bool
) -> None:
    world.reservations.add(reservation(block=True, ends=NOW + timedelta(minutes=minutes)))
    world.launch_nodes.launch(order(catalog, *documents(), waiting=pods(1)))
    assert launched_into(world) == (["cr-1"] if used else ["-"])


@pytest.mark.parametrize(
    ("kind", "market"),
    [("block", "capacity-block"), ("interruptible", "interruptible-capacity-reservation")],
)
def test_the_template_names_the_market_of_a_block_and_of_interruptible_capacity(
    world: World, catalog: Catalog, kind: str, market: str
) -> None:
    world.reservations.add(reservation("cr-1", 2, **{kind: True}))
    world.launch_nodes.launch(order(catalog, *documents(), waiting=pods(1)))
    (request,) = world.fleets.requests
    assert template_of(world, request)["InstanceMarketOptions"] == {"MarketType": market}


def test_a_pod_chooses_the_reservation_by_its_labels(world: World, catalog: Catalog) -> None:
    from dataclasses import replace

    from leeway.selection.pods import Pod
    from leeway.selection.requirements import Requirements

    world.reservations.add(reservation("cr-1"), reservation("cr-2", zone="us-east-1b"))
    terms = [{"id": "cr-1"}, {"id": "cr-2"}]
    (plain,) = pods(1)
    spec = replace(plain.spec, terms=(Requirements.from_labels({RESERVATION_ID: "cr-2"}),))
    outcome = world.launch_nodes.launch(
        order(catalog, *documents(terms=terms), waiting=[Pod(plain.name, spec)])
    )
    assert outcome.complete
    assert launched_into(world) == ["cr-2"]


def test_reserved_nodes_count_at_the_on_demand_price_against_the_ceiling(
    world: World, catalog: Catalog
) -> None:
    world.reservations.add(reservation(free=3))
    outcome = world.launch_nodes.launch(
        order(
            catalog,
            *documents(),
            waiting=pods(3, cpu=14_000),
            ceiling=PriceCeiling(2.0),  # an m6i.4xlarge costs 0.768 USD per hour
        )
    )
    assert launched_into(world) == ["cr-1", "cr-1"]
    assert "PriceCeilingReached" in codes(outcome)
