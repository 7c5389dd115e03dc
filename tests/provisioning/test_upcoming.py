"""Nodes are launched before a cron window opens, for the pods that its target will have."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.headroom.plan import PodTemplate
from leeway.launch.hibernating import LONGEST_LEAD, Lead, lead_of
from leeway.pool_pauses import JOIN_TIME, KEPT, JoinTime
from leeway.provisioning.upcoming import UPCOMING_PODS_NOT_READ
from leeway.selection.offers.catalog import Catalog

from tests.launch.launching import NOW
from tests.launch.pools import ONE_POD_EACH, node_class, pool
from tests.provisioning.buying import Buying

OPENS = NOW.replace(hour=10, minute=0)
LEAD = timedelta(minutes=3)
"""The lead without join times."""

BIG = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "90"}}}]}


def scaled(name: str = "web", annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A ScaledObject whose window is open from ten to twelve."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations or {}},
        "spec": {
            "scaleTargetRef": {"name": "web"},
            "minReplicaCount": 1,
            "triggers": [
                {
                    "type": "cron",
                    "metadata": {
                        "timezone": "UTC",
                        "start": "0 10 * * *",
                        "end": "0 12 * * *",
                        "desiredReplicas": "3",
                    },
                }
            ],
        },
    }


def buying_for(catalog: Catalog, *objects: dict[str, Any], replicas: int | None = 1) -> Buying:
    """A cluster whose Deployment shop/web has this size."""
    buying = Buying(catalog, pool(only=ONE_POD_EACH), node_class(), *objects)
    buying.pod_templates.templates["shop/web"] = PodTemplate(BIG, replicas, {"app": "web"})
    return buying


def test_nodes_are_launched_a_lead_before_the_window_opens(catalog: Catalog) -> None:
    buying = buying_for(catalog, scaled())
    buying.time = OPENS - LEAD - timedelta(seconds=1)
    assert buying.run().launched == ()
    buying.time = OPENS - LEAD
    report = buying.run()
    assert (report.pods, len(report.launched)) == (2, 2)


def measure(buying: Buying, name: str, *seconds: float) -> None:
    """Store join times of a pool, each of an instance of its own slot."""
    slots: dict[int, JoinTime] = {}
    for number in range(1000):
        one = JoinTime(cluster="prod", pool=name, instance=f"i-{number}", seconds=0)
        slots.setdefault(one.slot, one)
    for slot, took in enumerate(seconds):
        buying.table.put(JOIN_TIME, slots[slot].model_copy(update={"seconds": took}))


def test_the_lead_is_the_median_of_the_join_times_and_one_run_more(catalog: Catalog) -> None:
    buying = buying_for(catalog, scaled())
    measure(buying, "web", 300, 40, 50)
    lead = timedelta(seconds=50 + 60)
    buying.time = OPENS - lead - timedelta(seconds=1)
    assert buying.run().pods == 0
    buying.time = OPENS - lead
    report = buying.run()
    assert len(report.launched) == 2
    (reason,) = report.ahead
    assert reason.code == "ProvisionedAhead"
    assert "2 more pods at 10:00 UTC: Leeway plans their nodes 110 s before" in reason.message
    assert "The median of the last 3 nodes of pool web was ready" in reason.message
    assert buying.statuses["prod"].ahead == report.ahead


def test_only_pools_that_have_nodes_for_the_pods_count(catalog: Catalog) -> None:
    tainted = pool("gpu", template={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})
    buying = buying_for(catalog, scaled(), tainted)
    measure(buying, "gpu", 600)
    measure(buying, "web", 50)
    buying.time = OPENS - timedelta(seconds=111)
    assert buying.run().pods == 0
    buying.time = OPENS - timedelta(seconds=110)
    assert buying.run().pods == 2


def test_a_size_before_a_larger_one_within_the_longest_lead_is_planned_for(
    catalog: Catalog,
) -> None:
    later = scaled()
    second = {**later["spec"]["triggers"][0]["metadata"], "start": "10 10 * * *"}
    later["spec"]["triggers"].append({"type": "cron", "metadata": second})
    second["desiredReplicas"] = "5"
    buying = buying_for(catalog, later)
    buying.time = OPENS - LEAD
    assert buying.run().pods == 2


@given(st.lists(st.floats(0, 10_000), max_size=20), st.lists(st.floats(0, 10_000), max_size=20))
def test_a_lead_covers_the_median_of_every_pool_and_is_bounded(
    web: list[float], gpu: list[float]
) -> None:
    times = {
        name: tuple(timedelta(seconds=one) for one in some)
        for name, some in (("web", web), ("gpu", gpu))
    }
    both = lead_of(["web", "gpu"], times)
    assert timedelta(minutes=1) <= both.time <= LONGEST_LEAD
    assert both.time == max(lead_of([name], times).time for name in times)
    known: Lead = lead_of(["web"], times)
    assert known.why.startswith("The median" if web else "Leeway has admitted no node")


def test_a_pool_keeps_a_bounded_number_of_join_times() -> None:
    instances = [f"i-{number:017x}" for number in range(500)]
    times = [JoinTime(cluster="c", pool="p", instance=one, seconds=1) for one in instances]
    assert {one.slot for one in times} == set(range(KEPT))


def test_nodes_that_were_launched_ahead_are_not_launched_again(catalog: Catalog) -> None:
    buying = buying_for(catalog, scaled())
    buying.time = OPENS - LEAD
    buying.run()
    buying.join()
    buying.time = OPENS - timedelta(minutes=1)
    assert buying.run().launched == ()


def test_nodes_are_awaited_until_the_target_is_scaled_and_three_minutes_at_most(
    catalog: Catalog,
) -> None:
    buying = buying_for(catalog, scaled())
    for seconds in (0, 5, 179):
        buying.time = OPENS + timedelta(seconds=seconds)
        report = buying.run()
        assert report.pods == 2
        assert "2 more pods at 10:00 UTC" in report.ahead[0].message
    buying.time = OPENS + timedelta(seconds=180)
    assert buying.run().pods == 0
    buying = buying_for(catalog, scaled(), replicas=3)
    buying.time = OPENS + timedelta(seconds=5)
    assert buying.run().pods == 0


def test_a_window_that_has_just_closed_hides_no_need(catalog: Catalog) -> None:
    later = scaled()
    earlier = {**later["spec"]["triggers"][0]["metadata"], "desiredReplicas": "5"}
    earlier |= {"start": "0 9 * * *", "end": "59 9 * * *"}
    later["spec"]["triggers"].append({"type": "cron", "metadata": earlier})
    buying = buying_for(catalog, later)
    buying.time = OPENS - timedelta(seconds=30)
    assert buying.run().pods == 2


def test_a_target_that_has_its_size_already_needs_no_nodes(catalog: Catalog) -> None:
    buying = buying_for(catalog, scaled(), replicas=5)
    buying.time = OPENS - LEAD
    assert buying.run().pods == 0


@pytest.mark.parametrize(
    "objects",
    [
        [scaled(annotations={"autoscaling.keda.sh/paused": "true"})],
        [scaled(annotations={"autoscaling.keda.sh/paused-replicas": "1"})],
        [scaled("one"), scaled("two")],
    ],
    ids=["paused", "fixed", "conflict"],
)
def test_a_target_that_will_not_be_scaled_needs_no_nodes(
    catalog: Catalog, objects: list[dict[str, Any]]
) -> None:
    buying = buying_for(catalog, *objects)
    buying.time = OPENS - LEAD
    assert buying.run().pods == 0


def test_a_target_that_cannot_be_read_is_told_and_delays_no_other_pods(catalog: Catalog) -> None:
    buying = buying_for(catalog, scaled())
    buying.time = OPENS - LEAD
    buying.pod_templates.down = True
    report = buying.run()
    assert [one.code for one in report.launch_problems] == [UPCOMING_PODS_NOT_READ.name]
    assert not report.retry
    bad = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}
    buying.pod_templates.down = False
    buying.pod_templates.templates["shop/web"] = PodTemplate(bad, 1)
    report = buying.run()
    assert [one.code for one in report.launch_problems] == [UPCOMING_PODS_NOT_READ.name]


def test_pods_that_are_due_and_get_no_node_are_in_the_status_and_have_no_event(
    catalog: Catalog,
) -> None:
    buying = buying_for(catalog, scaled())
    too_big = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "9000"}}}]}
    buying.pod_templates.templates["shop/web"] = PodTemplate(too_big, 1)
    buying.time = OPENS - LEAD
    report = buying.run()
    assert {one.pod for one in report.without_node} == {
        "shop/web, due at 10:00 UTC (1)",
        "shop/web, due at 10:00 UTC (2)",
    }
    assert buying.statuses["prod"].without_node
    assert buying.events.calls == 0


def test_a_target_without_an_object_needs_no_nodes(catalog: Catalog) -> None:
    buying = buying_for(catalog, scaled())
    buying.pod_templates.templates.clear()
    buying.time = OPENS - LEAD
    assert buying.run().pods == 0
