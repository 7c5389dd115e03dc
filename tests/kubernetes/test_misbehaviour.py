"""An API server that is slow without end, contradicts itself, or is not one: what a drain makes
of it."""

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
from leeway.drain.answers import Meaning, read_answer
from leeway.drain.deadline import Terms
from leeway.drain.decide_pod import PodAction, decide_pod
from leeway.drain.executor import DrainExecutor
from leeway.drain.progress import Drain
from leeway.headroom.plan import ScaleTarget
from leeway.kubernetes.kubeconfig import kubeconfig_cluster, kubeconfig_connection
from leeway.kubernetes.lightkube_cluster import LightkubeCluster
from leeway.kubernetes.workloads import HttpWorkloads
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes import ClusterUnavailable, PodFeed
from leeway.ports.kubernetes_objects import Controller, Node, Pod

from tests.kubernetes.wayward import Answer, Asked, Wayward, plain, pod, pods, said, watched
from tests.kubernetes.wayward import wayward_server as running

PODS = "/api/v1/pods"
WEB = Pod("shop", "web", "uid-web", "Running", 1, None)
EVICTION = "/api/v1/namespaces/shop/pods/web/eviction"
ELSEWHERE = pod("stray", node="node-2")
HANGS = 30
"""Seconds after which a test calls it hanging what should take one or two."""


@pytest.fixture
def wayward(tmp_path: Path) -> Iterator[Wayward]:
    with running(tmp_path) as server:
        yield server


