"""Updates of a drain from lists of the node's pods and volumes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Controller, Pod
from leeway.retirement.pods import Answer, Meaning, Terms
from leeway.retirement.progress import (
    Drain,
    PodRequest,
    RemovalMethod,
    Stage,
    observe,
    observe_volumes,
    record_answer,
    without_volumes,
)
from leeway.retirement.reasons import (
    POD_DOES_NOT_END,
    POD_EVICTED,
    POD_TERMINATING,
    PODS_NOT_LISTED,
)

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TERMS = Terms(NOW + 60 * MINUTE, OnBlocked.DELETE)
TOLERATION = "(operator Exists for every key)"


def pod(name: str, **more: object) -> Pod:
    controller = Controller("ReplicaSet", "web")
    return Pod("shop", name, name, "Running", 30, controller, **more)  # type: ignore[arg-type]


def daemon(name: str, **more: object) -> Pod:
    return replace(pod(name, **more), controller=Controller("DaemonSet", "agent", True))


def seen(drain: Drain, *pods: Pod, at: datetime = NOW) -> Drain:
    return observe(drain, pods, TERMS, at)


def removed(drain: Drain, pod: Pod, method: RemovalMethod, at: datetime = NOW) -> Drain:
    """The drain when the API server has accepted a pod's eviction or deletion."""
    return record_answer(
        drain,
        PodRequest(pod, method, None, POD_EVICTED()),
        Answer(Meaning.ACCEPTED, POD_EVICTED()),
        TERMS,
        at,
    )


def test_a_pod_that_is_not_listed_any_more_is_gone_unless_it_was_left() -> None:
    drain = seen(Drain(), pod("a"), daemon("cni"))
    gone = seen(drain).pods
    assert (gone["a"].stage, gone["a"].gone_at) == (Stage.GONE, NOW)
    assert (gone["cni"].stage, gone["cni"].gone_at) == (Stage.LEFT, None)


def test_a_pod_with_attached_volumes_keeps_the_time_at_which_it_was_gone() -> None:
    drain = seen(seen(Drain(), pod("a", claims=("shop/data", "shop/log"))))
    drain = observe_volumes(drain, [], {"shop/log"}, NOW)
    later = seen(drain, at=NOW + MINUTE).pods["a"]
    assert (later.stage, later.gone_at) == (Stage.DETACHING, NOW)
    assert later.attached == ("shop/log",)


def test_a_pod_that_is_listed_is_not_gone() -> None:
    drain = seen(seen(Drain(), pod("a", claims=("shop/data",))))
    assert drain.pods["a"].stage is Stage.DETACHING
    again = seen(drain, pod("a", claims=("shop/data",))).pods["a"]
    assert (again.stage, again.attached, again.gone_at) == (Stage.PENDING, (), None)


def test_the_drain_waits_for_a_pod_that_another_client_deleted() -> None:
    drain = seen(Drain(), pod("a"), daemon("cni"))
    going = {"deletion": NOW + MINUTE}
    after = seen(drain, pod("a", **going), daemon("cni", **going)).pods
    assert (after["a"].stage, after["a"].reason) == (
        Stage.TERMINATING,
        POD_TERMINATING("Another client evicted or deleted it."),
    )
    assert after["cni"].stage is Stage.LEFT


def test_the_drain_leaves_a_pod_whose_deletion_is_overdue_by_five_minutes() -> None:
    drain = removed(seen(Drain(), pod("a")), pod("a"), RemovalMethod.EVICT)
    stuck = pod("a", deletion=NOW + MINUTE)
    assert seen(drain, stuck, at=NOW + 6 * MINUTE).pods["a"].stage is Stage.TERMINATING
    left = seen(drain, stuck, at=NOW + 7 * MINUTE).pods["a"]
    assert (left.stage, left.reason) == (
        Stage.LEFT,
        POD_DOES_NOT_END(f"Its deletion was due {6} minutes ago: the drain does not wait for it."),
    )


def test_the_finalizers_of_a_pod_that_has_ended_are_reported_once() -> None:
    drain = removed(seen(Drain(), pod("a")), pod("a"), RemovalMethod.EVICT)
    kept = pod("a", deletion=NOW, kept_by=("example.com/backup",))
    drain = seen(seen(drain, kept), kept)
    assert drain.pods["a"].reason == (
        POD_EVICTED().and_then(
            POD_DOES_NOT_END(
                "It has ended, but its finalizers keep the object: example.com/backup."
            )
        )
    )


