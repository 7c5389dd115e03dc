"""Workloads that may get one more pod, read and scaled in a living cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leeway.kubernetes.kubeconfig import kubeconfig_connection
from leeway.kubernetes.surging import HttpSurgeWorkloads
from leeway.ports.workloads import BudgetHealth, Workload

from tests.sandbox.kubernetes.live import Live

LABELS = {"app": "web"}
APPS = "/apis/apps/v1/namespaces/surge"
CORE = "/api/v1/namespaces/surge"


@pytest.fixture
def workloads(kubeconfig: Path, live: Live) -> Iterator[HttpSurgeWorkloads]:
    """The adapter under test, and a namespace that is deleted afterwards."""
    live.api.post("/api/v1/namespaces", json={"metadata": {"name": "surge"}})
    connection = kubeconfig_connection(kubeconfig)
    yield HttpSurgeWorkloads(connection)
    connection.close()
    live.api.delete("/api/v1/namespaces/surge")
    live.until(lambda: live.api.get("/api/v1/namespaces/surge").status_code == 404)


def create(live: Live, kind: str, replicas: int = 1, **more: Any) -> None:
    """Create a workload whose pods are Ready."""
    live.add_nodes(1, 2)
    pod = {"containers": [{"name": "app", "image": "app:1"}], **more.pop("pod", {})}
    live.create(
        f"{APPS}/{kind}",
        {
            "metadata": {"name": "web", **more.pop("metadata", {})},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": LABELS},
                "template": {"metadata": {"labels": LABELS}, "spec": pod},
                **more,
            },
        },
    )
    live.until(lambda: live.api.get(f"{APPS}/{kind}/web").json()["status"].get("readyReplicas"))


def service(live: Live, name: str, **spec: Any) -> None:
    live.create(
        f"{CORE}/services",
        {"metadata": {"name": name}, "spec": {"selector": LABELS, "ports": [{"port": 80}], **spec}},
    )


def found(live: Live, workloads: HttpSurgeWorkloads, kind: str = "Deployment") -> Workload:
    """Return the workload when its status is settled."""

    def settled() -> Workload | None:
        one = workloads.find("surge", kind, "web")
        return one if one is not None and one.settled else None

    result = live.until(settled)
    assert result is not None
    return result


def test_the_deployment_of_a_replica_set_is_found(
    live: Live, workloads: HttpSurgeWorkloads
) -> None:
    create(live, "deployments", metadata={"annotations": {"leeway.sh/surge": "true"}})
    (pod,) = live.api.get(f"{CORE}/pods").json()["items"]
    owner = pod["metadata"]["ownerReferences"][0]
    one = workloads.find("surge", owner["kind"], owner["name"])
    assert one is not None
    assert (one.key, one.replicas, one.surges) == ("surge/Deployment/web", 1, True)
    assert (one.controller, one.claims, one.failure) == ("", False, "")
    assert workloads.scalers(one) == ()
    assert workloads.find("surge", "ReplicaSet", "other") is None
    assert workloads.find("surge", "Job", "web") is None
    assert workloads.find("surge", "ReplicaSet", "../../secrets/x") is None


def test_a_replica_serves_when_each_of_its_services_has_it(
    live: Live, workloads: HttpSurgeWorkloads
) -> None:
    create(live, "deployments")
    one = found(live, workloads)
    (alone,) = workloads.replicas(one).pods
    assert alone.serves
    assert alone.node
    assert not workloads.replicas(one).shared
    service(live, "web")
    service(live, "other", selector={"app": "other"})
    live.until(lambda: workloads.replicas(one).pods[0].serves)
    assert workloads.replicas(one).shared
    path = "/apis/discovery.k8s.io/v1/namespaces/surge/endpointslices"
    (listed,) = (
        one["endpoints"]
        for one in live.api.get(path).json()["items"]
        if one["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    )
    (endpoint,) = listed
    assert (endpoint["targetRef"]["uid"], endpoint["conditions"]["ready"]) == (alone.uid, True)


def test_a_headless_service_is_not_shared(live: Live, workloads: HttpSurgeWorkloads) -> None:
    service(live, "web", clusterIP="None")
    create(live, "statefulsets", serviceName="web")
    one = found(live, workloads, "StatefulSet")
    assert not workloads.replicas(one).shared
    service(live, "front")
    assert workloads.replicas(one).shared


def test_a_scale_counts_only_at_the_version_that_was_read(
    live: Live, workloads: HttpSurgeWorkloads
) -> None:
    create(live, "deployments")
    one = found(live, workloads)
    assert workloads.scale(one, 2)
    assert not workloads.scale(one, 3)
    again = found(live, workloads)
    assert (again.replicas, again.sizers) == (2, frozenset({"leeway-surge"}))
    live.patch(f"{APPS}/deployments/web/scale", {"spec": {"replicas": 3}})
    assert not workloads.scale(again, 1)
    assert "leeway-surge" not in found(live, workloads).sizers
    live.api.delete(f"{APPS}/deployments/web")
    assert not workloads.scale(again, 1)


def test_what_sets_the_size_is_named(live: Live, workloads: HttpSurgeWorkloads) -> None:
    create(live, "deployments")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    for name, of in (("web", target), ("other", {**target, "name": "other"})):
        live.create(
            "/apis/autoscaling/v1/namespaces/surge/horizontalpodautoscalers",
            {"metadata": {"name": name}, "spec": {"maxReplicas": 3, "scaleTargetRef": of}},
        )
    assert workloads.scalers(found(live, workloads)) == ("HorizontalPodAutoscaler web",)


def test_claims_of_a_stateful_set_are_seen(live: Live, workloads: HttpSurgeWorkloads) -> None:
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"metadata": {"name": "data"}, "spec": storage}]
    create(live, "statefulsets", volumeClaimTemplates=claims)
    assert found(live, workloads, "StatefulSet").claims


@pytest.mark.parametrize(
    ("modes", "keeps"),
    [
        (["ReadWriteMany"], False),
        (["ReadOnlyMany", "ReadWriteMany"], False),
        (["ReadWriteOnce"], True),
        (["ReadWriteOnce", "ReadWriteMany"], True),
        (None, True),
    ],
)
def test_a_volume_that_many_nodes_may_mount_keeps_no_pod(
    live: Live, workloads: HttpSurgeWorkloads, modes: list[str] | None, keeps: bool
) -> None:
    if modes is not None:
        resources = {"requests": {"storage": "1Gi"}}
        wanted = {"accessModes": modes, "resources": resources, "storageClassName": ""}
        claim = {"metadata": {"name": "data"}, "spec": wanted}
        live.create(f"{CORE}/persistentvolumeclaims", claim)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pod = {"containers": [{"name": "app", "image": "app:1"}], "volumes": [volume]}
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": LABELS}, "template": template}
    live.create(f"{APPS}/deployments", {"metadata": {"name": "web"}, "spec": spec})
    one = workloads.find("surge", "Deployment", "web")
    assert one is not None
    assert one.claims == keeps


def test_the_health_of_a_budget_is_that_of_its_present_spec(
    live: Live, workloads: HttpSurgeWorkloads
) -> None:
    create(live, "deployments")
    path = "/apis/policy/v1/namespaces/surge/poddisruptionbudgets"
    selector = {"matchLabels": LABELS}
    live.create(
        path, {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": selector}}
    )
    live.until(lambda: workloads.budget("surge", "web") == BudgetHealth(0, 1, 1))
    assert workloads.budget("surge", "other") is None
    assert workloads.scale(found(live, workloads), 2)
    live.until(lambda: workloads.budget("surge", "web") == BudgetHealth(1, 2, 1))
    live.api.delete(f"{path}/web")
    live.create(
        path, {"metadata": {"name": "web"}, "spec": {"maxUnavailable": 0, "selector": selector}}
    )
    live.until(lambda: workloads.budget("surge", "web") == BudgetHealth(0, 2, 2))
