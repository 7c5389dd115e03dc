"""Disruption budget: pause, churn cap and annotations delay voluntary retirements only."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.notices import NoticeKind
from leeway.policy.rules import ChurnCap, ClusterPolicy, OnBlocked
from leeway.retirement.disruption_budget import (
    ALLOWED,
    INVOLUNTARY_BEFORE,
    BudgetDecision,
    BudgetVerdict,
    DisruptionLedger,
    decide_disruption,
    decline_after_timeout,
    is_voluntary,
    retry_pause,
    start_drain,
)
from leeway.retirement.reasons import (
    BUDGET_EXHAUSTED,
    CLUSTER_PAUSED,
    NODE_PROTECTED,
    SUCCESSOR_FOUND,
)
from leeway.retirement.record import ReplacementIntent, Retirement

from tests.retirement.retirements import NOTICED, take

PAUSED = ClusterPolicy(paused=True)
CHANGES_AT = NOTICED + timedelta(hours=4)


def noticed(kind: NoticeKind) -> Retirement:
    ahead = {"effective_at": CHANGES_AT} if kind is NoticeKind.SCHEDULED_CHANGE else {}
    return take(None, kind, "n-1", **ahead).record


@pytest.mark.parametrize(
    ("kind", "voluntary"),
    [
        (NoticeKind.REBALANCE, True),
        (NoticeKind.SCHEDULED_CHANGE, True),
        (NoticeKind.SPOT_INTERRUPTION, False),
        (NoticeKind.CAPACITY_RESERVATION, False),
        (NoticeKind.TERMINATE_HOOK, False),
        (NoticeKind.STATE_CHANGE, False),
    ],
)
def test_only_notices_without_an_immediate_end_are_voluntary(
    kind: NoticeKind, voluntary: bool
) -> None:
    assert is_voluntary(noticed(kind), NOTICED) is voluntary


def test_a_scheduled_change_is_involuntary_in_its_last_hour() -> None:
    change = noticed(NoticeKind.SCHEDULED_CHANGE)
    assert change.deadline is not None
    assert is_voluntary(change, change.deadline - INVOLUNTARY_BEFORE - timedelta(seconds=1))
    assert not is_voluntary(change, change.deadline - INVOLUNTARY_BEFORE)


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE])
def test_a_retirement_waits_in_a_paused_cluster_with_the_reason(kind: NoticeKind) -> None:
    decision = decide_disruption(noticed(kind), PAUSED, [])
    assert (decision.verdict, decision.reason) == (
        BudgetVerdict.WAIT,
        CLUSTER_PAUSED(cluster="prod"),
    )


def test_an_annotation_delays_a_rebalance_but_not_a_scheduled_change() -> None:
    protections = ["pod shop/job has karpenter.sh/do-not-disrupt", "pod shop/b has it too"]
    decision = decide_disruption(noticed(NoticeKind.REBALANCE), ClusterPolicy(), protections)
    assert decision.verdict is BudgetVerdict.WAIT
    assert decision.reason == NODE_PROTECTED(
        protections="pod shop/job has karpenter.sh/do-not-disrupt (and 1 more)"
    )
    change = noticed(NoticeKind.SCHEDULED_CHANGE)
    assert decide_disruption(change, ClusterPolicy(), protections).verdict is BudgetVerdict.GO


WAITS = BudgetDecision(BudgetVerdict.WAIT, CLUSTER_PAUSED(cluster="prod"))
DAY = timedelta(hours=24)


def test_a_rebalance_is_declined_after_a_day() -> None:
    recommended = noticed(NoticeKind.REBALANCE)
    assert decline_after_timeout(recommended, WAITS, NOTICED + DAY - timedelta(seconds=1)) == WAITS
    decision = decline_after_timeout(recommended, WAITS, NOTICED + DAY)
    assert decision.verdict is BudgetVerdict.DECLINE
    assert decision.reason == WAITS.reason.and_then(
        "The retirement was not allowed to begin within 24 hours and is declined."
    )
    assert decline_after_timeout(recommended, ALLOWED, NOTICED + DAY) == ALLOWED


def test_a_scheduled_change_and_a_requested_replacement_are_never_declined() -> None:
    change = noticed(NoticeKind.SCHEDULED_CHANGE)
    assert decline_after_timeout(change, WAITS, NOTICED + DAY) == WAITS
    intent = ReplacementIntent(
        method="launch-successor",
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=NOTICED,
    )
    requested = noticed(NoticeKind.REBALANCE).model_copy(update={"replacement_intent": intent})
    assert decline_after_timeout(requested, WAITS, NOTICED + DAY) == WAITS


def test_the_deadline_of_a_rebalance_counts_from_the_begin_of_the_drain() -> None:
    begins = NOTICED + timedelta(hours=3)
    recommended = start_drain(noticed(NoticeKind.REBALANCE), begins)
    assert (recommended.drain_began_at, recommended.deadline) == (
        begins,
        begins + timedelta(minutes=30),
    )
    assert start_drain(recommended, begins + timedelta(hours=1)) == recommended
    change = noticed(NoticeKind.SCHEDULED_CHANGE)
    assert start_drain(change, begins).deadline == change.deadline


@pytest.mark.parametrize(
    ("method", "hours", "then"),
    [
        ("terminate-in-group", 48, OnBlocked.DELETE),
        ("launch-successor", 0.5, OnBlocked.WAIT),
        ("detach", 0.5, OnBlocked.WAIT),
    ],
)
def test_blocked_pods_get_the_longest_wait_of_the_hook_only_if_the_group_terminates(
    method: str, hours: float, then: OnBlocked
) -> None:
    intent = ReplacementIntent(
        method=method,
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=NOTICED,
        to_restore=method == "launch-successor",
    )
    noted = noticed(NoticeKind.REBALANCE).model_copy(update={"replacement_intent": intent})
    started = start_drain(noted, NOTICED)
    assert (started.deadline, started.on_blocked) == (NOTICED + timedelta(hours=hours), then)
    fails = start_drain(noted.model_copy(update={"on_blocked": OnBlocked.FAIL}), NOTICED)
    assert fails.deadline == NOTICED + timedelta(minutes=30)


@given(st.integers(0, 48 * 3600))
def test_a_scheduled_change_is_retried_when_it_becomes_involuntary(after: int) -> None:
    change = noticed(NoticeKind.SCHEDULED_CHANGE)
    assert change.deadline is not None
    now = NOTICED + timedelta(seconds=after)
    pause = retry_pause(change, now)
    assert timedelta(seconds=1) <= pause <= timedelta(minutes=5)
    involuntary_at = change.deadline - INVOLUNTARY_BEFORE
    assert now + pause <= max(involuntary_at, now + timedelta(seconds=1))


def test_a_tenth_of_the_nodes_may_retire_and_at_least_one() -> None:
    cap, ledger = ChurnCap(), DisruptionLedger(cluster="prod")
    for number in range(2):
        changed_, decision = ledger.request(f"i-{number}", 25, cap, NOTICED)
        assert decision.verdict is BudgetVerdict.GO
        assert changed_ is not None
        ledger = changed_
    none, decision = ledger.request("i-2", 25, cap, NOTICED + timedelta(minutes=9))
    assert none is None
    assert decision.verdict is BudgetVerdict.WAIT
    assert decision.reason == BUDGET_EXHAUSTED(disrupted=2, nodes=25, minutes=10, allowed=2)
    assert (
        DisruptionLedger(cluster="prod").request("i-0", 3, cap, NOTICED)[1].verdict
        is BudgetVerdict.GO
    )


def test_a_repeated_request_is_allowed_and_does_not_change_the_ledger() -> None:
    ledger, _ = DisruptionLedger(cluster="prod").request("i-0", 3, ChurnCap(), NOTICED)
    assert ledger is not None
    changed, decision = ledger.request("i-0", 3, ChurnCap(), NOTICED)
    assert (changed, decision.verdict) == (None, BudgetVerdict.GO)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3600)), max_size=60),
    st.integers(0, 100),
    st.integers(0, 200),
)
def test_no_window_has_more_retirements_than_the_budget_allows(
    requests: list[tuple[int, int]], percent: int, nodes: int
) -> None:
    cap = ChurnCap(percent=percent)
    allowed = max(cap.at_least, nodes * percent // 100)
    ledger = DisruptionLedger(cluster="prod")
    begun: dict[str, datetime] = {}
    for number, second in sorted(requests, key=lambda request_: request_[1]):
        now = NOTICED + timedelta(seconds=second)
        changed, decision = ledger.request(f"i-{number}", nodes, cap, now)
        if changed is not None:
            assert decision.verdict is BudgetVerdict.GO
            assert changed.version == ledger.version + 1
            ledger, begun[f"i-{number}"] = changed, now
        within = [at for at in begun.values() if now - at < cap.within]
        assert len(within) <= allowed
