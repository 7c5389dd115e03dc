"""PodDisruptionBudgets: their arithmetic, and evictions that never overshoot them."""

from __future__ import annotations

import collections
import concurrent.futures
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import Live, bare_pod, budget

_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_NEVER = {"sandbox.leeway.sh/starts-after": "1h"}
_SLOW = {"sandbox.leeway.sh/ends-after": "1h"}


@pytest.fixture(scope="module")
def world(live: Live) -> Live:
    """Return a cluster of two nodes."""
    live.add_nodes(1, 2)
    return live


def status_of(live: Live, name: str, *, generation: int = 1) -> dict[str, Any]:
    """Return a budget's status once the controller has seen it."""

    def read() -> dict[str, Any] | None:
        status: dict[str, Any] = live.api.get(f"{_BUDGETS}/{name}").json()["status"]
        return status if status.get("observedGeneration") == generation else None

    return live.until(read) or {}


@pytest.mark.parametrize(
    ("bounds", "desired"),
    [
        ({"minAvailable": 3}, 3),
        ({"minAvailable": "50%"}, 4),
        ({"maxUnavailable": "10%"}, 6),
        ({"maxUnavailable": 2}, 5),
        ({"maxUnavailable": 0}, 7),
    ],
)
def test_shares_round_up_and_are_of_what_the_owner_wants(
    world: Live, bounds: dict[str, object], desired: int
) -> None:
    name = f"of-seven-{desired}"
    world.deploy(name, 7)
    world.create(_BUDGETS, budget(name, name, **bounds))

    status = status_of(world, name)

    assert status["expectedPods"] == 7
    assert status["desiredHealthy"] == desired
    assert status["disruptionsAllowed"] == 7 - desired


def test_a_share_of_pods_without_controller_can_not_be_told(world: Live) -> None:
    pod = bare_pod("alone")
    pod["metadata"]["labels"] = {"app": "alone"}
    world.create("/api/v1/namespaces/default/pods", pod)
    world.until(lambda: world.running("app=alone"))
    world.create(_BUDGETS, budget("alone", "alone", maxUnavailable="50%"))

    status = status_of(world, "alone")
    refused = world.evict("alone")

    assert status["conditions"][0]["reason"] == "SyncFailed"
    assert refused.status_code == 429
    [cause] = refused.json()["details"]["causes"]
    assert 'found no controllers for pod "alone"' in cause["message"]


def test_evictions_at_once_take_no_more_than_the_budget_allows(world: Live) -> None:
    # Nobody replaces them, however long the requests take.
    names = [f"crowd-{number}" for number in range(10)]
    for name in names:
        pod = bare_pod(name)
        pod["metadata"] |= {"labels": {"app": "crowd"}, "annotations": _SLOW}
        world.create("/api/v1/namespaces/default/pods", pod)
    world.until(lambda: len(world.running("app=crowd")) == 10)
    world.create(_BUDGETS, budget("crowd", "crowd", minAvailable=7))
    status_of(world, "crowd")

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        codes = collections.Counter(
            response.status_code for response in pool.map(world.evict, names)
        )

    assert codes == {201: 3, 429: 7}


def test_a_budget_gives_again_when_the_replacement_is_ready(world: Live) -> None:
    first, second = world.deploy("steady", 2)
    world.create(_BUDGETS, budget("steady", "steady", minAvailable=1))
    status_of(world, "steady")

    assert world.evict(first["metadata"]["name"]).status_code == 201
    assert world.evict(second["metadata"]["name"]).status_code == 429
    world.until(lambda: status_of(world, "steady")["disruptionsAllowed"] == 1)
    assert world.evict(second["metadata"]["name"]).status_code == 201


@pytest.mark.parametrize(("policy", "code"), [("IfHealthyBudget", 429), ("AlwaysAllow", 201)])
def test_an_unready_pod_goes_by_the_budgets_policy(world: Live, policy: str, code: int) -> None:
    name = f"unready-{policy.lower()}"
    pods = world.deploy(name, 2)
    bounds = {"minAvailable": 2, "unhealthyPodEvictionPolicy": policy}
    world.create(_BUDGETS, budget(name, name, **bounds))
    status_of(world, name)
    pod = pods[0]["metadata"]["name"]
    unready = {"type": "Ready", "status": "False"}
    patched = world.patch(
        f"/api/v1/namespaces/default/pods/{pod}/status",
        {"status": {"conditions": [unready]}},
        "strategic-merge-patch+json",
    )
    assert patched.status_code == 200
    world.until(lambda: status_of(world, name)["currentHealthy"] == 1)

    assert world.evict(pod).status_code == code


def test_a_pending_pod_asks_no_budget(world: Live) -> None:
    world.create(
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
    world.create(_BUDGETS, budget("waiting", "waiting", minAvailable=1))
    status_of(world, "waiting")
    [pod] = world.until(lambda: world.pods("app=waiting"))

    assert world.evict(pod["metadata"]["name"]).status_code == 201


def test_both_bounds_in_one_budget_are_refused(world: Live) -> None:
    both = budget("both", "both", minAvailable=1, maxUnavailable=1)

    refused = world.api.post(_BUDGETS, json=both)

    assert refused.status_code == 422
    assert "cannot be both set" in refused.json()["message"]
