"""The decision about a pod: kubectl drain's filters, each with a reason."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.ports.kubernetes_objects import Controller, Pod
from leeway.retirement.pods import PodAction, PodDecision, Refusal, decide_pod

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
WEB = Controller("ReplicaSet", "web-6d4c")


def pod(**changes: Any) -> Pod:
    facts: dict[str, Any] = {
        "namespace": "shop",
        "name": "web-1",
        "uid": "u-1",
        "phase": "Running",
        "grace": 30,
        "controller": WEB,
    }
    return Pod(**facts | changes)


def decide(returned: bool = False, **changes: Any) -> PodDecision:
    return decide_pod(pod(**changes), NOW, returned)


@pytest.mark.parametrize(
    ("changes", "action", "why"),
    [
        ({"mirror": True}, PodAction.LEAVE, "it is a static pod"),
        (
            {"controller": Controller("DaemonSet", "cni", True)},
            PodAction.LEAVE,
            "would create it again on this node",
        ),
        (
            {"controller": Controller("DaemonSet", "cni", False)},
            PodAction.EVICT,
            "nothing creates it again",
        ),
        ({"phase": "Succeeded"}, PodAction.EVICT, "no budget protects it"),
        ({"phase": "Failed"}, PodAction.EVICT, "no budget protects it"),
        ({"deletion": NOW + timedelta(seconds=9)}, PodAction.AWAIT, "Its grace period ends at"),
        ({"deletion": NOW - timedelta(minutes=9)}, PodAction.LEAVE, "Its deletion was due"),
        ({}, PodAction.EVICT, "Then it runs on another node"),
    ],
)
def test_each_kind_of_pod_has_a_decision_with_its_reason(
    changes: dict[str, Any], action: PodAction, why: str
) -> None:
    decision = decide(**changes)
    assert decision.action is action
    assert why in decision.reason.message


def test_a_static_pod_of_a_missing_daemonset_stays() -> None:
    decision = decide(mirror=True, controller=Controller("DaemonSet", "cni", False))
    assert decision.action is PodAction.LEAVE


def test_a_pod_that_tolerates_the_cordon_is_reported_with_its_toleration() -> None:
    decision = decide(returned=True, cordon_toleration="(operator Exists for every key)")
    assert decision.action is PodAction.RETURNED
    assert "operator Exists" in decision.reason.message


def test_a_pod_without_the_toleration_has_returned_only_after_several_of_its_workload() -> None:
    assert decide(returned=True).action is PodAction.EVICT
    decision = decide_pod(pod(), NOW, returned=True, persists=True)
    assert decision.action is PodAction.RETURNED
    assert "names this node" in decision.reason.message


@pytest.mark.parametrize(
    ("changes", "refusals"),
    [
        ({"controller": None}, (Refusal.UNMANAGED,)),
        ({"empty_dir": True}, (Refusal.EMPTY_DIR,)),
        ({"controller": None, "empty_dir": True}, (Refusal.EMPTY_DIR, Refusal.UNMANAGED)),
        ({"controller": Controller("DaemonSet", "cni", True)}, (Refusal.DAEMONSET,)),
        ({"controller": Controller("DaemonSet", "cni", False)}, (Refusal.UNMANAGED,)),
        ({}, ()),
        ({"controller": None, "phase": "Succeeded"}, ()),
        ({"controller": None, "deletion": NOW}, (Refusal.UNMANAGED,)),
    ],
)
def test_a_pod_that_kubectl_refuses_has_the_flags_that_allow_it(
    changes: dict[str, Any], refusals: tuple[Refusal, ...]
) -> None:
    assert decide(**changes).refusals == refusals


def test_the_wait_for_an_overdue_deletion_is_configurable() -> None:
    overdue = pod(deletion=NOW - timedelta(seconds=40))
    assert decide_pod(overdue, NOW).action is PodAction.AWAIT
    assert decide_pod(overdue, NOW, False, timedelta(seconds=30)).action is PodAction.LEAVE
    ages_ago = pod(deletion=NOW - timedelta(days=9))
    assert decide_pod(ages_ago, NOW, False, None).action is PodAction.AWAIT


def test_a_critical_pod_is_evicted_after_the_ordinary_pods() -> None:
    decision = decide(priority_class="system-cluster-critical")
    assert "after the ordinary pods" in decision.reason.message
