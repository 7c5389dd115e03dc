"""Pools outside of the windows of their schedule: nothing is launched from them."""

import json
from datetime import timedelta
from typing import Any

from leeway.hibernation import POOL_HIBERNATES, SLEEPING, woken
from leeway.manifests.node_pool import SCHEDULE
from leeway.pool_pauses import JOIN_TIME, POOL, JoinTime
from leeway.provisioning.report import STATUS
from leeway.selection.offers.catalog import Catalog

from tests.launch.launching import NOW, order
from tests.launch.pools import ONE_POD_EACH, node_class, pool
from tests.provisioning.buying import Buying, big_pods

HOUR = timedelta(hours=1)
NIGHTS = [{"timezone": "Europe/Berlin", "start": "0 20 * * *", "end": "0 6 * * *"}]
"""It is a Friday morning."""


def asleep(name: str = "web", **more: Any) -> dict[str, Any]:
    """A pool that hibernates."""
    document = pool(name, only=ONE_POD_EACH, **more)
    document["metadata"]["annotations"] = {SCHEDULE: json.dumps(NIGHTS)}
    return document


def wake(buying: Buying, time: timedelta) -> None:
    stored = buying.table.get(POOL, cluster="prod", pool="web")
    buying.table.put(POOL, woken(stored, "prod", "web", time, buying.time, "alice"))


def test_pods_of_a_pool_that_hibernates_stay_pending_with_the_reason(catalog: Catalog) -> None:
    buying = Buying(catalog, asleep(), node_class())
    buying.wait_for_nodes(*big_pods(2))
    report = buying.run()
    assert not report.launched
    assert not buying.fleets.requests
    assert {one.cause.code for one in report.without_node} == {POOL_HIBERNATES.name}
    assert "hibernates until 20:00 Europe/Berlin" in report.without_node[0].reason.message
    assert (report.launch_problems, report.capped, report.failures) == ((), False, ())
    (stored,) = (buying.table.get(SLEEPING, cluster="prod") or report).pools  # type: ignore[union-attr]
    assert (stored.pool, stored.until) == ("web", "20:00 Europe/Berlin")
    status = buying.table.get(STATUS, cluster="prod")
    assert status is not None
    assert not status.problems


def test_a_pod_that_fits_another_pool_is_launched_there(catalog: Catalog) -> None:
    other = pool("other", only=ONE_POD_EACH)
    buying = Buying(catalog, asleep(weight=90), other, node_class())
    buying.wait_for_nodes(*big_pods(2))
    assert {one.pool for one in buying.run().launched} == {"other"}


def test_a_woken_pool_launches_until_its_time_is_over(catalog: Catalog) -> None:
    buying = Buying(catalog, asleep(), node_class())
    wake(buying, 2 * HOUR)
    buying.wait_for_nodes(*big_pods(1))
    assert len(buying.run().launched) == 1
    buying.time += 2 * HOUR
    buying.wait_for_nodes(*big_pods(1, name="late"))
    assert not buying.run().launched


def test_a_pool_is_launched_from_as_long_before_its_window_as_its_nodes_take(
    catalog: Catalog,
) -> None:
    buying = Buying(catalog, asleep(), node_class())
    slow = JoinTime(cluster="prod", pool="web", instance="i-1", seconds=300)
    buying.table.put(JOIN_TIME, slow)
    buying.wait_for_nodes(*big_pods(1))
    opens = NOW.replace(hour=19, minute=0)
    buying.time = opens - timedelta(minutes=7)
    assert not buying.run().launched
    buying.time = opens - timedelta(minutes=6)
    assert len(buying.run().launched) == 1
    stored = buying.table.get(SLEEPING, cluster="prod")
    assert stored is not None
    assert not stored.pools


def test_a_static_pool_that_hibernates_lacks_no_nodes(catalog: Catalog) -> None:
    buying = Buying(catalog, asleep(replicas=2), node_class())
    report = buying.run()
    assert (report.launched, report.static_pools, report.launch_problems) == ((), (), ())
    buying.time += 10 * HOUR
    assert len(buying.run().launched) == 2


def test_what_a_person_launches_by_hand_waits_too(catalog: Catalog) -> None:
    buying = Buying(catalog, asleep(), node_class())
    outcome = buying.launch_nodes.launch(order(catalog, asleep(), node_class()))
    assert {one.cause.code for one in outcome.without_node} == {POOL_HIBERNATES.name}
    preview = buying.launch_nodes.preview(order(catalog, asleep(), node_class()))
    assert not preview.prepared
