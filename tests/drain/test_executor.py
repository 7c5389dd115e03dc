"""The drain at work on a cluster that hangs, fails, comes late, and is not what it was."""

import threading
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from leeway.clock import SystemClock
from leeway.drain.deadline import Terms
from leeway.drain.executor import DrainExecutor, NodeIdentity
from leeway.drain.progress import Drain, Stage
from leeway.drain.requests import AT_ONCE
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod, Response

from tests.drain.stand_in import GRANTED, drain, pod, standing


def test_evictions_that_hang_hold_up_no_other_pod() -> None:
    hanging = [pod(f"hangs-{number}") for number in range(20)]
    cluster = standing(*hanging, *(pod(f"web-{number}") for number in range(40)))
    cluster.hangs = frozenset(p.name for p in hanging)
    assert drain(cluster).drained
    assert len(cluster.evicted) == 60
    assert set(cluster.evicted[:40]).isdisjoint(cluster.hangs)


def test_a_pod_is_not_asked_again_while_its_answer_is_awaited() -> None:
    cluster = standing(pod("slow"), pod("quick"))
    cluster.hangs = frozenset({"slow"})
    assert drain(cluster).drained
    assert sorted(cluster.evicted) == ["quick", "slow"]


def test_what_is_seen_only_by_a_fresh_list_keeps_a_node_from_being_drained() -> None:
    cluster = standing(pod("web"))
    cluster.latecomer = pod("late", cordon_toleration=None)
    result = drain(cluster)
    assert result.drained
    assert cluster.evicted == ["web", "late"]


def test_a_list_that_fails_is_tried_again_and_never_taken_for_an_empty_node() -> None:
    cluster = standing(pod("web"))
    cluster.lists = [ClusterUnavailable("503"), ClusterUnavailable("503")]
    result = drain(cluster)
    assert result.drained
    assert cluster.evicted == ["web"]


def test_where_the_time_is_up_from_the_first_a_list_that_fails_is_tried_again_all_the_same() -> (
    None
):
    cluster = standing(pod("web"))
    cluster.lists = [ClusterUnavailable("503"), ClusterUnavailable("503")]
    drain(cluster, -1)
    assert cluster.evicted == ["web"]


def test_who_does_not_get_to_see_the_pods_again_has_not_drained_the_node() -> None:
    cluster = standing()
    cluster.lists = [ClusterUnavailable("503")] * 10_000
    result = drain(cluster, 0.2)
    assert not result.drained
    assert result.problem == "503"


def test_once_it_is_not_wanted_any_more_nothing_is_asked_for() -> None:
    cluster = standing(pod("web"))
    result = drain(cluster, wanted=lambda: False)
    assert cluster.evicted == []
    assert result.at(Stage.PENDING)


def test_volumes_are_waited_for_after_their_pod_is_gone() -> None:
    cluster = standing(pod("db", claims=("shop/data",)))
    cluster.attached = ["shop/data"]
    result = drain(cluster)
    (progress,) = result.pods.values()
    assert (progress.stage, progress.attached) == (Stage.GONE, ())
    assert progress.gone_at is not None
    assert progress.detached_at is not None
    assert progress.detached_at > progress.gone_at


def test_an_unclean_detach_is_said() -> None:
    cluster = standing(pod("db", claims=("shop/data",)))
    cluster.attached = ["shop/data"] * 100
    result = drain(cluster, 1)
    assert result.drained, "the pod itself is gone"
    (unclean,) = result.unclean
    assert "at the deadline its volume of shop/data was still attached" in unclean.reason


def test_volumes_that_nobody_may_see_are_not_waited_for() -> None:
    cluster = standing(pod("db", claims=("shop/data",)))
    cluster.volumes = ClusterRefused("403: may not list volumeattachments")
    result = drain(cluster)
    assert result.drained
    assert "can't be seen: 403" in next(iter(result.pods.values())).reason


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([True], "leave it out"),
        ([False], "keep it"),
        ([ClusterRefused("403: may not patch nodes")], "not told: 403"),
    ],
)
def test_load_balancers_are_told_once(answers: list[bool | Exception], said: str) -> None:
    cluster = standing(pod("one"), pod("two"))
    cluster.hangs = frozenset({"two"})
    cluster.balancers = answers
    result = drain(cluster)
    assert result.load_balancers.startswith(said)
    assert cluster.told_balancers == 1


