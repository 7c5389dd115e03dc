"""Nodes are launched before a cron window opens, for the pods that its target will have."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.headroom.ports import PodTemplate
from leeway.provisioning.reasons import UPCOMING_PODS_NOT_READ
from leeway.provisioning.upcoming import LEAD
from leeway.selection.offers.catalog import Catalog

from tests.launch.launching import NOW
from tests.launch.pools import node_class, pool
from tests.provisioning.buying import ONE_POD_EACH, Buying

OPENS = NOW.replace(hour=10, minute=0)
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


def test_nodes_that_were_launched_ahead_are_not_launched_again(catalog: Catalog) -> None:
    buying = buying_for(catalog, scaled())
    buying.time = OPENS - LEAD
    buying.run()
    buying.join()
    buying.time = OPENS - timedelta(minutes=1)
    assert buying.run().launched == ()


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
    assert buying.records.statuses["prod"].without_node
    assert buying.events.calls == 0


def test_a_target_without_an_object_needs_no_nodes(catalog: Catalog) -> None:
    buying = buying_for(catalog, scaled())
    buying.pod_templates.templates.clear()
    buying.time = OPENS - LEAD
    assert buying.run().pods == 0
