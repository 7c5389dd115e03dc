"""DrainExecutor on a cluster that hangs, fails, and changes during the drain."""

import threading
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from leeway.clock import SystemClock
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes import (
    EVICTION_SECONDS,
    EVICTION_SETTLES_SECONDS,
    ClusterRefused,
    ClusterUnavailable,
)
from leeway.ports.kubernetes_objects import Controller, Pod, Response
from leeway.retirement.executor import (
    MOST_CONCURRENT,
    MOST_CONCURRENT_OF_WORKLOAD,
    DrainExecutor,
    NodeIdentity,
)
from leeway.retirement.pods import Terms
from leeway.retirement.progress import Drain, Stage
from leeway.retirement.reasons import (
    EVICTION_FAILED,
    LOAD_BALANCERS_EXCLUDE_NODE,
    NODE_NAME_REUSED,
    PODS_NOT_LISTED,
)

from tests.retirement.fake_node import GRANTED, drain, node_with, pod


def test_hanging_evictions_do_not_delay_other_pods() -> None:
    hanging = [pod(f"hangs-{number}") for number in range(20)]
    cluster = node_with(*hanging, *(pod(f"web-{number}") for number in range(40)))
    cluster.hangs = frozenset(p.name for p in hanging)
    assert drain(cluster).drained
    assert len(cluster.evicted) == 60
    assert set(cluster.evicted[:40]).isdisjoint(cluster.hangs)


def test_a_pod_is_not_evicted_again_while_its_eviction_is_unanswered() -> None:
    cluster = node_with(pod("slow"), pod("quick"))
    cluster.hangs = frozenset({"slow"})
    assert drain(cluster).drained
    assert sorted(cluster.evicted) == ["quick", "slow"]


def test_a_pod_that_only_a_fresh_list_shows_is_evicted_before_the_drain_is_over() -> None:
    cluster = node_with(pod("web"))
    cluster.late_pod = pod("late", cordon_toleration=None)
    result = drain(cluster)
    assert result.drained
    assert cluster.evicted == ["web", "late"]


def test_a_failed_list_is_repeated_and_does_not_count_as_an_empty_node() -> None:
    cluster = node_with(pod("web"))
    cluster.lists = [ClusterUnavailable("503"), ClusterUnavailable("503")]
    result = drain(cluster)
    assert result.drained
    assert cluster.evicted == ["web"]


def test_a_drain_after_its_deadline_repeats_a_failed_first_list() -> None:
    cluster = node_with(pod("web"))
    cluster.lists = [ClusterUnavailable("503"), ClusterUnavailable("503")]
    drain(cluster, -1)
    assert cluster.evicted == ["web"]


def test_a_node_whose_pods_cannot_be_listed_is_not_drained() -> None:
    cluster = node_with()
    cluster.lists = [ClusterUnavailable("503")] * 10_000
    result = drain(cluster, 0.2)
    assert not result.drained
    assert result.problem == PODS_NOT_LISTED("Leeway cannot list the pods of the node: 503.")


def test_a_superseded_drain_makes_no_requests() -> None:
    cluster = node_with(pod("web"))
    result = drain(cluster, is_current=lambda: False)
    assert cluster.evicted == []
    assert result.at(Stage.PENDING)


def test_a_drain_waits_for_the_volumes_of_a_pod_that_is_gone() -> None:
    cluster = node_with(pod("db", claims=("shop/data",)))
    cluster.attached = ["shop/data"]
    result = drain(cluster)
    (progress,) = result.pods.values()
    assert (progress.stage, progress.attached) == (Stage.GONE, ())
    assert progress.gone_at is not None
    assert progress.detached_at is not None
    assert progress.detached_at > progress.gone_at


@pytest.mark.parametrize("waits", [True, False])
def test_a_drain_without_a_deadline_waits_for_volumes_if_its_terms_say_so(waits: bool) -> None:
    cluster = node_with(pod("db", claims=("shop/data",)))
    cluster.attached = ["shop/data"]
    executor = DrainExecutor(cluster, SystemClock())
    until = SystemClock().now() + timedelta(minutes=1)
    result = executor.run("node-1", Drain(), Terms(waits_for_volumes=waits), until)
    assert result.drained
    (progress,) = result.pods.values()
    assert (progress.detached_at is not None) is waits


