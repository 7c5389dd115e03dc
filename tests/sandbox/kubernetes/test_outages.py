"""Nodes whose kubelet is dead: what goes with them, what waits, and what frees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import PODS, Live, running_cluster

_ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_UNREACHABLE = "node.kubernetes.io/unreachable"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Return a cluster of two nodes in which nobody clears away nodes without an instance."""
    folder = tmp_path_factory.mktemp("outages")
    flags = ("--node-removal", "600")
    with running_cluster(folder, *flags) as live:
        live.add_nodes(1, 2)
        yield live


def doomed(live: Live, number: int, **spec: Any) -> tuple[str, dict[str, Any]]:
    """Add a node, put a Deployment's pod on it, and let its instance die; the node and the pod."""
    [node] = live.add_nodes(number)
    prefer = {"nodeSelector": {"kubernetes.io/hostname": node}}
    [pod] = live.deploy(f"doomed-{number}", 1, spec={**prefer, **spec})
    live.report(f"i-{number - 1:017x}", "terminated")
    live.until(lambda: not live.is_ready(node))
    return node, pod


def seen(live: Live, pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as it is now; empty when it is gone."""
    path = f"{PODS}/{pod['metadata']['name']}"
    response = live.api.get(path)
    found: dict[str, Any] = response.json() if response.status_code == 200 else {}
    return found


def test_pods_of_an_unreachable_node_leave_when_they_tolerate_it_no_longer_and_never_end(
    world: Live,
) -> None:
    brief = {"key": _UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    node, pod = doomed(world, 3, tolerations=[{**brief, "tolerationSeconds": 1}])

    taints = world.api.get(f"/api/v1/nodes/{node}").json()["spec"]["taints"]
    world.until(lambda: "deletionTimestamp" in seen(world, pod)["metadata"])
    successor = world.until(
        lambda: [one for one in world.pods("app=doomed-3") if one["metadata"]["uid"] != uid_of(pod)]
    )

    assert {one["effect"] for one in taints if one["key"] == _UNREACHABLE} == {
        "NoSchedule",
        "NoExecute",
    }
    target = next(
        one for one in seen(world, pod)["status"]["conditions"] if one["type"] == "DisruptionTarget"
    )
    assert target["reason"] == "DeletionByTaintManager"
    assert "nodeName" not in successor[0]["spec"]


def uid_of(obj: dict[str, Any]) -> str:
    """Return an object's UID."""
    uid: str = obj["metadata"]["uid"]
    return uid


def test_a_pod_that_nobody_will_end_goes_by_a_deletion_without_grace(world: Live) -> None:
    _, pod = doomed(world, 4)
    path = f"{PODS}/{pod['metadata']['name']}"

    asked = world.api.delete(path)
    lingers = seen(world, pod)
    forced = world.api.delete(path, params={"gracePeriodSeconds": "0"})

    assert (asked.status_code, forced.status_code) == (200, 200)
    assert lingers["metadata"]["deletionGracePeriodSeconds"] == 30
    assert seen(world, pod) == {}


def test_a_node_is_deleted_by_its_uid_only_and_takes_its_pods_along(world: Live) -> None:
    node, pod = doomed(world, 5)
    path = f"/api/v1/nodes/{node}"
    right = world.api.get(path).json()["metadata"]["uid"]

    refused = world.api.request("DELETE", path, json={"preconditions": {"uid": "another"}})
    deleted = world.api.request("DELETE", path, json={"preconditions": {"uid": right}})

    assert (refused.status_code, refused.json()["reason"]) == (409, "Conflict")
    assert deleted.json()["details"]["uid"] == right
    world.until(lambda: seen(world, pod) == {})


def test_a_vouched_for_death_frees_the_volume_at_once_and_a_watch_tells(world: Live) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    world.create(_CLAIMS, {"metadata": {"name": "kept"}, "spec": claim})
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "kept"}}
    node, pod = doomed(world, 6, volumes=[volume])
    listed = world.api.get(_ATTACHMENTS).json()
    attached = [one["spec"]["nodeName"] for one in listed["items"]]

    taint = {"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"}
    kept = world.api.get(f"/api/v1/nodes/{node}").json()["spec"]["taints"]
    world.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [*kept, taint]}})
    world.until(lambda: seen(world, pod) == {})

    version = listed["metadata"]["resourceVersion"]
    params = {"watch": "1", "timeoutSeconds": "1", "resourceVersion": version}
    with world.api.stream("GET", _ATTACHMENTS, params=params) as response:
        told = [json.loads(line) for line in response.iter_lines()]
    assert attached == [node]
    assert "DELETED" in [one["type"] for one in told]
    assert world.api.get(_ATTACHMENTS).json()["items"] == []


def test_an_instance_that_runs_again_under_its_nodes_name_is_a_new_node(world: Live) -> None:
    node, _ = doomed(world, 7)
    before = uid_of(world.api.get(f"/api/v1/nodes/{node}").json())
    world.api.delete(f"/api/v1/nodes/{node}")

    world.add_nodes(7)

    assert uid_of(world.api.get(f"/api/v1/nodes/{node}").json()) != before
    assert world.is_ready(node)


def test_a_pod_bound_to_a_node_that_is_not_there_never_starts(world: Live) -> None:
    spec = {"containers": [{"name": "c", "image": "pause"}], "nodeName": "nowhere"}
    lost = world.create(PODS, {"metadata": {"name": "lost"}, "spec": spec})
    started = world.create(
        PODS, {"metadata": {"name": "found"}, "spec": {**spec, "nodeName": None}}
    )

    world.until(lambda: seen(world, started)["status"]["phase"] == "Running")

    assert seen(world, lost)["status"]["phase"] == "Pending"
