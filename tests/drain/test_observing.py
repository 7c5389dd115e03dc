"""What a list of the node's pods, and of its volumes, makes of a drain."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from leeway.drain.answers import Answer, Meaning
from leeway.drain.deadline import Terms
from leeway.drain.observe import observe, observe_volumes, without_volumes
from leeway.drain.plan import PodRequest
from leeway.drain.progress import Drain, RemovalMethod, Stage
from leeway.drain.record_answers import record
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Controller, Pod

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TERMS = Terms(NOW + 60 * MINUTE, OnBlocked.DELETE)
STUBBORN = "(operator Exists for every key)"


def pod(name: str, **more: object) -> Pod:
    controller = Controller("ReplicaSet", "web")
    return Pod("shop", name, name, "Running", 30, controller, **more)  # type: ignore[arg-type]


def daemon(name: str, **more: object) -> Pod:
    return replace(pod(name, **more), controller=Controller("DaemonSet", "agent", True))


def seen(drain: Drain, *pods: Pod, at: datetime = NOW) -> Drain:
    return observe(drain, pods, TERMS, at)


def sent(drain: Drain, pod: Pod, way: RemovalMethod, at: datetime = NOW) -> Drain:
    """The drain when a pod's going has been granted."""
    return record(drain, PodRequest(pod, way, None, way), Answer(Meaning.ACCEPTED), TERMS, at)


def test_what_vanishes_is_gone_but_what_was_left_stays_left() -> None:
    drain = seen(Drain(), pod("a"), daemon("cni"))
    gone = seen(drain).pods
    assert (gone["a"].stage, gone["a"].gone_at) == (Stage.GONE, NOW)
    assert (gone["cni"].stage, gone["cni"].gone_at) == (Stage.LEFT, None)


def test_a_pod_whose_volumes_are_waited_for_has_gone_but_once() -> None:
    drain = seen(seen(Drain(), pod("a", claims=("shop/data", "shop/log"))))
    drain = observe_volumes(drain, [], {"shop/log"}, NOW)
    later = seen(drain, at=NOW + MINUTE).pods["a"]
    assert (later.stage, later.gone_at) == (Stage.DETACHING, NOW)
    assert later.attached == ("shop/log",)


def test_what_is_listed_is_not_gone_whatever_was_answered() -> None:
    drain = seen(seen(Drain(), pod("a", claims=("shop/data",))))
    assert drain.pods["a"].stage is Stage.DETACHING
    again = seen(drain, pod("a", claims=("shop/data",))).pods["a"]
    assert (again.stage, again.attached, again.gone_at) == (Stage.PENDING, (), None)


def test_a_pod_that_somebody_else_sends_away_is_only_waited_for() -> None:
    drain = seen(Drain(), pod("a"), daemon("cni"))
    going = {"deletion": NOW + MINUTE}
    after = seen(drain, pod("a", **going), daemon("cni", **going)).pods
    assert (after["a"].stage, after["a"].reason) == (Stage.TERMINATING, "somebody else had it go")
    assert after["cni"].stage is Stage.LEFT


def test_a_pod_that_does_not_end_is_left_five_minutes_after_it_should_have() -> None:
    drain = sent(seen(Drain(), pod("a")), pod("a"), RemovalMethod.EVICT)
    stuck = pod("a", deletion=NOW + MINUTE)
    assert seen(drain, stuck, at=NOW + 6 * MINUTE).pods["a"].stage is Stage.TERMINATING
    left = seen(drain, stuck, at=NOW + 7 * MINUTE).pods["a"]
    assert (left.stage, left.reason) == (
        Stage.LEFT,
        "its deletion was due 6 minutes ago: not waited for",
    )


def test_what_keeps_a_pod_that_has_ended_is_said_once() -> None:
    drain = sent(seen(Drain(), pod("a")), pod("a"), RemovalMethod.EVICT)
    kept = pod("a", deletion=NOW, kept_by=("example.com/backup",))
    drain = seen(seen(drain, kept), kept)
    assert drain.pods["a"].reason == (
        "evict; it has ended, but its finalizers keep it: example.com/backup"
    )


def test_without_a_deadline_a_pod_that_is_kept_is_waited_for_and_what_keeps_it_said_once() -> None:
    drain = sent(observe(Drain(), [pod("a")], Terms(), NOW), pod("a"), RemovalMethod.EVICT)
    kept = pod("a", deletion=NOW, kept_by=("example.com/backup",))
    for _ in range(2):
        drain = observe(drain, [kept], Terms(), NOW)
    assert (drain.pods["a"].stage, drain.pods["a"].reason) == (
        Stage.TERMINATING,
        "evict; it has ended, but its finalizers keep it: example.com/backup",
    )
    away = replace(kept, uid="b", name="b", deletion=NOW - 9 * MINUTE)
    left = observe(observe(drain, [kept, away], Terms(), NOW), [kept, away], Terms(), NOW)
    assert left.pods["b"].stage is Stage.LEFT
    assert left.pods["b"].reason.count("its finalizers keep it") == 1


def test_who_comes_back_over_the_cordon_is_known_by_what_this_drain_sent_away() -> None:
    first = pod("a", cordon_toleration=STUBBORN)
    second = pod("b", cordon_toleration=STUBBORN)
    going = replace(first, deletion=NOW + MINUTE)
    fresh = seen(Drain(), first, second)
    assert {p.stage for p in fresh.pods.values()} == {Stage.PENDING}, "all are new at first"
    evicted = sent(seen(Drain(), first), first, RemovalMethod.EVICT)
    assert seen(evicted, going, second).pods["b"].stage is Stage.RETURNED
    hurried = sent(seen(Drain(), going), going, RemovalMethod.SHORTEN)
    assert seen(hurried, going, second).pods["b"].stage is Stage.PENDING, "others sent that away"
    plain = replace(second, cordon_toleration=None)
    assert seen(evicted, going, plain).pods["b"].stage is Stage.PENDING
    other = replace(second, controller=Controller("ReplicaSet", "api"))
    assert seen(evicted, going, other).pods["b"].stage is Stage.PENDING


def test_who_comes_back_a_second_time_after_a_delete_is_left() -> None:
    first = pod("a", cordon_toleration=STUBBORN)
    drain = sent(seen(Drain(), first), first, RemovalMethod.EVICT)
    second = replace(first, name="b", uid="b")
    drain = sent(seen(drain, second), second, RemovalMethod.DELETE)
    third = replace(first, name="c", uid="c")
    assert seen(drain, third).pods["c"].stage is Stage.LEFT
    plain = replace(third, cordon_toleration=None)
    assert seen(drain, plain).pods["c"].stage is Stage.PENDING


def test_volumes_are_waited_for_one_by_one_but_not_those_that_a_pod_which_stays_uses() -> None:
    db = pod("db", claims=("shop/data", "shop/log", "shop/shared"))
    agent = daemon("agent", claims=("shop/shared",))
    drain = seen(seen(Drain(), db, agent), agent)
    some = observe_volumes(drain, [agent], {"shop/log", "shop/shared"}, NOW)
    assert (some.pods["db"].stage, some.pods["db"].attached) == (Stage.DETACHING, ("shop/log",))
    none = observe_volumes(some, [agent], {"shop/shared"}, NOW + MINUTE).pods["db"]
    assert (none.stage, none.attached, none.detached_at) == (Stage.GONE, (), NOW + MINUTE)
    unseen = without_volumes(drain, "nobody may see them").pods
    assert unseen["db"].stage is Stage.GONE
    assert unseen["db"].reason.endswith("; nobody may see them")
    assert unseen["agent"].stage is Stage.LEFT