def test_a_volume_that_stays_attached_is_reported() -> None:
    cluster = node_with(pod("db", claims=("shop/data",)))
    cluster.attached = ["shop/data"] * 100
    result = drain(cluster, 1)
    assert result.drained, "the pod itself is gone"
    (db,) = result.with_attached_volumes
    assert db.reason.code == "VolumeStillAttached"
    assert "the volume of shop/data was still attached" in db.reason.message


def test_a_drain_does_not_wait_for_volumes_that_it_may_not_list() -> None:
    cluster = node_with(pod("db", claims=("shop/data",)))
    cluster.volumes = ClusterRefused("403: may not list volumeattachments")
    result = drain(cluster)
    assert result.drained
    (db,) = result.pods.values()
    assert "cannot read which volumes are attached to the node: 403" in db.reason.message


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([True], "exclude the node"),
        ([False], "more than half of the Ready nodes"),
        ([ClusterRefused("403: may not patch nodes")], "403: may not patch nodes"),
    ],
)
def test_a_node_is_excluded_from_load_balancers_once(
    answers: list[bool | Exception], why: str
) -> None:
    cluster = node_with(pod("one"), pod("two"))
    cluster.hangs = frozenset({"two"})
    code = "LoadBalancersExcludeNode" if answers == [True] else "LoadBalancersKeepNode"
    cluster.balancers = answers
    result = drain(cluster)
    assert result.load_balancers is not None
    assert result.load_balancers.code == code
    assert why in result.load_balancers.message
    assert cluster.exclusions == 1


def test_a_node_is_excluded_from_load_balancers_after_all_evictions_were_requested() -> None:
    cluster = node_with(*(pod(f"web-{number}") for number in range(40)))
    begun: list[str] = []
    exclude, granted = cluster.exclude_from_load_balancers, cluster.evict
    begun_before_exclusion: list[int] = []

    def evict(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        begun.append(pod.name)
        SystemClock().sleep(0.05)
        return granted(pod, grace)

    def exclude_from_load_balancers(node: str) -> bool:
        begun_before_exclusion.append(len(begun))
        return exclude(node)

    cluster.evict, cluster.exclude_from_load_balancers = evict, exclude_from_load_balancers  # type: ignore[method-assign]
    assert drain(cluster).drained
    (requested,) = begun_before_exclusion
    assert requested >= 40 - MOST_CONCURRENT, "no request is queued; the last may be in progress"


def test_hanging_evictions_do_not_delay_the_exclusion_from_load_balancers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "leeway.retirement.executor.RETRY_LOAD_BALANCERS_EVERY", timedelta(milliseconds=100)
    )
    names = [f"web-{number}" for number in range(40)]
    cluster = node_with(*map(pod, names))
    cluster.hangs = frozenset(names)
    assert drain(cluster, 0.5).load_balancers == LOAD_BALANCERS_EXCLUDE_NODE()
    cluster.others_done.set()


def test_a_pod_with_several_budgets_is_reported_with_their_names() -> None:
    cluster = node_with(pod("torn"))
    several = Response(500, "This pod has more than one PodDisruptionBudget, which the eviction")
    cluster.evict = lambda *_, **__: several  # type: ignore[method-assign]
    result = drain(cluster, 0.5)
    (progress,) = result.pods.values()
    assert progress.budgets == ("one", "two")
    assert progress.reason.code == "SeveralBudgets"
    assert "(one, two)" in progress.reason.message


