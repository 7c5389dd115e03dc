"""Pods move into reserved capacity, and leave it only when it has to go."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.disruption.consolidation import Replacements
from leeway.disruption.decide import decide_returns
from leeway.disruption.drift import CurrentLaunch, launch_drift_of
from leeway.disruption.moves import Moving
from leeway.disruption.rules import Cause, ReturnRules
from leeway.disruption.snapshot import OwnNode
from leeway.launch.reservations import CapacityReservation
from leeway.selection.labels import CAPACITY_TYPE, RESERVATION_ID
from leeway.selection.offers.catalog import Catalog
from leeway.selection.offers.reservations import CHEAPER, Reservation, ReservedCapacity
from leeway.selection.pods import NodePool
from leeway.selection.requirements import Requirement, Requirements

from tests.disruption.clusters import Cluster, facts
from tests.disruption.returning import Returning
from tests.disruption.snapshots import own_node, snapshot
from tests.launch.conftest import catalog
from tests.launch.pools import node_class, pods, pool
from tests.manifests.texts import manifests
from tests.selection.workloads import spec

__all__ = ["catalog"]

ROOM = Reservation(ReservedCapacity("cr-1"), "medium", "a", 1)
ANY = Requirements([Requirement.of(CAPACITY_TYPE, "In", ["reserved", "on-demand"])])
QUICK = ReturnRules(budgets=(), after=timedelta(0))


def reserving(*given: Reservation) -> NodePool:
    return NodePool("plain", ANY, reservations=given)


def reserved(name: str, *running: Any) -> OwnNode:
    """A node in a reservation."""
    one = own_node(name, *running)
    labels = {**one.node.labels, CAPACITY_TYPE: "reserved", RESERVATION_ID: "cr-1"}
    price = (one.price or 0.0) / CHEAPER
    return replace(
        one, capacity_type="reserved", price=price, node=replace(one.node, labels=labels)
    )


def test_a_node_on_demand_is_replaced_by_reserved_capacity_of_its_own_type() -> None:
    one = own_node("a", spec(cpu=3000))
    with_room = snapshot(one, rules=QUICK, pools=(reserving(ROOM),))
    (found,) = decide_returns(with_room).returns
    assert (found.nodes, found.cause, found.replaced) == (("a",), Cause.UNDERUTILIZED, True)
    assert "reserved" in found.reason.message
    assert found.saving == pytest.approx(one.price, rel=1e-3)
    for pools in ((reserving(),), (reserving(replace(ROOM, free=0)),)):
        others = decide_returns(replace(with_room, pools=pools)).returns
        assert all("(on-demand" in other.reason.message for other in others)


def test_pods_move_into_the_free_room_of_a_reserved_node() -> None:
    nodes = (own_node("a", spec(cpu=500)), reserved("b", spec(cpu=500)))
    found = decide_returns(snapshot(*nodes, rules=QUICK, pools=(reserving(),)))
    assert [one.nodes for one in found.returns] == [("a",)]
    assert found.kept["b"].code == "NodeIsReserved"


def test_pods_never_leave_reserved_capacity_for_a_saving() -> None:
    nodes = (reserved("a", spec(cpu=500)), reserved("b", spec(cpu=500)), reserved("c"))
    found = decide_returns(snapshot(*nodes, rules=QUICK, pools=(reserving(ROOM),)))
    assert [(one.nodes, one.cause) for one in found.returns] == [(("c",), Cause.EMPTY)]
    assert {found.kept[name].code for name in "ab"} <= {"NodeIsReserved", "NodeNotExamined"}
    rest = decide_returns(snapshot(*nodes[:2], rules=QUICK, pools=(reserving(ROOM),)))
    assert rest.returns == ()
    assert {reason.code for reason in rest.kept.values()} == {"NodeIsReserved"}


def test_several_nodes_become_one_reserved_node_only_while_it_has_room() -> None:
    big = Reservation(ReservedCapacity("cr-1"), "large", "a", 1)
    nodes = [own_node(name, spec(cpu=3000)) for name in "abc"]
    made = snapshot(*nodes, rules=QUICK, pools=(reserving(big),))
    found = Replacements(Moving(made)).best(nodes, {"plain": 3}, None)
    assert found is not None
    assert set(found.nodes) == set("abc")


def test_a_node_drifts_from_an_active_reservation_that_its_pool_does_not_select() -> None:
    inside = facts("i-1", capacity_type="reserved", reservation=ReservedCapacity("cr-1"))
    now = CurrentLaunch(unselected=frozenset({"cr-1"}))
    (said,) = launch_drift_of(inside, None, now)
    assert "cr-1" in said
    assert launch_drift_of(inside, None, CurrentLaunch()) == ()
    assert launch_drift_of(facts("i-1"), None, now) == ()


class Reserving(Returning):
    """A cluster with a node in the reservation `cr-1`, and its pool with terms."""

    def __init__(self, catalog: Catalog, terms: list[dict[str, Any]]) -> None:
        cluster = Cluster(catalog)
        own = pool(capacity=("reserved", "on-demand"), disruption={"consolidateAfter": "Never"})
        cluster.manifests = manifests(own, node_class(capacityReservationSelectorTerms=terms))
        cluster.add("n0", *pods(1))
        one = cluster.own["i-n0"]
        cluster.own["i-n0"] = one.model_copy(
            update={"capacity_type": "reserved", "reservation": ReservedCapacity("cr-1")}
        )
        super().__init__(cluster)
        self.record_launches()
        known = {"owner": "1", "instance_type": "m5.large", "zone": "us-east-1a", "total": 1}
        for name in ("cr-1", "cr-2"):
            self.aws.reservations.add(
                CapacityReservation(ReservedCapacity(name), free=0, **known)  # type: ignore[arg-type]
            )


@pytest.mark.parametrize(
    ("terms", "active", "drifts"),
    [
        ([{"id": "cr-1"}], True, False),
        ([{"id": "cr-2"}], True, True),
        ([{"id": "cr-2"}], False, False),  # it has just ended: the instance is on-demand now
    ],
)
def test_a_node_is_replaced_if_its_pool_selects_another_reservation(
    catalog: Catalog, terms: list[dict[str, Any]], active: bool, drifts: bool
) -> None:
    world = Reserving(catalog, terms)
    if not active:
        del world.aws.reservations.known["cr-1"]
    told = [reason.message for one in world.runs(3) for reason in one.begun]
    assert bool(told) is drifts
    assert all("cr-1" in one for one in told)


def test_a_refused_read_of_reservations_is_a_problem_and_no_drift(catalog: Catalog) -> None:
    world = Reserving(catalog, [{"id": "cr-2"}])
    world.aws.reservations.refused = "UnauthorizedOperation"
    runs = world.runs(3)
    assert [reason.code for one in runs for reason in one.problems] == ["DriftNotKnown"]
    assert [one for one in runs if one.begun] == []