def test_load_balancers_are_told_when_every_pod_has_been_asked_to_go() -> None:
    cluster = standing(*(pod(f"web-{number}") for number in range(40)))
    begun: list[str] = []
    at_once, granted = cluster.exclude_from_load_balancers, cluster.evict
    told: list[int] = []

    def evict(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        begun.append(pod.name)
        SystemClock().sleep(0.05)
        return granted(pod, grace)

    def exclude_from_load_balancers(node: str) -> bool:
        told.append(len(begun))
        return at_once(node)

    cluster.evict, cluster.exclude_from_load_balancers = evict, exclude_from_load_balancers  # type: ignore[method-assign]
    assert drain(cluster).drained
    (asked,) = told
    assert asked >= 40 - AT_ONCE, "none waits in the queue; the last may be on their way"


def test_load_balancers_are_told_though_evictions_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leeway.drain.executor.BALANCERS_EVERY", timedelta(milliseconds=100))
    names = [f"web-{number}" for number in range(40)]
    cluster = standing(*map(pod, names))
    cluster.hangs = frozenset(names)
    assert drain(cluster, 0.5).load_balancers == "leave it out"
    cluster.others_done.set()


def test_the_names_of_all_budgets_are_told_of_a_pod_that_has_several() -> None:
    cluster = standing(pod("torn"))
    several = Response(500, "This pod has more than one PodDisruptionBudget, which the eviction")
    cluster.evict = lambda *_, **__: several  # type: ignore[method-assign]
    result = drain(cluster, 0.5)
    (progress,) = result.pods.values()
    assert progress.budgets == ("one", "two")
    assert "more than one PodDisruptionBudget: one, two" in progress.reason


def test_a_pod_that_terminates_on_longer_terms_than_are_left_is_hurried() -> None:
    now = SystemClock().now()
    lingering = replace(pod("slow"), grace=600, deletion=now + timedelta(minutes=10))
    cluster = standing(lingering)
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


def test_time_that_is_up_abandons_what_hangs_and_says_so() -> None:
    cluster = standing(pod("hangs"))
    cluster.hangs = frozenset({"hangs"})
    now: datetime = SystemClock().now()
    result = DrainExecutor(cluster, SystemClock()).work(
        "node-1", Drain(), Terms(), now + timedelta(seconds=0.2)
    )
    cluster.others_done.set()
    (progress,) = result.pods.values()
    assert (progress.stage, progress.reason) == (Stage.PENDING, "no answer yet")


def machine(seconds_ago: float) -> NodeIdentity:
    return NodeIdentity("machine-1", SystemClock().now() - timedelta(seconds=seconds_ago))


def test_pods_of_another_machine_that_has_the_nodes_name_by_now_are_left_alone() -> None:
    cluster = standing(pod("web"), pod("db", claims=("shop/data",)))
    cluster.machine = "machine-2"
    result = drain(cluster, machine=machine(10))
    assert (cluster.evicted, cluster.told_balancers) == ([], 0)
    assert result.over
    assert {p.stage for p in result.pods.values()} == {Stage.LEFT}
    assert {p.reason for p in result.pods.values()} == {
        "another machine has its node's name by now"
    }


def test_a_pod_that_came_after_the_last_look_is_not_asked_to_go_before_another() -> None:
    cluster = standing(pod("web"))
    cluster.latecomer = pod("late")
    evict = cluster.evict

    def replaced_meanwhile(pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        cluster.machine = "machine-2"
        return evict(pod, grace)

    cluster.evict = replaced_meanwhile  # type: ignore[method-assign]
    result = drain(cluster, machine=machine(0))
    assert cluster.evicted == ["web"]
    assert result.over
    assert result.pods["uid-late"].stage is Stage.LEFT


def test_a_blocked_pod_is_not_deleted_on_another_machine() -> None:
    cluster = standing(pod("web"))
    blocked = Response(429, causes=(("DisruptionBudget", "budget"),))
    cluster.evict = lambda *_: blocked  # type: ignore[method-assign]
    first = drain(cluster, machine=machine(0), wanted=lambda: cluster.told_balancers == 0)
    (progress,) = first.pods.values()
    assert progress.stage is Stage.BLOCKED
    cluster.machine = "machine-2"
    terms = Terms(SystemClock().now() + timedelta(seconds=1), OnBlocked.DELETE)
    until = SystemClock().now() + timedelta(minutes=1)
    result = DrainExecutor(cluster, SystemClock()).work(
        "node-1", first, terms, until, machine=machine(10)
    )
    assert cluster.evicted == []
    (progress,) = result.pods.values()
    assert progress.stage is Stage.FAILED
    assert progress.reason.startswith("another machine has its node's name by now: ")


def test_a_node_object_that_is_gone_keeps_no_pod_from_being_evicted() -> None:
    cluster = standing(pod("web"))
    cluster.machine = ""
    result = drain(cluster, machine=machine(10))
    assert cluster.evicted == ["web"]
    assert result.over


def test_pods_that_are_first_listed_when_the_node_object_is_gone_are_not_drained() -> None:
    cluster = standing(pod("web"))
    cluster.machine = ""
    assert not drain(cluster, machine=machine(10)).drained
    cluster = standing()
    cluster.machine = "machine-2"
    result = drain(cluster, machine=machine(10))
    assert (result.over, result.drained) == (True, False)
    assert result.unseen == "its pods were first listed when its Node object was gone"


def test_a_node_whose_pods_are_first_listed_after_the_deadline_is_not_drained() -> None:
    for pods in ([], [pod("web")]):
        cluster = standing(*pods)
        cluster.lists = [ClusterUnavailable("503")]
        result = drain(cluster, seconds=0, machine=machine(0))
        assert result.listed
        assert not result.drained
        assert result.unseen.startswith("its pods were first listed after its deadline")


def test_a_drain_that_follows_its_cordon_looks_at_no_node_again() -> None:
    cluster = standing(*(pod(f"web-{number}") for number in range(9)))
    assert drain(cluster, machine=machine(1)).drained
    assert cluster.looked_up == 0


def test_a_pod_that_comes_back_before_its_evictions_answer_is_not_evicted_again() -> None:
    first = pod("first", cordon_toleration="(operator Exists for every key)")
    second = pod("second", cordon_toleration="(operator Exists for every key)")
    cluster = standing(first)
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
