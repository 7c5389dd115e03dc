"""Which pods of a node go: kubectl drain's filters, each with a reason."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.drain.decide_pod import PodAction, PodDecision, Refusal, decide_pod
from leeway.ports.kubernetes_objects import Controller, Pod

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
    ("changes", "verdict", "word"),
    [
        ({"mirror": True}, PodAction.LEAVE, "static"),
        (
            {"controller": Controller("DaemonSet", "cni", True)},
            PodAction.LEAVE,
            "DaemonSet shop/cni",
        ),
        ({"controller": Controller("DaemonSet", "cni", False)}, PodAction.EVICT, "exists no more"),
        ({"phase": "Succeeded"}, PodAction.EVICT, "finished"),
        ({"phase": "Failed"}, PodAction.EVICT, "finished"),
        ({"deletion": NOW + timedelta(seconds=9)}, PodAction.AWAIT, "terminating"),
        ({"deletion": NOW - timedelta(minutes=9)}, PodAction.LEAVE, "9 minutes ago"),
        ({}, PodAction.EVICT, "elsewhere"),
    ],
)
def test_every_pod_gets_a_decision_with_its_reason(
    changes: dict[str, Any], verdict: PodAction, word: str
) -> None:
    decision = decide(**changes)
    assert decision.verdict is verdict
    assert word in decision.reason


def test_a_static_pod_of_a_daemonset_is_static_first() -> None:
    decision = decide(mirror=True, controller=Controller("DaemonSet", "cni", False))
    assert decision.verdict is PodAction.LEAVE


def test_a_pod_that_came_back_over_the_cordon_is_named_with_its_toleration() -> None:
    decision = decide(returned=True, cordon_toleration="(operator Exists for every key)")
    assert decision.verdict is PodAction.RETURNED
    assert "operator Exists" in decision.reason


def test_a_pod_without_that_toleration_has_come_back_only_where_its_like_keep_coming() -> None:
    assert decide(returned=True).verdict is PodAction.EVICT
    decision = decide_pod(pod(), NOW, returned=True, persists=True)
    assert decision.verdict is PodAction.RETURNED
    assert "names this node" in decision.reason


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
def test_what_kubectl_would_refuse_is_marked_with_the_flags_that_allow_it(
    changes: dict[str, Any], refusals: tuple[Refusal, ...]
) -> None:
    assert decide(**changes).refusals == refusals


def test_how_long_an_overdue_deletion_is_waited_for_is_a_choice() -> None:
    overdue = pod(deletion=NOW - timedelta(seconds=40))
    assert decide_pod(overdue, NOW).verdict is PodAction.AWAIT
    assert decide_pod(overdue, NOW, False, timedelta(seconds=30)).verdict is PodAction.LEAVE
    ages_ago = pod(deletion=NOW - timedelta(days=9))
    assert decide_pod(ages_ago, NOW, False, None).verdict is PodAction.AWAIT


def test_a_critical_pod_is_told_to_go_last() -> None:
    decision = decide(priority_class="system-cluster-critical")
    assert "after the ordinary pods" in decision.reason
