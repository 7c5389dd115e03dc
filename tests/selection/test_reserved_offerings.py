"""Capacity reservations as offerings: used first, and never more often than they have room."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.selection.labels import CAPACITY_TYPE, RESERVATION_ID, RESERVATION_TYPE
from leeway.selection.offers.catalog import Unavailable
from leeway.selection.offers.reservations import Reservation, ReservedCapacity
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, OnDemandShare
from leeway.selection.requirements import Requirement, Requirements

from tests.selection.workloads import catalog, pods, spec

CATALOG = catalog()


def used(plan: Plan) -> Counter[str]:
    """How many nodes of a plan are in each reservation, by all their choices."""
    return Counter(
        choice.reservation.id
        for node in plan.launches
        for choice in node.choices
        if choice.reservation
    )


def only(*capacity_types: str) -> Requirements:
    return Requirements([Requirement.of(CAPACITY_TYPE, "In", capacity_types)])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(0, 6))
def test_pods_go_to_the_reservation_until_it_is_full(count: int, free: int) -> None:
    one = Reservation(ReservedCapacity("cr-1"), "medium", "a", free)
    pool = NodePool("all", only("reserved", "spot", "on-demand"), reservations=(one,))
    plan = pack(pods("web", count, spec(cpu=3000)), Supply([pool], CATALOG))
    assert not plan.unschedulable
    assert used(plan)["cr-1"] == min(count, free)


def test_pods_that_only_reserved_capacity_may_hold_wait_for_room() -> None:
    one = Reservation(ReservedCapacity("cr-1"), "medium", "a", 1)
    pool = NodePool("all", only("reserved"), reservations=(one,))
    plan = pack(pods("web", 3, spec(cpu=3000)), Supply([pool], CATALOG))
    assert len(plan.launches) == 1
    assert {miss.reason.code for miss in plan.unschedulable} == {"ReservationsFull"}
    nothing = pack(
        pods("web", 1, spec(cpu=3000)), Supply([replace(pool, reservations=())], CATALOG)
    )
    (miss,) = nothing.unschedulable
    assert miss.reason.code == "NoOfferingAvailable"


def test_two_pools_share_the_room_of_a_reservation() -> None:
    one = Reservation(ReservedCapacity("cr-1"), "medium", "a", 2)
    pools = [
        NodePool(name, only("reserved", "on-demand"), weight=weight, reservations=(one,))
        for name, weight in (("first", 2), ("second", 1))
    ]
    plan = pack(pods("web", 5, spec(cpu=3000)), Supply(pools, CATALOG))
    assert not plan.unschedulable
    assert used(plan) == {"cr-1": 2}


def test_each_pool_uses_its_own_reservations() -> None:
    found = [Reservation(ReservedCapacity(f"cr-{n}"), "medium", "a", 1) for n in (1, 2, 3)]
    pools = [
        NodePool("none", only("on-demand"), weight=3),
        NodePool("one", only("reserved"), weight=2, reservations=(found[0],)),
        NodePool("two", only("reserved"), weight=1, reservations=(found[1], found[2])),
    ]
    terms = (Requirements.from_labels({CAPACITY_TYPE: "reserved"}),)
    plan = pack(pods("web", 4, spec(cpu=3000, terms=terms)), Supply(pools, CATALOG))
    assert used(plan) == {"cr-1": 1, "cr-2": 1, "cr-3": 1}
    assert {node.pool for node in plan.launches} == {"one", "two"}
    assert len(plan.unschedulable) == 1


@pytest.mark.parametrize(
    ("label", "value", "found"),
    [(RESERVATION_ID, "cr-2", "cr-2"), (RESERVATION_TYPE, "capacity-block", "cr-3")],
)
def test_the_labels_of_a_pod_choose_among_reservations(label: str, value: str, found: str) -> None:
    given_ = tuple(
        Reservation(ReservedCapacity(f"cr-{n}", block=n == 3), "medium", "a", 5) for n in (1, 2, 3)
    )
    pool = NodePool("all", only("reserved", "on-demand"), reservations=given_)
    terms = (Requirements.from_labels({label: value}),)
    plan = pack(pods("web", 1, spec(terms=terms)), Supply([pool], CATALOG))
    (node,) = plan.launches
    assert node.cheapest.labels[RESERVATION_ID] == found


def test_a_pod_that_refuses_reserved_capacity_gets_none() -> None:
    one = Reservation(ReservedCapacity("cr-1"), "medium", "a", 5)
    pool = NodePool("all", only("reserved", "on-demand"), reservations=(one,))
    absent = Requirements([Requirement.of(RESERVATION_ID, "DoesNotExist")])
    plan = pack(pods("web", 1, spec(terms=(absent,))), Supply([pool], CATALOG))
    (node,) = plan.launches
    assert {choice.capacity_type for choice in node.choices} == {"on-demand"}
    assert RESERVATION_ID not in node.cheapest.labels


def test_a_reservation_that_was_full_is_not_offered() -> None:
    one = Reservation(ReservedCapacity("cr-1"), "medium", "a", 5)
    pool = NodePool("all", only("reserved", "on-demand"), reservations=(one,))
    full = Unavailable("cr-1", "a", "reserved")
    plan = pack(pods("web", 1, spec()), Supply([pool], CATALOG, [full]))
    assert used(plan) == {}


def test_nodes_of_an_on_demand_share_do_not_use_a_full_reservation_again() -> None:
    one = Reservation(ReservedCapacity("cr-1"), "medium", "a", 1)
    pool = NodePool("all", reservations=(one,), on_demand=OnDemandShare(base=0, percent=100))
    plan = pack(pods("web", 4, spec(cpu=3000)), Supply([pool], CATALOG))
    assert used(plan) == {"cr-1": 1}
    assert Counter(node.cheapest.offering.capacity_type for node in plan.launches) == {
        "reserved": 1,
        "on-demand": len(plan.launches) - 1,
    }


def test_the_bound_is_below_the_price_of_reserved_capacity() -> None:
    """Reserved offerings cost about as much as the tolerances of the linear solver."""
    given_ = tuple(
        Reservation(ReservedCapacity(f"cr-{kind}"), kind, zone, 2)
        for kind, zone in (("medium", "c"), ("arm", "c"), ("small", "a"))
    )
    pool = NodePool("all", reservations=given_)
    waiting = [*pods("little", 6, spec(100, 64)), *pods("more", 6, spec(500))]
    plan = pack(waiting, Supply([pool], CATALOG))
    assert {one.cheapest.offering.capacity_type for one in plan.launches} == {"reserved"}
    assert 0 < plan.bound <= plan.price * (1 + 1e-9)