def test_without_a_deadline_the_drain_waits_for_finalizers_and_reports_them_once() -> None:
    drain = removed(observe(Drain(), [pod("a")], Terms(), NOW), pod("a"), RemovalMethod.EVICT)
    kept = pod("a", deletion=NOW, kept_by=("example.com/one", "example.com/two"))
    for _ in range(2):
        drain = observe(drain, [kept], Terms(), NOW)
    finalizers = (
        "It has ended, but its finalizers keep the object: example.com/one, example.com/two."
    )
    assert (drain.pods["a"].stage, drain.pods["a"].reason) == (
        Stage.TERMINATING,
        POD_EVICTED().and_then(POD_DOES_NOT_END(finalizers)),
    )
    away = replace(kept, uid="b", name="b", deletion=NOW - 9 * MINUTE)
    left = observe(observe(drain, [kept, away], Terms(), NOW), [kept, away], Terms(), NOW)
    assert left.pods["b"].stage is Stage.LEFT
    told = left.pods["b"].reason.message
    assert "Its deletion was due 9 minutes ago" in told
    assert told.count("its finalizers keep the object") == 1
    assert told.endswith(": example.com/one, example.com/two.")


def test_a_pod_has_returned_only_if_this_drain_removed_a_pod_of_its_workload() -> None:
    first = pod("a", cordon_toleration=TOLERATION)
    second = pod("b", cordon_toleration=TOLERATION)
    going = replace(first, deletion=NOW + MINUTE)
    fresh = seen(Drain(), first, second)
    assert {p.stage for p in fresh.pods.values()} == {Stage.PENDING}, (
        "the first list has no returned pods"
    )
    evicted = removed(seen(Drain(), first), first, RemovalMethod.EVICT)
    assert seen(evicted, going, second).pods["b"].stage is Stage.RETURNED
    shortened = removed(seen(Drain(), going), going, RemovalMethod.SHORTEN)
    assert seen(shortened, going, second).pods["b"].stage is Stage.PENDING, (
        "another client deleted the first pod"
    )
    plain = replace(second, cordon_toleration=None)
    assert seen(evicted, going, plain).pods["b"].stage is Stage.PENDING
    other = replace(second, controller=Controller("ReplicaSet", "api"))
    assert seen(evicted, going, other).pods["b"].stage is Stage.PENDING


def test_a_pod_that_returns_after_a_deletion_is_left() -> None:
    first = pod("a", cordon_toleration=TOLERATION)
    drain = removed(seen(Drain(), first), first, RemovalMethod.EVICT)
    second = replace(first, name="b", uid="b")
    drain = removed(seen(drain, second), second, RemovalMethod.DELETE)
    third = replace(first, name="c", uid="c")
    assert seen(drain, third).pods["c"].stage is Stage.LEFT
    plain = replace(third, cordon_toleration=None)
    assert seen(drain, plain).pods["c"].stage is Stage.PENDING


def test_the_drain_waits_for_each_volume_except_those_of_pods_that_stay() -> None:
    db = pod("db", claims=("shop/data", "shop/log", "shop/shared"))
    agent = daemon("agent", claims=("shop/shared",))
    drain = seen(seen(Drain(), db, agent), agent)
    some = observe_volumes(drain, [agent], {"shop/log", "shop/shared"}, NOW)
    assert (some.pods["db"].stage, some.pods["db"].attached) == (Stage.DETACHING, ("shop/log",))
    none = observe_volumes(some, [agent], {"shop/shared"}, NOW + MINUTE).pods["db"]
    assert (none.stage, none.attached, none.detached_at) == (Stage.GONE, (), NOW + MINUTE)
    unlisted = without_volumes(
        drain,
        PODS_NOT_LISTED("Leeway cannot read which volumes are attached to the node: 403."),
    ).pods
    assert unlisted["db"].stage is Stage.GONE
    assert unlisted["db"].reason.message.endswith("attached to the node: 403.")
    assert unlisted["agent"].stage is Stage.LEFT
