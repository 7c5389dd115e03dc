"""How pods end: the exit code, preStop hooks and the grace period."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return a cluster of two nodes."""
    live.add_nodes(1, 2)
    return live


def test_a_deleted_pod_has_ended_before_it_goes(cluster: Live) -> None:
    pod = bare_pod("held", restartPolicy="Never")
    pod["metadata"] |= {
        "finalizers": ["example.com/wait"],
        "annotations": {"sandbox.leeway.sh/runs-for": "1h"},
    }
    cluster.create(PODS, pod)
    path = f"{PODS}/held"
    cluster.until(lambda: cluster.api.get(path).json()["status"]["phase"] == "Running")

    cluster.api.delete(path)

    cluster.until(lambda: cluster.api.get(path).json()["status"]["phase"] == "Failed")
    [status] = cluster.api.get(path).json()["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 143
    cluster.patch(path, {"metadata": {"finalizers": None}})
    cluster.until(lambda: cluster.api.get(path).status_code == 404)


@pytest.mark.parametrize(
    "hook",
    [{"sleep": {"seconds": 2}}, {"exec": {"command": ["sh", "-c", "nginx -s quit; sleep 2"]}}],
)
def test_a_sleep_of_a_pre_stop_hook_delays_the_end(cluster: Live, hook: dict[str, Any]) -> None:
    name = "sleeps-by-" + next(iter(hook))
    container = {"name": "c", "image": "pause", "lifecycle": {"preStop": hook}}
    cluster.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container]}})
    cluster.until(lambda: cluster.api.get(f"{PODS}/{name}").json()["status"]["phase"] == "Running")

    cluster.api.delete(f"{PODS}/{name}")

    cluster.until(lambda: cluster.api.get(f"{PODS}/{name}").status_code == 404)
    whole = {
        one["kind"]: one["at"] for one in cluster.journal() if one.get("pod") == f"default/{name}"
    }
    assert whole["pod-ended"] - whole["pod-deletion"] >= 2


def test_the_grace_period_ends_a_pre_stop_hook(cluster: Live) -> None:
    container = {
        "name": "c",
        "image": "pause",
        "lifecycle": {"preStop": {"sleep": {"seconds": 90}}},
    }
    cluster.create(PODS, {"metadata": {"name": "cut"}, "spec": {"containers": [container]}})
    cluster.until(lambda: cluster.api.get(f"{PODS}/cut").json()["status"]["phase"] == "Running")

    cluster.evict("cut", gracePeriodSeconds=1)

    cluster.until(lambda: cluster.api.get(f"{PODS}/cut").status_code == 404)
    [end] = [one for one in cluster.journal("pod-ended") if one["pod"] == "default/cut"]
    assert end["how"] == "grace-period-expired"
