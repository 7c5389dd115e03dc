"""PodDisruptionBudgets: their arithmetic, and evictions that never exceed them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.kubernetes.live import Live, bare_pod, budget

_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_NEVER = {"sandbox.leeway.sh/starts-after": "1h"}
_SLOW = {"sandbox.leeway.sh/ends-after": "1h"}


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return a cluster of two nodes."""
    live.add_nodes(1, 2)
    return live


def status_of(live: Live, name: str, *, generation: int = 1) -> dict[str, Any]:
    """Return the status of a budget after the controller has reconciled it."""

    def read() -> dict[str, Any] | None:
        status: dict[str, Any] = live.api.get(f"{_BUDGETS}/{name}").json()["status"]
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
        cluster.create(_BUDGETS, budget(f"desires-{desired}", "of-seven", **bound))
        status = status_of(cluster, f"desires-{desired}")
        assert status["expectedPods"] == 7, bound
        assert status["desiredHealthy"] == desired, bound
        assert status["disruptionsAllowed"] == 7 - desired, bound


def test_a_percentage_of_pods_without_a_controller_fails(cluster: Live) -> None:
    pod = bare_pod("alone")
    pod["metadata"]["labels"] = {"app": "alone"}
    cluster.create("/api/v1/namespaces/default/pods", pod)
    cluster.until(lambda: cluster.running("app=alone"))
    cluster.create(_BUDGETS, budget("alone", "alone", maxUnavailable="50%"))

    status = status_of(cluster, "alone")
    refused = cluster.evict("alone")

    assert status["conditions"][0]["reason"] == "SyncFailed"
    assert refused.status_code == 429
    [cause] = refused.json()["details"]["causes"]
    assert 'found no controllers for pod "alone"' in cause["message"]


def test_a_budget_allows_an_eviction_again_when_the_replacement_is_ready(cluster: Live) -> None:
    first, second = cluster.deploy("steady", 2)
    cluster.create(_BUDGETS, budget("steady", "steady", minAvailable=1))
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
    cluster.create(_BUDGETS, budget(name, name, **bounds))
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
    cluster.create(_BUDGETS, budget("waiting", "waiting", minAvailable=1))
    status_of(cluster, "waiting")
    [pod] = cluster.until(lambda: cluster.pods("app=waiting"))

    assert cluster.evict(pod["metadata"]["name"]).status_code == 201
