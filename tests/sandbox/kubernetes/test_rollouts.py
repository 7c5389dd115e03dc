"""Deployments roll over within their bounds, wait as long as they say, and give up in time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import DEPLOYMENTS, PODS, Live, deployment

_SLOW = {"sandbox.leeway.sh/starts-after": "400ms", "sandbox.leeway.sh/ends-after": "1s"}


@pytest.fixture(scope="module")
def world(live: Live) -> Live:
    """Return a cluster of three nodes."""
    live.add_nodes(1, 2, 3)
    return live


def roll(live: Live, name: str) -> None:
    """Change a Deployment's template."""
    template = {"metadata": {"annotations": {"rolled": "yes"}}}
    answer = live.patch(f"{DEPLOYMENTS}/{name}", {"spec": {"template": template}})
    assert answer.status_code == 200, answer.text


def is_rolled(live: Live, name: str) -> bool:
    """Say whether all of a Deployment's pods are new and no other exists."""
    found = live.api.get(f"{DEPLOYMENTS}/{name}").json()
    wanted: int = found["spec"]["replicas"]
    pods = live.pods(f"app={name}")
    new = [one for one in pods if "rolled" in one["metadata"].get("annotations", {})]
    available = found["status"].get("availableReplicas", 0)
    return len(pods) == len(new) == wanted == int(available)


def looks(live: Live, name: str) -> Iterator[list[dict[str, Any]]]:
    """Yield a Deployment's pods again and again until it has rolled over."""

    def look() -> bool:
        seen.append(live.pods(f"app={name}"))
        return is_rolled(live, name)

    seen: list[list[dict[str, Any]]] = []
    live.until(look)
    yield from seen


def leaving(pod: dict[str, Any]) -> bool:
    """Say whether a pod's deletion has begun."""
    return "deletionTimestamp" in pod["metadata"]


def is_ready(pod: dict[str, Any]) -> bool:
    """Say whether a pod serves."""
    conditions = pod["status"].get("conditions", ())
    return not leaving(pod) and any(
        one["type"] == "Ready" and one["status"] == "True" for one in conditions
    )


@pytest.mark.parametrize(
    ("name", "replicas", "bounds", "least", "most"),
    [
        ("usual", 8, {}, 6, 10),
        ("surging", 4, {"maxSurge": 1, "maxUnavailable": 0}, 4, 5),
        ("in-place", 4, {"maxSurge": 0, "maxUnavailable": 1}, 3, 4),
        ("rounded", 3, {"maxSurge": "25%", "maxUnavailable": "50%"}, 2, 4),
    ],
)
def test_a_rolling_update_keeps_its_bounds(
    world: Live, name: str, replicas: int, bounds: dict[str, Any], least: int, most: int
) -> None:
    body = deployment(name, replicas, annotations=_SLOW)
    body["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": bounds}
    world.create(DEPLOYMENTS, body)
    world.until(lambda: len(world.running(f"app={name}")) == replicas)

    roll(world, name)

    seen = list(looks(world, name))
    assert min(sum(map(is_ready, pods)) for pods in seen) >= least
    assert max(sum(not leaving(one) for one in pods) for pods in seen) <= most


def test_recreate_starts_new_pods_only_when_the_old_ones_have_ended(world: Live) -> None:
    body = deployment("one-at-a-time", 3, annotations=_SLOW)
    body["spec"]["strategy"] = {"type": "Recreate"}
    world.create(DEPLOYMENTS, body)
    world.until(lambda: len(world.running("app=one-at-a-time")) == 3)

    roll(world, "one-at-a-time")

    seen = [
        ["rolled" in one["metadata"].get("annotations", {}) for one in pods]
        for pods in looks(world, "one-at-a-time")
    ]
    assert any(seen), "some pods were seen"
    for new in seen:
        assert all(new) or not any(new)


def test_a_pod_is_available_after_min_ready_seconds(world: Live) -> None:
    body = deployment("patient", 2)
    body["spec"]["minReadySeconds"] = 3
    world.create(DEPLOYMENTS, body)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = world.api.get(f"{DEPLOYMENTS}/patient").json()["status"]
        return found

    world.until(lambda: status().get("readyReplicas") == 2)
    early = status()
    assert "availableReplicas" not in early
    assert early["unavailableReplicas"] == 2
    assert conditions(early)["Available"]["status"] == "False"

    world.until(lambda: status().get("availableReplicas") == 2)
    later = status()
    assert conditions(later)["Available"]["status"] == "True"
    assert conditions(later)["Progressing"]["reason"] == "NewReplicaSetAvailable"


def test_a_rollout_that_makes_no_progress_exceeds_its_deadline(world: Live) -> None:
    body = deployment("stuck", 1, spec={"nodeSelector": {"kubernetes.io/hostname": "nowhere"}})
    body["spec"]["progressDeadlineSeconds"] = 1
    world.create(DEPLOYMENTS, body)

    def progress() -> dict[str, Any]:
        status = world.api.get(f"{DEPLOYMENTS}/stuck").json()["status"]
        return conditions(status).get("Progressing", {})

    world.until(lambda: progress().get("status") == "False")

    found = progress()
    assert found["reason"] == "ProgressDeadlineExceeded"
    assert found["message"].endswith("has timed out progressing.")
    # A pod that becomes Ready is progress.
    [name] = {one["metadata"]["name"] for one in world.pods("app=stuck")}
    target = {"apiVersion": "v1", "kind": "Node", "name": "ip-10-0-0-1.ec2.internal"}
    world.api.post(f"{PODS}/{name}/binding", json={"target": target}).raise_for_status()
    world.until(lambda: progress()["reason"] == "NewReplicaSetAvailable")


def test_a_paused_deployment_is_scaled_and_not_rolled(world: Live) -> None:
    world.deploy("paused", 2)
    world.patch(f"{DEPLOYMENTS}/paused", {"spec": {"paused": True}})
    roll(world, "paused")

    def reason() -> str:
        status = world.api.get(f"{DEPLOYMENTS}/paused").json()["status"]
        return str(conditions(status)["Progressing"]["reason"])

    world.until(lambda: reason() == "DeploymentPaused")
    world.patch(f"{DEPLOYMENTS}/paused", {"spec": {"replicas": 3}})
    world.until(lambda: len(world.running("app=paused")) == 3)
    pods = world.pods("app=paused")
    assert not any("rolled" in one["metadata"].get("annotations", {}) for one in pods)

    world.patch(f"{DEPLOYMENTS}/paused", {"spec": {"paused": None}})
    world.until(lambda: is_rolled(world, "paused"))


def conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a status's conditions by their types."""
    return {one["type"]: one for one in status.get("conditions", ())}
