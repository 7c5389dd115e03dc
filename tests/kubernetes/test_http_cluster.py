"""The Cluster Protocol over HTTP: nodes, pods, evictions and failures."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.ports.kubernetes import (
    ClusterRefused,
    ClusterUnavailable,
    Event,
    Marks,
    ObjectReference,
)
from leeway.ports.kubernetes_objects import Controller, Pod, Taint
from leeway.retirement.pods import Meaning, read_answer
from leeway.selection.labels import UNREGISTERED

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

NUMBERS = count(1)
MARKS = Marks("spot-interruption", 2, "2026-11-20T09:46:55+00:00")


def fresh_node(live: Live, **labels: str) -> tuple[str, str]:
    """Add a node for one test; return its name and its instance."""
    number = next(NUMBERS)
    (name,) = live.add_nodes(number, **labels)
    return name, f"i-{number - 1:017x}"


def run_pod(live: Live, node: str, name: str, **spec: Any) -> None:
    """Create a pod bound to this node."""
    live.create(PODS, bare_pod(name, nodeName=node, **spec))
    live.until(lambda: live.api.get(f"{PODS}/{name}").json()["status"].get("phase") == "Running")


def only_pod(cluster: HttpCluster, node: str, name: str) -> Pod:
    return next(pod for pod in cluster.pods_on(node) if pod.name == name)


def patched_nodes(live: Live) -> int:
    """Return how often a node was patched: kubelets and controllers use other verbs."""
    calls = live.control.get("/_sandbox/status").json()["calls"].values()
    return sum(by["patch nodes"] for by in calls if "patch nodes" in by)


def raw_node(live: Live, name: str) -> dict[str, Any]:
    node: dict[str, Any] = live.api.get(f"/api/v1/nodes/{name}").json()
    return node


def test_a_node_with_the_name_on_another_instance_is_not_found(
    live: Live, cluster: HttpCluster
) -> None:
    name, _ = fresh_node(live)
    assert cluster.node_of("i-0ffffffffffffffff", (name,)) is None


@pytest.fixture
def claim(live: Live) -> Iterator[Callable[[str, str], None]]:
    """Create Nodes without a kubelet that name an instance; delete them after the test."""
    made: list[str] = []

    def create(name: str, instance: str) -> None:
        spec = {"providerID": f"aws:///us-east-1a/{instance}"}
        live.create("/api/v1/nodes", {"metadata": {"name": name}, "spec": spec})
        made.append(name)

    yield create
    for name in made:
        assert live.api.delete(f"/api/v1/nodes/{name}").status_code == 200


def test_the_ready_one_of_several_nodes_that_name_an_instance_is_found(
    live: Live, cluster: HttpCluster, claim: Callable[[str, str], None]
) -> None:
    name, instance = fresh_node(live)
    claim(f"a-{name}", instance)
    found = cluster.node_of(instance, ("ip-10-99-99-99.ec2.internal",))
    assert found is not None
    assert found.name == name


def test_several_nodes_that_name_an_instance_without_a_ready_one_are_an_error(
    cluster: HttpCluster, claim: Callable[[str, str], None]
) -> None:
    instance = "i-0ddddddddddddddd0"
    claim("claims-first", instance)
    claim("claims-second", instance)
    with pytest.raises(ClusterUnavailable, match=f"{instance}: claims-first, claims-second"):
        cluster.node_of(instance, ())


def test_a_cordon_taints_and_annotates_and_keeps_the_fields_of_others(
    live: Live, cluster: HttpCluster
) -> None:
    name, _ = fresh_node(live)
    other = {"key": "team", "value": "ml", "effect": "NoSchedule"}
    live.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [other]}})
    cluster.cordon(name, MARKS)
    node = raw_node(live, name)
    assert node["spec"]["unschedulable"] is True
    ours = {"key": "leeway.sh/retiring", "value": "spot-interruption", "effect": "NoSchedule"}
    taints = [(t["key"], t.get("value", ""), t["effect"]) for t in node["spec"]["taints"]]
    assert (ours["key"], ours["value"], ours["effect"]) in taints
    assert ("team", "ml", "NoSchedule") in taints
    assert node["metadata"]["annotations"]["leeway.sh/attempt"] == "2"


def test_a_second_cordon_changes_nothing(live: Live, cluster: HttpCluster) -> None:
    name, _ = fresh_node(live)
    cluster.cordon(name, MARKS)
    before = patched_nodes(live)
    cluster.cordon(name, MARKS)
    assert patched_nodes(live) == before > 0


def test_a_missing_node_can_not_be_cordoned(cluster: HttpCluster) -> None:
    with pytest.raises(ClusterRefused, match="gone"):
        cluster.cordon("ip-10-99-99-99.ec2.internal", MARKS)


def test_a_pod_is_read_with_all_fields_that_a_drain_uses(live: Live, cluster: HttpCluster) -> None:
    name, _ = fresh_node(live)
    run_pod(
        live,
        name,
        "reader",
        terminationGracePeriodSeconds=7,
        volumes=[{"name": "tmp", "emptyDir": {}}],
        tolerations=[{"operator": "Exists"}],
    )
    pod = only_pod(cluster, name, "reader")
    assert (pod.namespace, pod.grace, pod.phase) == ("default", 7, "Running")
    assert pod.controller is None
    assert pod.empty_dir
    assert pod.claims == ()
    assert pod.cordon_toleration == "(operator Exists for every key)"


def test_a_pod_of_a_deleted_daemonset_has_no_existing_controller(
    live: Live, cluster: HttpCluster
) -> None:
    name, _ = fresh_node(live)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gone", "controller": True}
    pod = bare_pod("orphan", nodeName=name)
    pod["metadata"] |= {
        "ownerReferences": [owner | {"uid": "00000000-0000-0000-0000-000000000000"}],
        "finalizers": ["example.com/never"],  # garbage collection takes it otherwise
    }
    live.create(PODS, pod)
    read = only_pod(cluster, name, "orphan")
    assert read.controller == Controller("DaemonSet", "gone", exists=False)


def test_an_eviction_has_the_pods_uid_as_a_precondition(live: Live, cluster: HttpCluster) -> None:
    name, _ = fresh_node(live)
    run_pod(live, name, "evictee", terminationGracePeriodSeconds=1)
    pod = only_pod(cluster, name, "evictee")
    stranger = replace(pod, uid="00000000-0000-0000-0000-000000000000")
    assert read_answer(cluster.evict(stranger, None)).meaning is Meaning.GONE
    assert read_answer(cluster.delete(stranger, 1)).meaning is Meaning.GONE
    assert read_answer(cluster.evict(pod, None, dry_run=True)).meaning is Meaning.ACCEPTED
    assert only_pod(cluster, name, "evictee").deletion is None
    assert read_answer(cluster.evict(pod, 1)).meaning is Meaning.ACCEPTED
    live.until(lambda: all(p.name != "evictee" for p in cluster.pods_on(name)))
    assert read_answer(cluster.evict(pod, None)).meaning is Meaning.GONE


def test_a_rehearsed_delete_deletes_nothing(live: Live, cluster: HttpCluster) -> None:
    name, _ = fresh_node(live)
    run_pod(live, name, "rehearsed", terminationGracePeriodSeconds=30)
    pod = only_pod(cluster, name, "rehearsed")
    assert read_answer(cluster.delete(pod, None, dry_run=True)).meaning is Meaning.ACCEPTED
    assert only_pod(cluster, name, "rehearsed").deletion is None


def test_an_existing_event_is_not_an_error(live: Live, cluster: HttpCluster) -> None:
    name, _ = fresh_node(live)
    event = Event(f"{name}.leeway-1", ObjectReference("Node", name, "uid"), "LeewayRetired", "done")
    cluster.write_event(event)
    cluster.write_event(event)
    listed = live.api.get("/api/v1/namespaces/default/events").json()["items"]
    assert [e["message"] for e in listed if e["metadata"]["name"] == event.name] == ["done"]


def test_a_list_that_fails_is_an_error_and_not_an_empty_node(
    live: Live, cluster: HttpCluster
) -> None:
    name, _ = fresh_node(live)
    errors: list[tuple[dict[str, object], type[Exception]]] = [
        ({"status": 401}, ClusterUnavailable),
        ({"status": 429, "retryAfter": 1}, ClusterUnavailable),
        ({"status": 500}, ClusterUnavailable),
        ({"status": 503}, ClusterUnavailable),
        ({"drop": True}, ClusterUnavailable),
        ({"drop": "before"}, ClusterUnavailable),
        ({"status": 403}, ClusterRefused),
    ]
    for fault, error in errors:
        live.fail_with(fault)
        with pytest.raises(error):
            cluster.pods_on(name)


def test_an_api_server_that_refuses_connections_is_unavailable(
    live: Live, cluster: HttpCluster
) -> None:
    live.fail_with({"refuse": True})
    with pytest.raises(ClusterUnavailable):
        cluster.node("ip-10-0-0-1.ec2.internal")


def test_labelling_a_node_keeps_its_other_labels(live: Live, cluster: HttpCluster) -> None:
    name, _ = fresh_node(live, pool="blue")
    node = cluster.node(name)
    assert node is not None
    assert cluster.set_up(node, {"capacity": "spot"})
    labels = raw_node(live, name)["metadata"]["labels"]
    assert (labels["pool"], labels["capacity"]) == ("blue", "spot")


def test_setting_up_a_node_changes_only_the_taints_that_it_names(
    live: Live, cluster: HttpCluster
) -> None:
    name, _ = fresh_node(live)
    node = cluster.node(name)
    assert node is not None
    own = Taint("team", "a", "NoSchedule")
    gate, stale = Taint(UNREGISTERED, "", "NoExecute"), Taint("team", "b", "NoSchedule")
    assert cluster.set_up(node, {}, [stale, gate, Taint("other", "", "NoSchedule")])
    assert cluster.set_up(node, {}, [own], [UNREGISTERED])
    found = cluster.node(name)
    assert found is not None
    assert {*found.taints} == {*node.taints, own, Taint("other", "", "NoSchedule")}


def test_setting_up_a_node_keeps_the_annotations_that_it_does_not_name(
    live: Live, cluster: HttpCluster
) -> None:
    name, _ = fresh_node(live)
    node = cluster.node(name)
    assert node is not None
    before = dict(node.annotations)
    assert cluster.set_up(node, {}, (), (), {"karpenter.sh/do-not-disrupt": "true"})
    found = cluster.node(name)
    assert found is not None
    assert found.annotations == {**before, "karpenter.sh/do-not-disrupt": "true"}


def test_a_node_of_the_same_name_that_is_another_object_is_not_set_up(
    live: Live, cluster: HttpCluster
) -> None:
    name, _ = fresh_node(live)
    node = cluster.node(name)
    assert node is not None
    assert not cluster.set_up(replace(node, uid="another"), {"capacity": "spot"})
    assert not cluster.set_up(replace(node, name="no-such-node"), {"capacity": "spot"})
    assert "capacity" not in raw_node(live, name)["metadata"]["labels"]