@pytest.fixture
def cluster(wayward: Wayward) -> Iterator[LightkubeCluster]:
    opened = kubeconfig_cluster(wayward.kubeconfig)
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
def test_an_answer_that_comes_byte_by_byte_is_not_waited_for_without_end(
    wayward: Wayward, cluster: LightkubeCluster, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.kubernetes.transport.REQUEST_SECONDS", 0.4)
    wayward.otherwise(lambda asked: asked.trickle(start, b"a"))
    answer = read_answer(cluster.evict(WEB, None))
    assert answer.meaning is Meaning.TRANSIENT
    assert "Timeout" in answer.reason.message
    with pytest.raises(ClusterUnavailable, match="Timeout"):
        cluster.node("node-1")


@pytest.mark.parametrize("start", [BODY_TRICKLES, HEADER_TRICKLES])
def test_a_drain_ends_at_its_deadline_though_everything_comes_byte_by_byte(
    wayward: Wayward, cluster: LightkubeCluster, start: bytes
) -> None:
    wayward.otherwise(lambda asked: asked.trickle(start, b"a"))
    assert drained(cluster, 0.5).problem


def test_a_drain_ends_though_evictions_are_answered_byte_by_byte(
    wayward: Wayward, cluster: LightkubeCluster
) -> None:
    wayward.otherwise(lambda asked: asked.trickle(BODY_TRICKLES, b"a"))
    wayward.on("GET", PODS, said(pods(pod("web"))))
    wayward.on("WATCH", PODS, watched())
    result = drained(cluster, 0.5)
    assert not result.drained
    assert wayward.count("POST", EVICTION) == 1


def drained(cluster: LightkubeCluster, seconds: float) -> Drain:
    """Drain until a deadline, in a thread, so that a hang is told as one."""
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
    wayward: Wayward, cluster: LightkubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.kubernetes.transport.REQUEST_SECONDS", 0.3)
    wayward.on("GET", PODS, said(pods()))
    wayward.on("WATCH", PODS, late_news)
    with cluster.watch_pods("node-1") as feed:
        until(lambda: names(feed) == {"late"})
    assert (wayward.count("GET", PODS), wayward.count("WATCH", PODS)) == (1, 1)


def late_news(asked: Asked) -> None:
    asked.begin()
    asked.wayward.over.wait(0.9)
    asked.wfile.write(line("ADDED", pod("late")))
    asked.wayward.over.wait(HANGS)


def line(kind: str, about: object) -> bytes:
    return json.dumps({"type": kind, "object": about}).encode() + b"\n"


def test_a_watch_that_only_trickles_misleads_nobody_for_longer_than_a_watch_lasts(
    wayward: Wayward, cluster: LightkubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.kubernetes.pod_feed._WATCH_ENDS", 0.4)
    wayward.on("WATCH", PODS, lambda asked: asked.trickle(HEADER + b"\r\n{", b" "))
    wayward.on("GET", PODS, said(pods(pod("gone-by-now"))))
    with cluster.watch_pods("node-1") as feed:
        assert names(feed) == {"gone-by-now"}
        wayward.on("GET", PODS, said(pods()))
        until(lambda: names(feed) == set())


def test_a_watch_that_ends_at_once_is_begun_once_a_list(
    wayward: Wayward, cluster: LightkubeCluster
) -> None:
    wayward.on("GET", PODS, said(pods(pod("web"))))
    wayward.on("WATCH", PODS, watched(stays=False))
    with cluster.watch_pods("node-1") as feed:
        until(lambda: names(feed) == {"web"} and wayward.count("GET", PODS) >= 2)
    assert wayward.count("WATCH", PODS) <= wayward.count("GET", PODS)


def test_a_watch_is_read_whatever_characters_a_pod_has(
    wayward: Wayward, cluster: LightkubeCluster
) -> None:
    odd = pod("odd", annotations={"note": "one\u0085two\u2028three"})
    wayward.on("GET", PODS, said(pods()))
    wayward.on("WATCH", PODS, watched(("ADDED", odd)))
    with cluster.watch_pods("node-1") as feed:
        until(lambda: names(feed) == {"odd"})
    assert wayward.count("GET", PODS) == 1


def test_a_bookmark_is_no_pod(wayward: Wayward, cluster: LightkubeCluster) -> None:
    bookmark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}
    wayward.on("GET", PODS, said(pods()))
    wayward.on("WATCH", PODS, watched(("BOOKMARK", bookmark), ("ADDED", pod("web"))))
    with cluster.watch_pods("node-1") as feed:
        until(lambda: "web" in names(feed))
        assert names(feed) == {"web"}
    assert wayward.count("GET", PODS) == 1, "nor does it end the watch"


def test_news_that_can_not_be_understood_hide_none_that_follow(
    wayward: Wayward, cluster: LightkubeCluster
) -> None:
    wayward.on("GET", PODS, said(pods()))
    # The watch ends right after a pod that was not asked for.
    wayward.on("WATCH", PODS, watched(("ADDED", ELSEWHERE), stays=False))
    wayward.otherwise(plain(503, "overloaded", "text/plain"))
    with cluster.watch_pods("node-1") as feed:

        def fails() -> bool:
            try:
                names(feed)
            except ClusterUnavailable:
                return True
            return False

        until(fails)
        wayward.on("GET", PODS, said(pods(pod("web"))))

        def seen() -> set[str]:
            try:
                return names(feed)
            except ClusterUnavailable:
                return set()

        assert until(seen) == {"web"}


def test_a_node_whose_pods_can_not_be_understood_is_never_taken_for_empty(
    wayward: Wayward, cluster: LightkubeCluster
) -> None:
    wayward.on("GET", PODS, said(pods(ELSEWHERE)))
    wayward.otherwise(plain(503, "overloaded", "text/plain"))
    with cluster.watch_pods("node-1") as feed:
        for _ in range(3):
            with pytest.raises(ClusterUnavailable):
                feed.pods()


def owned(name: str, owner: str, version: str = "apps/v1") -> dict[str, Any]:
    reference = {"kind": "DaemonSet", "name": owner, "uid": "u", "apiVersion": version}
    return pod(name, ownerReferences=[{**reference, "controller": True}])


@pytest.mark.parametrize(
    ("status", "reason", "said_of_it"),
    [(503, "ServiceUnavailable", "503"), (403, "Forbidden", "403"), (400, "BadRequest", "400")],
)
def test_a_daemonset_that_can_not_be_looked_up_leaves_its_own_pod_and_no_other(
    wayward: Wayward, cluster: LightkubeCluster, status: int, reason: str, said_of_it: str
) -> None:
    failure = {"kind": "Status", "code": status, "reason": reason, "message": "not now"}
    wayward.on("GET", PODS, said(pods(owned("cni-1", "cni"), pod("web"))))
    wayward.otherwise(said(failure, status))
    daemon, web = cluster.pods_on("node-1")
    now = SystemClock().now()
    assert (decide_pod(web, now).action, web.name) == (PodAction.EVICT, "web")
    left = decide_pod(daemon, now)
    assert left.action is PodAction.LEAVE
    assert left.reason.code == "DaemonSetNotReadable"
    assert said_of_it in left.reason.message
    assert "DaemonSet shop/cni" in left.reason.message


def test_look_ups_of_daemonsets_that_hang_hold_up_a_list_once(
    wayward: Wayward, cluster: LightkubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.kubernetes.lightkube_cluster.FEW_SECONDS", 0.5)
    wayward.on(
        "GET", PODS, said(pods(*(owned(f"d-{n}", f"ds-{n}") for n in range(20)), pod("web")))
    )
    wayward.otherwise(lambda asked: asked.trickle(BODY_TRICKLES, b"a"))
    listed = cluster.pods_on("node-1")
    assert len(listed) == 21
    assert len(wayward.seen) < 5, "one list, and one look-up that nobody answers"


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
def test_an_owner_that_can_be_no_daemonset_is_not_looked_up_and_its_pod_is_drained(
    wayward: Wayward, cluster: LightkubeCluster, owner: str, version: str
) -> None:
    wayward.on("GET", PODS, said(pods(owned("odd", owner, version), pod("web"))))
    wayward.otherwise(plain(500, "not to be asked", "text/plain"))
    odd, web = cluster.pods_on("node-1")
    now = SystemClock().now()
    assert {decide_pod(one, now).action for one in (odd, web)} == {PodAction.EVICT}
    assert decide_pod(odd, now).reason.message.isprintable()
    assert {path for _, path, _ in wayward.seen} == {PODS}


def test_a_daemonset_that_was_seen_is_looked_up_again_after_a_while(
    wayward: Wayward, cluster: LightkubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/apis/apps/v1/namespaces/shop/daemonsets/cni"
    wayward.on("GET", PODS, said(pods(owned("cni-1", "cni"))))
    spec: dict[str, Any] = {"selector": {}, "template": {}}
    wayward.on("GET", path, said({"kind": "DaemonSet", "metadata": {"name": "cni"}, "spec": spec}))
    for _ in range(2):
        (daemon,) = cluster.pods_on("node-1")
        assert daemon.controller == Controller("DaemonSet", "cni", exists=True)
    assert wayward.count("GET", path) == 1
    monkeypatch.setattr("leeway.kubernetes.lightkube_cluster.LIVES_FOR", -1.0)
    gone = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "gone"}
    wayward.on("GET", path, said(gone, 404))
    (orphan,) = cluster.pods_on("node-1")
    assert orphan.controller is not None
    assert orphan.controller.exists is False


def test_where_following_pages_have_expired_all_is_listed_at_once(
    wayward: Wayward, cluster: LightkubeCluster
) -> None:
    def listed(asked: Asked) -> None:
        if "continue" in asked.query:
            expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            said(expired, 410)(asked)
        elif "limit" in asked.query:
            said(pods(pod("web"), following="more"))(asked)
        else:
            said(pods(pod("web"), pod("db")))(asked)

    wayward.on("GET", PODS, listed)
    assert [one.name for one in cluster.pods_on("node-1")] == ["web", "db"]


def test_a_list_that_goes_round_in_circles_is_none(
    wayward: Wayward, cluster: LightkubeCluster
) -> None:
    wayward.on("GET", PODS, said(pods(pod("web"), following="more")))
    with pytest.raises(ClusterUnavailable, match="circles"):
        cluster.pods_on("node-1")


def test_pods_of_other_nodes_are_never_a_nodes_pods(
    wayward: Wayward, cluster: LightkubeCluster
) -> None:
    wayward.on("GET", PODS, said(pods(pod("web"), pod("stranger", node="node-2"))))
    with pytest.raises(ClusterUnavailable, match="stranger was listed, which is not on node-1"):
        cluster.pods_on("node-1")


SOMEBODY_ELSES = [
    plain(200, "<html>Please log in</html>", "text/html"),
    plain(302, "<html>Moved</html>", "text/html"),
    plain(404, "default backend - 404", "text/plain"),
    plain(404, "<html>Not found</html>", "text/html"),
    said({"message": "no Route matched with those values"}, 404),
    said({"message": "conflicting precondition"}, 409),
    plain(403, "<html>Blocked</html>", "text/html"),
    plain(502, "<html>Bad gateway</html>", "text/html"),
    plain(200, "", "application/json"),
    said({"items": []}),
    said([]),
    said("ok"),
]


@pytest.mark.parametrize("answer", SOMEBODY_ELSES)
def test_an_answer_of_somebody_in_between_is_never_taken_for_the_api_servers(
    wayward: Wayward, cluster: LightkubeCluster, answer: Answer
) -> None:
    wayward.otherwise(answer)
    with pytest.raises(ClusterUnavailable):
        cluster.pods_on("node-1")
    with pytest.raises(ClusterUnavailable):
        cluster.node("node-1")
    with pytest.raises(ClusterUnavailable):
        cluster.ready_nodes()
    with pytest.raises(ClusterUnavailable):
        cluster.delete_node(Node("node-1", "uid", "", True, False, {}, version="1"))
    target = ScaleTarget("apps/v1", "Deployment", "shop", "web")
    with (
        closing(kubeconfig_connection(wayward.kubeconfig)) as connection,
        pytest.raises(ClusterUnavailable),
    ):
        HttpWorkloads(connection).scale_of(target)


@pytest.mark.parametrize("answer", SOMEBODY_ELSES)
@pytest.mark.parametrize("ask", ["evict", "delete"])
def test_a_pod_is_neither_gone_nor_on_its_way_because_somebody_in_between_says_so(
    wayward: Wayward, cluster: LightkubeCluster, answer: Answer, ask: str
) -> None:
    wayward.otherwise(answer)
    make = cluster.evict if ask == "evict" else cluster.delete
    assert read_answer(make(WEB, None)).meaning is Meaning.TRANSIENT


@pytest.mark.parametrize(
    ("asked", "told"), [("1", 1), ("0", 0), ("86400", 60), ("9" * 5000, 60), ("soon", None)]
)
def test_patience_is_had_for_a_minute_at_most(
    wayward: Wayward, cluster: LightkubeCluster, asked: str, told: int | None
) -> None:
    def overloaded(request: Asked) -> None:
        request.send_response(429)
        request.send_header("Retry-After", asked)
        request.send_header("Content-Length", "0")
        request.end_headers()

    wayward.otherwise(overloaded)
    assert cluster.evict(WEB, None).retry_after == told


def test_every_request_names_leeway_and_its_version_as_the_client(
    wayward: Wayward, cluster: LightkubeCluster
) -> None:
    failure = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "gone"}
    wayward.otherwise(said(failure, 404))
    wayward.on("GET", PODS, said(pods()))
    wayward.on("WATCH", PODS, watched())
    target = ScaleTarget("apps/v1", "Deployment", "shop", "web")
    with closing(kubeconfig_connection(wayward.kubeconfig)) as connection:
        assert HttpWorkloads(connection).scale_of(target) is None
    assert cluster.node("node-1") is None
    cluster.evict(WEB, None)
    cluster.delete(WEB, None)
    with cluster.watch_pods("node-1") as feed:
        until(lambda: names(feed) == set() and wayward.count("WATCH", PODS))
    assert wayward.agents == {f"leeway/{__version__}"}
