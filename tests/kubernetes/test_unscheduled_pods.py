"""Watches on unscheduled pods: one contract for the adapter, on the sandbox's Kubernetes, and for
the fake; and what only the adapter has to withstand."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.watches import pod_watches
from leeway.pod_watch.burst import SILENCE, UNSCHEDULABLE, UnscheduledPod, needs_new_node
from leeway.pod_watch.follower import OpenWatch, PodChange, PodWatch
from leeway.ports.kubernetes import (
    ClusterForbidden,
    ClusterRefused,
    ClusterUnavailable,
    WatchExpired,
)
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.fakes.pod_watches import PodWatchesInMemory
from tests.kubernetes.faulty_server import (
    Answer,
    FaultyServer,
    json_answer,
    pod,
    running_faulty_server,
    text_answer,
    watch_answer,
)
from tests.pod_watch.watching import World, until
from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

NUMBERS = count(1)
API_PODS = "/api/v1/pods"


class Embedded:
    """The adapter on the sandbox's Kubernetes."""

    def __init__(self, live: Live, connection: Connection) -> None:
        self._live = live
        self.watches: OpenWatch = pod_watches(lambda _: connection)

    def create(self, name: str) -> str:
        """Create a pod that fits on no node; return its UID."""
        body = bare_pod(name)
        body["spec"]["nodeSelector"] = {"only-for": name}
        return str(self._live.create(PODS, body)["metadata"]["uid"])

    def delete(self, name: str) -> None:
        options = {"gracePeriodSeconds": 0}
        self._live.api.request("DELETE", f"{PODS}/{name}", json=options).raise_for_status()


class InMemory:
    """The fake."""

    def __init__(self) -> None:
        watches = PodWatchesInMemory()
        self.watches: OpenWatch = watches
        self._pods = watches.of("c")

    def create(self, name: str) -> str:
        self._pods.put(UnscheduledPod(name, unscheduled_because=UNSCHEDULABLE))
        return name

    def delete(self, name: str) -> None:
        self._pods.put(UnscheduledPod(name), gone=True)


@pytest.fixture
def connection(kubeconfig: Path) -> Iterator[Connection]:
    with closing(kubeconfig_connection(kubeconfig)) as connection:
        yield connection


@pytest.fixture(params=["embedded", "in memory"])
def world(request: pytest.FixtureRequest) -> Embedded | InMemory:
    if request.param == "in memory":
        return InMemory()
    live: Live = request.getfixturevalue("live")
    live.fail_with()
    return Embedded(live, request.getfixturevalue("connection"))


class Reader(threading.Thread):
    """Reads one watch in a thread."""

    def __init__(self, watch: PodWatch) -> None:
        super().__init__(daemon=True)
        self._watch = watch
        self.began = threading.Event()
        self.changes: list[PodChange] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._watch.run(self.began.set, self.changes.append)
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            self.error = error

    def waiting(self) -> set[str]:
        """The UIDs of the pods that need a node, by all changes so far."""
        found: set[str] = set()
        for change in self.changes:
            if change.pod is None:
                continue
            if change.gone or not needs_new_node(change.pod):
                found.discard(change.pod.uid)
            else:
                found.add(change.pod.uid)
        return found


@contextmanager
def reading(watches: OpenWatch, version: str = "") -> Iterator[Reader]:
    watch = watches("c", version)
    reader = Reader(watch)
    reader.start()
    try:
        yield reader
    finally:
        watch.stop()
        reader.join(60)
        assert not reader.is_alive(), "stop did not end the watch"


def new_name() -> str:
    return f"unscheduled-{next(NUMBERS)}"


def test_a_watch_reports_existing_new_and_gone_pods(world: Embedded | InMemory) -> None:
    old, new = new_name(), new_name()
    old_uid = world.create(old)
    with reading(world.watches) as reader:
        until(lambda: old_uid in reader.waiting())
        assert reader.began.is_set()
        new_uid = world.create(new)
        until(lambda: new_uid in reader.waiting())
        world.delete(old)
        until(lambda: old_uid not in reader.waiting())
        assert new_uid in reader.waiting()
    world.delete(new)


def test_a_watch_resumes_after_a_version_without_repeating_older_pods(
    world: Embedded | InMemory,
) -> None:
    old, missed = new_name(), new_name()
    old_uid = world.create(old)
    with reading(world.watches) as reader:
        until(lambda: old_uid in reader.waiting())
    version = reader.changes[-1].version
    missed_uid = world.create(missed)
    with reading(world.watches, version) as reader:
        until(lambda: missed_uid in reader.waiting())
    assert old_uid not in {change.pod.uid for change in reader.changes if change.pod}
    world.delete(old)
    world.delete(missed)


