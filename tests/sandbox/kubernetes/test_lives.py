"""Pods, nodes and volumes live: they start, move, end by the book, or die with their instance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod, running_cluster

_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_ZONE = "topology.kubernetes.io/zone"
_ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


@pytest.fixture(scope="module")
def world(live: Live) -> Live:
    """Return a cluster of three nodes."""
    live.add_nodes(1, 2, 3)
    return live


def ends(live: Live, uid: str) -> list[dict[str, Any]]:
    """Return what the journal says of a pod's end."""
    return [one for one in live.journal("pod-ended") if one["uid"] == uid]


def test_an_evicted_pod_comes_back_on_a_node_that_takes_it(world: Live) -> None:
    [pod] = world.deploy("mover", 1)
    node = pod["spec"]["nodeName"]
    world.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    world.evict(pod["metadata"]["name"])
    world.until(lambda: ends(world, pod["metadata"]["uid"]))
    [successor] = world.until(lambda: world.running("app=mover"))

    world.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
    assert successor["spec"]["nodeName"] != node
    [end] = ends(world, pod["metadata"]["uid"])
    assert end["how"] == "graceful"
    assert end["owner"] == "Deployment/default/mover"
    [deletion] = [
        one for one in world.journal("pod-deletion") if one["uid"] == pod["metadata"]["uid"]
    ]
    assert (deletion["via"], deletion["grace"]) == ("eviction", 30)


def test_a_pod_that_takes_longer_than_its_grace_is_killed(world: Live) -> None:
    slow = {"sandbox.leeway.sh/ends-after": "1h"}
    [pod] = world.deploy("slow", 1, annotations=slow)

    world.evict(pod["metadata"]["name"], gracePeriodSeconds=1)

    [end] = world.until(lambda: ends(world, pod["metadata"]["uid"]))
    assert end["how"] == "grace-period-expired"


def test_a_second_delete_may_cut_the_grace(world: Live) -> None:
    slow = {"sandbox.leeway.sh/ends-after": "1h"}
    [pod] = world.deploy("cut", 1, annotations=slow)
    path = f"{PODS}/{pod['metadata']['name']}"

    first = world.api.delete(path).json()
    longer = world.api.delete(path, params={"gracePeriodSeconds": "60"}).json()
    shorter = world.api.delete(path, params={"gracePeriodSeconds": "1"}).json()

    graces = [one["metadata"]["deletionGracePeriodSeconds"] for one in (first, longer, shorter)]
    assert graces == [30, 30, 1]
    world.until(lambda: ends(world, pod["metadata"]["uid"]))


def test_a_pod_with_a_finalizer_stays_until_it_is_taken_off(world: Live) -> None:
    pod = bare_pod("held")
    pod["metadata"]["finalizers"] = ["example.com/wait"]
    uid = world.create(PODS, pod)["metadata"]["uid"]
    world.until(lambda: world.api.get(f"{PODS}/held").json()["status"]["phase"] == "Running")

    world.api.delete(f"{PODS}/held")
    world.until(lambda: ends(world, uid))
    still_there = world.api.get(f"{PODS}/held")
    world.patch(f"{PODS}/held", {"metadata": {"finalizers": None}})

    assert still_there.status_code == 200
    world.until(lambda: world.api.get(f"{PODS}/held").status_code == 404)


def test_a_delete_with_another_uid_is_refused(world: Live) -> None:
    world.create(PODS, bare_pod("precious"))
    options = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}

    refused = world.api.request("DELETE", f"{PODS}/precious", json=options)

    assert refused.status_code == 409
    assert refused.json()["reason"] == "Conflict"


def test_pods_die_with_their_instance_and_come_back_elsewhere(world: Live) -> None:
    [name] = world.add_nodes(9)
    spec = {"nodeSelector": {"kubernetes.io/hostname": name}}
    [doomed] = world.deploy("doomed", 1, spec=spec)

    world.report(f"i-{8:017x}", "terminated")

    world.until(lambda: world.api.get(f"/api/v1/nodes/{name}").status_code == 404)
    [end] = ends(world, doomed["metadata"]["uid"])
    assert end["how"] == "died-with-node"
    [gone] = [one for one in world.journal("node-deleted") if one["node"] == name]
    assert gone["instance"] == f"i-{8:017x}"
    [successor] = world.until(lambda: world.pods("app=doomed"))
    assert successor["metadata"]["uid"] != doomed["metadata"]["uid"]
    assert "nodeName" not in successor["spec"]


