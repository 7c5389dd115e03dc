"""Workloads that may get one more pod, read and scaled in a living cluster."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leeway.kubernetes.surging import HttpSurgeWorkloads
from leeway.ports.workloads import BudgetHealth, Workload
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.kubernetes.rollouts import HASH, ROLLOUT_KIND
from tests.sandbox.kubernetes.live import Live

LABELS = {"app": "web"}
APPS = "/apis/apps/v1/namespaces/surge"
CORE = "/api/v1/namespaces/surge"


BUDGETS = "/apis/policy/v1/namespaces/surge/poddisruptionbudgets"
SCALERS = "/apis/autoscaling/v1/namespaces/surge/horizontalpodautoscalers"
ROLLOUTS = "/apis/argoproj.io/v1alpha1/namespaces/surge/rollouts"
CREATED = (
    *(f"{APPS}/{kind}" for kind in ("deployments", "statefulsets", "replicasets")),
    *(f"{CORE}/{kind}" for kind in ("services", "persistentvolumeclaims")),
    *(BUDGETS, SCALERS, ROLLOUTS),
)


@pytest.fixture(scope="module")
def adapter(kubeconfig: Path, live: Live) -> Iterator[HttpSurgeWorkloads]:
    live.create("/api/v1/namespaces", {"metadata": {"name": "surge"}})
    with closing(kubeconfig_connection(kubeconfig)) as connection:
        yield HttpSurgeWorkloads(connection)


@pytest.fixture
def workloads(adapter: HttpSurgeWorkloads, live: Live) -> Iterator[HttpSurgeWorkloads]:
    """The adapter under test. Its namespace is emptied afterwards: to delete it takes seconds."""
    yield adapter
    for path in CREATED:
        live.api.delete(path)
    live.until(lambda: not live.pods(namespace="surge"))


def create(live: Live, kind: str, replicas: int = 1, **more: Any) -> None:
    """Create a workload whose pods are Ready."""
    live.add_nodes(1, 2)
    pod = {"containers": [{"name": "app", "image": "app:1"}], "terminationGracePeriodSeconds": 0}
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
            SCALERS,
            {"metadata": {"name": name}, "spec": {"maxReplicas": 3, "scaleTargetRef": of}},
        )
    assert workloads.scalers(found(live, workloads)) == ("HorizontalPodAutoscaler web",)


def test_claims_of_a_stateful_set_are_seen(live: Live, workloads: HttpSurgeWorkloads) -> None:
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"metadata": {"name": "data"}, "spec": storage}]
    create(live, "statefulsets", volumeClaimTemplates=claims)
    assert found(live, workloads, "StatefulSet").claims


def test_a_volume_that_many_nodes_may_mount_keeps_no_pod(
    live: Live, workloads: HttpSurgeWorkloads
) -> None:
    cases: dict[str, tuple[list[str], bool]] = {
        "many": (["ReadWriteMany"], False),
        "many-or-read": (["ReadOnlyMany", "ReadWriteMany"], False),
        "once": (["ReadWriteOnce"], True),
        "once-or-many": (["ReadWriteOnce", "ReadWriteMany"], True),
        "no-such-claim": ([], True),
    }
    for name, (modes, keeps) in cases.items():
        if modes:
            resources = {"requests": {"storage": "1Gi"}}
            wanted = {"accessModes": modes, "resources": resources, "storageClassName": ""}
            claim = {"metadata": {"name": name}, "spec": wanted}
            live.create(f"{CORE}/persistentvolumeclaims", claim)
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        pod = {"containers": [{"name": "app", "image": "app:1"}], "volumes": [volume]}
        template = {"metadata": {"labels": LABELS}, "spec": pod}
        spec = {"replicas": 0, "selector": {"matchLabels": LABELS}, "template": template}
        live.create(f"{APPS}/deployments", {"metadata": {"name": name}, "spec": spec})
        one = workloads.find("surge", "Deployment", name)
        assert one is not None
        assert one.claims == keeps, name


def test_the_health_of_a_budget_is_that_of_its_present_spec(
    live: Live, workloads: HttpSurgeWorkloads
) -> None:
    create(live, "deployments")
    selector = {"matchLabels": LABELS}
    live.create(
        BUDGETS, {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": selector}}
    )
    live.until(lambda: workloads.budget("surge", "web") == BudgetHealth(0, 1, 1))
    assert workloads.budget("surge", "other") is None
    assert workloads.scale(found(live, workloads), 2)
    live.until(lambda: workloads.budget("surge", "web") == BudgetHealth(1, 2, 1))
    live.api.delete(f"{BUDGETS}/web")
    live.create(
        BUDGETS, {"metadata": {"name": "web"}, "spec": {"maxUnavailable": 0, "selector": selector}}
    )
    live.until(lambda: workloads.budget("surge", "web") == BudgetHealth(0, 2, 2))


@pytest.fixture(scope="module")
def argo(live: Live) -> Iterator[Live]:
    """A cluster with the kind Rollout, of which the tests are the controller."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert live.api.post(definitions, json=ROLLOUT_KIND).status_code == 201
    path = "/apis/argoproj.io/v1alpha1/namespaces/default/rollouts"
    live.until(lambda: live.api.get(path).status_code == 200)
    yield live
    live.api.delete(f"{definitions}/rollouts.argoproj.io")


