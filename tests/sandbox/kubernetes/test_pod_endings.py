"""How pods end: the exit code, preStop hooks and the grace period."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod


@pytest.fixture(scope="module")
def world(live: Live) -> Live:
    """Return a cluster of two nodes."""
    live.add_nodes(1, 2)
    return live


def test_a_deleted_pod_has_ended_before_it_goes(world: Live) -> None:
    pod = bare_pod("held", restartPolicy="Never")
    pod["metadata"] |= {
        "finalizers": ["example.com/wait"],
        "annotations": {"sandbox.leeway.sh/runs-for": "1h"},
    }
    world.create(PODS, pod)
    path = f"{PODS}/held"
    world.until(lambda: world.api.get(path).json()["status"]["phase"] == "Running")

    world.api.delete(path)

    world.until(lambda: world.api.get(path).json()["status"]["phase"] == "Failed")
    [status] = world.api.get(path).json()["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 143
    world.patch(path, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    "hook",
    [{"sleep": {"seconds": 2}}, {"exec": {"command": ["sh", "-c", "nginx -s quit; sleep 2"]}}],
)
def test_a_pre_stop_hook_that_sleeps_takes_its_time(world: Live, hook: dict[str, Any]) -> None:
    name = "sleeps-by-" + next(iter(hook))
    container = {"name": "c", "image": "pause", "lifecycle": {"preStop": hook}}
    world.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container]}})
    world.until(lambda: world.api.get(f"{PODS}/{name}").json()["status"]["phase"] == "Running")

    world.api.delete(f"{PODS}/{name}")

    world.until(lambda: world.api.get(f"{PODS}/{name}").status_code == 404)
    whole = {
        one["kind"]: one["at"] for one in world.journal() if one.get("pod") == f"default/{name}"
    }
    assert whole["pod-ended"] - whole["pod-deletion"] >= 2


def test_a_pre_stop_hook_is_cut_by_the_grace(world: Live) -> None:
    container = {
        "name": "c",
        "image": "pause",
        "lifecycle": {"preStop": {"sleep": {"seconds": 90}}},
    }
    world.create(PODS, {"metadata": {"name": "cut"}, "spec": {"containers": [container]}})
    world.until(lambda: world.api.get(f"{PODS}/cut").json()["status"]["phase"] == "Running")

    world.evict("cut", gracePeriodSeconds=1)

    world.until(lambda: world.api.get(f"{PODS}/cut").status_code == 404)
    [end] = [one for one in world.journal("pod-ended") if one["pod"] == "default/cut"]
    assert end["how"] == "grace-period-expired"
