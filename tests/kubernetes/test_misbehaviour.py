"""Faults of API servers and proxies: slow answers, invalid answers, answers of a proxy."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from leeway import __version__
from leeway.clock import SystemClock
from leeway.headroom.plan import ScaleTarget
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.kubernetes.list_watch import WATCH_SECONDS
from leeway.kubernetes.workloads import HttpWorkloads
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes import ClusterUnavailable, PodFeed
from leeway.ports.kubernetes_objects import Controller, Node, Pod
from leeway.retirement.executor import DrainExecutor
from leeway.retirement.pods import Meaning, PodAction, Terms, decide_pod, read_answer
from leeway.retirement.progress import Drain
from leeway_cli.kubeconfig import kubeconfig_cluster, kubeconfig_connection

from tests.kubernetes.faulty_server import (
    Answer,
    FaultyServer,
    Request,
    json_answer,
    pod,
    pods,
    running_faulty_server,
    text_answer,
    watch_answer,
)

PODS = "/api/v1/pods"
WEB = Pod("shop", "web", "uid-web", "Running", 1, None)
EVICTION = "/api/v1/namespaces/shop/pods/web/eviction"
POD_OF_OTHER_NODE = pod("stray", node="node-2")
HANGS = 60
"""Seconds after which a test fails instead of hanging."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FaultyServer]:
    with running_faulty_server(tmp_path) as server:
        yield server


@pytest.fixture
def cluster(server: FaultyServer) -> Iterator[HttpCluster]:
    opened = kubeconfig_cluster(server.kubeconfig)
    yield opened
    opened.close()


def until[Result](condition: Callable[[], Result]) -> Result:
    give_up = time.monotonic() + HANGS
    while not (result := condition()):
        assert time.monotonic() < give_up, "what the test waits for did not happen"
        time.sleep(0.02)
    return result


def names(feed: PodFeed) -> set[str]:
    feed.wait(0.05)
    return {one.name for one in feed.pods()}


HEADER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BODY_TRICKLES = HEADER + b'Content-Length: 9999\r\n\r\n{"'
HEADER_TRICKLES = b"HTTP/1.1 200 OK\r\nX-Long: "


