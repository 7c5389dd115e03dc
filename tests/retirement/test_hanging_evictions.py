"""Evictions that the API server does not answer, or grants without deleting the pod."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from leeway.clock import SystemClock
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod, Response
from leeway.retirement.executor import DrainExecutor
from leeway.retirement.pods import Terms
from leeway.retirement.progress import Drain, RemovalMethod, Stage
from leeway.retirement.reasons import DELETED_AT_LATEST_MOMENT, EVICTION_FAILED, POD_EVICTED

from tests.retirement.fake_node import GRANTED, drain, node_with, pod

HANGING = frozenset({"hangs"})


def test_a_pod_whose_eviction_hangs_is_deleted_at_its_latest_moment() -> None:
    cluster = node_with(pod("hangs"))
    cluster.hangs = HANGING
    deleted: list[str] = []

    def delete(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        deleted.append(pod.name)
        cluster.there = {}
        return GRANTED

    cluster.delete = delete  # type: ignore[method-assign]
    result = drain(cluster, 5)
    cluster.others_done.set()
    (progress,) = result.pods.values()
    assert deleted == ["hangs"]
    assert result.drained
    assert progress.reason == DELETED_AT_LATEST_MOMENT().and_then(
        EVICTION_FAILED("the API server has not answered the eviction yet")
    )


def test_an_answer_to_an_eviction_after_the_pods_deletion_changes_nothing() -> None:
    cluster = node_with(pod("late"))
    answered = threading.Event()

    def evict(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        answered.wait(20)
        return Response(429, causes=(("DisruptionBudget", "budget"),))

    going = replace(pod("late"), deletion=SystemClock().now() + timedelta(seconds=30))

    def delete(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        cluster.there = {going.uid: going}
        return GRANTED

    seen: list[Stage] = []
    cluster.evict, cluster.delete = evict, delete  # type: ignore[method-assign]
    now = SystemClock().now()
    terms = Terms(now + timedelta(seconds=4), OnBlocked.DELETE)

    def watch(so_far: Drain) -> None:
        seen.extend(p.stage for p in so_far.pods.values())
        if Stage.TERMINATING in seen:
            answered.set()

    DrainExecutor(cluster, SystemClock(), watch).run(
        "node-1", Drain(), terms, now + timedelta(minutes=1)
    )
    assert Stage.TERMINATING in seen
    assert Stage.BLOCKED not in seen


def test_a_pass_waits_for_open_evictions_after_its_end() -> None:
    cluster = node_with(pod("hangs"))
    cluster.hangs = HANGING
    threading.Timer(1.0, cluster.others_done.set).start()
    now = SystemClock().now()
    result = DrainExecutor(cluster, SystemClock()).run(
        "node-1",
        Drain(),
        Terms(),
        now + timedelta(seconds=0.2),
        answers_until=now + timedelta(seconds=20),
    )
    (progress,) = result.pods.values()
    assert (progress.attempts, progress.reason) == (1, POD_EVICTED())


def test_a_pass_waits_for_open_evictions_no_longer_than_allowed() -> None:
    cluster = node_with(pod("hangs"))
    cluster.hangs = HANGING
    now = SystemClock().now()
    result = DrainExecutor(cluster, SystemClock()).run(
        "node-1",
        Drain(),
        Terms(),
        now + timedelta(seconds=0.1),
        answers_until=now + timedelta(seconds=0.4),
    )
    cluster.others_done.set()
    (progress,) = result.pods.values()
    assert progress.reason == EVICTION_FAILED("the API server has not answered the eviction yet")


@pytest.mark.parametrize(
    "answer", [Response(429, causes=(("DisruptionBudget", "b"),)), Response(0)]
)
def test_a_pod_whose_eviction_a_budget_has_counted_is_deleted(answer: Response) -> None:
    cluster = node_with(pod("web"))
    deleted: list[str] = []

    def delete(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        deleted.append(pod.name)
        cluster.there = {}
        return GRANTED

    cluster.evict = lambda *_: answer  # type: ignore[method-assign]
    cluster.delete = delete  # type: ignore[method-assign]
    cluster.eviction_is_granted = lambda pod: True  # type: ignore[method-assign]
    result = drain(cluster)
    assert deleted == ["web"]
    (progress,) = result.pods.values()
    assert (progress.stage, progress.method, progress.attempts) == (
        Stage.GONE,
        RemovalMethod.EVICT,
        1,
    )


@pytest.mark.parametrize("error", [ClusterUnavailable("no answer"), ClusterRefused("403")])
def test_the_answer_to_an_eviction_counts_if_budgets_cannot_be_read(error: Exception) -> None:
    cluster = node_with(pod("web"))
    blocked = Response(429, causes=(("DisruptionBudget", "budget web"),))

    def unreadable(pod: Pod) -> bool:
        raise error

    cluster.evict = lambda *_: blocked  # type: ignore[method-assign]
    cluster.eviction_is_granted = unreadable  # type: ignore[method-assign]
    now = SystemClock().now()
    result = DrainExecutor(cluster, SystemClock()).run(
        "node-1", Drain(), Terms(), now + timedelta(seconds=0.3)
    )
    (progress,) = result.pods.values()
    assert (progress.stage, progress.reason.code) == (Stage.BLOCKED, "BudgetBlocksEviction")
    assert "budget web" in progress.reason.message
