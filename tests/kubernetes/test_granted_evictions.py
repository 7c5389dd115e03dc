"""Evictions that the API server holds, and pods that a budget counts as disrupted."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from leeway.ports.kubernetes import EVICTION_SECONDS, EVICTION_SETTLES_SECONDS
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.pods import Meaning, read_answer
from leeway_cli import main
from leeway_cli.kubeconfig import kubeconfig_cluster

from tests.kubernetes.faulty_server import (
    FaultyServer,
    Request,
    json_answer,
    running_faulty_server,
    text_answer,
)
from tests.sandbox.kubernetes.live import BUDGETS, Live, budget

CREATED = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def leave_between_the_steps(live: Live, pod: str, budget: str) -> None:
    """Evict a pod, and disconnect after the budget counts it and before it is deleted."""
    live.fail_with({"resource": "pods/eviction", "hold": 30})
    live.abandon_eviction(pod, budget)
    live.fail_with()


def guarded(live: Live, name: str, **spec: Any) -> list[str]:
    """Run four pods on the node, with a budget that allows one to be missing."""
    settings = {"spec": {"terminationGracePeriodSeconds": 1, **spec}}
    names = [pod["metadata"]["name"] for pod in live.deploy(name, 4, **settings)]
    live.create(BUDGETS, budget(name, name, maxUnavailable=1))
    live.until(lambda: allowed(live, name) == 1)
    return names


def allowed(live: Live, name: str) -> int:
    return int(live.budget_status(name).get("disruptionsAllowed", 0))


def test_a_drain_deletes_the_disrupted_pod_and_respects_the_budget_for_others(
    live: Live, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (node,) = live.add_nodes(1, role="apart")
    first, *others = guarded(live, "spent", nodeSelector={"role": "apart"})
    time.sleep(1)  # a pod that is as old as its eviction, to the second, may be another one
    leave_between_the_steps(live, first, "spent")
    assert allowed(live, "spent") == 0
    assert main.run(["drain", node, "--timeout", "15s", "--kubeconfig", str(kubeconfig)]) == 1
    assert f"evicting pod default/{first}" in capsys.readouterr().err
    deletions = [e for e in live.journal("pod-deletion") if e["node"] == node]
    assert [(e["pod"], e["via"]) for e in deletions if e["via"] != "eviction"] == [
        (f"default/{first}", "delete")
    ]
    # The successors fit on no other node, so that the budget blocks the other three.
    assert {e["pod"] for e in deletions} == {f"default/{first}"}
    assert len(live.running("app=spent")) == len(others)


def listed(name: str, at: datetime, **selector: str) -> dict[str, Any]:
    stamp = at.isoformat().replace("+00:00", "Z")
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": selector}},
        "status": {"disruptedPods": {"web-0": stamp}},
    }


def granted(
    server: FaultyServer, *budgets: dict[str, Any], created: datetime | None = CREATED
) -> bool:
    body = {"kind": "PodDisruptionBudgetList", "apiVersion": "policy/v1", "metadata": {}}
    path = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
    server.on("GET", path, json_answer({**body, "items": list(budgets)}))
    pod = Pod("shop", "web-0", "u", "Running", 1, None, labels={"app": "web"}, created=created)
    with closing(kubeconfig_cluster(server.kubeconfig)) as cluster:
        return cluster.eviction_is_granted(pod)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FaultyServer]:
    with running_faulty_server(tmp_path) as server:
        yield server


def test_only_the_single_budget_of_a_pod_counts_and_for_two_minutes(server: FaultyServer) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    ours = listed("ours", now - timedelta(seconds=30), app="web")
    assert granted(server, ours)
    assert granted(server, listed("others", now, app="db"), ours)
    assert not granted(server)
    assert not granted(server, listed("others", now, app="db"))
    assert not granted(server, ours, listed("second", now, app="web"))
    assert not granted(server, listed("old", now - timedelta(seconds=121), app="web"))


def test_an_entry_of_an_earlier_pod_with_the_same_name_does_not_count(server: FaultyServer) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    ours = listed("ours", now - timedelta(seconds=30), app="web")
    assert not granted(server, ours, created=now - timedelta(seconds=29))
    assert not granted(server, ours, created=now - timedelta(seconds=30)), "or it may"
    assert not granted(server, ours, created=None)
    assert granted(server, ours, created=now - timedelta(seconds=31))


def test_budgets_are_listed_once_for_all_pods_of_a_pass(server: FaultyServer) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    path = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
    body = {"kind": "PodDisruptionBudgetList", "apiVersion": "policy/v1", "metadata": {}}
    ours = listed("ours", now, app="web")
    server.on("GET", path, json_answer({**body, "items": [ours]}))
    pods = [
        Pod("shop", f"web-{n}", f"u{n}", "Running", 1, None, labels={"app": "web"}, created=CREATED)
        for n in range(20)
    ]
    with closing(kubeconfig_cluster(server.kubeconfig)) as cluster:
        assert [cluster.eviction_is_granted(pod) for pod in pods] == [True] + [False] * 19
    assert server.count("GET", path) == 1


def test_an_eviction_has_a_longer_timeout_than_other_requests(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.kubernetes.connection.TIMEOUT", httpx2.Timeout(0.3, connect=60))
    monkeypatch.setattr("leeway.kubernetes.transport.REQUEST_SECONDS", 0.5)

    def slowly(request: Request) -> None:
        request.faulty.stopped.wait(1.5)
        json_answer({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201)(request)

    server.by_default(slowly)
    pod = Pod("shop", "web-0", "u", "Running", 1, None)
    with closing(kubeconfig_cluster(server.kubeconfig)) as cluster:
        assert read_answer(cluster.evict(pod, None)).meaning is Meaning.ACCEPTED
        assert read_answer(cluster.delete(pod, None)).meaning is Meaning.TRANSIENT


def test_an_eviction_times_out_no_earlier_than_a_real_api_server_answers() -> None:
    steps, pause, jitter = 20, 0.5, 0.1  # Kubernetes' EvictionsRetry
    assert max(15, steps * pause * (1 + jitter)) <= EVICTION_SECONDS


WEB = Pod("shop", "web-0", "u", "Running", 1, None)
POSTED = "/api/v1/namespaces/shop/pods/web-0/eviction"
SUCCESS = json_answer({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201)


def test_a_pod_is_not_evicted_again_while_its_eviction_is_under_way(server: FaultyServer) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def slowly(request: Request) -> None:
        arrived.set()
        go_on.wait(10)
        SUCCESS(request)

    server.by_default(slowly)
    with closing(kubeconfig_cluster(server.kubeconfig)) as cluster:
        first = threading.Thread(target=cluster.evict, args=(WEB, None))
        first.start()
        assert arrived.wait(10)
        again = cluster.evict(WEB, None)
        go_on.set()
        first.join()
        assert again.status == 0
        assert again.retry_after is not None
        assert again.retry_after >= EVICTION_SECONDS
        assert server.count("POST", POSTED) == 1
        # Once the first is answered, another one is made.
        assert cluster.evict(WEB, None).status == 200
        assert server.count("POST", POSTED) == 2


@pytest.mark.parametrize("how", ["lost", 502, 504])
def test_an_eviction_without_an_answer_is_not_repeated_while_the_api_server_may_handle_it(
    server: FaultyServer, how: str | int
) -> None:
    def lose(request: Request) -> None:
        request.connection.shutdown(socket.SHUT_RDWR)

    gateway = text_answer(how, "no answer", "text/plain") if isinstance(how, int) else lose
    server.by_default(gateway)
    with closing(kubeconfig_cluster(server.kubeconfig)) as cluster:
        lost = read_answer(cluster.evict(WEB, None))
        assert (lost.meaning, lost.retry_after) == (Meaning.TRANSIENT, EVICTION_SETTLES_SECONDS)
        server.by_default(SUCCESS)
        again = cluster.evict(WEB, None)
        assert again.status == 0
        assert server.count("POST", POSTED) == 1
        other = replace(WEB, uid="u-2")
        assert cluster.evict(other, None).status == 200


def test_an_eviction_that_never_reached_the_api_server_is_repeated_soon(
    server: FaultyServer,
) -> None:
    with closing(kubeconfig_cluster(server.kubeconfig)) as cluster:
        server.close()
        for _ in range(2):
            refused = read_answer(cluster.evict(WEB, None))
            assert (refused.meaning, refused.retry_after) == (Meaning.TRANSIENT, None)


def test_an_api_server_has_ended_an_abandoned_eviction_when_it_is_repeated() -> None:
    steps, pause, jitter = 20, 0.5, 0.1  # Kubernetes' EvictionsRetry
    assert steps * pause * (1 + jitter) <= EVICTION_SETTLES_SECONDS
