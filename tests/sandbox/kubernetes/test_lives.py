"""The lives of pods, nodes and volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod, running_cluster


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return a cluster of three nodes."""
    live.add_nodes(1, 2, 3)
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


_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_ZONE = "topology.kubernetes.io/zone"
_ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


def ends(live: Live, uid: str) -> list[dict[str, Any]]:
    """Return the journal entries of a pod's end."""
    return [one for one in live.journal("pod-ended") if one["uid"] == uid]


def test_a_second_delete_can_shorten_the_grace_period(cluster: Live) -> None:
    slow = {"sandbox.leeway.sh/ends-after": "1h"}
    [pod] = cluster.deploy("cut", 1, annotations=slow)
    path = f"{PODS}/{pod['metadata']['name']}"

    first = cluster.api.delete(path).json()
    longer = cluster.api.delete(path, params={"gracePeriodSeconds": "60"}).json()
    shorter = cluster.api.delete(path, params={"gracePeriodSeconds": "1"}).json()

    graces = [one["metadata"]["deletionGracePeriodSeconds"] for one in (first, longer, shorter)]
    assert graces == [30, 30, 1]
    cluster.until(lambda: ends(cluster, pod["metadata"]["uid"]))


def test_pods_end_with_their_instance_and_are_replaced_on_other_nodes(cluster: Live) -> None:
    [name] = cluster.add_nodes(9)
    spec = {"nodeSelector": {"kubernetes.io/hostname": name}}
    [doomed] = cluster.deploy("doomed", 1, spec=spec)

    cluster.report(f"i-{8:017x}", "terminated")

    cluster.until(lambda: cluster.api.get(f"/api/v1/nodes/{name}").status_code == 404)
    [end] = ends(cluster, doomed["metadata"]["uid"])
    assert end["how"] == "died-with-node"
    [gone] = [one for one in cluster.journal("node-deleted") if one["node"] == name]
    assert gone["instance"] == f"i-{8:017x}"
    [successor] = cluster.until(lambda: cluster.pods("app=doomed"))
    assert successor["metadata"]["uid"] != doomed["metadata"]["uid"]
    assert "nodeName" not in successor["spec"]


def test_a_stopped_instance_keeps_its_node_and_runs_its_pods_again(cluster: Live) -> None:
    [name] = cluster.add_nodes(14)
    spec = {"nodeSelector": {"kubernetes.io/hostname": name}}
    [pod] = cluster.deploy("sleeper", 1, spec=spec)

    cluster.report(f"i-{13:017x}", "stopped")

    def taints() -> set[str]:
        node = cluster.api.get(f"/api/v1/nodes/{name}").json()
        return {taint["key"] for taint in node["spec"].get("taints", ())}

    cluster.until(lambda: "node.cloudprovider.kubernetes.io/shutdown" in taints())
    assert not cluster.is_ready(name)
    cluster.report(f"i-{13:017x}", "running", node={"metadata": {"name": name}}, join=0)
    cluster.until(lambda: cluster.is_ready(name))
    assert not taints()
    [same] = cluster.pods("app=sleeper")
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    starts = {"kind": "pod-running", "uid": pod["metadata"]["uid"]}
    cluster.until(lambda: len([e for e in cluster.journal() if starts.items() <= e.items()]) == 2)


def test_only_the_initial_nodes_join_at_once(tmp_path: Path) -> None:
    with running_cluster(tmp_path, "--initial-nodes", "2", "--node-join", "3600") as live:
        for name in ("first", "second", "third"):
            live.report(f"i-{name}", "running", node={"metadata": {"name": name}})
        live.until(lambda: live.is_ready("first") and live.is_ready("second"))
        joined = [one["node"] for one in live.journal("node-joined")]
    assert sorted(joined) == ["first", "second"]


def test_a_cordon_sets_a_taint_and_an_uncordon_removes_it(cluster: Live) -> None:
    path = "/api/v1/nodes/ip-10-0-0-2.ec2.internal"

    def taints() -> list[str]:
        return [one["key"] for one in cluster.api.get(path).json()["spec"].get("taints", ())]

    cluster.patch(path, {"spec": {"unschedulable": True}})
    cluster.until(lambda: "node.kubernetes.io/unschedulable" in taints())
    cluster.patch(path, {"spec": {"unschedulable": None}})
    assert cluster.until(lambda: not taints())


