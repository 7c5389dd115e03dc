"""Which pods of a node go: kubectl drain's filters, each with a reason."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.drain.pods import Controller, Pod, PodDecision, Refusal, Verdict, decide_pod

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
        ({"mirror": True}, Verdict.LEAVE, "static"),
        ({"controller": Controller("DaemonSet", "cni", True)}, Verdict.LEAVE, "DaemonSet shop/cni"),
        ({"controller": Controller("DaemonSet", "cni", False)}, Verdict.EVICT, "exists no more"),
        ({"phase": "Succeeded"}, Verdict.EVICT, "finished"),
        ({"phase": "Failed"}, Verdict.EVICT, "finished"),
        ({"deletion": NOW + timedelta(seconds=9)}, Verdict.AWAIT, "terminating"),
        ({"deletion": NOW - timedelta(minutes=9)}, Verdict.LEAVE, "9 minutes ago"),
        ({}, Verdict.EVICT, "elsewhere"),
    ],
)
def test_every_pod_gets_a_decision_with_its_reason(
    changes: dict[str, Any], verdict: Verdict, word: str
) -> None:
    decision = decide(**changes)
    assert decision.verdict is verdict
    assert word in decision.reason


def test_a_static_pod_of_a_daemonset_is_static_first() -> None:
    decision = decide(mirror=True, controller=Controller("DaemonSet", "cni", False))
    assert decision.verdict is Verdict.LEAVE


def test_a_pod_that_came_back_over_the_cordon_is_named_with_its_toleration() -> None:
    decision = decide(returned=True, cordon_toleration="(operator Exists for every key)")
    assert decision.verdict is Verdict.RETURNED
    assert "operator Exists" in decision.reason


def test_a_pod_without_that_toleration_can_not_have_come_back() -> None:
    assert decide(returned=True).verdict is Verdict.EVICT


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"controller": None}, Refusal.UNMANAGED),
        ({"empty_dir": True}, Refusal.EMPTY_DIR),
        ({"controller": Controller("DaemonSet", "cni", True)}, Refusal.DAEMONSET),
        ({}, None),
        ({"controller": None, "phase": "Succeeded"}, None),
    ],
)
def test_what_kubectl_would_refuse_is_marked_with_the_flag_that_allows_it(
    changes: dict[str, Any], refusal: Refusal | None
) -> None:
    assert decide(**changes).refusal is refusal
