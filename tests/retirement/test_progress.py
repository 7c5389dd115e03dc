"""Whole drains, simulated second by second with all kinds of budgets and grace periods."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Controller, Pod
from leeway.retirement.plan import give_up, plan
from leeway.retirement.pods import Answer, Meaning, Terms
from leeway.retirement.progress import (
    Drain,
    PodRequest,
    RemovalMethod,
    Stage,
    expire,
    is_expired,
    observe,
    observe_volumes,
    record_answer,
)
from leeway.retirement.reasons import (
    BUDGET_BLOCKS,
    POD_COMES_BACK,
    POD_DOES_NOT_END,
    POD_EVICTED,
    POD_GONE,
)
from pydantic import TypeAdapter

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def pod(name: str = "web-1", grace: int = 30, workload: str = "web", **more: object) -> Pod:
    return Pod(
        "shop",
        name,
        f"uid-{name}",
        "Running",
        grace,
        Controller("ReplicaSet", workload),
        **more,  # type: ignore[arg-type]
    )


@dataclass
class Node:
    """A node as the API server shows it: pods end when their grace period is over."""

    pods: dict[str, Pod]
    blocked: frozenset[str] = frozenset()
    at: datetime = NOW
    finalizers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    asked: list[tuple[datetime, PodRequest]] = field(default_factory=list)

    def answer(self, ask: PodRequest) -> Answer:
        self.asked.append((self.at, ask))
        if ask.method is RemovalMethod.EVICT and ask.pod.name in self.blocked:
            return Answer(Meaning.BLOCKED, BUDGET_BLOCKS(answer="budget web"))
        grace = ask.pod.grace if ask.grace is None else ask.grace
        self.pods[ask.pod.uid] = replace(
            self.pods[ask.pod.uid], deletion=self.at + timedelta(seconds=grace)
        )
        return Answer(Meaning.ACCEPTED, POD_EVICTED())

    def attached(self) -> set[str]:
        return {claim for pod in self.pods.values() for claim in pod.claims}

    def pass_time(self, seconds: float = 1) -> None:
        self.at += timedelta(seconds=seconds)
        ended = [p for p in self.pods.values() if p.deletion is not None and p.deletion <= self.at]
        for one in ended:
            if kept_by := self.finalizers.get(one.name):
                self.pods[one.uid] = replace(one, kept_by=kept_by)
            else:
                del self.pods[one.uid]

    def drain(self, terms: Terms, seconds: int, start: Drain | None = None) -> Drain:
        drain = start or Drain()
        for _ in range(seconds):
            listed = list(self.pods.values())
            drain = observe(drain, listed, terms, self.at)
            drain = observe_volumes(drain, listed, self.attached(), self.at)
            for _ in range(2):
                drain = give_up(drain, listed, terms, self.at)
                for ask in plan(drain, listed, terms, self.at):
                    drain = record_answer(drain, ask, self.answer(ask), terms, self.at)
            if is_expired(terms, self.at):
                drain = expire(drain)
            if drain.over:
                break
            self.pass_time()
        return drain


def node(*pods: Pod, blocked: tuple[str, ...] = ()) -> Node:
    return Node({p.uid: p for p in pods}, frozenset(blocked))


def terms(seconds: int, on_blocked: OnBlocked = OnBlocked.DELETE) -> Terms:
    return Terms(NOW + timedelta(seconds=seconds), on_blocked)


def test_a_node_that_was_never_listed_is_not_drained() -> None:
    assert not Drain().over
    assert not Drain().drained


def test_pods_are_evicted_at_once_and_the_drain_waits_for_them() -> None:
    drain = node(pod("a", grace=3), pod("b", grace=5)).drain(terms(60), 60)
    assert drain.drained
    assert [p.stage for p in drain.pods.values()] == [Stage.GONE, Stage.GONE]
    assert all(p.requested_at == NOW for p in drain.pods.values())


def test_a_blocked_pod_is_retried_until_its_latest_moment_and_then_deleted() -> None:
    simulated = node(pod("a", grace=20), blocked=("a",))
    drain = simulated.drain(terms(60), 70)
    methods = [(at, ask.method) for at, ask in simulated.asked]
    deleted = [at for at, method in methods if method is RemovalMethod.DELETE]
    assert deleted == [NOW + timedelta(seconds=40)]
    assert len(methods) > 8
    assert drain.drained
    assert drain.pods["uid-a"].reason.code == "PodDeletedAtLatestMoment"


def test_under_wait_a_blocked_pod_is_never_deleted_and_fails_at_the_deadline() -> None:
    simulated = node(pod("a"), blocked=("a",))
    drain = simulated.drain(terms(60, OnBlocked.WAIT), 70)
    assert {ask.method for _, ask in simulated.asked} == {RemovalMethod.EVICT}
    assert [p.stage for p in drain.pods.values()] == [Stage.FAILED]
    assert drain.pods["uid-a"].reason.code == "BudgetBlocksEviction"
    assert drain.pods["uid-a"].reason.message.endswith("came while the pod was blocked.")


def test_under_fail_a_blocked_pod_fails_at_its_latest_moment_and_the_others_continue() -> None:
    simulated = node(pod("a"), pod("b", grace=2), blocked=("a",))
    drain = simulated.drain(terms(60, OnBlocked.FAIL), 70)
    assert drain.pods["uid-a"].stage is Stage.FAILED
    assert drain.pods["uid-b"].stage is Stage.GONE
    assert simulated.at == NOW + timedelta(seconds=30)


def test_critical_pods_are_evicted_after_the_ordinary_ones() -> None:
    critical = pod("dns", grace=5, workload="dns", priority_class="system-cluster-critical")
    simulated = node(critical, pod("a", grace=10))
    simulated.drain(terms(100), 60)
    asked = {ask.pod.name: at for at, ask in simulated.asked}
    assert asked["dns"] == asked["a"] + timedelta(seconds=10)


def test_a_pod_that_only_finalizers_keep_delays_no_critical_pod() -> None:
    critical = pod("dns", grace=5, workload="dns", priority_class="system-cluster-critical")
    simulated = node(critical, pod("a", grace=3))
    simulated.finalizers = {"a": ("backups.example.com/upload",)}
    drain = simulated.drain(terms(100), 110)
    assert [(at - NOW, ask.pod.name) for at, ask in simulated.asked] == [
        (timedelta(0), "a"),
        (timedelta(seconds=3), "dns"),
    ]
    assert simulated.at == NOW + timedelta(seconds=8), "no pod needs the machine any more"
    assert drain.drained
    kept = drain.pods["uid-a"]
    assert (kept.stage, kept.gone_at) == (Stage.GONE, NOW + timedelta(seconds=3))
    assert kept.kept_by == ("backups.example.com/upload",)
    finalizers = POD_DOES_NOT_END(
        "It has ended, but its finalizers keep the object: backups.example.com/upload."
    )
    assert kept.reason == POD_EVICTED().and_then(finalizers)


def test_a_pod_that_another_client_deleted_and_finalizers_keep_has_ended() -> None:
    gone = pod("a", grace=3, deletion=NOW - timedelta(seconds=9), kept_by=("example.com/one",))
    drain = node(gone).drain(terms(100), 5)
    assert (drain.drained, drain.pods["uid-a"].stage) == (True, Stage.GONE)


def test_the_drain_waits_for_the_volumes_of_a_pod_that_finalizers_keep() -> None:
    simulated = node(pod("a", grace=3, claims=("shop/data",)))
    simulated.finalizers = {"a": ("example.com/one",)}
    drain = simulated.drain(terms(100), 9)
    assert drain.pods["uid-a"].stage is Stage.DETACHING, (
        "the volume is attached while the object exists"
    )
    del simulated.pods["uid-a"]
    drain = simulated.drain(terms(100), 9, drain)
    assert drain.pods["uid-a"].stage is Stage.GONE
    assert drain.drained


def test_a_critical_pod_waits_for_ordinary_pods_until_its_latest_moment() -> None:
    critical = pod("dns", grace=30, workload="dns", priority_class="system-node-critical")
    simulated = node(critical, pod("a", grace=10), blocked=("a",))
    simulated.drain(terms(60), 70)
    first = next(at for at, ask in simulated.asked if ask.pod.name == "dns")
    assert first == NOW + timedelta(seconds=30)


def test_a_workload_that_tolerates_the_cordon_is_evicted_once_and_deleted_at_the_end() -> None:
    tolerant = pod("a", grace=1, cordon_toleration="(operator Exists for every key)")
    simulated = node(tolerant, pod("slow", grace=40, workload="slow"))
    rules = terms(60)
    drain = simulated.drain(rules, 5)
    for number in range(3):
        again = replace(tolerant, name=f"a-{number}", uid=f"again-{number}", deletion=None)
        simulated.pods[again.uid] = again
        drain = simulated.drain(rules, 3, drain)
    asked = [ask.method for _, ask in simulated.asked if ask.pod.workload == tolerant.workload]
    assert asked == [RemovalMethod.EVICT]
    assert drain.pods["again-0"].stage is Stage.RETURNED
    drain = simulated.drain(rules, 60, drain)
    deleted = [ask.pod.name for _, ask in simulated.asked if ask.method is RemovalMethod.DELETE]
    assert set(deleted) == {"a-0", "a-1", "a-2"}
    assert drain.drained


def test_a_listed_pod_whose_eviction_found_it_gone_is_evicted_again_after_a_pause() -> None:
    terms, one = Terms(NOW + timedelta(seconds=120)), pod()
    drain = observe(Drain(), [one], terms, NOW)
    (ask,) = plan(drain, [one], terms, NOW)
    drain = record_answer(drain, ask, Answer(Meaning.GONE, POD_GONE("")), terms, NOW)
    drain = observe(drain, [one], terms, NOW)
    assert plan(drain, [one], terms, NOW) == ()
    later = NOW + timedelta(seconds=2)
    assert plan(observe(drain, [one], terms, later), [one], terms, later) == (ask,)


def test_a_drain_is_restored_from_its_json() -> None:
    drain = node(pod("a"), pod("b"), blocked=("b",)).drain(terms(60), 9)
    adapter = TypeAdapter(Drain)
    assert adapter.validate_json(adapter.dump_json(drain)) == drain


def test_a_drain_after_its_deadline_still_requests_every_pod_once() -> None:
    simulated = node(pod("a", grace=30), pod("b", grace=30), blocked=("b",))
    drain = simulated.drain(terms(-5), 1)
    asked = [(ask.pod.name, ask.method, ask.grace) for _, ask in simulated.asked]
    assert asked == [
        ("a", RemovalMethod.EVICT, 1),
        ("b", RemovalMethod.EVICT, 1),
        ("b", RemovalMethod.DELETE, 1),
    ]
    assert drain.over
    assert not drain.drained


def test_a_pod_that_returns_before_the_eviction_is_answered_counts_as_returned() -> None:
    tolerates = "(operator Exists for every key)"
    first = pod("first", cordon_toleration=tolerates)
    second = pod("second", cordon_toleration=tolerates)
    other = pod("other", workload="other", cordon_toleration=tolerates)
    seen = observe(Drain(), [first, other], terms(60), NOW)
    going = replace(first, deletion=NOW + timedelta(seconds=30))
    for now_listed in ([going, other, second], [other, second]):
        awaited = {first.uid, other.uid}
        after = observe(seen, now_listed, terms(60), NOW, awaited)
        assert after.pods[second.uid].stage is Stage.RETURNED
        assert after.pods[second.uid].reason.code == "PodComesBack"
    not_gone = observe(seen, [first, other, second], terms(60), NOW, {first.uid})
    assert not_gone.pods[second.uid].stage is Stage.PENDING, "the first one has not gone yet"
    by_others = observe(seen, [going, other, second], terms(60), NOW)
    assert by_others.pods[second.uid].stage is Stage.PENDING, "the drain did not evict it"


def pinned(number: int) -> Pod:
    """A pod whose spec names the node, so that the cordon does not keep it away."""
    return pod(f"manager-{number}", grace=1, workload="manager")


def test_a_workload_that_names_its_node_is_evicted_three_times_and_deleted_at_the_end() -> None:
    simulated = node(pinned(0), pod("slow", grace=40, workload="slow"))
    rules = terms(60)
    drain = simulated.drain(rules, 2)
    for number in range(1, 6):
        simulated.pods[f"uid-manager-{number}"] = pinned(number)
        drain = simulated.drain(rules, 3, drain)
    evicted = [ask.pod.name for _, ask in simulated.asked if ask.pod.workload.endswith("/manager")]
    assert evicted == ["manager-0", "manager-1", "manager-2"]
    kept = drain.pods["uid-manager-3"]
    assert kept.stage is Stage.RETURNED
    assert kept.reason == POD_COMES_BACK(
        "pods of shop/ReplicaSet/manager came back repeatedly, because their spec names this node"
    )
    drain = simulated.drain(rules, 60, drain)
    deleted = {ask.pod.name for _, ask in simulated.asked if ask.method is RemovalMethod.DELETE}
    assert deleted == {"manager-3", "manager-4", "manager-5"}


def test_pods_that_the_scheduler_was_binding_during_the_cordon_are_evicted() -> None:
    simulated = node(pinned(0), pod("slow", grace=40, workload="slow"))
    drain = simulated.drain(terms(60), 1)
    for number in range(1, 5):
        simulated.pods[f"uid-manager-{number}"] = pinned(number)
        drain = simulated.drain(terms(60), 1, drain)
    assert drain.pods["uid-manager-4"].requested_at is not None
    for number in range(5, 7):
        other = pod(f"other-{number}", grace=1, workload="other")
        simulated.pods[other.uid] = other
        drain = simulated.drain(terms(60), 3, drain)
    assert drain.pods["uid-other-6"].requested_at is not None, (
        "only one pod of this workload came before"
    )


def test_critical_pods_do_not_wait_for_pods_that_stay_or_returned() -> None:
    dns = pod("dns", grace=5, workload="dns", priority_class="system-cluster-critical")
    stays = replace(pod("cni", workload="cni"), controller=Controller("DaemonSet", "cni", True))
    back = pod("a", grace=1, cordon_toleration="(operator Exists for every key)")
    simulated = node(dns, stays, back)
    drain = simulated.drain(terms(60), 1)
    simulated.pods["again"] = replace(back, name="a-again", uid="again", deletion=None)
    drain = simulated.drain(terms(60), 9, drain)
    assert drain.pods["again"].stage is Stage.RETURNED
    assert drain.pods["uid-cni"].stage is Stage.LEFT
    assert drain.pods["uid-dns"].requested_at == NOW + timedelta(seconds=1)


def test_blocked_pods_do_not_count_as_returned_pods() -> None:
    simulated = node(pinned(0), blocked=("manager-1", "manager-2"))
    drain = simulated.drain(terms(90), 1)
    for number in range(1, 4):
        simulated.pods[f"uid-manager-{number}"] = pinned(number)
        drain = simulated.drain(terms(90), 3, drain)
    assert drain.pods["uid-manager-3"].method is RemovalMethod.EVICT