def test_a_node_that_becomes_ready_loses_the_taint_of_one_that_is_not(cluster: Live) -> None:
    """Source: Kubernetes, the controller nodelifecycle: it keeps this taint as the condition."""
    path = "/api/v1/nodes/registered"
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    other = {"key": "team", "effect": "NoSchedule"}
    node = {"metadata": {"name": "registered"}, "spec": {"taints": [taint, other]}}
    cluster.create("/api/v1/nodes", node)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    cluster.patch(f"{path}/status", {"status": {"conditions": [ready]}})
    cluster.until(lambda: cluster.api.get(path).json()["spec"]["taints"] == [other])
    cluster.api.delete(path)


def test_a_daemon_pod_runs_on_every_node_and_tolerates_a_cordon(cluster: Live) -> None:
    [tainted] = cluster.add_nodes(6)
    taint = {"key": "team", "value": "gpu", "effect": "NoSchedule"}
    cluster.patch(f"/api/v1/nodes/{tainted}", {"spec": {"taints": [taint]}})
    cluster.patch("/api/v1/nodes/ip-10-0-0-1.ec2.internal", {"spec": {"unschedulable": True}})
    template = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "c", "image": "pause"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    daemons = "/apis/apps/v1/namespaces/default/daemonsets"
    cluster.create(daemons, {"metadata": {"name": "agent"}, "spec": spec})

    nodes = cluster.api.get("/api/v1/nodes").json()["items"]
    expected = {
        one["metadata"]["name"] for one in nodes if cluster.is_ready(one["metadata"]["name"])
    }
    expected -= {tainted}

    cluster.until(
        lambda: {one["spec"]["nodeName"] for one in cluster.running("app=agent")} == expected
    )
    [pod] = [
        one
        for one in cluster.running("app=agent")
        if one["spec"]["nodeName"] == "ip-10-0-0-1.ec2.internal"
    ]
    cluster.evict(pod["metadata"]["name"])
    cluster.until(lambda: ends(cluster, pod["metadata"]["uid"]))
    cluster.until(
        lambda: {one["spec"]["nodeName"] for one in cluster.running("app=agent")} == expected
    )
    cluster.patch("/api/v1/nodes/ip-10-0-0-1.ec2.internal", {"spec": {"unschedulable": None}})


def test_a_stateful_pod_waits_until_its_volume_is_detached(cluster: Live) -> None:
    template = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "c", "image": "pause"}]},
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    spec = {
        "replicas": 2,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": template,
        "volumeClaimTemplates": [claim],
    }
    sets = "/apis/apps/v1/namespaces/default/statefulsets"
    cluster.create(sets, {"metadata": {"name": "db"}, "spec": spec})
    cluster.add_nodes(11, 12, 13)  # one more in each zone, because a volume stays in its zone
    cluster.until(lambda: len(cluster.running("app=db")) == 2)
    first, _ = cluster.running("app=db")
    cluster.patch(f"/api/v1/nodes/{first['spec']['nodeName']}", {"spec": {"unschedulable": True}})

    cluster.evict("db-0")
    moved = cluster.until(
        lambda: [
            one
            for one in cluster.running("app=db")
            if one["metadata"]["name"] == "db-0"
            and one["metadata"]["uid"] != first["metadata"]["uid"]
        ]
    )

    cluster.patch(f"/api/v1/nodes/{first['spec']['nodeName']}", {"spec": {"unschedulable": None}})
    volume = cluster.api.get(f"{_CLAIMS}/data-db-0").json()["spec"]["volumeName"]
    [attachment] = [
        one
        for one in cluster.api.get(_ATTACHMENTS).json()["items"]
        if one["spec"]["source"]["persistentVolumeName"] == volume
    ]
    assert attachment["spec"]["nodeName"] == moved[0]["spec"]["nodeName"]
    assert attachment["status"]["attached"] is True
    zones = {
        cluster.api.get(f"/api/v1/nodes/{one['spec']['nodeName']}").json()["metadata"]["labels"][
            _ZONE
        ]
        for one in (first, moved[0])
    }
    assert len(zones) == 1