def test_a_dead_node_is_seen_as_unknown_and_unreachable_first(world: Live) -> None:
    [name] = world.add_nodes(8)

    world.report(f"i-{7:017x}", "terminated")

    def unreachable() -> bool:
        node = world.api.get(f"/api/v1/nodes/{name}").json()
        taints = [taint["key"] for taint in node["spec"].get("taints", ())]
        return "node.kubernetes.io/unreachable" in taints

    world.until(unreachable)
    assert not world.is_ready(name)


def test_a_stopped_instance_keeps_its_node_and_comes_back_with_its_pods(world: Live) -> None:
    [name] = world.add_nodes(14)
    spec = {"nodeSelector": {"kubernetes.io/hostname": name}}
    [pod] = world.deploy("sleeper", 1, spec=spec)

    world.report(f"i-{13:017x}", "stopped")

    def taints() -> set[str]:
        node = world.api.get(f"/api/v1/nodes/{name}").json()
        return {taint["key"] for taint in node["spec"].get("taints", ())}

    world.until(lambda: "node.cloudprovider.kubernetes.io/shutdown" in taints())
    assert not world.is_ready(name)
    world.report(f"i-{13:017x}", "running", node={"metadata": {"name": name}}, join=0)
    world.until(lambda: world.is_ready(name))
    assert not taints()
    [same] = world.pods("app=sleeper")
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    starts = {"kind": "pod-running", "uid": pod["metadata"]["uid"]}
    world.until(lambda: len([e for e in world.journal() if starts.items() <= e.items()]) == 2)


def test_a_node_joins_unready_and_becomes_ready(world: Live) -> None:
    [name] = world.add_nodes(7)

    kinds = [one["kind"] for one in world.journal() if one.get("node") == name]

    assert kinds[0] == "node-joined"
    assert "node-ready" in kinds


def test_only_the_first_so_many_nodes_join_at_once(tmp_path: Path) -> None:
    with running_cluster(tmp_path, "--initial-nodes", "2", "--node-join", "3600") as live:
        for name in ("first", "second", "third"):
            live.report(f"i-{name}", "running", node={"metadata": {"name": name}})
        live.until(lambda: live.is_ready("first") and live.is_ready("second"))
        joined = [one["node"] for one in live.journal("node-joined")]
    assert sorted(joined) == ["first", "second"]


def test_a_cordon_becomes_a_taint_and_goes_with_it(world: Live) -> None:
    path = "/api/v1/nodes/ip-10-0-0-2.ec2.internal"

    def taints() -> list[str]:
        return [one["key"] for one in world.api.get(path).json()["spec"].get("taints", ())]

    world.patch(path, {"spec": {"unschedulable": True}})
    world.until(lambda: "node.kubernetes.io/unschedulable" in taints())
    world.patch(path, {"spec": {"unschedulable": None}})
    assert world.until(lambda: not taints())


def test_a_daemon_comes_to_every_node_and_tolerates_a_cordon(world: Live) -> None:
    [tainted] = world.add_nodes(6)
    taint = {"key": "team", "value": "gpu", "effect": "NoSchedule"}
    world.patch(f"/api/v1/nodes/{tainted}", {"spec": {"taints": [taint]}})
    world.patch("/api/v1/nodes/ip-10-0-0-1.ec2.internal", {"spec": {"unschedulable": True}})
    template = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "c", "image": "pause"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    daemons = "/apis/apps/v1/namespaces/default/daemonsets"
    world.create(daemons, {"metadata": {"name": "agent"}, "spec": spec})

    nodes = world.api.get("/api/v1/nodes").json()["items"]
    expected = {one["metadata"]["name"] for one in nodes if world.is_ready(one["metadata"]["name"])}
    expected -= {tainted}

    world.until(lambda: {one["spec"]["nodeName"] for one in world.running("app=agent")} == expected)
    [pod] = [
        one
        for one in world.running("app=agent")
        if one["spec"]["nodeName"] == "ip-10-0-0-1.ec2.internal"
    ]
    world.evict(pod["metadata"]["name"])
    world.until(lambda: ends(world, pod["metadata"]["uid"]))
    world.until(lambda: {one["spec"]["nodeName"] for one in world.running("app=agent")} == expected)
    world.patch("/api/v1/nodes/ip-10-0-0-1.ec2.internal", {"spec": {"unschedulable": None}})


