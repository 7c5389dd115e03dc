"""Evictions in two steps, with a client that disconnects between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.kubernetes.live import BUDGETS, PODS, Live, budget, running_cluster


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A cluster in which an unused granted eviction expires after ten seconds."""
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, "--grant-expiry", "10") as cluster:
        cluster.add_nodes(1)
        yield cluster


@pytest.fixture(autouse=True)
def without_faults(live: Live) -> Iterator[None]:
    yield
    live.fail_with()


def guarded(live: Live, name: str) -> list[str]:
    """Run four pods with maxUnavailable 1."""
    names = [pod["metadata"]["name"] for pod in live.deploy(name, 4)]
    live.create(BUDGETS, budget(name, name, maxUnavailable=1))
    live.until(lambda: live.budget_status(name).get("disruptionsAllowed") == 1)
    return names


def test_a_slow_eviction_is_in_the_budgets_status_before_the_pod_is_deleted(live: Live) -> None:
    first, *_ = guarded(live, "slow")
    live.fail_with({"resource": "pods/eviction", "hold": 1.0})
    assert live.evict(first).status_code == 201
    (deletion,) = [e for e in live.journal("pod-deletion") if e["pod"] == f"default/{first}"]
    assert deletion["via"] == "eviction"
    live.until(lambda: "disruptedPods" not in live.budget_status("slow"))


def test_a_client_that_disconnects_leaves_the_pod_and_uses_a_disruption(live: Live) -> None:
    first, second, *_ = guarded(live, "left")
    live.fail_with({"resource": "pods/eviction", "hold": 30})
    live.abandon_eviction(first, "left")
    live.fail_with()
    status = live.budget_status("left")
    assert (list(status["disruptedPods"]), status["disruptionsAllowed"]) == ([first], 0)
    assert [live.evict(name).status_code for name in (first, second)] == [429, 429]
    assert "deletionTimestamp" not in live.api.get(f"{PODS}/{first}").json()["metadata"]
    (cancelled,) = live.until(lambda: [e for e in live.journal("eviction") if not e["answered"]])
    assert (cancelled["pod"], cancelled["status"]) == (f"default/{first}", 499)
    live.until(lambda: live.budget_status("left")["disruptionsAllowed"] == 1)
    assert "disruptedPods" not in live.budget_status("left")
    assert live.evict(second).status_code == 201


def test_a_disruption_is_available_again_when_its_pod_is_deleted(live: Live) -> None:
    first, *_ = guarded(live, "gone")
    live.fail_with({"resource": "pods/eviction", "hold": 30})
    live.abandon_eviction(first, "gone")
    live.fail_with()
    assert live.api.delete(f"{PODS}/{first}").status_code == 200
    live.until(lambda: "disruptedPods" not in live.budget_status("gone"))
    live.until(lambda: live.budget_status("gone")["disruptionsAllowed"] == 1)
