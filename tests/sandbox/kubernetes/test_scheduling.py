"""The scheduler: what it heeds, whom it displaces, and what it says of pods that fit nowhere."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import DEPLOYMENTS, PODS, Live, bare_pod, deployment

_ZONE = "topology.kubernetes.io/zone"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture(scope="module")
def world(live: Live) -> Live:
    """Return three nodes of 8 CPUs in three zones, and a small one of another team."""
    live.add_nodes(1, 2, 3)
    [small] = live.add_nodes(4, cpu="1", team="blue")
    taint = {"key": "team", "value": "blue", "effect": "NoSchedule"}
    live.patch(f"/api/v1/nodes/{small}", {"spec": {"taints": [taint]}})
    return live


def phase_of(live: Live, name: str) -> dict[str, Any]:
    """Return a pod's PodScheduled condition once it is told."""

    def read() -> dict[str, Any] | None:
        pod = live.api.get(f"{PODS}/{name}").json()
        for one in pod["status"].get("conditions", ()):
            if one["type"] == "PodScheduled":
                told: dict[str, Any] = one
                return told
        return None

    return live.until(read) or {}


def zones_of(live: Live, pods: list[dict[str, Any]]) -> collections.Counter[str]:
    """Count pods by the zone of their node."""
    nodes = {one["metadata"]["name"]: one for one in live.api.get("/api/v1/nodes").json()["items"]}
    return collections.Counter(
        nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][_ZONE] for pod in pods
    )


def test_a_pod_too_large_is_marked_unschedulable_in_the_schedulers_words(world: Live) -> None:
    pod = bare_pod("too-big")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": 64, "memory": "1Gi"}}
    world.create(PODS, pod)

    condition = phase_of(world, "too-big")

    assert condition["reason"] == "Unschedulable"
    assert condition["message"] == (
        "0/4 nodes are available: 1 node(s) had untolerated taint {team: blue}, "
        "3 Insufficient cpu. no new claims to deallocate, preemption: 0/4 nodes are available: "
        "4 Preemption is not helpful for scheduling."
    )
    events = world.api.get(
        "/api/v1/events", params={"fieldSelector": "involvedObject.name=too-big"}
    ).json()["items"]
    assert [one["reason"] for one in events] == ["FailedScheduling"]


def test_it_leaves_the_recorded_audit_record(world: Live) -> None:
    pod = bare_pod("audited")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "99"}}
    world.create(PODS, pod)
    phase_of(world, "audited")

    records = world.control.get("/_sandbox/audit").json()["items"]

    [record] = [one for one in records if one["objectRef"]["name"] == "audited"]
    assert record["verb"] == "patch"
    assert record["objectRef"]["subresource"] == "status"
    [condition] = record["requestObject"]["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"
    assert record["responseObject"]["metadata"]["name"] == "audited"


def test_a_parked_pod_is_bound_when_a_node_comes(world: Live) -> None:
    pod = bare_pod("patient", nodeSelector={"pool": "late"})
    world.create(PODS, pod)
    phase_of(world, "patient")

    [late] = world.add_nodes(5, pool="late")

    bound = world.until(lambda: world.api.get(f"{PODS}/patient").json()["spec"].get("nodeName"))
    assert bound == late


def test_tolerations_and_node_affinity_decide_where_a_pod_may_go(world: Live) -> None:
    terms = [{"matchExpressions": [{"key": "team", "operator": "In", "values": ["blue"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = bare_pod("blue", affinity={"nodeAffinity": required})
    world.create(PODS, pod)
    assert phase_of(world, "blue")["status"] == "False"

    tolerant = bare_pod("tolerant", affinity={"nodeAffinity": required})
    tolerant["spec"]["tolerations"] = [{"key": "team", "operator": "Exists"}]
    world.create(PODS, tolerant)

    assert phase_of(world, "tolerant")["status"] == "True"


def test_a_pod_waits_for_the_claim_it_names(world: Live) -> None:
    pod = bare_pod("claimant")
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "promised"}}
    pod["spec"]["volumes"] = [volume]
    world.create(PODS, pod)
    told = phase_of(world, "claimant")["message"]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    world.create(claims, {"metadata": {"name": "promised"}, "spec": claim})

    world.until(lambda: world.api.get(f"{PODS}/claimant").json()["status"]["phase"] == "Running")
    assert 'persistentvolumeclaim "promised" not found' in told


def test_spread_keeps_zones_even(world: Live) -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": _ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}},
    }

    pods = world.deploy("even", 9, spec={"topologySpreadConstraints": [constraint]})

    assert sorted(zones_of(world, pods).values()) == [3, 3, 3]


def test_anti_affinity_keeps_a_pod_of_its_kind_off_each_node(world: Live) -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "apart"}},
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    world.create(DEPLOYMENTS, deployment("apart", 6, spec={"affinity": affinity}))

    world.until(lambda: len(world.running("app=apart")) == 4)

    nodes = [pod["spec"]["nodeName"] for pod in world.running("app=apart")]
    assert len(set(nodes)) == 4
    waiting = [pod for pod in world.pods("app=apart") if "nodeName" not in pod["spec"]]
    assert len(waiting) == 2
    world.api.delete(f"{DEPLOYMENTS}/apart")


def test_affinity_brings_a_pod_to_its_kin(world: Live) -> None:
    [host] = world.deploy("host", 1)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "host"}},
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    [guest] = world.deploy("guest", 1, spec={"affinity": affinity})

    assert guest["spec"]["nodeName"] == host["spec"]["nodeName"]


