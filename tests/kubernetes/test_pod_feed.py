"""A node's pods by list and watch, current and complete if the watch fails."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable, PodFeed

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

NUMBERS = count(200)


@pytest.fixture
def node(live: Live) -> str:
    (name,) = live.add_nodes(next(NUMBERS))
    return name


def run(live: Live, node: str, *names: str) -> None:
    for name in names:
        live.create(PODS, bare_pod(name, nodeName=node, terminationGracePeriodSeconds=1))


def names(feed: PodFeed) -> set[str]:
    feed.wait(0.05)
    return {pod.name for pod in feed.pods()}


def lists_and_watches(live: Live) -> tuple[int, int]:
    calls = live.control.get("/_sandbox/status").json()["calls"].values()
    return (
        sum(by.get("list pods", 0) for by in calls),
        sum(by.get("watch pods", 0) for by in calls),
    )


def test_one_list_and_one_watch_report_added_changed_and_deleted_pods(
    live: Live, cluster: HttpCluster, node: str
) -> None:
    before = lists_and_watches(live)
    with cluster.watch_pods(node) as feed:
        assert names(feed) == set()
        run(live, node, "comes", "stays")
        live.until(lambda: names(feed) == {"comes", "stays"})
        live.until(lambda: {pod.phase for pod in feed.pods()} == {"Running"})
        live.evict("comes")
        live.until(lambda: names(feed) == {"stays"})
    after = lists_and_watches(live)
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)


def test_pods_of_other_nodes_are_not_reported(live: Live, cluster: HttpCluster, node: str) -> None:
    (other,) = live.add_nodes(next(NUMBERS))
    with cluster.watch_pods(node) as feed:
        assert names(feed) == set()
        run(live, other, "elsewhere")
        run(live, node, "here")
        live.until(lambda: names(feed) == {"here"})


@pytest.mark.parametrize(
    "fault", [{"status": 403}, {"status": 500}, {"status": 410}, {"drop": "before"}]
)
def test_pods_are_listed_if_the_watch_is_refused(
    live: Live, cluster: HttpCluster, node: str, fault: dict[str, object]
) -> None:
    live.fail_with({"verb": "watch", **fault})
    with cluster.watch_pods(node) as feed:
        assert names(feed) == set()
        name = f"listed-{node.partition('.')[0]}"
        run(live, node, name)
        live.until(lambda: names(feed) == {name})


def test_a_list_that_fails_returns_no_pods(live: Live, cluster: HttpCluster, node: str) -> None:
    live.fail_with({"verb": "list", "status": 503})
    with cluster.watch_pods(node) as feed:
        for _ in range(3):
            with pytest.raises(ClusterUnavailable):
                feed.pods()
        live.fail_with({"verb": "list", "status": 403})
        with pytest.raises(ClusterRefused):
            feed.refresh()


def test_an_older_watch_event_does_not_change_a_newer_list(
    live: Live, cluster: HttpCluster, node: str
) -> None:
    run(live, node, "first")
    with cluster.watch_pods(node) as feed:
        live.until(lambda: names(feed) == {"first"})
        run(live, node, "second")
        assert {pod.name for pod in feed.refresh()} == {"first", "second"}
        run(live, node, "third")
        live.until(lambda: names(feed) == {"first", "second", "third"})


def test_the_deletion_time_of_a_pod_is_converted_to_the_local_clock(
    live: Live, cluster: HttpCluster, node: str
) -> None:
    ahead = 60
    live.fail_with({"clock": ahead})
    name = f"going-{node.partition('.')[0]}"
    body = bare_pod(name, nodeName=node, terminationGracePeriodSeconds=30)
    body["metadata"]["annotations"] = {"sandbox.leeway.sh/ends-after": "30s"}
    live.create(PODS, body)
    live.until(lambda: live.api.get(f"{PODS}/{name}").json()["status"]["phase"] == "Running")
    before = datetime.now(UTC)
    live.evict(name)
    (found,) = cluster.pods_on(node)
    shown = datetime.fromisoformat(
        live.api.get(f"{PODS}/{name}").json()["metadata"]["deletionTimestamp"]
    )
    assert found.deletion is not None
    # Kubernetes writes whole seconds, and so does HTTP.
    assert abs(found.deletion - before - timedelta(seconds=30)) < timedelta(seconds=20)
    assert abs(shown - found.deletion - timedelta(seconds=ahead)) < timedelta(seconds=10)


def test_an_ended_pod_lists_the_finalizers_that_keep_it(
    live: Live, cluster: HttpCluster, node: str
) -> None:
    name = f"kept-{node.partition('.')[0]}"
    body = bare_pod(name, nodeName=node, terminationGracePeriodSeconds=5)
    body["metadata"]["finalizers"] = ["example.com/never"]
    body["metadata"]["annotations"] = {"sandbox.leeway.sh/ends-after": "2s"}
    live.create(PODS, body)
    live.until(lambda: live.api.get(f"{PODS}/{name}").json()["status"]["phase"] == "Running")
    with cluster.watch_pods(node) as feed:
        assert [pod.kept_by for pod in feed.pods()] == [()]
        live.evict(name)
        live.until(lambda: [pod.deletion is not None for pod in feed.pods()] == [True])
        assert [pod.kept_by for pod in feed.pods()] == [()], "it still runs"
        live.until(lambda: [pod.kept_by for pod in feed.pods()] == [("example.com/never",)])
    live.patch(f"{PODS}/{name}", {"metadata": {"finalizers": None}})