def test_deleting_an_owner_deletes_its_dependents(cluster: Live) -> None:
    cluster.deploy("owner", 2)

    cluster.api.delete("/apis/apps/v1/namespaces/default/deployments/owner")

    cluster.until(lambda: not cluster.pods("app=owner"))
    sets = cluster.api.get("/apis/apps/v1/replicasets", params={"labelSelector": "app=owner"})
    assert sets.json()["items"] == []


def test_a_kubelet_whose_node_was_deleted_still_ends_its_pods(tmp_path: Path) -> None:
    with running_cluster(tmp_path, "--pod-quarantine", "600") as cluster:
        [name] = cluster.add_nodes(11)
        pod = bare_pod("outlives-its-node", nodeName=name, terminationGracePeriodSeconds=5)
        cluster.create(PODS, pod)
        path = f"{PODS}/outlives-its-node"
        cluster.until(lambda: cluster.api.get(path).json()["status"]["phase"] == "Running")
        uid = cluster.api.get(path).json()["metadata"]["uid"]

        cluster.api.delete(f"/api/v1/nodes/{name}")
        assert cluster.api.get(path).status_code == 200
        assert cluster.evict("outlives-its-node").status_code == 201

        cluster.until(lambda: cluster.api.get(path).status_code == 404)
        [end] = ends(cluster, uid)
        assert end["how"] == "graceful"


def test_an_ended_pod_with_a_finalizer_does_not_end_again_with_its_node(cluster: Live) -> None:
    [name] = cluster.add_nodes(12)
    pod = bare_pod("kept-on", nodeName=name)
    pod["metadata"]["finalizers"] = ["example.com/never"]
    uid = cluster.create(PODS, pod)["metadata"]["uid"]
    path = f"{PODS}/kept-on"
    cluster.until(lambda: cluster.api.get(path).json()["status"]["phase"] == "Running")
    cluster.evict("kept-on")
    cluster.until(lambda: ends(cluster, uid))

    cluster.report(f"i-{11:017x}", "terminated")

    cluster.until(lambda: cluster.api.get(f"/api/v1/nodes/{name}").status_code == 404)
    assert [end["how"] for end in ends(cluster, uid)] == ["graceful"]


def test_a_node_offers_its_devices_when_it_is_ready_and_the_device_plugin_runs(
    cluster: Live,
) -> None:
    cluster.fail_with({"noDevices": True})
    name, instance = "ip-10-0-9-9.ec2.internal", f"i-{99:017x}"
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "20", "nvidia.com/gpu": "1"}
    node = {"metadata": {"name": name}, "status": {"capacity": amounts}}
    cluster.report(instance, "running", node=node, join=0)
    cluster.until(lambda: cluster.is_ready(name))

    def offered() -> bool:
        status = cluster.api.get(f"/api/v1/nodes/{name}").json()["status"]
        return all(status[one].get("nvidia.com/gpu") == "1" for one in ("capacity", "allocatable"))

    assert not offered()
    cluster.fail_with()
    cluster.until(offered)
    [entry] = [one for one in cluster.journal("node-devices") if one["node"] == name]
    assert entry["devices"] == {"nvidia.com/gpu": "1"}
    cluster.report(instance, "terminated")


def test_an_instance_with_the_address_of_an_ended_one_gets_a_node_of_its_own(cluster: Live) -> None:
    (name,) = cluster.add_nodes(31)
    cluster.report(f"i-{30:017x}", "terminated")
    provider = f"aws:///us-east-1a/i-{99:017x}"
    node = {"metadata": {"name": name}, "spec": {"providerID": provider}}

    cluster.report(f"i-{99:017x}", "running", node=node, join=0)

    def is_its_own() -> bool:
        found = cluster.api.get(f"/api/v1/nodes/{name}").json()
        return found.get("spec", {}).get("providerID") == provider and cluster.is_ready(name)

    cluster.until(is_its_own)
    joined = [one["instance"] for one in cluster.journal("node-joined") if one["node"] == name]
    assert joined == [f"i-{30:017x}", f"i-{99:017x}"]