def test_a_pod_of_higher_priority_displaces_the_lowest(world: Live) -> None:
    world.create(_CLASSES, {"metadata": {"name": "headroom"}, "value": -10})
    world.create(_CLASSES, {"metadata": {"name": "meek"}, "value": -5, "preemptionPolicy": "Never"})
    [room] = world.add_nodes(6, cpu="4", pool="tight")
    here = {"nodeSelector": {"kubernetes.io/hostname": room}}
    pause = {**here, "priorityClassName": "headroom", "terminationGracePeriodSeconds": 0}
    world.deploy("pause", 1, spec=pause, requests={"cpu": "3"})

    meek = {**here, "priorityClassName": "meek"}
    world.create(DEPLOYMENTS, deployment("meek", 1, spec=meek, requests={"cpu": "2"}))
    world.until(lambda: [one for one in world.pods("app=meek") if one["status"].get("conditions")])
    assert not world.running("app=meek")
    world.api.delete(f"{DEPLOYMENTS}/meek")

    [real] = world.deploy("real", 1, spec=here, requests={"cpu": "3"})

    assert real["spec"]["nodeName"] == room
    assert not world.running("app=pause")
    preempted = world.api.get("/api/v1/events", params={"fieldSelector": "reason=Preempted"})
    assert preempted.json()["items"]


def test_an_unknown_priority_class_is_refused(world: Live) -> None:
    refused = world.api.post(PODS, json=bare_pod("vip", priorityClassName="nobody"))

    assert refused.status_code == 403
    assert "no PriorityClass with name nobody was found" in refused.json()["message"]


def test_a_binding_by_another_scheduler_is_accepted_once(world: Live) -> None:
    world.create(PODS, bare_pod("handmade", schedulerName="mine"))
    binding = {"metadata": {"name": "handmade"}, "target": {"name": "ip-10-0-0-2.ec2.internal"}}

    first = world.api.post(f"{PODS}/handmade/binding", json=binding)
    again = world.api.post(f"{PODS}/handmade/binding", json=binding)

    assert (first.status_code, again.status_code) == (201, 409)
    world.until(lambda: world.api.get(f"{PODS}/handmade").json()["status"]["phase"] == "Running")


def test_no_execute_taints_evict_after_the_time_a_pod_tolerates(world: Live) -> None:
    [node] = world.add_nodes(7)
    here = {"nodeSelector": {"kubernetes.io/hostname": node}}
    brief = [{"key": "going", "operator": "Exists", "tolerationSeconds": 1}]
    world.deploy("intolerant", 1, spec=here)
    world.deploy("brief", 1, spec={**here, "tolerations": brief})
    world.deploy("loyal", 1, spec={**here, "tolerations": [{"key": "going", "operator": "Exists"}]})

    taints = [{"key": "going", "effect": "NoExecute"}]
    world.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})

    world.until(lambda: not world.running("app=intolerant"))
    world.until(lambda: len(world.journal("pod-created")) and not _on(world, "brief", node))
    assert _on(world, "loyal", node)


def _on(live: Live, app: str, node: str) -> list[dict[str, Any]]:
    return [one for one in live.running(f"app={app}") if one["spec"]["nodeName"] == node]
