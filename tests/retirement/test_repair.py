"""Repairs of unhealthy nodes: decided by a fresh read, drained for a bounded time, and ended."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.notices import NoticeKind
from leeway.policy.rules import ChurnCap, ClusterPolicy, OnBlocked
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT, Condition, Controller
from leeway.retirement.outcome import RetirementResult

from tests.fakes.pools import of_pool
from tests.fakes.retirement import POD, RetirementFakes, drained_at, retire, retirement_fakes
from tests.retirement.retirements import NOTICED

KIND = NoticeKind.UNHEALTHY_NODE
DEAD = Condition("Ready", "Unknown", NOTICED - timedelta(minutes=30))
FOREVER = datetime.max.replace(tzinfo=UTC)
WEB = replace(POD, controller=Controller("ReplicaSet", "web"))


def unhealthy(**changes: Any) -> RetirementFakes:
    usual: dict[str, Any] = {"conditions": (DEAD,), "pods": [WEB], "unready": 1}
    return of_pool(KIND, **usual | changes)


def test_an_unhealthy_node_is_drained_while_its_replacement_starts_and_ended() -> None:
    fakes = unhealthy()
    outcome = retire(fakes)
    assert drained_at(fakes) == timedelta(0)
    assert fakes.actions.order_of("buy", "evict") == ["buy", "evict"]
    assert (outcome.result, outcome.terminated) == (RetirementResult.DRAINED, True)


def test_neither_annotations_nor_budgets_hold_it() -> None:
    fakes = unhealthy(
        blocks=True,
        pods=[replace(WEB, protected_until=FOREVER)],
        annotations={DO_NOT_DISRUPT: "true"},
    )
    outcome = retire(fakes)
    assert fakes.actions.order_of("evict", "delete")[-1] == "delete"
    assert (outcome.result, outcome.terminated) == (RetirementResult.DRAINED, True)


def test_an_instance_whose_kubelet_is_dead_ends_although_its_pods_are_left() -> None:
    fakes = unhealthy(ends_in=10**6)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.INCOMPLETE, True)
    assert "is terminated, because the time for its drain is over" in outcome.summary.message
    assert outcome.ended_at - NOTICED < timedelta(minutes=12)
    assert not fakes.record.is_open


def test_a_group_ends_its_instance_although_pods_are_left() -> None:
    fakes = retirement_fakes(
        KIND, pods=[WEB], blocks=False, conditions=(DEAD,), unready=1, ends_in=10**6
    )
    fakes.groups.pods_left = list  # those of a dead kubelet need no hook
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert fakes.actions.order_of("terminate and decrement") == ["terminate and decrement"]
    assert not fakes.record.is_open


def test_an_instance_stays_if_its_pods_were_never_listed() -> None:
    fakes = unhealthy()
    fakes.cluster.lists = False
    assert not retire(fakes).terminated
    assert fakes.actions.ended == []


def test_a_node_that_has_recovered_is_left_alone() -> None:
    fakes = unhealthy(conditions=(Condition("Ready", "True", NOTICED),))
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DECLINED
    assert "is healthy again" in outcome.reason.message
    assert fakes.actions.order_of("cordon", "evict", "buy") == []


def test_an_instance_whose_node_is_gone_is_left_to_the_search_for_deleted_nodes() -> None:
    """The API server may have been restored from a backup."""
    fakes = unhealthy(joins_in=10**9)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.DECLINED, False)
    assert "has no Node any more" in outcome.reason.message
    assert fakes.actions.ended == []


def test_a_cluster_that_loses_its_network_meanwhile_keeps_its_nodes() -> None:
    fakes = unhealthy(ready=0, unready=20)
    outcome = retire(fakes)
    assert (outcome.result, outcome.reason.code) == (RetirementResult.DECLINED, "RepairsHeld")
    assert "20 of 20 nodes of cluster prod" in outcome.reason.message
    assert fakes.actions.order_of("cordon", "evict", "buy") == []


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (ClusterPolicy(paused=True), "ClusterPaused"),
        (ClusterPolicy(churn=ChurnCap(percent=0, at_least=0)), "DisruptionBudgetExhausted"),
    ],
)
def test_a_pause_and_the_budget_of_the_cluster_hold_it(policy: ClusterPolicy, code: str) -> None:
    fakes = unhealthy(policy=policy)
    outcome = retire(fakes)
    assert (outcome.result, outcome.reason.code) == (RetirementResult.DECLINED, code)
    assert fakes.actions.order_of("cordon", "evict", "buy") == []


def test_a_dry_run_changes_nothing() -> None:
    fakes = unhealthy(policy=ClusterPolicy(dry_run=True))
    assert retire(fakes).result is RetirementResult.DRY_RUN
    assert fakes.actions.order_of("cordon", "evict", "buy") == []


def test_a_policy_that_waits_for_budgets_keeps_the_instance_of_a_blocked_pod() -> None:
    fakes = unhealthy(blocks=True)
    fakes.amend(on_blocked=OnBlocked.WAIT)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.INCOMPLETE, False)
    assert "delete" not in fakes.actions.order_of("delete")
