"""Nodes with a dead kubelet: their pods and volumes, and the out-of-service taint."""

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
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Return a cluster of two nodes that keeps Nodes without an instance."""
    folder = tmp_path_factory.mktemp("outages")
    flags = ("--node-removal", "600")
    with running_cluster(folder, *flags) as live:
        live.add_nodes(1, 2)
        yield live


def doomed(live: Live, number: int, **spec: Any) -> tuple[str, dict[str, Any]]:
    """Add a node with a pod, terminate its instance; return the node and the pod."""
    [node] = live.add_nodes(number)
    prefer = {"nodeSelector": {"kubernetes.io/hostname": node}}
    [pod] = live.deploy(f"doomed-{number}", 1, spec={**prefer, **spec})
    live.report(f"i-{number - 1:017x}", "terminated")
    live.until(lambda: not live.is_ready(node))
    return node, pod


def seen(live: Live, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the present pod; empty if it is deleted."""
    path = f"{PODS}/{pod['metadata']['name']}"
    response = live.api.get(path)
    found: dict[str, Any] = response.json() if response.status_code == 200 else {}
    return found


def test_pods_of_an_unreachable_node_are_terminating_after_their_toleration_and_never_end(
    cluster: Live,
) -> None:
    brief = {"key": _UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    node, pod = doomed(cluster, 3, tolerations=[{**brief, "tolerationSeconds": 1}])

    taints = cluster.api.get(f"/api/v1/nodes/{node}").json()["spec"]["taints"]
    cluster.until(lambda: "deletionTimestamp" in seen(cluster, pod)["metadata"])
    successor = cluster.until(
        lambda: [
            one for one in cluster.pods("app=doomed-3") if one["metadata"]["uid"] != uid_of(pod)
        ]
    )

    assert {one["effect"] for one in taints if one["key"] == _UNREACHABLE} == {
        "NoSchedule",
        "NoExecute",
    }
    target = next(
        one
        for one in seen(cluster, pod)["status"]["conditions"]
        if one["type"] == "DisruptionTarget"
    )
    assert target["reason"] == "DeletionByTaintManager"
    assert "nodeName" not in successor[0]["spec"]


def uid_of(obj: dict[str, Any]) -> str:
    """Return the UID of an object."""
    uid: str = obj["metadata"]["uid"]
    return uid


def test_a_pod_without_a_kubelet_is_deleted_by_a_zero_grace_period(cluster: Live) -> None:
    _, pod = doomed(cluster, 4)
    path = f"{PODS}/{pod['metadata']['name']}"

    asked = cluster.api.delete(path)
    lingers = seen(cluster, pod)
    forced = cluster.api.delete(path, params={"gracePeriodSeconds": "0"})

    assert (asked.status_code, forced.status_code) == (200, 200)
    assert lingers["metadata"]["deletionGracePeriodSeconds"] == 30
    assert seen(cluster, pod) == {}


def test_a_node_is_deleted_only_with_its_uid_and_its_pods_are_deleted(cluster: Live) -> None:
    node, pod = doomed(cluster, 5)
    path = f"/api/v1/nodes/{node}"
    right = cluster.api.get(path).json()["metadata"]["uid"]

    refused = cluster.api.request("DELETE", path, json={"preconditions": {"uid": "another"}})
    deleted = cluster.api.request("DELETE", path, json={"preconditions": {"uid": right}})

    assert (refused.status_code, refused.json()["reason"]) == (409, "Conflict")
    assert deleted.json()["details"]["uid"] == right
    cluster.until(lambda: seen(cluster, pod) == {})


def test_the_out_of_service_taint_detaches_the_volume_and_a_watch_reports_it(cluster: Live) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.create(_CLAIMS, {"metadata": {"name": "kept"}, "spec": claim})
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "kept"}}
    node, pod = doomed(cluster, 6, volumes=[volume])
    listed = cluster.api.get(_ATTACHMENTS).json()
    attached = [one["spec"]["nodeName"] for one in listed["items"]]

    taint = {"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"}
    kept = cluster.api.get(f"/api/v1/nodes/{node}").json()["spec"]["taints"]
    cluster.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [*kept, taint]}})
    cluster.until(lambda: seen(cluster, pod) == {})

    version = listed["metadata"]["resourceVersion"]
    params = {"watch": "1", "timeoutSeconds": "1", "resourceVersion": version}
    with cluster.api.stream("GET", _ATTACHMENTS, params=params) as response:
        text = [json.loads(line) for line in response.iter_lines()]
    assert attached == [node]
    assert "DELETED" in [one["type"] for one in text]
    assert cluster.api.get(_ATTACHMENTS).json()["items"] == []


def test_an_instance_that_runs_again_with_its_node_name_gets_a_new_node(cluster: Live) -> None:
    node, _ = doomed(cluster, 7)
    before = uid_of(cluster.api.get(f"/api/v1/nodes/{node}").json())
    cluster.api.delete(f"/api/v1/nodes/{node}")

    cluster.add_nodes(7)

    assert uid_of(cluster.api.get(f"/api/v1/nodes/{node}").json()) != before
    assert cluster.is_ready(node)


def test_a_pod_bound_to_a_missing_node_never_starts(cluster: Live) -> None:
    spec = {"containers": [{"name": "c", "image": "pause"}], "nodeName": "nowhere"}
    lost = cluster.create(PODS, {"metadata": {"name": "lost"}, "spec": spec})
    started = cluster.create(
        PODS, {"metadata": {"name": "found"}, "spec": {**spec, "nodeName": None}}
    )

    cluster.until(lambda: seen(cluster, started)["status"]["phase"] == "Running")

    ran = {one["uid"] for one in cluster.journal("pod-running")}
    assert started["metadata"]["uid"] in ran
    assert lost["metadata"]["uid"] not in ran
