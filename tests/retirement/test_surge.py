"""A workload that gets one more pod before a drain evicts one that its budget keeps."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.notices import NoticeKind
from leeway.policy.rules import ClusterPolicy, Replacement
from leeway.ports.kubernetes_objects import Controller
from leeway.ports.workloads import BudgetHealth, Replica, Replicas, Workload
from leeway.reconciliation.reconcile import ABANDONED_AFTER, left_surges
from leeway.retirement.decide_surge import (
    SURGE,
    Surge,
    SurgeAction,
    SurgeDecision,
    SurgeStage,
    decide_begin,
)
from leeway.retirement.drain import PASS_TIMEOUT
from leeway.retirement.record import RETIREMENT, ReturnTerms
from leeway.retirement.surge import STEPS_TIMEOUT, SurgePorts

from tests.fakes.crashes import Crash, Crashed
from tests.fakes.pools import of_pool
from tests.fakes.retirement import RetirementFakes, next_attempt, retire, retirement_fakes
from tests.fakes.workloads import BudgetedCluster, FakeWorkloads, pod_of
from tests.retirement.retirements import FACTS, NOTICED
from tests.retirement.test_crashes import run

WEB = Workload("Deployment", "shop", "web", "w-1", "1", 1, sizers=frozenset({"kubectl"}))
STATEFUL = replace(WEB, kind="StatefulSet")
OF = {
    "Deployment": Controller("ReplicaSet", "web-5d4"),
    "StatefulSet": Controller("StatefulSet", "web"),
}
ON = ClusterPolicy(surges=True)


def surging(
    kind: NoticeKind = NoticeKind.REBALANCE,
    workload: Workload = WEB,
    policy: ClusterPolicy = ON,
    **changes: Any,
) -> RetirementFakes:
    """Return the fakes of a retirement whose node has one pod of a workload with a budget."""
    return with_workload(retirement_fakes(kind, policy=policy), workload, **changes)


def returning(terms: ReturnTerms, policy: ClusterPolicy = ON, **changes: Any) -> RetirementFakes:
    """Return the same for a node of a pool that Leeway gives back."""
    fakes = of_pool(NoticeKind.CAPACITY_RETURN, policy=policy)
    fields = {"terms": terms, "replacement": Replacement.BEFORE, "deadline": None}
    fakes.amend(**fields)
    return with_workload(fakes, WEB, **changes)


def with_workload(fakes: RetirementFakes, workload: Workload, **changes: Any) -> RetirementFakes:
    """Put one pod of a workload on the node."""
    cluster = BudgetedCluster(fakes.groups, fakes.reports)
    cluster.pods = [pod_of("web-0", OF[workload.kind])]
    cluster.workloads = FakeWorkloads(cluster, workload, **changes)
    fakes.groups.pods_left = lambda: cluster.pods
    fakes.cluster, fakes.workloads = cluster, cluster.workloads
    return fakes


def world(fakes: RetirementFakes) -> FakeWorkloads:
    assert isinstance(fakes.workloads, FakeWorkloads)
    return fakes.workloads


def surge(fakes: RetirementFakes) -> Surge | None:
    return fakes.table.get(SURGE, cluster=FACTS.cluster, workload=world(fakes).workload.key)


def steps(fakes: RetirementFakes) -> list[str]:
    """Return the scales, evictions and deletions, in order."""
    wanted = ("scale 1", "scale 2", "scale 3", "evict", "delete")
    return fakes.actions.order_of(*wanted)


def reconcile(fakes: RetirementFakes) -> list[str]:
    """Continue what is left, as reconcile does; returns its reasons."""
    ports = SurgePorts(fakes.table, fakes.cluster, world(fakes), fakes.clock)
    left = left_surges(fakes.table, FACTS.cluster, fakes.clock.now(), lambda: ports)
    return [reason.message for _, go_on in left if (reason := go_on()) is not None]


@pytest.mark.parametrize(
    "kind", [NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE, NoticeKind.CAPACITY_RETURN]
)
def test_one_replica_gets_another_before_it_is_evicted_and_none_fails(kind: NoticeKind) -> None:
    fakes = surging(kind)
    outcome = retire(fakes)
    assert outcome.result == "drained"
    assert steps(fakes) == ["scale 2", "evict", "scale 1"]
    assert world(fakes).fewest == 1
    (replica,) = world(fakes).serving
    assert replica.node == "node-2"
    ended = surge(fakes)
    assert ended is not None
    assert (ended.stage, ended.reason.code) == (SurgeStage.ENDED, "SurgeEnded")
    assert not outcome.needs_attention


def test_a_budget_that_counts_the_additional_pod_does_not_keep_the_old_one() -> None:
    fakes = surging(share=True)
    outcome = retire(fakes)
    assert (outcome.result, outcome.evicted, outcome.deleted) == ("drained", 1, 0)
    assert outcome.pods[0].reason.code == "SurgeReplacesPod"
    assert steps(fakes) == ["scale 2", "delete", "scale 1"]
    assert world(fakes).fewest == 1


def test_without_the_policy_nothing_is_scaled_and_the_budget_keeps_the_pod() -> None:
    fakes = surging(policy=ClusterPolicy())
    assert retire(fakes).result == "incomplete"
    assert steps(fakes) == []


@pytest.mark.parametrize(("asked", "policy"), [(True, ClusterPolicy()), (False, ON)])
def test_an_annotation_of_the_workload_overrides_the_policy(
    asked: bool, policy: ClusterPolicy
) -> None:
    fakes = surging(workload=replace(WEB, surges=asked), policy=policy)
    retire(fakes)
    assert steps(fakes) == (["scale 2", "evict", "scale 1"] if asked else [])


def test_an_interruption_begins_no_surge() -> None:
    fakes = surging(NoticeKind.SPOT_INTERRUPTION)
    retire(fakes)
    assert steps(fakes) == ["delete"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an autoscaler": (
        {"autoscalers": ("HorizontalPodAutoscaler web",)},
        "HorizontalPodAutoscaler web sets its size",
    ),
    "a quota or a policy": ({"refuses": "403: denied request: no surge"}, "denied request"),
    "no right": (
        {"lacks_right": True},
        "--group=leeway:drain --group=leeway:capacity --namespace=shop",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_workload_that_gets_no_pod_says_why_and_is_drained_as_before(case: str) -> None:
    changes, why = REFUSED[case]
    fakes = surging(**changes)
    outcome = retire(fakes)
    assert steps(fakes) == []
    assert outcome.result == "incomplete"
    (pod,) = outcome.pods
    assert pod.reason.code == "BudgetBlocksEviction"
    assert why in pod.reason.message
    assert pod.reason.message.count(why) == 1
    assert fakes.steps.operations < 500


NEVER: list[tuple[Workload, str]] = [
    (replace(WEB, controller="Prometheus k8s"), "Prometheus k8s"),
    (replace(WEB, sizers=frozenset({"leeway"})), "keep_headroom"),
    (replace(WEB, claims=True), "which the old pod holds"),
    (replace(STATEFUL, claims=True), "new, empty volume"),
    (STATEFUL, "by its name"),
]


def test_a_workload_that_one_more_pod_does_not_help_gets_none() -> None:
    def decided(workload: Workload, shared: bool = True) -> SurgeDecision:
        pods = (Replica("web-0", "uid-web-0", "node-1", NOTICED, serves=True),)
        return decide_begin(workload, (), Replicas(pods, shared), BudgetHealth(0, 1, 1))

    assert decided(WEB).action is SurgeAction.SCALE_UP
    for workload, why in NEVER:
        decision = decided(workload, shared=False)
        assert decision.action is SurgeAction.LEAVE, why
        assert why in decision.reason.message
    rolls = decided(replace(WEB, settled=False))
    assert rolls.action is SurgeAction.WAIT
    assert "rollout is not complete" in rolls.reason.message


def test_a_namespace_that_asked_for_nothing_is_asked_once_and_not_blamed() -> None:
    fakes = surging(policy=ClusterPolicy(), lacks_right=True)
    fakes.cluster.pods.append(pod_of("api-0", Controller("ReplicaSet", "api-77f")))
    pods = retire(fakes).pods
    assert not [pod for pod in pods if "rolebinding" in pod.reason.message]
    assert world(fakes).finds == 1, "in half an hour, for both pods"


def test_a_slow_api_server_does_not_take_the_time_of_a_drain() -> None:
    fakes = surging()
    others = (Controller("ReplicaSet", f"api-{number}") for number in range(9))
    fakes.cluster.pods += [pod_of(f"{one.name}-0", one) for one in others]
    world(fakes).takes = 4.0
    ends: list[timedelta] = []

    def measure(_: str) -> None:
        ends.append(fakes.clock.time - fakes.record.noticed_at - fakes.steps.waited)

    fakes.steps.before_step = measure
    retire(fakes)
    longest = max(after - before for before, after in pairwise(ends))
    assert longest < PASS_TIMEOUT + 2 * (STEPS_TIMEOUT + timedelta(seconds=4))


def test_an_additional_pod_that_cannot_be_created_is_given_up() -> None:
    fakes = surging(serves_in=None)

    @fakes.steps.at("drain-3")
    def fail() -> None:
        full = replace(world(fakes).workload, failure='pods "web-2" is forbidden: quota')
        world(fakes).workload = full

    (pod,) = retire(fakes).pods
    assert steps(fakes) == ["scale 2", "scale 1"]
    assert "its controller cannot create the pod" in pod.reason.message
    up, back = (at for what, at in fakes.actions.done if what.startswith("scale"))
    assert back - up < timedelta(minutes=1)


def test_a_pod_that_never_serves_is_taken_away_after_a_quarter_of_an_hour() -> None:
    fakes = surging(serves_in=None)
    outcome = retire(fakes)
    assert outcome.result == "incomplete"
    assert steps(fakes) == ["scale 2", "scale 1"]
    up, back = (at for what, at in fakes.actions.done if what.startswith("scale"))
    assert timedelta(minutes=15) <= back - up < timedelta(minutes=17)
    (pod,) = outcome.pods
    assert "is not Ready" in pod.reason.message
    assert world(fakes).fewest == 1


def test_the_deadline_takes_the_additional_pod_away() -> None:
    fakes = surging(serves_in=None)
    record = fakes.record
    deadline = record.noticed_at + timedelta(minutes=5)
    fakes.record = record.model_copy(update={"deadline": deadline})
    assert retire(fakes).result == "incomplete"
    assert steps(fakes) == ["scale 2", "scale 1"]
    assert world(fakes).workload.replicas == 1


def test_an_additional_pod_on_a_node_that_goes_does_not_count() -> None:
    fakes = surging(goes=True)
    (pod,) = retire(fakes).pods
    assert steps(fakes) == ["scale 2", "scale 1"]
    assert "is on a node that is about to go" in pod.reason.message


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_size_that_somebody_else_writes_is_left_as_it_is(size: int) -> None:
    fakes = surging(serves_in=None)
    fakes.steps.at("drain-3")(lambda: world(fakes).resize(size, "kubectl"))
    (pod,) = retire(fakes).pods
    assert steps(fakes) == ["scale 2"]
    assert world(fakes).workload.replicas == size
    assert "somebody else changed its size" in pod.reason.message


def test_a_conflict_is_repeated_on_a_fresh_read() -> None:
    fakes = surging(conflicts=2)
    assert retire(fakes).result == "drained"
    assert steps(fakes) == ["scale 2", "evict", "scale 1"]


def test_two_nodes_with_pods_of_one_workload_do_not_scale_it_at_the_same_time() -> None:
    fakes = surging()
    other = Surge(
        cluster=FACTS.cluster,
        workload=WEB.key,
        uid=WEB.uid,
        instance="i-other",
        pod="shop/web-9",
        pod_uid="uid-9",
        budget="web-budget",
        size=1,
        required=1,
        began_at=fakes.clock.now(),
        stage=SurgeStage.SCALED,
        reason=fakes.record.reason,
    )
    fakes.table.put(SURGE, other)
    ended = other.model_copy(update={"stage": SurgeStage.ENDED, "version": 2})

    @fakes.steps.at("drain-4")
    def end() -> None:
        assert steps(fakes) == []
        assert "it has one for pod shop/web-9" in fakes.fast.states[-1].pods[0].reason.message
        fakes.table.put(SURGE, ended)

    assert retire(fakes).result == "drained"
    assert steps(fakes) == ["scale 2", "evict", "scale 1"]


def test_a_stateful_set_keeps_its_additional_pod_until_the_old_ordinal_is_back() -> None:
    fakes = surging(workload=STATEFUL)
    assert retire(fakes).result == "drained"
    assert steps(fakes) == ["scale 2", "evict"]
    assert reconcile(fakes) == []
    fakes.clock.sleep(30)
    (reason,) = reconcile(fakes)
    assert "pod shop/web-0 has left its node" in reason
    assert steps(fakes) == ["scale 2", "evict", "scale 1"]
    assert [one.name for one in world(fakes).serving] == ["web-0"]
    assert world(fakes).fewest == 1
    assert reconcile(fakes) == []


def test_an_interruption_of_the_same_node_continues_the_surge() -> None:
    fakes = surging()
    fakes.steps.at("drain-2")(lambda: fakes.amend(attempt=2, kind=NoticeKind.SPOT_INTERRUPTION))
    assert fakes.run_attempt() is None
    next_attempt(fakes)
    assert steps(fakes) == ["scale 2", "evict", "scale 1"]
    assert world(fakes).fewest == 1


@pytest.mark.parametrize("phase", [Phase.UNDONE, Phase.RUNNING])
def test_reconcile_restores_the_size_that_a_dead_execution_left(phase: Phase) -> None:
    fakes = surging()
    fakes.steps.crash_at("drain-2")
    with pytest.raises(Crashed):
        retire(fakes)
    assert steps(fakes) == ["scale 2"]
    if phase is Phase.UNDONE:
        undone = {"phase": phase, "replacement_intent": None, "version": fakes.record.version + 1}
        fakes.table.put(RETIREMENT, fakes.record.model_copy(update=undone))
    else:
        assert reconcile(fakes) == [], "its retirement may go on"
        fakes.clock.sleep(ABANDONED_AFTER.total_seconds())
    (reason,) = reconcile(fakes)
    assert "the drain has ended without it" in reason
    assert steps(fakes) == ["scale 2", "scale 1"]
    assert [one.name for one in world(fakes).serving] == ["web-0"]
    assert reconcile(fakes) == []


UNDERUSED = ReturnTerms(cause="Underutilized", pods=1, optional=True)
DRIFTED = ReturnTerms(cause="Drifted", optional=True)
EXPIRED = ReturnTerms(cause="Expired")


@pytest.mark.parametrize("terms", [UNDERUSED, DRIFTED, EXPIRED])
def test_a_node_is_given_back_although_a_budget_keeps_its_pod(terms: ReturnTerms) -> None:
    fakes = returning(terms)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == ("drained", True)
    assert steps(fakes) == ["scale 2", "evict", "scale 1"]
    assert world(fakes).fewest == 1


def test_a_node_is_kept_after_the_cordon_if_its_workload_does_not_surge() -> None:
    for fakes, why in (
        (returning(UNDERUSED, autoscalers=("ScaledObject web",)), "ScaledObject web sets its size"),
        (returning(UNDERUSED, lacks_right=True), "kubectl create rolebinding leeway-surge"),
        (returning(UNDERUSED, policy=ClusterPolicy()), "The API server refuses to evict"),
    ):
        outcome = retire(fakes)
        assert (outcome.result, steps(fakes)) == ("declined", [])
        assert why in outcome.reason.message
        assert set(fakes.actions.order_of("cordon", "release", "buy")) == {"cordon", "release"}


def test_a_node_that_may_stay_is_kept_when_its_surge_fails() -> None:
    fakes = returning(UNDERUSED, serves_in=None)
    outcome = retire(fakes)
    assert outcome.result == "declined"
    assert steps(fakes) == ["scale 2", "scale 1"]
    assert "is not Ready" in outcome.reason.message
    assert not fakes.cluster.marked
    assert fakes.actions.ended == []


def test_a_node_that_has_to_go_stays_cordoned_when_its_surge_fails() -> None:
    fakes = returning(EXPIRED, serves_in=None)
    deadline = fakes.record.noticed_at + timedelta(hours=3)
    fakes.amend(deadline=deadline)
    assert retire(fakes).result == "incomplete"
    assert steps(fakes) == ["scale 2", "scale 1"]


CASES: dict[str, tuple[Callable[[], RetirementFakes], str]] = {
    "by its budget": (surging, "evict"),
    "past its budget": (lambda: surging(share=True), "delete"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_any_call_scales_once_and_restores_the_size(case: str) -> None:
    make, removal = CASES[case]
    uncrashed, ports = Crash(0, "after"), ("table", "policies")
    assert run(make(), uncrashed, ports).result == "drained"
    assert uncrashed.calls > 60
    for number in range(1, uncrashed.calls + 1):
        fakes, crash = make(), Crash(number, "after")
        outcome = run(fakes, crash, ports)
        assert crash.happened, number
        assert outcome.result == "drained", number
        reconcile(fakes)
        assert steps(fakes) == ["scale 2", removal, "scale 1"], number
        assert (world(fakes).workload.replicas, world(fakes).fewest) == (1, 1), number
        ended = surge(fakes)
        assert ended is not None, number
        assert not ended.is_open, number