def rollout(live: Live, replicas: int = 1, **spec: Any) -> tuple[str, int]:
    """Create a settled Rollout with the ReplicaSet of its template; return the name of that and the
    generation of the Rollout."""
    pod = {"containers": [{"name": "app", "image": "app:1"}], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    own = {"selector": {"matchLabels": LABELS}, "template": template, "replicas": replicas}
    body = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    created = live.create(ROLLOUTS, {**body, "metadata": {"name": "web"}, "spec": {**own, **spec}})
    owner = {**body, "name": "web", "uid": created["metadata"]["uid"], "controller": True}
    labels = {**LABELS, HASH: "abc"}
    live.add_nodes(1, 2)
    live.create(
        f"{APPS}/replicasets",
        {
            "metadata": {"name": "web-abc", "labels": labels, "ownerReferences": [owner]},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    )
    return "web-abc", created["metadata"]["generation"]


def reports(live: Live, **status: Any) -> None:
    """Write the status of the Rollout, as its controller does."""
    settled = {"replicas": 1, "updatedReplicas": 1, "currentPodHash": "abc", "stableRS": "abc"}
    status = {"status": {**settled, **status}}
    assert live.patch(f"{ROLLOUTS}/web/status", status).status_code == 200


def test_the_rollout_of_a_replica_set_is_found_and_scaled(
    argo: Live, workloads: HttpSurgeWorkloads
) -> None:
    owner, generation = rollout(argo)
    reports(argo, observedGeneration=str(generation))
    one = workloads.find("surge", "ReplicaSet", owner)
    assert one is not None
    assert (one.key, one.replicas, one.settled) == ("surge/Rollout/web", 1, True)
    target = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"}
    argo.create(
        SCALERS,
        {"metadata": {"name": "web"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}},
    )
    assert workloads.scalers(one) == ("HorizontalPodAutoscaler web",)
    assert workloads.scale(one, 2)
    assert not workloads.scale(one, 3)
    again = workloads.find("surge", "Rollout", "web")
    assert again is not None
    assert (again.replicas, again.settled) == (2, False)
    assert again.sizers == frozenset({"leeway-surge"})


def test_a_rollout_that_changes_is_not_settled(argo: Live, workloads: HttpSurgeWorkloads) -> None:
    rollout(argo)
    changing: tuple[dict[str, Any], ...] = (
        {"observedGeneration": "2b7f6d"},
        {"observedGeneration": "1", "stableRS": "old"},
        {"observedGeneration": "1", "replicas": 2},
    )
    for status in changing:
        reports(argo, **status)
        one = workloads.find("surge", "Rollout", "web")
        assert one is not None
        assert not one.settled, status


def test_a_pod_of_a_rollout_serves_when_the_services_of_its_template_have_it(
    argo: Live, workloads: HttpSurgeWorkloads
) -> None:
    _, generation = rollout(argo)
    reports(argo, observedGeneration=str(generation))
    service(argo, "web-active", selector={**LABELS, HASH: "abc"})
    service(argo, "web-other", selector={**LABELS, HASH: "def"})
    one = workloads.find("surge", "Rollout", "web")
    assert one is not None
    argo.until(lambda: [pod.serves for pod in workloads.replicas(one).pods] == [True])
    assert workloads.replicas(one).shared


def test_a_rollout_may_have_the_template_of_a_deployment(
    argo: Live, workloads: HttpSurgeWorkloads
) -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    rollout(argo, template=None, selector=None, workloadRef=reference)
    assert workloads.find("surge", "Rollout", "web") is None
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pod = {"containers": [{"name": "app", "image": "app:1"}], "volumes": [volume]}
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": LABELS}, "template": template}
    argo.create(f"{APPS}/deployments", {"metadata": {"name": "web"}, "spec": spec})
    one = workloads.find("surge", "Rollout", "web")
    assert one is not None
    assert (one.replicas, one.claims) == (1, True)
    argo.until(lambda: len(workloads.replicas(one).pods) == 1)
