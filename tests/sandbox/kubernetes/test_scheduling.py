"""The scheduler: its filters, preemption, and its messages about unschedulable pods."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import DEPLOYMENTS, PODS, Live, bare_pod, deployment

_ZONE = "topology.kubernetes.io/zone"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return a cluster with three nodes of 8 CPUs in three zones and a small tainted node."""
    live.add_nodes(1, 2, 3)
    [small] = live.add_nodes(4, cpu="1", team="blue")
    taint = {"key": "team", "value": "blue", "effect": "NoSchedule"}
    live.patch(f"/api/v1/nodes/{small}", {"spec": {"taints": [taint]}})
    return live


def phase_of(live: Live, name: str) -> dict[str, Any]:
    """Wait for the PodScheduled condition of a pod and return it."""

    def read() -> dict[str, Any] | None:
        pod = live.api.get(f"{PODS}/{name}").json()
        for one in pod["status"].get("conditions", ()):
            if one["type"] == "PodScheduled":
                text: dict[str, Any] = one
                return text
        return None

    return live.until(read) or {}


def zones_of(live: Live, pods: list[dict[str, Any]]) -> collections.Counter[str]:
    """Count pods by the zone of their node."""
    nodes = {one["metadata"]["name"]: one for one in live.api.get("/api/v1/nodes").json()["items"]}
    return collections.Counter(
        nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][_ZONE] for pod in pods
    )


def test_a_pod_that_is_too_large_is_marked_unschedulable(cluster: Live) -> None:
    pod = bare_pod("too-big")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": 64, "memory": "1Gi"}}
    cluster.create(PODS, pod)

    condition = phase_of(cluster, "too-big")

    assert condition["reason"] == "Unschedulable"
    assert condition["message"] == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), "
        "3 Insufficient cpu. no new claims to deallocate, preemption: 0/4 nodes are available: "
        "4 Preemption is not helpful for scheduling."
    )
    events = cluster.api.get(
        "/api/v1/events", params={"fieldSelector": "involvedObject.name=too-big"}
    ).json()["items"]
    assert [one["reason"] for one in events] == ["FailedScheduling"]


def test_an_unschedulable_pod_is_bound_when_a_node_joins(cluster: Live) -> None:
    pod = bare_pod("patient", nodeSelector={"pool": "late"})
    cluster.create(PODS, pod)
    phase_of(cluster, "patient")

    [late] = cluster.add_nodes(5, pool="late")

    bound = cluster.until(lambda: cluster.api.get(f"{PODS}/patient").json()["spec"].get("nodeName"))
    assert bound == late


