"""The Workloads Protocol over HTTP: pause pods and scaled targets in a living cluster."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from leeway.headroom.pause_pods import PausePods, deployment_object, priority_class_object
from leeway.headroom.plan import FoundDeployment, ScaleTarget, TargetScale
from leeway.kubernetes.workloads import HttpWorkloads
from leeway.ports.kubernetes import ClusterRefused
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.sandbox.kubernetes.live import Live

PODS = PausePods("web", "warm", {"cpu": "1"})
WEB = "/apis/apps/v1/namespaces/warm/deployments/web"


@pytest.fixture
def workloads(kubeconfig: Path, live: Live) -> Iterator[HttpWorkloads]:
    """The adapter under test; its objects are deleted first."""
    live.api.post("/api/v1/namespaces", json={"metadata": {"name": "warm"}})
    connection = kubeconfig_connection(kubeconfig)
    yield HttpWorkloads(connection)
    live.api.delete(WEB)
    connection.close()


def apply_all(workloads: HttpWorkloads, replicas: int) -> None:
    workloads.apply(priority_class_object(-10))
    workloads.apply(deployment_object(PODS, replicas))


def read(live: Live, path: str) -> dict[str, Any]:
    answer = live.api.get(path)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def a_deployment(live: Live, namespace: str, name: str, replicas: int) -> ScaleTarget:
    """A user's Deployment that fits on no node."""
    live.api.post("/api/v1/namespaces", json={"metadata": {"name": namespace}})
    live.create(
        f"/apis/apps/v1/namespaces/{namespace}/deployments",
        {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "app", "image": "app:1"}]},
                },
            },
        },
    )
    return ScaleTarget("apps/v1", "Deployment", namespace, name)


def path_of(target: ScaleTarget) -> str:
    return f"/apis/apps/v1/namespaces/{target.namespace}/deployments/{target.name}"


def test_applying_an_object_twice_changes_nothing(live: Live, workloads: HttpWorkloads) -> None:
    apply_all(workloads, 2)
    first = read(live, WEB)
    apply_all(workloads, 2)
    assert read(live, WEB)["metadata"]["generation"] == first["metadata"]["generation"]
    assert first["spec"]["replicas"] == 2
    priority = read(live, "/apis/scheduling.k8s.io/v1/priorityclasses/leeway-headroom--10")
    assert (priority["value"], priority["preemptionPolicy"]) == (-10, "Never")