def test_the_grace_period_of_a_terminating_pod_is_shortened_to_the_deadline() -> None:
    now = SystemClock().now()
    lingering = replace(pod("slow"), grace=600, deletion=now + timedelta(minutes=10))
    cluster = node_with(lingering)
    graces: list[int | None] = []

    def delete(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        graces.append(grace)
        cluster.there.clear()
        return Response(200)

    cluster.delete = delete  # type: ignore[method-assign]
    result = drain(cluster, 20)
    assert result.drained
    assert cluster.evicted == []
    assert len(graces) == 1
    assert graces[0] is not None
    assert 15 <= graces[0] <= 20


def test_an_eviction_that_hangs_at_the_end_of_a_pass_is_recorded_as_unanswered() -> None:
    cluster = node_with(pod("hangs"))
    cluster.hangs = frozenset({"hangs"})
    now: datetime = SystemClock().now()
    result = DrainExecutor(cluster, SystemClock()).run(
        "node-1", Drain(), Terms(), now + timedelta(seconds=0.2)
    )
    cluster.others_done.set()
    (progress,) = result.pods.values()
    assert (progress.stage, progress.reason) == (
        Stage.PENDING,
        EVICTION_FAILED("the API server has not answered the eviction yet"),
    )
    assert progress.next_try_at is not None
    over = now + timedelta(seconds=EVICTION_SECONDS + EVICTION_SETTLES_SECONDS)
    assert progress.next_try_at >= over, "the next pass does not repeat it while it may go on"


def test_an_eviction_that_waits_for_others_at_the_end_of_a_pass_was_not_tried() -> None:
    cluster = node_with(*(pod(f"hangs-{number}") for number in range(5)))
    cluster.hangs = frozenset(f"hangs-{number}" for number in range(5))
    now = SystemClock().now()
    result = DrainExecutor(cluster, SystemClock()).run(
        "node-1", Drain(), Terms(), now + timedelta(seconds=0.2)
    )
    cluster.others_done.set()
    tried = [p for p in result.pods.values() if p.attempts]
    assert len(tried) == MOST_CONCURRENT_OF_WORKLOAD
    assert all(p.next_try_at is None for p in result.pods.values() if p not in tried)


def test_evictions_of_a_workload_are_limited_and_do_not_delay_other_workloads() -> None:
    of_web = [pod(f"web-{number}") for number in range(12)]
    others = [
        replace(pod(f"other-{number}"), controller=Controller("ReplicaSet", f"other-{number}"))
        for number in range(12)
    ]
    cluster = node_with(*of_web, *others)
    at_once, most = 0, 0
    of_others = threading.Event()
    lock = threading.Lock()
    plain = cluster.evict

    def evict(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        nonlocal at_once, most
        is_web = pod.name.startswith("web")
        with lock:
            at_once += is_web
            most = max(most, at_once)
        # Those of the workload wait until all others are evicted.
        assert not is_web or of_others.wait(20)
        answer = plain(pod, grace)
        with lock:
            at_once -= is_web
            if sum(name.startswith("other") for name in cluster.evicted) == len(others):
                of_others.set()
        return answer

    cluster.evict = evict  # type: ignore[method-assign]
    assert drain(cluster).drained
    assert most == MOST_CONCURRENT_OF_WORKLOAD


def test_the_eviction_of_a_pod_that_has_gone_meanwhile_is_not_made() -> None:
    cluster = node_with(*(pod(f"web-{number}") for number in range(6)))
    hanging = frozenset(f"web-{number}" for number in range(MOST_CONCURRENT_OF_WORKLOAD))
    cluster.hangs = hanging
    posted: list[str] = []
    plain = cluster.evict

    def evict(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        posted.append(pod.name)
        # Another client deletes all others before their turn.
        cluster.there = {u: p for u, p in cluster.there.items() if p.name in hanging}
        return plain(pod, grace)

    def watch(so_far: Drain) -> None:
        if cluster.listed > 3:
            cluster.others_done.set()

    cluster.evict = evict  # type: ignore[method-assign]
    now = SystemClock().now()
    terms = Terms(now + timedelta(seconds=30), OnBlocked.DELETE)
    executor = DrainExecutor(cluster, SystemClock(), watch)
    assert executor.run("node-1", Drain(), terms, now + timedelta(minutes=1)).drained
    assert set(posted) == hanging


def identity(seconds_ago: float) -> NodeIdentity:
    return NodeIdentity("machine-1", SystemClock().now() - timedelta(seconds=seconds_ago))


def test_pods_of_another_machine_with_the_same_node_name_are_not_evicted() -> None:
    cluster = node_with(pod("web"), pod("db", claims=("shop/data",)))
    cluster.machine = "machine-2"
    result = drain(cluster, identity=identity(10))
    assert (cluster.evicted, cluster.exclusions) == ([], 0)
    assert result.over
    assert {p.stage for p in result.pods.values()} == {Stage.LEFT}
    assert {p.reason for p in result.pods.values()} == {NODE_NAME_REUSED()}


def test_the_node_is_checked_again_before_a_new_pod_is_evicted() -> None:
    cluster = node_with(pod("web"))
    cluster.late_pod = pod("late")
    evict = cluster.evict

    def replaced_meanwhile(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        cluster.machine = "machine-2"
        return evict(pod, grace)

    cluster.evict = replaced_meanwhile  # type: ignore[method-assign]
    result = drain(cluster, identity=identity(0))
    assert cluster.evicted == ["web"]
    assert result.over
    assert result.pods["uid-late"].stage is Stage.LEFT


def test_a_blocked_pod_is_not_deleted_on_another_machine() -> None:
    cluster = node_with(pod("web"))
    blocked = Response(429, causes=(("DisruptionBudget", "budget"),))
    cluster.evict = lambda *_: blocked  # type: ignore[method-assign]
    first = drain(cluster, identity=identity(0), is_current=lambda: cluster.exclusions == 0)
    (progress,) = first.pods.values()
    assert progress.stage is Stage.BLOCKED
    cluster.machine = "machine-2"
    terms = Terms(SystemClock().now() + timedelta(seconds=1), OnBlocked.DELETE)
    until = SystemClock().now() + timedelta(minutes=1)
    result = DrainExecutor(cluster, SystemClock()).run(
        "node-1", first, terms, until, identity=identity(10)
    )
    assert cluster.evicted == []
    (progress,) = result.pods.values()
    assert progress.stage is Stage.FAILED
    assert progress.reason.code == NODE_NAME_REUSED.name
    assert "A PodDisruptionBudget allows no eviction" in progress.reason.message


def test_pods_are_evicted_although_the_node_object_is_gone() -> None:
    cluster = node_with(pod("web"))
    cluster.machine = ""
    result = drain(cluster, identity=identity(10))
    assert cluster.evicted == ["web"]
    assert result.over


def test_a_node_whose_pods_are_first_listed_after_its_node_object_is_not_drained() -> None:
    cluster = node_with(pod("web"))
    cluster.machine = ""
    assert not drain(cluster, identity=identity(10)).drained
    cluster = node_with()
    cluster.machine = "machine-2"
    result = drain(cluster, identity=identity(10))
    assert (result.over, result.drained) == (True, False)
    assert result.listed_late == PODS_NOT_LISTED(
        "Leeway first listed the pods of the node when the Node object was gone: pods may be "
        "missing from the list."
    )


def test_a_node_whose_pods_are_first_listed_after_the_deadline_is_not_drained() -> None:
    for pods in ([], [pod("web")]):
        cluster = node_with(*pods)
        cluster.lists = [ClusterUnavailable("503")]
        result = drain(cluster, seconds=0, identity=identity(0))
        assert result.listed
        assert not result.drained
        assert result.listed_late == PODS_NOT_LISTED(
            "Leeway first listed the pods of the node after the deadline, when its machine may "
            "have stopped: pods may be missing from the list."
        )


def test_a_drain_right_after_its_cordon_does_not_read_the_node() -> None:
    cluster = node_with(*(pod(f"web-{number}") for number in range(9)))
    assert drain(cluster, identity=identity(1)).drained
    assert cluster.node_reads == 0


def test_a_pod_that_comes_back_before_the_eviction_is_answered_is_not_evicted_again() -> None:
    first = pod("first", cordon_toleration="(operator Exists for every key)")
    second = pod("second", cordon_toleration="(operator Exists for every key)")
    cluster = node_with(first)
    answered = threading.Event()

    def evict(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        cluster.evicted.append(pod.name)
        cluster.there = {second.uid: second}
        answered.wait(0.5)
        return GRANTED

    deleted: list[str] = []

    def delete(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        deleted.append(pod.name)
        cluster.there = {}
        return GRANTED

    cluster.evict, cluster.delete = evict, delete  # type: ignore[method-assign]
    assert drain(cluster, 4).drained
    assert (cluster.evicted, deleted) == (["first"], ["second"])