def test_tolerations_and_node_affinity_select_the_nodes_of_a_pod(cluster: Live) -> None:
    terms = [{"matchExpressions": [{"key": "team", "operator": "In", "values": ["blue"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = bare_pod("blue", affinity={"nodeAffinity": required})
    cluster.create(PODS, pod)
    assert phase_of(cluster, "blue")["status"] == "False"

    tolerant = bare_pod("tolerant", affinity={"nodeAffinity": required})
    tolerant["spec"]["tolerations"] = [{"key": "team", "operator": "Exists"}]
    cluster.create(PODS, tolerant)

    assert phase_of(cluster, "tolerant")["status"] == "True"


def test_a_pod_waits_for_its_volume_claim(cluster: Live) -> None:
    pod = bare_pod("claimant")
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "promised"}}
    pod["spec"]["volumes"] = [volume]
    cluster.create(PODS, pod)
    text = phase_of(cluster, "claimant")["message"]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    cluster.create(claims, {"metadata": {"name": "promised"}, "spec": claim})

    cluster.until(
        lambda: cluster.api.get(f"{PODS}/claimant").json()["status"]["phase"] == "Running"
    )
    assert 'persistentvolumeclaim "promised" not found' in text
    bound = cluster.api.get(f"{claims}/promised").json()
    assert bound["spec"]["storageClassName"] == "gp3"
    assert bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"


@pytest.mark.parametrize(
    ("name", "claim", "deleted", "said"),
    [
        ("deleting", {}, True, 'persistentvolumeclaim "deleting" is being deleted'),
        ("classless", {"storageClassName": "gone"}, False, "unbound immediate PersistentVolume"),
        (
            "elsewhere",
            {"volumeName": "nowhere", "storageClassName": ""},
            False,
            "unbound immediate",
        ),
    ],
)
def test_a_pod_with_a_claim_that_cannot_be_met_stays_pending(
    cluster: Live, name: str, claim: dict[str, Any], deleted: bool, said: str
) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    kept = ["example.com/kept"]
    cluster.create(claims, {"metadata": {"name": name, "finalizers": kept}, "spec": spec | claim})
    if deleted:
        cluster.api.delete(f"{claims}/{name}")
    pod = bare_pod(f"with-{name}")
    pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    cluster.create(PODS, pod)
    assert said in phase_of(cluster, f"with-{name}")["message"]


def test_a_claim_is_bound_to_the_volume_it_names_and_lost_without_it(cluster: Live) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    amounts = {"accessModes": ["ReadWriteOnce"]}
    size = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": "by-hand"}
    cluster.create(claims, {"metadata": {"name": "named"}, "spec": {**amounts, **size}})
    csi = {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}}
    made = {**amounts, **csi, "capacity": {"storage": "1Gi"}}
    cluster.create("/api/v1/persistentvolumes", {"metadata": {"name": "by-hand"}, "spec": made})

    def phase() -> str:
        return str(cluster.api.get(f"{claims}/named").json()["status"]["phase"])

    cluster.until(lambda: phase() == "Bound")
    cluster.api.delete("/api/v1/persistentvolumes/by-hand")
    cluster.until(lambda: phase() == "Lost")


def test_spread_keeps_zones_even(cluster: Live) -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": _ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}},
    }

    pods = cluster.deploy("even", 9, spec={"topologySpreadConstraints": [constraint]})

    assert sorted(zones_of(cluster, pods).values()) == [3, 3, 3]


def test_anti_affinity_allows_one_pod_of_an_app_on_a_node(cluster: Live) -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "apart"}},
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster.create(DEPLOYMENTS, deployment("apart", 6, spec={"affinity": affinity}))

    cluster.until(lambda: len(cluster.running("app=apart")) == 4)

    nodes = [pod["spec"]["nodeName"] for pod in cluster.running("app=apart")]
    assert len(set(nodes)) == 4
    waiting = [pod for pod in cluster.pods("app=apart") if "nodeName" not in pod["spec"]]
    assert len(waiting) == 2
    cluster.api.delete(f"{DEPLOYMENTS}/apart")


def test_affinity_places_a_pod_in_the_zone_of_matching_pods(cluster: Live) -> None:
    [host] = cluster.deploy("host", 1)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "host"}},
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    [guest] = cluster.deploy("guest", 1, spec={"affinity": affinity})

    assert guest["spec"]["nodeName"] == host["spec"]["nodeName"]


def test_a_pod_of_higher_priority_preempts_the_lowest(cluster: Live) -> None:
    cluster.create(_CLASSES, {"metadata": {"name": "headroom"}, "value": -10})
    cluster.create(
        _CLASSES, {"metadata": {"name": "meek"}, "value": -5, "preemptionPolicy": "Never"}
    )
    [room] = cluster.add_nodes(6, cpu="4", pool="tight")
    here = {"nodeSelector": {"kubernetes.io/hostname": room}}
    pause = {**here, "priorityClassName": "headroom", "terminationGracePeriodSeconds": 0}
    cluster.deploy("pause", 1, spec=pause, requests={"cpu": "3"})

    meek = {**here, "priorityClassName": "meek"}
    cluster.create(DEPLOYMENTS, deployment("meek", 1, spec=meek, requests={"cpu": "2"}))
    cluster.until(
        lambda: [one for one in cluster.pods("app=meek") if one["status"].get("conditions")]
    )
    assert not cluster.running("app=meek")
    cluster.api.delete(f"{DEPLOYMENTS}/meek")

    [real] = cluster.deploy("real", 1, spec=here, requests={"cpu": "3"})

    assert real["spec"]["nodeName"] == room
    assert not cluster.running("app=pause")
    preempted = cluster.api.get("/api/v1/events", params={"fieldSelector": "reason=Preempted"})
    assert preempted.json()["items"]


