"""Rollouts of Deployments: bounds and minReadySeconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import DEPLOYMENTS, Live, deployment

_SLOW = {"sandbox.leeway.sh/starts-after": "400ms", "sandbox.leeway.sh/ends-after": "1s"}


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return a cluster of three nodes."""
    live.add_nodes(1, 2, 3)
    return live


def roll(live: Live, name: str) -> None:
    """Change a Deployment's template."""
    template = {"metadata": {"annotations": {"rolled": "yes"}}}
    answer = live.patch(f"{DEPLOYMENTS}/{name}", {"spec": {"template": template}})
    assert answer.status_code == 200, answer.text


def is_rolled(live: Live, name: str) -> bool:
    """Whether all pods of a Deployment are new and no old pod exists."""
    found = live.api.get(f"{DEPLOYMENTS}/{name}").json()
    wanted: int = found["spec"]["replicas"]
    pods = live.pods(f"app={name}")
    new = [one for one in pods if "rolled" in one["metadata"].get("annotations", {})]
    available = found["status"].get("availableReplicas", 0)
    return len(pods) == len(new) == wanted == int(available)


def looks(live: Live, name: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the pods of a Deployment repeatedly until its rollout is complete."""

    def look() -> bool:
        seen.append(live.pods(f"app={name}"))
        return is_rolled(live, name)

    seen: list[list[dict[str, Any]]] = []
    live.until(look)
    yield from seen


def leaving(pod: dict[str, Any]) -> bool:
    """Whether a pod is terminating."""
    return "deletionTimestamp" in pod["metadata"]


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod is Ready."""
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
    cluster: Live, name: str, replicas: int, bounds: dict[str, Any], least: int, most: int
) -> None:
    body = deployment(name, replicas, annotations=_SLOW)
    body["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": bounds}
    cluster.create(DEPLOYMENTS, body)
    cluster.until(lambda: len(cluster.running(f"app={name}")) == replicas)

    roll(cluster, name)

    seen = list(looks(cluster, name))
    assert min(sum(map(is_ready, pods)) for pods in seen) >= least
    assert max(sum(not leaving(one) for one in pods) for pods in seen) <= most


def test_recreate_starts_new_pods_only_when_the_old_ones_have_ended(cluster: Live) -> None:
    body = deployment("one-at-a-time", 3, annotations=_SLOW)
    body["spec"]["strategy"] = {"type": "Recreate"}
    cluster.create(DEPLOYMENTS, body)
    cluster.until(lambda: len(cluster.running("app=one-at-a-time")) == 3)

    roll(cluster, "one-at-a-time")

    seen = [
        ["rolled" in one["metadata"].get("annotations", {}) for one in pods]
        for pods in looks(cluster, "one-at-a-time")
    ]
    assert any(seen), "some pods were seen"
    for new in seen:
        assert all(new) or not any(new)


def test_a_pod_is_available_after_min_ready_seconds(cluster: Live) -> None:
    body = deployment("patient", 2)
    body["spec"]["minReadySeconds"] = 3
    cluster.create(DEPLOYMENTS, body)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = cluster.api.get(f"{DEPLOYMENTS}/patient").json()["status"]
        return found

    cluster.until(lambda: status().get("readyReplicas") == 2)
    early = status()
    assert "availableReplicas" not in early
    assert early["unavailableReplicas"] == 2
    assert conditions(early)["Available"]["status"] == "False"

    cluster.until(lambda: status().get("availableReplicas") == 2)
    later = status()
    assert conditions(later)["Available"]["status"] == "True"
    assert conditions(later)["Progressing"]["reason"] == "NewReplicaSetAvailable"


def conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the conditions of a status by type."""
    return {one["type"]: one for one in status.get("conditions", ())}
