"""Launches that a person wrote: they count when they are answered, nothing waits for them, and
nobody else requests them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.launch.fleets import FleetInstance
from leeway.launch.intent import INTENT_BY_HAND, KEPT_FOR, LaunchIntent
from leeway.launch.launch_nodes import LaunchNodes
from leeway.policy.rules import ClusterPolicy
from leeway.reasons import Reason
from leeway.selection.offers.catalog import Catalog

from tests.disruption.clusters import Cluster
from tests.disruption.returning import launched
from tests.launch.launching import order
from tests.launch.pools import ONE_POD_EACH, node_class, pool
from tests.launch.test_intents import REQUEST
from tests.provisioning.buying import Buying, big_pods

MINUTE = timedelta(minutes=1)
BIG = FleetInstance("i-by-hand", "m5.24xlarge", "us-east-1a", "spot")
UNANSWERED = {"request": replace(REQUEST, count=200)}
ANSWERED = {"request": None, "instances": (BIG,)}


def write(buying: Buying, age: timedelta, **more: Any) -> None:
    """Write an intent that the table keeps for ever, as a person may."""
    created_at = buying.time - age
    intent = LaunchIntent(
        id="by-hand", cluster="prod", pool="web", token="t", created_at=created_at, **more
    )
    item = INTENT_BY_HAND.write(intent, {}, buying.time)
    buying.table.items[item.key] = replace(item, expires=None)


@pytest.mark.parametrize("age", [MINUTE, 6 * MINUTE])
def test_no_node_stays_because_a_launch_by_hand_has_no_answer(
    catalog: Catalog, age: timedelta
) -> None:
    buying = Buying(catalog, pool(template={"expireAfter": "1h"}), node_class())
    cluster = Cluster(catalog)
    cluster.add("old")
    buying.own = cluster.own
    buying.admissions.update({name: launched(one) for name, one in cluster.own.items()})
    write(buying, age, **UNANSWERED)
    begun: list[Reason] = []
    for _ in range(3):
        buying.time += MINUTE
        buying.states.state = cluster.read(buying.time).state
        begun += buying.run().returned.begun
    assert [one.code for one in begun] == ["CapacityReturned"]


@pytest.mark.parametrize("fields", [UNANSWERED, ANSWERED], ids=["unanswered", "answered"])
def test_a_launch_by_hand_from_the_future_does_not_count(
    catalog: Catalog, fields: dict[str, Any]
) -> None:
    buying = Buying(catalog)
    buying.manifests.policy = ClusterPolicy(most_launches=1)
    write(buying, -timedelta(days=365), **fields)
    buying.wait_for_nodes(*big_pods(1))
    assert len(buying.run().launched) == 1


@pytest.mark.parametrize(("ahead", "count"), [(4 * MINUTE, 0), (6 * MINUTE, 1)])
def test_a_launch_by_hand_counts_if_the_clock_of_its_person_is_ahead(
    catalog: Catalog, ahead: timedelta, count: int
) -> None:
    buying = Buying(catalog)
    write(buying, -ahead, **ANSWERED)
    buying.fleets.running[BIG.instance] = BIG
    buying.wait_for_nodes(*big_pods(1))
    assert len(buying.run().launched) == count


@pytest.mark.parametrize(("age", "count"), [(KEPT_FOR - MINUTE, 0), (KEPT_FOR, 1)])
def test_an_instance_of_a_launch_by_hand_counts_against_limits_for_an_hour(
    catalog: Catalog, age: timedelta, count: int
) -> None:
    buying = Buying(catalog, pool(only=ONE_POD_EACH, limits={"nodes": 1}), node_class())
    write(buying, age, **ANSWERED)
    buying.fleets.running[BIG.instance] = BIG
    buying.wait_for_nodes(*big_pods(1))
    assert len(buying.run().launched) == count


@pytest.mark.parametrize("age", [timedelta(), MINUTE, -4 * MINUTE, -timedelta(days=365)])
def test_a_command_requests_nothing_that_another_person_has_written(
    catalog: Catalog, age: timedelta
) -> None:
    buying = Buying(catalog, pool(only=ONE_POD_EACH), node_class())
    write(buying, age, **UNANSWERED)
    by_hand = replace(buying.deps, intents=INTENT_BY_HAND, admit_node=None)
    outcome = LaunchNodes(by_hand).launch(order(catalog))
    assert outcome.complete
    assert len(buying.fleets.running) == 3
    assert all(one.count <= 3 for one in buying.fleets.requests)


def test_a_command_goes_on_although_a_launch_by_hand_is_unreadable(catalog: Catalog) -> None:
    buying = Buying(catalog, pool(only=ONE_POD_EACH), node_class())
    write(buying, MINUTE, **UNANSWERED)
    (key,) = [one for one in buying.table.items if one[0].startswith("MANUALLAUNCH")]
    buying.table.items[key] = replace(buying.table.items[key], body=b"forged")
    by_hand = replace(buying.deps, intents=INTENT_BY_HAND, admit_node=None)
    assert LaunchNodes(by_hand).launch(order(catalog)).complete