def test_a_pod_that_gets_a_node_leaves_the_watch(live: Live, connection: Connection) -> None:
    world = Embedded(live, connection)
    name = new_name()
    with reading(world.watches) as reader:
        uid = world.create(name)
        until(lambda: uid in reader.waiting())
        live.add_nodes(240, **{"only-for": name})
        until(lambda: uid not in reader.waiting())
    assert reader.changes[-1].gone


def test_a_new_pod_wakes_the_buyer_of_its_cluster(live: Live, connection: Connection) -> None:
    """The whole run, with the sandbox's API server as both clusters."""
    world = World(on=pod_watches(lambda _: connection))
    embedded = Embedded(live, connection)
    name = new_name()
    with world.running():
        until(lambda: world.lease.stored and world.lease.stored.watching)
        before = time.monotonic()
        embedded.create(name)
        until(lambda: world.reported("blue") and world.reported("green"))
        assert time.monotonic() - before >= SILENCE
        embedded.delete(name)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FaultyServer]:
    with running_faulty_server(tmp_path) as server:
        yield server


@pytest.fixture
def watches(server: FaultyServer) -> Iterator[OpenWatch]:
    with closing(kubeconfig_connection(server.kubeconfig)) as connection:
        yield pod_watches(lambda _: connection)


def status(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "message": "no"}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (json_answer(status(410), 410), WatchExpired),
        (watch_answer(("ERROR", status(410))), WatchExpired),
        (watch_answer(("ERROR", status(500))), ClusterUnavailable),
        (json_answer(status(401), 401), ClusterUnavailable),
        (json_answer(status(403), 403), ClusterForbidden),
        (json_answer(status(404), 404), ClusterUnavailable),
        (json_answer(status(422), 422), ClusterRefused),
        (json_answer(status(503), 503), ClusterUnavailable),
        (text_answer(200, "<html>Sign in</html>", "text/html"), ClusterUnavailable),
        (text_answer(502, "bad gateway", "text/plain"), ClusterUnavailable),
        (watch_answer(("ADDED", {"metadata": {"uid": 5}})), ClusterUnavailable),
    ],
)
def test_a_failure_of_the_api_server_is_named(
    server: FaultyServer, watches: OpenWatch, answer: Answer, error: type[Exception]
) -> None:
    server.on("WATCH", API_PODS, answer)
    with pytest.raises(error) as raised:
        watches("c", "5").run(lambda: None, lambda _: None)
    assert type(raised.value) is error


def test_a_watch_asks_for_unscheduled_pods_and_bookmarks(
    server: FaultyServer, watches: OpenWatch
) -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "77"}}
    server.on("WATCH", API_PODS, watch_answer(("BOOKMARK", bookmark), stays_open=False))
    found: list[PodChange] = []
    for version in ("", "12"):
        watches("c", version).run(lambda: None, found.append)
    assert found == [PodChange("77"), PodChange("77")]
    queries = [query for _, _, query in server.requests]
    assert [query["resourceVersion"] for query in queries] == ["0", "12"]
    assert {query["fieldSelector"] for query in queries} == {"spec.nodeName="}
    assert {query["allowWatchBookmarks"] for query in queries} == {"true"}


def test_a_line_that_never_ends_does_not_fill_the_memory(
    server: FaultyServer, watches: OpenWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.kubernetes.list_watch.LONGEST_LINE", 1000)

    def endless(request: Any) -> None:
        request.start_stream()
        while not request.faulty.stopped.wait(0.01):
            request.wfile.write(b"x" * 500)

    server.on("WATCH", API_PODS, endless)
    with pytest.raises(ClusterUnavailable, match="line of more than"):
        watches("c", "").run(lambda: None, lambda _: None)


def test_fields_that_decide_are_read_from_the_object(
    server: FaultyServer, watches: OpenWatch
) -> None:
    about: dict[str, Any] = pod("web", node="")
    about["metadata"] |= {
        "resourceVersion": "9",
        "deletionTimestamp": "2026-11-22T10:00:00Z",
        "ownerReferences": [{"kind": "DaemonSet", "name": "cni", "uid": "u"}],
    }
    about["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    about["status"] = {
        "phase": "Pending",
        "nominatedNodeName": "node-1",
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "Other"},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        ],
    }
    del about["spec"]["nodeName"]
    server.on("WATCH", API_PODS, watch_answer(("MODIFIED", about), stays_open=False))
    found: list[PodChange] = []
    watches("c", "").run(lambda: None, found.append)
    uid = json.loads(json.dumps(about))["metadata"]["uid"]
    assert found == [
        PodChange(
            "9",
            UnscheduledPod(
                uid,
                nominated="node-1",
                gated=True,
                terminating=True,
                of_daemon_set=True,
                unscheduled_because="Unschedulable",
            ),
        )
    ]
