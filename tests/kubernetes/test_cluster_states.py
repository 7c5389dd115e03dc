"""States of clusters: a read after the first one applies what changed, whatever the API server
does."""

import json
import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from leeway.kubernetes import cluster_states
from leeway.kubernetes.cluster_states import LIST_AGAIN_AFTER, PATHS, KubernetesClusterStates
from leeway.kubernetes.connection import Connection
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.fakes.clock import FakeClock
from tests.kubernetes.canned_cluster import CannedCluster
from tests.kubernetes.faulty_server import json_answer, running_faulty_server, text_answer
from tests.provisioning.cluster_documents import (
    comparable,
    daemon_set,
    key,
    node,
    node_claim,
    pod,
    random_changes,
)
from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

CLUSTER = "prod"


@pytest.fixture
def canned(tmp_path: Path) -> Iterator[CannedCluster]:
    with running_faulty_server(tmp_path) as server:
        yield CannedCluster(server)


@pytest.fixture
def connection(canned: CannedCluster) -> Iterator[Connection]:
    found = kubeconfig_connection(canned.server.kubeconfig)
    yield found
    found.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def states(connection: Connection, clock: FakeClock) -> KubernetesClusterStates:
    return KubernetesClusterStates(lambda _: connection, clock)


def cold(connection: Connection) -> dict[str, object]:
    """Return what a new function reads."""
    return comparable(KubernetesClusterStates(lambda _: connection, FakeClock()).read(CLUSTER))


def waiting(states: KubernetesClusterStates) -> list[str]:
    return [one.pod.name for one in states.read(CLUSTER).waiting]


def change(canned: CannedCluster, seed: int, count: int) -> None:
    for kind, document, deleted in random_changes(seed, count):
        if deleted:
            canned.delete(kind, key(kind, document))
        else:
            canned.put(kind, document)


