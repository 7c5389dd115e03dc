"""PodDisruptionBudgets: their arithmetic, and evictions that keep them or are interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import BUDGETS, PODS, Live, bare_pod, budget, running_cluster

_NEVER = {"sandbox.leeway.sh/starts-after": "1h"}
_SLOW = {"sandbox.leeway.sh/ends-after": "1h"}


@pytest.fixture(scope="module")
def of_two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A cluster in which an unused granted eviction expires after ten seconds."""
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, "--grant-expiry", "10") as cluster:
        cluster.add_nodes(1, 2)
        yield cluster


@pytest.fixture
def cluster(of_two_nodes: Live) -> Iterator[Live]:
    """The cluster; the faults of a test end with the test."""
    yield of_two_nodes
    of_two_nodes.fail_with()


def status_of(live: Live, name: str, *, generation: int = 1) -> dict[str, Any]:
    """Return the status of a budget after the controller has reconciled it."""

    def read() -> dict[str, Any] | None:
        status: dict[str, Any] = live.api.get(f"{BUDGETS}/{name}").json()["status"]
        return status if status.get("observedGeneration") == generation else None

    return live.until(read) or {}


def test_percentages_refer_to_the_replicas_of_the_owner_and_round_up(cluster: Live) -> None:
    bounds: dict[int, dict[str, object]] = {
        3: {"minAvailable": 3},
        4: {"minAvailable": "50%"},
        6: {"maxUnavailable": "10%"},
        5: {"maxUnavailable": 2},
        7: {"maxUnavailable": 0},
    }
    cluster.deploy("of-seven", 7)
    for desired, bound in bounds.items():
        cluster.create(BUDGETS, budget(f"desires-{desired}", "of-seven", **bound))
        status = status_of(cluster, f"desires-{desired}")
        assert status["expectedPods"] == 7, bound
        assert status["desiredHealthy"] == desired, bound
        assert status["disruptionsAllowed"] == 7 - desired, bound


def test_a_percentage_of_pods_without_a_controller_fails(cluster: Live) -> None:
    pod = bare_pod("alone")
    pod["metadata"]["labels"] = {"app": "alone"}
    cluster.create("/api/v1/namespaces/default/pods", pod)
    cluster.until(lambda: cluster.running("app=alone"))
    cluster.create(BUDGETS, budget("alone", "alone", maxUnavailable="50%"))

    status = status_of(cluster, "alone")
    refused = cluster.evict("alone")

    assert status["conditions"][0]["reason"] == "SyncFailed"
    assert refused.status_code == 429
    [cause] = refused.json()["details"]["causes"]
    assert 'found no controllers for pod "alone"' in cause["message"]


def test_a_budget_allows_an_eviction_again_when_the_replacement_is_ready(cluster: Live) -> None:
    first, second = cluster.deploy("steady", 2)
    cluster.create(BUDGETS, budget("steady", "steady", minAvailable=1))
    status_of(cluster, "steady")

    assert cluster.evict(first["metadata"]["name"]).status_code == 201
    assert cluster.evict(second["metadata"]["name"]).status_code == 429
    cluster.until(lambda: status_of(cluster, "steady")["disruptionsAllowed"] == 1)
    assert cluster.evict(second["metadata"]["name"]).status_code == 201


@pytest.mark.parametrize(("policy", "code"), [("IfHealthyBudget", 429), ("AlwaysAllow", 201)])
def test_the_policy_of_the_budget_applies_to_an_unready_pod(
    cluster: Live, policy: str, code: int
) -> None:
    name = f"unready-{policy.lower()}"
    pods = cluster.deploy(name, 2)
    bounds = {"minAvailable": 2, "unhealthyPodEvictionPolicy": policy}
    cluster.create(BUDGETS, budget(name, name, **bounds))
    status_of(cluster, name)
    pod = pods[0]["metadata"]["name"]
    unready = {"type": "Ready", "status": "False"}
    patched = cluster.patch(
        f"/api/v1/namespaces/default/pods/{pod}/status",
        {"status": {"conditions": [unready]}},
        "strategic-merge-patch+json",
    )
    assert patched.status_code == 200
    cluster.until(lambda: status_of(cluster, name)["currentHealthy"] == 1)

    assert cluster.evict(pod).status_code == code


def test_no_budget_applies_to_a_pending_pod(cluster: Live) -> None:
    cluster.create(
        "/apis/apps/v1/namespaces/default/deployments",
        {
            "metadata": {"name": "waiting"},
            "spec": {
                "selector": {"matchLabels": {"app": "waiting"}},
                "template": {
                    "metadata": {"labels": {"app": "waiting"}, "annotations": _NEVER},
                    "spec": {"containers": [{"name": "c", "image": "pause"}]},
                },
            },
        },
    )
    cluster.create(BUDGETS, budget("waiting", "waiting", minAvailable=1))
    status_of(cluster, "waiting")
    [pod] = cluster.until(lambda: cluster.pods("app=waiting"))

    assert cluster.evict(pod["metadata"]["name"]).status_code == 201


def guarded(cluster: Live, name: str) -> list[str]:
    """Run four pods with maxUnavailable 1."""
    names = [pod["metadata"]["name"] for pod in cluster.deploy(name, 4)]
    cluster.create(BUDGETS, budget(name, name, maxUnavailable=1))
    cluster.until(lambda: cluster.budget_status(name).get("disruptionsAllowed") == 1)
    return names


def test_a_slow_eviction_is_in_the_budgets_status_before_the_pod_is_deleted(cluster: Live) -> None:
    first, *_ = guarded(cluster, "slow")
    cluster.fail_with({"resource": "pods/eviction", "hold": 1.0})
    assert cluster.evict(first).status_code == 201
    (deletion,) = [e for e in cluster.journal("pod-deletion") if e["pod"] == f"default/{first}"]
    assert deletion["via"] == "eviction"
    cluster.until(lambda: "disruptedPods" not in cluster.budget_status("slow"))


def test_a_client_that_disconnects_leaves_the_pod_and_uses_a_disruption(cluster: Live) -> None:
    first, second, *_ = guarded(cluster, "left")
    cluster.fail_with({"resource": "pods/eviction", "hold": 30})
    cluster.abandon_eviction(first, "left")
    cluster.fail_with()
    status = cluster.budget_status("left")
    assert (list(status["disruptedPods"]), status["disruptionsAllowed"]) == ([first], 0)
    assert [cluster.evict(name).status_code for name in (first, second)] == [429, 429]
    assert "deletionTimestamp" not in cluster.api.get(f"{PODS}/{first}").json()["metadata"]
    (cancelled,) = cluster.until(
        lambda: [e for e in cluster.journal("eviction") if not e["answered"]]
    )
    assert (cancelled["pod"], cancelled["status"]) == (f"default/{first}", 499)
    cluster.until(lambda: cluster.budget_status("left")["disruptionsAllowed"] == 1)
    assert "disruptedPods" not in cluster.budget_status("left")
    assert cluster.evict(second).status_code == 201


def test_a_disruption_is_available_again_when_its_pod_is_deleted(cluster: Live) -> None:
    first, *_ = guarded(cluster, "gone")
    cluster.fail_with({"resource": "pods/eviction", "hold": 30})
    cluster.abandon_eviction(first, "gone")
    cluster.fail_with()
    assert cluster.api.delete(f"{PODS}/{first}").status_code == 200
    cluster.until(lambda: "disruptedPods" not in cluster.budget_status("gone"))
    cluster.until(lambda: cluster.budget_status("gone")["disruptionsAllowed"] == 1)
