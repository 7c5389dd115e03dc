"""Evictions that the API server holds, and those that it granted and did not carry out."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from leeway.clock import SystemClock
from leeway.drain.deadline import Terms
from leeway.drain.executor import DrainExecutor
from leeway.drain.progress import Drain, RemovalMethod, Stage
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod, Response

from tests.drain.stand_in import GRANTED, drain, pod, standing

HANGING = frozenset({"hangs"})


def test_an_eviction_that_hangs_at_the_pods_latest_moment_is_not_waited_for() -> None:
    cluster = standing(pod("hangs"))
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
    assert progress.reason == "deleted at its latest moment (its eviction was not answered)"


def test_an_eviction_that_is_answered_after_the_pods_deletion_changes_nothing() -> None:
    cluster = standing(pod("late"))
    answered = threading.Event()

    def evict(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        answered.wait(20)
        return Response(429, causes=(("DisruptionBudget", "budget"),))

    going = replace(pod("late"), deletion=SystemClock().now() + timedelta(seconds=30))

    def delete(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        cluster.there = {going.uid: going}
        threading.Timer(0.2, answered.set).start()
        return GRANTED

    seen: list[Stage] = []
    cluster.evict, cluster.delete = evict, delete  # type: ignore[method-assign]
    now = SystemClock().now()
    terms = Terms(now + timedelta(seconds=4), OnBlocked.DELETE)

    def watch(so_far: Drain) -> None:
        seen.extend(p.stage for p in so_far.pods.values())

    DrainExecutor(cluster, SystemClock(), watch).work(
        "node-1", Drain(), terms, now + timedelta(minutes=1)
    )
    assert Stage.TERMINATING in seen
    assert Stage.BLOCKED not in seen


def test_evictions_under_way_are_followed_past_the_end_of_a_step_for_a_while() -> None:
    cluster = standing(pod("hangs"))
    cluster.hangs = HANGING
    threading.Timer(1.0, cluster.others_done.set).start()
    now = SystemClock().now()
    result = DrainExecutor(cluster, SystemClock()).work(
        "node-1",
        Drain(),
        Terms(),
        now + timedelta(seconds=0.2),
        answers_until=now + timedelta(seconds=20),
    )
    (progress,) = result.pods.values()
    assert (progress.attempts, progress.reason) == (1, "evicted")


def test_answers_are_waited_for_no_longer_than_they_may_be() -> None:
    cluster = standing(pod("hangs"))
    cluster.hangs = HANGING
    now = SystemClock().now()
    result = DrainExecutor(cluster, SystemClock()).work(
        "node-1",
        Drain(),
        Terms(),
        now + timedelta(seconds=0.1),
        answers_until=now + timedelta(seconds=0.4),
    )
    cluster.others_done.set()
    (progress,) = result.pods.values()
    assert progress.reason == "no answer yet"


@pytest.mark.parametrize(
    "answer", [Response(429, causes=(("DisruptionBudget", "b"),)), Response(0)]
)
def test_a_pod_whose_eviction_a_budget_has_counted_is_deleted(answer: Response) -> None:
    cluster = standing(pod("web"))
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
    assert (progress.stage, progress.way, progress.attempts) == (Stage.GONE, RemovalMethod.EVICT, 1)


@pytest.mark.parametrize("error", [ClusterUnavailable("no answer"), ClusterRefused("403")])
def test_where_budgets_can_not_be_read_the_evictions_answer_holds(error: Exception) -> None:
    cluster = standing(pod("web"))
    blocked = Response(429, causes=(("DisruptionBudget", "budget web"),))

    def unreadable(pod: Pod) -> bool:
        raise error

    cluster.evict = lambda *_: blocked  # type: ignore[method-assign]
    cluster.eviction_is_granted = unreadable  # type: ignore[method-assign]
    now = SystemClock().now()
    result = DrainExecutor(cluster, SystemClock()).work(
        "node-1", Drain(), Terms(), now + timedelta(seconds=0.3)
    )
    (progress,) = result.pods.values()
    assert (progress.stage, progress.reason) == (Stage.BLOCKED, "budget web")
