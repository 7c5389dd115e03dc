"""Drains, watches and connections end while requests hang: no byte of another file is lost, and no
thread and no file descriptor stays."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from queue import SimpleQueue

import pytest
from leeway.clock import SystemClock
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.kubernetes.list_watch import WatchRequest, WatchStream
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod, Response
from leeway.retirement.executor import DrainExecutor
from leeway.retirement.pods import Terms
from leeway.retirement.progress import Drain
from leeway_cli.kubeconfig import kubeconfig_cluster, kubeconfig_connection

from tests.kubernetes.faulty_server import Request, json_answer, pods, running_faulty_server
from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

NUMBERS = count(1)
SECONDS = 4
"""How long the API server takes to answer. It answers only what the client has not closed."""

EVICTIONS_HANG = {"verb": "create", "resource": "pods/eviction", "latency": SECONDS}
WATCHES_HANG = {"verb": "watch", "resource": "pods", "latency": SECONDS}
PODS_OF_NODE = 8
FILES = 60
WEB = Pod("shop", "web", "uid-web", "Running", 1, None)


@pytest.fixture
def node(live: Live) -> Iterator[str]:
    """A node with pods whose evictions hang."""
    (node,) = live.add_nodes(next(NUMBERS))
    names = [f"{node.partition('.')[0]}-{number}" for number in range(PODS_OF_NODE)]
    for name in names:
        live.create(PODS, bare_pod(name, nodeName=node))
    live.until(lambda: {one["metadata"]["name"] for one in live.running("")} >= set(names))
    live.fail_with(EVICTIONS_HANG)
    yield node
    live.fail_with()


def drain(cluster: HttpCluster, node: str) -> None:
    """Drain until the evictions hang, and no longer."""
    now = SystemClock().now()
    DrainExecutor(cluster, SystemClock()).run(
        node, Drain(), Terms(), now, answers_until=now + timedelta(seconds=0.1)
    )


def threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("watches", [{}, WATCHES_HANG])
def test_no_byte_is_lost_of_files_that_are_opened_while_drains_end(
    live: Live, kubeconfig: Path, node: str, tmp_path: Path, watches: dict[str, object]
) -> None:
    live.fail_with(EVICTIONS_HANG, *([watches] if watches else []))
    before = threads()
    content = '{"apiVersion": "v1"}'
    path = tmp_path / "file"
    path.write_text(content)
    with ExitStack() as stack:
        files = []
        for _ in range(4):
            with closing(kubeconfig_cluster(kubeconfig)) as cluster:
                drain(cluster, node)
            # They get the file descriptors of the connections that were closed.
            files += [stack.enter_context(path.open()) for _ in range(FILES)]
        live.until(lambda: not threads() - before)
        assert {file.read() for file in files} == {content}


def test_no_thread_and_no_file_descriptor_stays_after_many_drains(
    live: Live, kubeconfig: Path, node: str
) -> None:
    threads_before, descriptors_before = threads(), descriptors()
    for _ in range(20):
        with closing(kubeconfig_cluster(kubeconfig)) as cluster:
            drain(cluster, node)
    live.until(lambda: not threads() - threads_before)
    assert descriptors() <= descriptors_before


def test_a_stopped_watch_ends_although_the_api_server_does_not_answer_it(
    live: Live, kubeconfig: Path
) -> None:
    asked = calls(live)
    live.fail_with(WATCHES_HANG | {"latency": 600})
    ended: SimpleQueue[Exception | None] = SimpleQueue()
    with closing(kubeconfig_connection(kubeconfig)) as connection:
        watch = WatchStream(
            connection, "/api/v1/pods", {}, lambda *_: None, lambda _, error: ended.put(error)
        )
        live.until(lambda: calls(live) > asked)
        watch.stop()
        assert isinstance(ended.get(timeout=30), ClusterUnavailable)
    live.fail_with()


def calls(live: Live) -> int:
    by_user = live.control.get("/_sandbox/status").json()["calls"]
    return sum(counts.get("watch pods", 0) for counts in by_user.values())


def test_the_stop_of_a_watch_that_has_ended_spares_the_next_request_of_its_connection(
    tmp_path: Path,
) -> None:
    asked, stopped = threading.Event(), threading.Event()

    def evicted(request: Request) -> None:
        asked.set()
        stopped.wait(30)
        json_answer({"kind": "Status", "code": 201}, 201)(request)

    with running_faulty_server(tmp_path) as server:
        server.on("WATCH", "/api/v1/pods", json_answer(pods()))
        server.on("POST", "/api/v1/namespaces/shop/pods/web/eviction", evicted)
        with closing(kubeconfig_connection(server.kubeconfig)) as connection:
            watch = WatchRequest(connection, "/api/v1/pods", {})
            watch.read(lambda _: None)
            answers: SimpleQueue[Response] = SimpleQueue()
            cluster = HttpCluster(connection, SystemClock())
            threading.Thread(target=lambda: answers.put(cluster.evict(WEB, None))).start()
            assert asked.wait(30)
            watch.stop()
            stopped.set()
            assert answers.get(timeout=30).status == 200


def test_a_closed_connection_ends_its_requests_and_makes_no_more(tmp_path: Path) -> None:
    asked = threading.Event()

    def hang(request: Request) -> None:
        asked.set()
        request.faulty.stopped.wait(30)

    with running_faulty_server(tmp_path) as server:
        server.by_default(hang)
        cluster = kubeconfig_cluster(server.kubeconfig)
        answers: SimpleQueue[Response] = SimpleQueue()
        threading.Thread(target=lambda: answers.put(cluster.evict(WEB, None))).start()
        assert asked.wait(30)
        cluster.close()
        assert answers.get(timeout=30).status == 0
        with pytest.raises(ClusterUnavailable, match="closed"):
            cluster.node("node-1")
        assert len(server.requests) == 1