@pytest.mark.parametrize("start", [BODY_TRICKLES, HEADER_TRICKLES])
def test_an_answer_that_comes_byte_by_byte_exceeds_the_total_timeout(
    server: FaultyServer, cluster: HttpCluster, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.kubernetes.transport.REQUEST_SECONDS", 0.4)
    monkeypatch.setattr("leeway.kubernetes.http_cluster.EVICTION_SECONDS", 0.4)
    server.by_default(lambda request: request.trickle(start, b"a"))
    answer = read_answer(cluster.evict(WEB, None))
    assert answer.meaning is Meaning.TRANSIENT
    assert "Timeout" in answer.reason.message
    with pytest.raises(ClusterUnavailable, match="Timeout"):
        cluster.node("node-1")


@pytest.mark.parametrize("start", [BODY_TRICKLES, HEADER_TRICKLES])
def test_a_drain_ends_at_its_deadline_if_all_answers_come_byte_by_byte(
    server: FaultyServer, cluster: HttpCluster, start: bytes
) -> None:
    server.by_default(lambda request: request.trickle(start, b"a"))
    assert drained(cluster, 0.5).problem


def test_a_drain_ends_if_evictions_are_answered_byte_by_byte(
    server: FaultyServer, cluster: HttpCluster
) -> None:
    server.by_default(lambda request: request.trickle(BODY_TRICKLES, b"a"))
    server.on("GET", PODS, json_answer(pods(pod("web"))))
    server.on("WATCH", PODS, watch_answer())
    result = drained(cluster, 0.5)
    assert not result.drained
    assert server.count("POST", EVICTION) == 1


def drained(cluster: HttpCluster, seconds: float) -> Drain:
    """Drain until a deadline in a thread, so that a hang fails the test."""
    now = SystemClock().now()
    terms = Terms(now + timedelta(seconds=seconds), OnBlocked.DELETE)
    results: list[Drain] = []

    def work() -> None:
        executor = DrainExecutor(cluster, SystemClock())
        results.append(executor.run("node-1", Drain(), terms, now + timedelta(minutes=5)))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(HANGS)
    assert results, "the drain hangs past its deadline"
    return results[0]


def test_a_watch_may_take_longer_than_other_requests(
    server: FaultyServer, cluster: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.kubernetes.transport.REQUEST_SECONDS", 2.0)
    server.on("GET", PODS, json_answer(pods()))
    server.on("WATCH", PODS, late_event)
    with cluster.watch_pods("node-1") as feed:
        until(lambda: names(feed) == {"late"})
    assert (server.count("GET", PODS), server.count("WATCH", PODS)) == (1, 1)


def late_event(request: Request) -> None:
    request.start_stream()
    request.faulty.stopped.wait(3.0)
    request.wfile.write(line("ADDED", pod("late")))
    request.faulty.stopped.wait(HANGS)


def line(kind: str, about: object) -> bytes:
    return json.dumps({"type": kind, "object": about}).encode() + b"\n"


def test_a_watch_that_sends_no_events_is_replaced_by_a_list_after_its_timeout(
    server: FaultyServer, cluster: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.kubernetes.list_watch.EXTRA_SECONDS", 0.4 - WATCH_SECONDS)
    server.on("WATCH", PODS, lambda request: request.trickle(HEADER + b"\r\n{", b" "))
    server.on("GET", PODS, json_answer(pods(pod("gone-by-now"))))
    with cluster.watch_pods("node-1") as feed:
        assert names(feed) == {"gone-by-now"}
        server.on("GET", PODS, json_answer(pods()))
        until(lambda: names(feed) == set())


def test_a_watch_that_ends_at_once_is_started_once_per_list(
    server: FaultyServer, cluster: HttpCluster
) -> None:
    server.on("GET", PODS, json_answer(pods(pod("web"))))
    server.on("WATCH", PODS, watch_answer(stays_open=False))
    with cluster.watch_pods("node-1") as feed:
        until(lambda: names(feed) == {"web"} and server.count("GET", PODS) >= 2)
    assert server.count("WATCH", PODS) <= server.count("GET", PODS)


def test_unicode_line_separators_do_not_split_watch_events(
    server: FaultyServer, cluster: HttpCluster
) -> None:
    odd = pod("odd", annotations={"note": "one\u0085two\u2028three"})
    server.on("GET", PODS, json_answer(pods()))
    server.on("WATCH", PODS, watch_answer(("ADDED", odd)))
    with cluster.watch_pods("node-1") as feed:
        until(lambda: names(feed) == {"odd"})
    assert server.count("GET", PODS) == 1


def test_a_bookmark_is_not_a_pod(server: FaultyServer, cluster: HttpCluster) -> None:
    bookmark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}
    server.on("GET", PODS, json_answer(pods()))
    server.on("WATCH", PODS, watch_answer(("BOOKMARK", bookmark), ("ADDED", pod("web"))))
    with cluster.watch_pods("node-1") as feed:
        until(lambda: "web" in names(feed))
        assert names(feed) == {"web"}
    assert server.count("GET", PODS) == 1, "a bookmark does not end the watch"


def test_an_invalid_watch_event_does_not_hide_later_ones(
    server: FaultyServer, cluster: HttpCluster
) -> None:
    server.on("GET", PODS, json_answer(pods()))
    # The watch ends right after a pod of another node.
    server.on("WATCH", PODS, watch_answer(("ADDED", POD_OF_OTHER_NODE), stays_open=False))
    server.by_default(text_answer(503, "overloaded", "text/plain"))
    with cluster.watch_pods("node-1") as feed:

        def fails() -> bool:
            try:
                names(feed)
            except ClusterUnavailable:
                return True
            return False

        until(fails)
        server.on("GET", PODS, json_answer(pods(pod("web"))))

        def seen() -> set[str]:
            try:
                return names(feed)
            except ClusterUnavailable:
                return set()

        assert until(seen) == {"web"}


def test_a_node_with_invalid_pods_never_counts_as_empty(
    server: FaultyServer, cluster: HttpCluster
) -> None:
    server.on("GET", PODS, json_answer(pods(POD_OF_OTHER_NODE)))
    server.by_default(text_answer(503, "overloaded", "text/plain"))
    with cluster.watch_pods("node-1") as feed:
        for _ in range(3):
            with pytest.raises(ClusterUnavailable):
                feed.pods()


def owned(name: str, owner: str, version: str = "apps/v1") -> dict[str, Any]:
    reference = {"kind": "DaemonSet", "name": owner, "uid": "u", "apiVersion": version}
    return pod(name, ownerReferences=[{**reference, "controller": True}])


@pytest.mark.parametrize(
    ("status", "reason", "status_text"),
    [(503, "ServiceUnavailable", "503"), (403, "Forbidden", "403"), (400, "BadRequest", "400")],
)
def test_a_daemonset_lookup_that_fails_keeps_only_its_own_pod(
    server: FaultyServer, cluster: HttpCluster, status: int, reason: str, status_text: str
) -> None:
    failure = {"kind": "Status", "code": status, "reason": reason, "message": "not now"}
    server.on("GET", PODS, json_answer(pods(owned("cni-1", "cni"), pod("web"))))
    server.by_default(json_answer(failure, status))
    daemon, web = cluster.pods_on("node-1")
    now = SystemClock().now()
    assert (decide_pod(web, now).action, web.name) == (PodAction.EVICT, "web")
    left = decide_pod(daemon, now)
    assert left.action is PodAction.LEAVE
    assert "cannot read whether DaemonSet" in left.reason.message
    assert status_text in left.reason.message
    assert "DaemonSet shop/cni" in left.reason.message


def test_daemonset_lookups_that_hang_delay_a_list_only_once(
    server: FaultyServer, cluster: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.kubernetes.http_cluster.SMALL_REQUEST_SECONDS", 0.5)
    server.on(
        "GET", PODS, json_answer(pods(*(owned(f"d-{n}", f"ds-{n}") for n in range(20)), pod("web")))
    )
    server.by_default(lambda request: request.trickle(BODY_TRICKLES, b"a"))
    listed = cluster.pods_on("node-1")
    assert len(listed) == 21
    assert len(server.requests) < 5, "one list, and one lookup that times out"


@pytest.mark.parametrize(
    ("owner", "version"),
    [
        ("a\u0001", "apps/v1"),
        ("a/status", "apps/v1"),
        ("../../../api/v1/nodes", "apps/v1"),
        ("..", "apps/v1"),
        ("cni?limit=1", "apps/v1"),
        ("cni\n", "apps/v1"),
        ("Cni", "apps/v1"),
        ("", "apps/v1"),
        ("a" * 254, "apps/v1"),
        ("cni", "apps.kruise.io/v1alpha1"),
        ("cni", "v1"),
    ],
)
def test_an_invalid_daemonset_owner_is_not_looked_up_and_its_pod_is_drained(
    server: FaultyServer, cluster: HttpCluster, owner: str, version: str
) -> None:
    server.on("GET", PODS, json_answer(pods(owned("odd", owner, version), pod("web"))))
    server.by_default(text_answer(500, "unexpected request", "text/plain"))
    odd, web = cluster.pods_on("node-1")
    now = SystemClock().now()
    assert {decide_pod(one, now).action for one in (odd, web)} == {PodAction.EVICT}
    assert decide_pod(odd, now).reason.message.isprintable()
    assert {path for _, path, _ in server.requests} == {PODS}


def test_a_found_daemonset_is_looked_up_again_after_the_cache_time(
    server: FaultyServer, cluster: HttpCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/apis/apps/v1/namespaces/shop/daemonsets/cni"
    server.on("GET", PODS, json_answer(pods(owned("cni-1", "cni"))))
    spec: dict[str, Any] = {"selector": {}, "template": {}}
    server.on(
        "GET", path, json_answer({"kind": "DaemonSet", "metadata": {"name": "cni"}, "spec": spec})
    )
    for _ in range(2):
        (daemon,) = cluster.pods_on("node-1")
        assert daemon.controller == Controller("DaemonSet", "cni", exists=True)
    assert server.count("GET", path) == 1
    monkeypatch.setattr("leeway.kubernetes.http_cluster.DAEMONSET_CACHE_SECONDS", -1.0)
    gone = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "gone"}
    server.on("GET", path, json_answer(gone, 404))
    (orphan,) = cluster.pods_on("node-1")
    assert orphan.controller is not None
    assert orphan.controller.exists is False


def test_a_list_with_an_expired_continue_token_is_repeated_in_one_page(
    server: FaultyServer, cluster: HttpCluster
) -> None:
    def listed(request: Request) -> None:
        if "continue" in request.query:
            expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            json_answer(expired, 410)(request)
        elif "limit" in request.query:
            json_answer(pods(pod("web"), next_page="more"))(request)
        else:
            json_answer(pods(pod("web"), pod("db")))(request)

    server.on("GET", PODS, listed)
    assert [one.name for one in cluster.pods_on("node-1")] == ["web", "db"]


def test_a_list_that_repeats_its_continue_token_is_an_error(
    server: FaultyServer, cluster: HttpCluster
) -> None:
    server.on("GET", PODS, json_answer(pods(pod("web"), next_page="more")))
    with pytest.raises(ClusterUnavailable, match="repeats its continue token"):
        cluster.pods_on("node-1")


def test_pods_of_other_nodes_in_a_list_are_an_error(
    server: FaultyServer, cluster: HttpCluster
) -> None:
    server.on("GET", PODS, json_answer(pods(pod("web"), pod("stranger", node="node-2"))))
    with pytest.raises(ClusterUnavailable, match="pod stranger of another node"):
        cluster.pods_on("node-1")


PROXY_ANSWERS = [
    text_answer(200, "<html>Please log in</html>", "text/html"),
    text_answer(302, "<html>Moved</html>", "text/html"),
    text_answer(404, "default backend - 404", "text/plain"),
    text_answer(404, "<html>Not found</html>", "text/html"),
    json_answer({"message": "no Route matched with those values"}, 404),
    json_answer({"message": "conflicting precondition"}, 409),
    text_answer(403, "<html>Blocked</html>", "text/html"),
    text_answer(502, "<html>Bad gateway</html>", "text/html"),
    text_answer(200, "", "application/json"),
    json_answer({"items": []}),
]


@pytest.mark.parametrize("answer", PROXY_ANSWERS)
def test_an_answer_of_a_proxy_never_counts_as_the_api_servers(
    server: FaultyServer, cluster: HttpCluster, answer: Answer
) -> None:
    server.by_default(answer)
    with pytest.raises(ClusterUnavailable):
        cluster.pods_on("node-1")
    with pytest.raises(ClusterUnavailable):
        cluster.node("node-1")
    with pytest.raises(ClusterUnavailable):
        cluster.count_nodes()
    with pytest.raises(ClusterUnavailable):
        cluster.delete_node(Node("node-1", "uid", "", True, False, {}, version="1"))
    target = ScaleTarget("apps/v1", "Deployment", "shop", "web")
    with (
        closing(kubeconfig_connection(server.kubeconfig)) as connection,
        pytest.raises(ClusterUnavailable),
    ):
        HttpWorkloads(connection).scale_of(target)
    for ask in (cluster.evict, cluster.delete):
        assert read_answer(ask(WEB, None)).meaning is Meaning.TRANSIENT


@pytest.mark.parametrize(
    ("header", "seconds"), [("1", 1), ("0", 0), ("86400", 60), ("9" * 5000, 60), ("soon", None)]
)
def test_retry_after_is_at_most_a_minute(
    server: FaultyServer, cluster: HttpCluster, header: str, seconds: int | None
) -> None:
    def overloaded(request: Request) -> None:
        request.send_response(429)
        request.send_header("Retry-After", header)
        request.send_header("Content-Length", "0")
        request.end_headers()

    server.by_default(overloaded)
    assert cluster.evict(WEB, None).retry_after == seconds


def test_every_request_names_leeway_and_its_version_as_the_client(
    server: FaultyServer, cluster: HttpCluster
) -> None:
    failure = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "gone"}
    server.by_default(json_answer(failure, 404))
    server.on("GET", PODS, json_answer(pods()))
    server.on("WATCH", PODS, watch_answer())
    target = ScaleTarget("apps/v1", "Deployment", "shop", "web")
    with closing(kubeconfig_connection(server.kubeconfig)) as connection:
        assert HttpWorkloads(connection).scale_of(target) is None
    assert cluster.node("node-1") is None
    cluster.evict(WEB, None)
    cluster.delete(WEB, None)
    with cluster.watch_pods("node-1") as feed:
        until(lambda: names(feed) == set() and server.count("WATCH", PODS))
    assert server.user_agents == {f"leeway/{__version__}"}