@pytest.mark.parametrize("seed", range(6))
def test_a_later_read_equals_a_first_read_after_random_changes(
    canned: CannedCluster, states: KubernetesClusterStates, connection: Connection, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311
    change(canned, seed, 40)
    states.read(CLUSTER)
    for step in range(2):
        change(canned, 1000 * (step + 1) + seed, chance.choice([1, 5, 40]))
        canned.replays, canned.bookmarks = chance.random() < 0.3, chance.random() < 0.3
        assert comparable(states.read(CLUSTER)) == cold(connection)


def test_a_later_read_lists_no_kind_again(
    canned: CannedCluster, states: KubernetesClusterStates
) -> None:
    for number in range(30):
        canned.put("Pod", pod(f"web-{number:02}", "n-1"))
    canned.put("Node", node("n-1"))
    for _ in range(3):
        canned.put("Pod", pod(f"late-{canned.version}"))
        states.read(CLUSTER)
    assert {kind: canned.lists(kind) for kind in PATHS} == dict.fromkeys(PATHS, 1)
    assert len(waiting(states)) == 3


@pytest.mark.parametrize("status", [403, 404])
def test_node_claims_are_requested_once_if_the_api_server_has_none(
    canned: CannedCluster, states: KubernetesClusterStates, clock: FakeClock, status: int
) -> None:
    canned.failing["NodeClaim"] = status
    for _ in range(3):
        canned.put("Pod", pod(f"late-{canned.version}"))
        state = states.read(CLUSTER)
        assert (state.claimed, state.unreadable) == ((), ())
    assert canned.lists("NodeClaim") == 1
    canned.failing.clear()
    canned.put("NodeClaim", node_claim("new", 7))
    assert states.read(CLUSTER).claimed == ()
    clock.sleep(LIST_AGAIN_AFTER.total_seconds() + 1)
    assert [one.instance for one in states.read(CLUSTER).claimed] == [f"i-{7:017x}"]


@pytest.mark.parametrize("status", [400, 500])
def test_node_claims_that_cannot_be_listed_are_told_and_stop_nothing(
    canned: CannedCluster, states: KubernetesClusterStates, status: int
) -> None:
    canned.put("NodeClaim", node_claim("one", 1))
    canned.put("Pod", pod("web"))
    assert len(states.read(CLUSTER).claimed) == 1
    canned.failing["NodeClaim"] = status
    state = states.read(CLUSTER)
    assert state.claimed == ()
    assert [one.pod.name for one in state.waiting] == ["shop/web"]
    (told,) = state.unreadable
    assert (told.kind, told.reason.code) == ("NodeClaim", "ObjectNotReadable")
    canned.failing.clear()
    state = states.read(CLUSTER)
    assert (len(state.claimed), state.unreadable) == (1, ())


def test_all_objects_are_listed_again_after_a_while(
    canned: CannedCluster, states: KubernetesClusterStates, clock: FakeClock
) -> None:
    canned.put("Node", node("n-1"))
    canned.put("Node", node("n-2"))
    states.read(CLUSTER)
    canned.lost.add(canned.version + 1)
    canned.delete("Node", "n-1")
    assert {each.name for each in states.read(CLUSTER).nodes} == {"n-1", "n-2"}
    clock.sleep(LIST_AGAIN_AFTER.total_seconds() + 1)
    assert {each.name for each in states.read(CLUSTER).nodes} == {"n-2"}


def test_a_watch_from_a_version_that_is_too_old_becomes_a_list(
    canned: CannedCluster, states: KubernetesClusterStates
) -> None:
    canned.put("Pod", pod("early"))
    states.read(CLUSTER)
    canned.delete("Pod", "shop/early")
    canned.put("Pod", pod("late"))
    canned.oldest = canned.version
    assert waiting(states) == ["shop/late"]
    assert canned.lists("Pod") == 2
    assert waiting(states) == ["shop/late"]
    assert canned.lists("Pod") == 2


@pytest.mark.parametrize("changed", ["Pod", "Node"])
def test_everything_is_listed_again_when_versions_go_backwards(
    canned: CannedCluster, states: KubernetesClusterStates, connection: Connection, changed: str
) -> None:
    """After etcd was restored from a backup, watches from later versions are silent."""
    canned.put("Node", node("n-1"))
    for number in range(10):
        canned.put("Pod", pod(f"web-{number}", "n-1"))
    states.read(CLUSTER)
    backup = canned.version
    if changed == "Node":
        canned.put("Node", node("n-2"))
    for number in range(5):
        canned.put("Pod", pod(f"web-{number}", "n-2"))
    states.read(CLUSTER)
    if changed == "Node":
        for number in range(5):
            canned.put("Node", node(f"late-{number}"))
        states.read(CLUSTER)
        backup = canned.version - 2
    canned.restore(backup)
    assert comparable(states.read(CLUSTER)) == cold(connection)
    canned.delete("Pod", "shop/web-9")
    assert comparable(states.read(CLUSTER)) == cold(connection)
    listed = {kind: canned.lists(kind) for kind in PATHS}
    # One list of this function's own, one after the restoration, and two of cold functions.
    assert listed == dict.fromkeys(PATHS, 4)


def test_a_cluster_in_which_every_pod_has_a_node_is_read_by_its_watches(
    canned: CannedCluster, states: KubernetesClusterStates
) -> None:
    canned.put("Node", node("n-1"))
    canned.put("Pod", pod("web", "n-1"))
    for _ in range(3):
        assert [len(each.pods) for each in states.read(CLUSTER).nodes] == [1]
    assert canned.lists("Pod") == 1


@pytest.mark.parametrize("fault", ["drops", "silent", "lost", "refused", "not found"])
def test_a_watch_that_misses_a_pod_becomes_a_list(
    canned: CannedCluster,
    states: KubernetesClusterStates,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_states, "CATCH_UP_SECONDS", 0.5)
    canned.put("Pod", pod("early"))
    canned.put("Pod", pod("bound", "n-1"))
    states.read(CLUSTER)
    if fault == "lost":
        canned.lost = set(range(canned.version + 1, canned.version + 4))
    elif fault in {"refused", "not found"}:
        canned.refused = 403 if fault == "refused" else 404
    else:
        getattr(canned, fault).add("Pod")
    canned.delete("Pod", "shop/early")
    canned.put("Pod", pod("late"))
    canned.put("Pod", pod("gated", schedulingGates=[{"name": "quota"}]))
    assert waiting(states) == ["shop/late"]
    assert canned.lists("Pod") == 2


def test_a_watch_that_lost_the_binding_of_a_pod_becomes_a_list(
    canned: CannedCluster, states: KubernetesClusterStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_states, "CATCH_UP_SECONDS", 0.5)
    canned.put("Node", node("n-1"))
    canned.put("Pod", pod("web"))
    states.read(CLUSTER)
    canned.lost.add(canned.version + 1)
    canned.put("Pod", pod("web", "n-1"))
    state = states.read(CLUSTER)
    assert not state.waiting
    assert len(state.nodes[0].pods) == 1


def test_old_events_do_not_undo_newer_ones(
    canned: CannedCluster, states: KubernetesClusterStates
) -> None:
    canned.put("Pod", pod("web"))
    canned.put("Pod", pod("gone"))
    canned.late = {change.version for change in canned.changes}
    states.read(CLUSTER)
    canned.put("Pod", pod("web", "n-1"))
    canned.delete("Pod", "shop/gone")
    canned.replays = True
    assert waiting(states) == []
    canned.put("Pod", pod("new"))
    assert waiting(states) == ["shop/new"]
    assert canned.lists("Pod") == 1


def test_a_server_without_numbers_as_versions_is_listed_each_time(
    canned: CannedCluster, states: KubernetesClusterStates
) -> None:
    canned.prefix = "v"
    canned.put("Pod", pod("first"))
    assert waiting(states) == ["shop/first"]
    canned.put("Pod", pod("second"))
    assert waiting(states) == ["shop/first", "shop/second"]
    assert canned.lists("Pod") == 2


def test_a_large_cluster_is_listed_in_pages(
    canned: CannedCluster, states: KubernetesClusterStates
) -> None:
    for number in range(1100):
        canned.put("Pod", pod(f"web-{number:04}", "n-1"))
    canned.put("Node", node("n-1"))
    assert len(states.read(CLUSTER).nodes[0].pods) == 1100
    assert canned.lists("Pod") == 3


def test_objects_of_other_shapes_are_reported_and_stop_no_other(
    canned: CannedCluster, states: KubernetesClusterStates
) -> None:
    """A newer Kubernetes has values that this version does not know."""
    tolerations = [{"key": "load", "operator": "Lt", "value": "5", "effect": "NoSchedule"}]
    canned.put("Node", node("n-1"))
    canned.put("Pod", pod("new-operator", "n-1", tolerations=tolerations))
    canned.put("Pod", pod("new-shape", "n-1", containers="many", affinity=[]))
    states.read(CLUSTER)
    canned.put("Pod", pod("waits-oddly", tolerations=[7]))
    canned.put("Pod", pod("waits"))
    broken = daemon_set("broken")
    broken["spec"] = []
    canned.put("DaemonSet", broken)
    state = states.read(CLUSTER)
    assert [one.pod.name for one in state.waiting] == ["shop/waits"]
    assert [one.requests.printed() for one in state.nodes[0].pods] == [
        {"cpu": "100m", "pods": "1"},
        {"pods": "1"},
    ]
    names = [one.name for one in state.unreadable]
    assert names == ["shop/broken", "shop/new-operator", "shop/new-shape", "shop/waits-oddly"]
    for kind, name in (("DaemonSet", "shop/broken"), ("Pod", "shop/waits-oddly")):
        canned.delete(kind, name)
    assert len(states.read(CLUSTER).unreadable) == 2
    assert canned.lists("Pod") == 1


def test_absurd_annotations_and_labels_are_no_obstacle(
    canned: CannedCluster, states: KubernetesClusterStates
) -> None:
    absurd = pod("absurd")
    absurd["metadata"]["annotations"] = {"a": "x\u0085\n\x1b" * 60_000}
    absurd["metadata"]["labels"] = {"10Gi": "1e999999"}
    states.read(CLUSTER)
    canned.put("Pod", absurd)
    assert waiting(states) == ["shop/absurd"]
    assert canned.lists("Pod") == 1


def test_each_cluster_has_its_own_objects(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with (
        running_faulty_server(tmp_path / "one") as first,
        running_faulty_server(tmp_path / "two") as second,
    ):
        clusters = {"one": CannedCluster(first), "two": CannedCluster(second)}
        to = {name: kubeconfig_connection(c.server.kubeconfig) for name, c in clusters.items()}
        states = KubernetesClusterStates(to.__getitem__, FakeClock())
        clusters["one"].put("Pod", pod("web"))
        for _ in range(2):
            assert [len(states.read(name).waiting) for name in clusters] == [1, 0]
        assert [cluster.lists("Pod") for cluster in clusters.values()] == [1, 1]
        # A cluster that was created again with the same name has a new connection.
        first_connection, to["one"] = to["one"], to["two"]
        assert not states.read("one").waiting
        first_connection.close()
        to["two"].close()


def test_only_the_clusters_read_last_are_kept(
    canned: CannedCluster, states: KubernetesClusterStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_states, "MOST_KEPT", 3)
    for name in ("a", "b"):
        canned.put("Pod", pod(name))
    for cluster in ("one", "two", "two", "one"):
        assert len(states.read(cluster).waiting) == 2
    assert canned.lists("Pod") == 3


@pytest.mark.parametrize(
    ("status", "error"), [(503, ClusterUnavailable), (404, ClusterUnavailable)]
)
def test_a_list_that_fails_is_an_error(
    canned: CannedCluster,
    states: KubernetesClusterStates,
    status: int,
    error: type[Exception],
) -> None:
    canned.put("Pod", pod("web"))
    body = {"kind": "Status", "reason": "NotFound", "message": "no", "code": status}
    canned.server.on("GET", PATHS["Node"], json_answer(body, status))
    with pytest.raises(error):
        states.read(CLUSTER)


@pytest.mark.parametrize("body", ['{"kind": "PodList"}', '{"kind": "NodeList"}', "[]", "<html>"])
def test_an_answer_that_is_no_list_of_pods_is_no_empty_cluster(
    canned: CannedCluster, states: KubernetesClusterStates, body: str
) -> None:
    canned.server.on("GET", PATHS["Pod"], text_answer(200, body, "application/json"))
    with pytest.raises((ClusterUnavailable, ClusterRefused)):
        states.read(CLUSTER)


def test_pods_that_come_and_go_while_a_cluster_is_read_are_all_known_in_the_end(
    live: Live, kubeconfig: Path
) -> None:
    connection = kubeconfig_connection(kubeconfig)
    states = KubernetesClusterStates(lambda _: connection, FakeClock())
    live.add_nodes(1, cpu="1")
    writer = threading.Thread(target=come_and_go, args=(live,))
    writer.start()
    while writer.is_alive():
        known = states.read(CLUSTER)
        names = [one.pod.name for one in known.waiting]
        assert len(set(names)) == len(names)
    writer.join()
    live.until(lambda: comparable(states.read(CLUSTER)) == cold(connection))
    assert len(states.read(CLUSTER).waiting) == 20
    connection.close()


def come_and_go(live: Live) -> None:
    for number in range(20):
        nowhere = {"nodeSelector": {"leeway.sh/test": "no-such-node"}}
        live.create(PODS, bare_pod(f"stays-{number}", **nowhere))
        live.create(PODS, bare_pod(f"runs-{number}"))
        live.create(PODS, bare_pod(f"goes-{number}", **nowhere))
        live.api.request("DELETE", f"{PODS}/goes-{number}").raise_for_status()


RAN = {"state": {"terminated": {"finishedAt": "AT"}}}
STILL_RUNS: dict[str, Any] = {"state": {"running": {}}}


LEFT: list[tuple[list[Any] | None, int | None, int]] = [
    ([RAN], 60, 20),
    ([RAN, STILL_RUNS], 30, 30),
    ([], 30, 30),
    (None, 30, 30),
    ([{"state": None}, {}], 30, 30),
    ([{"state": {"terminated": {"finishedAt": None}}}], 30, 30),
    ([{"state": {"terminated": {"finishedAt": "soon"}}}], 30, 60),
    ([], None, 60),
    ([], -600, 0),
    ([], 600, 60),
]
"""The statuses of the containers of a pod, when it was deleted, and when it left its node: in
seconds after the first read; the second one is a minute later."""


def test_a_pod_left_its_node_when_its_containers_ended(
    canned: CannedCluster, states: KubernetesClusterStates, clock: FakeClock
) -> None:
    began = clock.now()
    cases = {f"n-{n}": case for n, case in enumerate(product(LEFT, ("deleted", "finished")))}
    for name in cases:
        canned.put("Node", node(name))
        canned.put("Pod", pod(f"job-{name}", name))
    states.read(CLUSTER)
    at = (began + timedelta(seconds=20)).isoformat()
    for name, ((statuses, deleted, _), how) in cases.items():
        document = pod(f"job-{name}", name)
        status = {"containerStatuses": json.loads(json.dumps(statuses).replace("AT", at))}
        if how == "finished":
            status["phase"] = "Succeeded"
        if deleted is not None:
            deletion = (began + timedelta(seconds=deleted)).isoformat()
            document["metadata"]["deletionTimestamp"] = deletion
        canned.put("Pod", {**document, "status": {**document.get("status", {}), **status}})
        if how == "deleted":
            canned.delete("Pod", f"shop/job-{name}")
    clock.sleep(60)
    details = states.read(CLUSTER).details
    for _ in range(20):  # a busy machine delays the events of the watch
        if not any(details[name].pods for name in cases):
            break
        details = states.read(CLUSTER).details
    for name, case in cases.items():
        assert details[name].pods == (), case
        changed_at = details[name].changed_at
        assert changed_at is not None, case
        assert (changed_at - began).total_seconds() == pytest.approx(case[0][2], abs=0.5), case