def test_a_stateful_pod_waits_for_its_volume_to_be_free(world: Live) -> None:
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
    world.create(sets, {"metadata": {"name": "db"}, "spec": spec})
    world.add_nodes(11, 12, 13)  # one more in each zone: a volume stays in its own
    world.until(lambda: len(world.running("app=db")) == 2)
    first, _ = world.running("app=db")
    world.patch(f"/api/v1/nodes/{first['spec']['nodeName']}", {"spec": {"unschedulable": True}})

    world.evict("db-0")
    moved = world.until(
        lambda: [
            one
            for one in world.running("app=db")
            if one["metadata"]["name"] == "db-0"
            and one["metadata"]["uid"] != first["metadata"]["uid"]
        ]
    )

    world.patch(f"/api/v1/nodes/{first['spec']['nodeName']}", {"spec": {"unschedulable": None}})
    volume = world.api.get(f"{_CLAIMS}/data-db-0").json()["spec"]["volumeName"]
    [attachment] = [
        one
        for one in world.api.get(_ATTACHMENTS).json()["items"]
        if one["spec"]["source"]["persistentVolumeName"] == volume
    ]
    assert attachment["spec"]["nodeName"] == moved[0]["spec"]["nodeName"]
    assert attachment["status"]["attached"] is True
    zones = {
        world.api.get(f"/api/v1/nodes/{one['spec']['nodeName']}").json()["metadata"]["labels"][
            _ZONE
        ]
        for one in (first, moved[0])
    }
    assert len(zones) == 1


def test_a_deployment_rolls_over_to_a_new_template(world: Live) -> None:
    before = {one["metadata"]["uid"] for one in world.deploy("rolled", 4)}
    container = {"name": "c", "image": "pause:2"}
    path = "/apis/apps/v1/namespaces/default/deployments/rolled"
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    world.patch(path, change, "strategic-merge-patch+json")

    def rolled() -> bool:
        pods = world.running("app=rolled")
        images = {pod["spec"]["containers"][0]["image"] for pod in pods}
        return len(pods) == 4 and images == {"pause:2"}

    world.until(rolled)
    assert before.isdisjoint(one["metadata"]["uid"] for one in world.running("app=rolled"))


def test_deleting_an_owner_takes_its_dependents_along(world: Live) -> None:
    world.deploy("owner", 2)

    world.api.delete("/apis/apps/v1/namespaces/default/deployments/owner")

    world.until(lambda: not world.pods("app=owner"))
    sets = world.api.get("/apis/apps/v1/replicasets", params={"labelSelector": "app=owner"})
    assert sets.json()["items"] == []


def test_an_out_of_service_node_frees_its_volumes_and_pods_at_once(world: Live) -> None:
    [name] = world.add_nodes(5)
    pod = bare_pod("with-volume", nodeSelector={"kubernetes.io/hostname": name})
    pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "lone"}}]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    world.create(_CLAIMS, {"metadata": {"name": "lone"}, "spec": claim})
    world.create(PODS, pod)
    world.until(lambda: world.api.get(f"{PODS}/with-volume").json()["status"]["phase"] == "Running")

    world.report(f"i-{4:017x}", "terminated")
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"}
    world.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [taint]}})

    world.until(lambda: world.api.get(f"{PODS}/with-volume").status_code == 404)
    attached = world.api.get(_ATTACHMENTS).json()["items"]
    assert name not in [one["spec"]["nodeName"] for one in attached]


def test_a_kubelet_whose_node_somebody_deleted_ends_its_pods_as_it_should(world: Live) -> None:
    [name] = world.add_nodes(11)
    pod = bare_pod("outlives-its-node", nodeName=name, terminationGracePeriodSeconds=5)
    world.create(PODS, pod)
    path = f"{PODS}/outlives-its-node"
    world.until(lambda: world.api.get(path).json()["status"]["phase"] == "Running")
    uid = world.api.get(path).json()["metadata"]["uid"]

    world.api.delete(f"/api/v1/nodes/{name}")
    assert world.api.get(path).status_code == 200
    assert world.evict("outlives-its-node").status_code == 201

    world.until(lambda: world.api.get(path).status_code == 404)
    [end] = ends(world, uid)
    assert end["how"] == "graceful"


def test_a_pod_that_has_ended_and_is_kept_does_not_end_again_with_its_node(world: Live) -> None:
    [name] = world.add_nodes(12)
    pod = bare_pod("kept-on", nodeName=name)
    pod["metadata"]["finalizers"] = ["example.com/never"]
    uid = world.create(PODS, pod)["metadata"]["uid"]
    path = f"{PODS}/kept-on"
    world.until(lambda: world.api.get(path).json()["status"]["phase"] == "Running")
    world.evict("kept-on")
    world.until(lambda: ends(world, uid))

    world.report(f"i-{11:017x}", "terminated")

    world.until(lambda: world.api.get(f"/api/v1/nodes/{name}").status_code == 404)
    assert [end["how"] for end in ends(world, uid)] == ["graceful"]