def test_an_unknown_priority_class_is_refused(cluster: Live) -> None:
    refused = cluster.api.post(PODS, json=bare_pod("vip", priorityClassName="nobody"))

    assert refused.status_code == 403
    assert "no PriorityClass with name nobody was found" in refused.json()["message"]


def test_no_execute_taints_evict_after_the_time_a_pod_tolerates(cluster: Live) -> None:
    [node] = cluster.add_nodes(7)
    here = {"nodeSelector": {"kubernetes.io/hostname": node}}
    brief = [{"key": "going", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]
    cluster.deploy("intolerant", 1, spec=here)
    cluster.deploy("brief", 1, spec={**here, "tolerations": brief})
    cluster.deploy(
        "loyal", 1, spec={**here, "tolerations": [{"key": "going", "operator": "Exists"}]}
    )

    taints = [{"key": "going", "effect": "NoExecute"}]
    cluster.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})

    cluster.until(lambda: not cluster.running("app=intolerant"))
    cluster.until(lambda: len(cluster.journal("pod-created")) and not _on(cluster, "brief", node))
    assert _on(cluster, "loyal", node)


def spread(app: str, **more: Any) -> dict[str, Any]:
    """Return a pod spec with one constraint: pods of an app by zone, with maxSkew 1."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": _ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }
    return {"topologySpreadConstraints": [constraint]}


def test_fewer_domains_than_min_domains_count_as_an_empty_one(cluster: Live) -> None:
    cluster.create(DEPLOYMENTS, deployment("wide", 5, spec=spread("wide", minDomains=4)))

    cluster.until(lambda: len(cluster.running("app=wide")) == 3)
    waiting = [one for one in cluster.pods("app=wide") if "nodeName" not in one["spec"]]
    text = phase_of(cluster, waiting[0]["metadata"]["name"])["message"]

    assert sorted(zones_of(cluster, cluster.running("app=wide")).values()) == [1, 1, 1]
    assert "node(s) didn't match pod topology spread constraints" in text
    assert "No preemption victims found for incoming pod" in text
    cluster.api.delete(f"{DEPLOYMENTS}/wide")


def test_a_spread_counts_the_nodes_of_the_pods_affinity_unless_it_ignores_them(
    cluster: Live,
) -> None:
    here = {"nodeSelector": {_ZONE: "us-east-1a"}}
    tolerant = {"tolerations": [{"key": "team", "operator": "Exists"}]}

    cluster.deploy("honoring", 3, spec={**spread("honoring"), **here, **tolerant})
    ignoring = {**spread("ignoring", nodeAffinityPolicy="Ignore"), **here, **tolerant}
    cluster.create(DEPLOYMENTS, deployment("ignoring", 3, spec=ignoring))

    cluster.until(lambda: len(cluster.running("app=ignoring")) == 1)
    waiting = [one for one in cluster.pods("app=ignoring") if "nodeName" not in one["spec"]]
    assert len(waiting) == 2
    text = phase_of(cluster, waiting[0]["metadata"]["name"])["message"]
    assert "node(s) didn't match pod topology spread constraints" in text
    cluster.api.delete(f"{DEPLOYMENTS}/ignoring")


def test_a_spread_counts_pods_on_nodes_of_its_own_affinity_only(cluster: Live) -> None:
    [old] = cluster.add_nodes(21, pool="old", group="both")
    [first, second] = cluster.add_nodes(22, 23, pool="new", group="both")
    by_host = spread("mixed", topologyKey="kubernetes.io/hostname")
    cluster.deploy("mixed", 2, spec={"nodeSelector": {"pool": "old"}})

    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["new"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {**by_host, "affinity": {"nodeAffinity": required}}
    body = deployment("mixed-new", 2, spec=spec)
    body["spec"]["template"]["metadata"]["labels"] = {"app": "mixed", "part": "new"}
    body["spec"]["selector"] = {"matchLabels": {"part": "new"}}
    cluster.create(DEPLOYMENTS, body)

    cluster.until(lambda: len(cluster.running("part=new")) == 2)
    hosts = {pod["spec"]["nodeName"] for pod in cluster.running("part=new")}
    assert hosts == {first, second}
    assert old not in hosts


def test_a_tainted_domain_counts_unless_taints_are_honored(cluster: Live) -> None:
    [clean, tainted] = cluster.add_nodes(31, 32, pool="tainted")
    taint = {"key": "going", "effect": "NoSchedule"}
    cluster.patch(f"/api/v1/nodes/{tainted}", {"spec": {"taints": [taint]}})
    here = {"nodeSelector": {"pool": "tainted"}}

    honoring = spread("honors-taints", topologyKey=_ZONE, nodeTaintsPolicy="Honor")
    cluster.deploy("honors-taints", 3, spec={**honoring, **here})
    ignoring = spread("ignores-taints", topologyKey=_ZONE)
    cluster.create(DEPLOYMENTS, deployment("ignores-taints", 3, spec={**ignoring, **here}))

    cluster.until(lambda: len(cluster.running("app=ignores-taints")) == 1)
    assert {one["spec"]["nodeName"] for one in cluster.running("app=honors-taints")} == {clean}
    cluster.until(lambda: len(_waiting(cluster, "ignores-taints")) == 2)
    # Without the taint, both domains are eligible for both pods.
    cluster.patch(f"/api/v1/nodes/{tainted}", {"spec": {"taints": None}})
    cluster.until(lambda: len(cluster.running("app=ignores-taints")) == 3)


def test_a_spread_does_not_count_pods_that_are_being_deleted(cluster: Live) -> None:
    slow = {"sandbox.leeway.sh/ends-after": "20s"}
    cluster.deploy("leaving", 3, spec=spread("leaving"), annotations=slow)
    [first, *_] = cluster.running("app=leaving")
    [zone] = zones_of(cluster, [first])

    cluster.evict(first["metadata"]["name"])
    cluster.until(lambda: len(cluster.running("app=leaving")) == 3)

    assert zones_of(cluster, cluster.running("app=leaving"))[zone] == 1
    assert len(cluster.pods("app=leaving")) == 4


def test_match_label_keys_separate_the_revisions_of_a_spread(cluster: Live) -> None:
    [crowded, _] = cluster.add_nodes(41, 42, pool="pair")
    cluster.deploy("keyed", 2, spec={"nodeSelector": {"kubernetes.io/hostname": crowded}})
    zone = {"nodeSelector": {"pool": "pair"}}
    keyed = {**spread("keyed", matchLabelKeys=["pod-template-hash"]), **zone}
    body = deployment("keyed-new", 2, spec=keyed)
    body["spec"]["template"]["metadata"]["labels"] = {"app": "keyed", "part": "later"}
    body["spec"]["selector"] = {"matchLabels": {"part": "later"}}
    cluster.create(DEPLOYMENTS, body)

    cluster.until(lambda: len(cluster.running("part=later")) == 2)
    assert sorted(zones_of(cluster, cluster.running("part=later")).values()) == [1, 1]


def test_a_host_port_is_used_once_on_a_node(cluster: Live) -> None:
    nodes = cluster.add_nodes(51, 52, pool="ports")
    container = {"name": "c", "image": "pause", "ports": [{"containerPort": 80, "hostPort": 8080}]}
    spec = {"nodeSelector": {"pool": "ports"}, "containers": [container]}
    cluster.create(DEPLOYMENTS, deployment("ported", 3, spec=spec))

    cluster.until(lambda: len(cluster.running("app=ported")) == 2)
    assert {one["spec"]["nodeName"] for one in cluster.running("app=ported")} == set(nodes)
    [waiting] = _waiting(cluster, "ported")
    text = phase_of(cluster, waiting["metadata"]["name"])["message"]
    assert "2 node(s) didn't have free ports for the requested pod ports" in text

    other = [{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}]
    pod = bare_pod("over-udp", nodeSelector={"pool": "ports"})
    pod["spec"]["containers"][0]["ports"] = other
    cluster.create(PODS, pod)
    assert phase_of(cluster, "over-udp")["status"] == "True"
    # A container port with hostNetwork is a host port.
    pod = bare_pod("over-host", nodeSelector={"pool": "ports"}, hostNetwork=True)
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 8080}]
    cluster.create(PODS, pod)
    assert phase_of(cluster, "over-host")["status"] == "False"
    gone = cluster.running("app=ported")[0]["metadata"]["name"]
    cluster.api.delete(f"{DEPLOYMENTS}/ported")
    cluster.until(lambda: cluster.api.get(f"{PODS}/{gone}").status_code == 404)
    cluster.until(
        lambda: cluster.api.get(f"{PODS}/over-host").json()["status"]["phase"] == "Running"
    )


def test_a_pod_of_higher_priority_preempts_the_holder_of_its_port(cluster: Live) -> None:
    cluster.create(_CLASSES, {"metadata": {"name": "lowly"}, "value": -20})
    cluster.add_nodes(61, pool="one-port")
    container = {"name": "c", "image": "pause", "ports": [{"containerPort": 80, "hostPort": 80}]}
    spec = {"nodeSelector": {"pool": "one-port"}, "containers": [container]}
    cluster.create(PODS, bare_pod("holder", priorityClassName="lowly", **spec))
    cluster.until(lambda: cluster.api.get(f"{PODS}/holder").json()["status"]["phase"] == "Running")

    cluster.create(PODS, bare_pod("taker", **spec))

    cluster.until(lambda: cluster.api.get(f"{PODS}/taker").json()["status"]["phase"] == "Running")
    assert cluster.api.get(f"{PODS}/holder").status_code == 404


def test_the_message_says_why_preemption_does_not_help(cluster: Live) -> None:
    [full] = cluster.add_nodes(71, cpu="2", pool="full")
    here = {"nodeSelector": {"pool": "full"}}
    cluster.deploy("filler", 1, spec=here, requests={"cpu": "1500m"})
    pod = bare_pod("latecomer", **here)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    cluster.create(PODS, pod)

    text = phase_of(cluster, "latecomer")["message"]

    total = len(cluster.api.get("/api/v1/nodes").json()["items"])
    assert text.endswith(
        f"preemption: 0/{total} nodes are available: 1 No preemption victims found for incoming "
        f"pod, {total - 1} Preemption is not helpful for scheduling."
    )
    assert "1 Insufficient cpu" in text
    cluster.create(
        _CLASSES, {"metadata": {"name": "mild"}, "value": 5, "preemptionPolicy": "Never"}
    )
    pod = bare_pod("mild", priorityClassName="mild", **here)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    cluster.create(PODS, pod)
    text = phase_of(cluster, "mild")["message"]
    assert text.endswith("preemption: not eligible due to preemptionPolicy=Never.")
    assert full not in text


def _waiting(live: Live, app: str) -> list[dict[str, Any]]:
    return [one for one in live.pods(f"app={app}") if "nodeName" not in one["spec"]]


def _on(live: Live, app: str, node: str) -> list[dict[str, Any]]:
    return [one for one in live.running(f"app={app}") if one["spec"]["nodeName"] == node]