def test_apply_reverts_changed_fields_and_keeps_added_ones(
    live: Live, workloads: HttpWorkloads
) -> None:
    apply_all(workloads, 2)
    live.api.patch(
        WEB,
        json={"metadata": {"annotations": {"theirs": "yes"}}, "spec": {"replicas": 7}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    apply_all(workloads, 2)
    healed = read(live, WEB)
    assert healed["spec"]["replicas"] == 2
    assert healed["metadata"]["annotations"]["theirs"] == "yes"


def test_applied_deployments_are_found_with_any_labels(
    live: Live, workloads: HttpWorkloads
) -> None:
    a_deployment(live, "warm", "shop", 0)
    apply_all(workloads, 0)
    labels = read(live, WEB)["metadata"]["labels"]
    live.patch(WEB, {"metadata": {"labels": dict.fromkeys(labels)}})
    shop = f"{WEB.rpartition('/')[0]}/shop"
    live.patch(shop, {"metadata": {"labels": labels}})
    found = {one.name: one for one in workloads.deployments("warm")}
    assert found["web"] == FoundDeployment("warm", "web", "leeway-headroom--10", ours=True)
    assert not found["shop"].ours
    for _ in range(2):
        workloads.remove_deployment("warm", "web")
        workloads.remove_deployment("warm", "shop")
    assert workloads.deployments("warm") == []
    assert workloads.deployments("nowhere") == []


def test_a_priority_class_without_leeways_labels_is_not_deleted(
    live: Live, workloads: HttpWorkloads
) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    live.create(classes, {"metadata": {"name": "theirs"}, "value": -10})
    workloads.remove_priority_class("theirs")
    assert live.api.get(f"{classes}/theirs").status_code == 200
    workloads.apply(priority_class_object(-3))
    workloads.remove_priority_class("leeway-headroom--3")
    assert live.api.get(f"{classes}/leeway-headroom--3").status_code == 404


def test_scaling_a_target_changes_only_its_replicas(live: Live, workloads: HttpWorkloads) -> None:
    target = a_deployment(live, "warm-targets", "inflate", 3)
    # The Deployment controller annotates the revision some time after the creation.
    live.until(lambda: read(live, path_of(target))["metadata"].get("annotations"))
    before = read(live, path_of(target))
    assert workloads.scale_of(target) == TargetScale(3, before["metadata"]["uid"])
    workloads.scale(target, 5)
    assert workloads.scale_of(target) == TargetScale(5, before["metadata"]["uid"])
    after = read(live, path_of(target))
    assert after["spec"] == {**before["spec"], "replicas": 5}
    assert after["metadata"].get("annotations") == before["metadata"].get("annotations")


def test_a_missing_target_has_no_scale(workloads: HttpWorkloads) -> None:
    assert workloads.scale_of(ScaleTarget("apps/v1", "Deployment", "default", "lost")) is None


def test_a_name_that_is_not_one_path_segment_is_refused(workloads: HttpWorkloads) -> None:
    for target in (
        ScaleTarget("apps/v1", "Deployment", "..", "web"),
        ScaleTarget("apps/v1", "Deployment", "shop", "../../secrets"),
        ScaleTarget("apps/v1", "Deployment", "shop", "web/status"),
        ScaleTarget("../v1", "Deployment", "shop", "web"),
        ScaleTarget("apps/v1?x=", "Deployment", "shop", "web"),
    ):
        with pytest.raises(ClusterRefused, match="the name is not valid in Kubernetes"):
            workloads.scale_of(target)


def test_an_unknown_kind_is_refused_by_its_name(
    workloads: HttpWorkloads,
) -> None:
    rollout = ScaleTarget("argoproj.io/v1alpha1", "Rollout", "default", "web")
    with pytest.raises(ClusterRefused, match=r"no kind Rollout in argoproj\.io/v1alpha1"):
        workloads.scale_of(rollout)


def test_the_size_of_a_cluster_counts_ready_and_schedulable_nodes(
    live: Live, workloads: HttpWorkloads
) -> None:
    before = workloads.size()
    name, other = live.add_nodes(901, 902, cpu="4")
    assert (workloads.size().nodes, workloads.size().millicores) == (
        before.nodes + 2,
        before.millicores + 8000,
    )
    live.api.patch(
        f"/api/v1/nodes/{other}",
        json={"spec": {"unschedulable": True}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert workloads.size().nodes == before.nodes + 1
    assert name


def test_pods_that_were_scheduled_at_once_have_no_join_time(
    live: Live, workloads: HttpWorkloads
) -> None:
    live.add_nodes(903)
    apply_all(workloads, 1)
    live.until(lambda: read(live, WEB)["status"].get("readyReplicas") == 1)
    assert workloads.join_times().get(("warm", "web"), []) == []
    assert all(time > timedelta(0) for times in workloads.join_times().values() for time in times)


def test_leeway_manages_the_replicas_field_that_it_sets(
    live: Live, workloads: HttpWorkloads
) -> None:
    target = a_deployment(live, "warm-managed", "inflate", 1)
    workloads.scale(target, 2)
    managed = read(live, path_of(target))["metadata"]["managedFields"]
    (scaled,) = [entry for entry in managed if entry.get("subresource") == "scale"]
    assert (scaled["manager"], scaled["operation"]) == ("leeway", "Update")
    assert scaled["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
