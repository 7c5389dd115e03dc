"""Whose turn it is: pause, churn cap and annotations hold what can wait, and nothing else."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.notices import NoticeKind
from leeway.policy.rules import ChurnCap, ClusterPolicy, OnBlocked
from leeway.retirement.disruption_budget import (
    LAST_CALL,
    BudgetDecision,
    BudgetVerdict,
    DisruptionLedger,
    decide_disruption,
    decline_after_timeout,
    is_voluntary,
    retry_pause,
    start_drain,
)
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import ReplacementIntent

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
def test_only_what_leaves_the_choice_is_voluntary(kind: NoticeKind, voluntary: bool) -> None:
    assert is_voluntary(noticed(kind), NOTICED) is voluntary


def test_a_scheduled_change_is_no_choice_any_more_an_hour_before_ec2_makes_it() -> None:
    change = noticed(NoticeKind.SCHEDULED_CHANGE)
    assert change.deadline is not None
    assert is_voluntary(change, change.deadline - LAST_CALL - timedelta(seconds=1))
    assert not is_voluntary(change, change.deadline - LAST_CALL)


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE])
def test_a_paused_cluster_lets_it_wait_with_the_reason(kind: NoticeKind) -> None:
    turn = decide_disruption(noticed(kind), PAUSED, [])
    assert (turn.verdict, turn.reason) == (BudgetVerdict.WAIT, "cluster prod is paused")


def test_an_annotation_holds_up_a_rebalance_but_not_what_ec2_has_scheduled() -> None:
    said = ["pod shop/job has karpenter.sh/do-not-disrupt", "pod shop/b has it too"]
    turn = decide_disruption(noticed(NoticeKind.REBALANCE), ClusterPolicy(), said)
    assert turn.verdict is BudgetVerdict.WAIT
    assert turn.reason == "pod shop/job has karpenter.sh/do-not-disrupt (and 1 more)"
    change = noticed(NoticeKind.SCHEDULED_CHANGE)
    assert decide_disruption(change, ClusterPolicy(), said).verdict is BudgetVerdict.GO


WAITS = BudgetDecision(BudgetVerdict.WAIT, "cluster prod is paused")
DAY = timedelta(hours=24)


def test_a_recommendation_whose_turn_does_not_come_in_a_day_is_declined() -> None:
    recommended = noticed(NoticeKind.REBALANCE)
    assert decline_after_timeout(recommended, WAITS, NOTICED + DAY - timedelta(seconds=1)) == WAITS
    turn = decline_after_timeout(recommended, WAITS, NOTICED + DAY)
    assert turn.verdict is BudgetVerdict.DECLINE
    assert turn.reason == "its turn has not come in 24 hours: cluster prod is paused"
    go = BudgetDecision(BudgetVerdict.GO)
    assert decline_after_timeout(recommended, go, NOTICED + DAY) == go


def test_what_comes_anyway_and_what_has_asked_for_its_successor_are_never_declined() -> None:
    change = noticed(NoticeKind.SCHEDULED_CHANGE)
    assert decline_after_timeout(change, WAITS, NOTICED + DAY) == WAITS
    asked = ReplacementIntent(method="launch-successor", reason="", asked_at=NOTICED)
    asked_for = noticed(NoticeKind.REBALANCE).model_copy(update={"replacement_intent": asked})
    assert decline_after_timeout(asked_for, WAITS, NOTICED + DAY) == WAITS


def test_a_recommendations_deadline_counts_from_when_its_pods_are_asked_to_go() -> None:
    turn = NOTICED + timedelta(hours=3)
    recommended = start_drain(noticed(NoticeKind.REBALANCE), turn)
    assert (recommended.begun_at, recommended.deadline) == (turn, turn + timedelta(minutes=30))
    assert start_drain(recommended, turn + timedelta(hours=1)) == recommended
    change = noticed(NoticeKind.SCHEDULED_CHANGE)
    assert start_drain(change, turn).deadline == change.deadline


@pytest.mark.parametrize(
    ("method", "hours", "then"),
    [
        ("terminate-in-group", 48, OnBlocked.DELETE),
        ("launch-successor", 0.5, OnBlocked.WAIT),
        ("detach", 0.5, OnBlocked.WAIT),
    ],
)
def test_only_where_its_group_ends_it_a_blocked_pod_is_waited_for_as_long_as_the_hook_can_be_kept(
    method: str, hours: float, then: OnBlocked
) -> None:
    asked = ReplacementIntent(
        method=method, reason="", asked_at=NOTICED, to_restore=method == "launch-successor"
    )
    noted = noticed(NoticeKind.REBALANCE).model_copy(update={"replacement_intent": asked})
    on = start_drain(noted, NOTICED)
    assert (on.deadline, on.on_blocked) == (NOTICED + timedelta(hours=hours), then)
    fails = start_drain(noted.model_copy(update={"on_blocked": OnBlocked.FAIL}), NOTICED)
    assert fails.deadline == NOTICED + timedelta(minutes=30)


@given(st.integers(0, 48 * 3600))
def test_asking_again_is_never_put_off_past_the_last_call(after: int) -> None:
    change = noticed(NoticeKind.SCHEDULED_CHANGE)
    assert change.deadline is not None
    now = NOTICED + timedelta(seconds=after)
    pause = retry_pause(change, now)
    assert timedelta(seconds=1) <= pause <= timedelta(minutes=5)
    last_call = change.deadline - LAST_CALL
    assert now + pause <= max(last_call, now + timedelta(seconds=1))


def test_a_tenth_of_the_nodes_may_go_and_one_at_least() -> None:
    cap, ledger = ChurnCap(), DisruptionLedger(cluster="prod")
    for number in range(2):
        taken, turn = ledger.request(f"i-{number}", 25, cap, NOTICED)
        assert turn.verdict is BudgetVerdict.GO
        assert taken is not None
        ledger = taken
    none, turn = ledger.request("i-2", 25, cap, NOTICED + timedelta(minutes=9))
    assert none is None
    assert turn.verdict is BudgetVerdict.WAIT
    assert turn.reason == "2 of 25 nodes went in the last 10 minutes, and at most 2 may"
    assert (
        DisruptionLedger(cluster="prod").request("i-0", 3, cap, NOTICED)[1].verdict
        is BudgetVerdict.GO
    )


def test_who_has_its_turn_keeps_it_and_takes_no_second() -> None:
    ledger, _ = DisruptionLedger(cluster="prod").request("i-0", 3, ChurnCap(), NOTICED)
    assert ledger is not None
    changed, turn = ledger.request("i-0", 3, ChurnCap(), NOTICED)
    assert (changed, turn.verdict) == (None, BudgetVerdict.GO)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3600)), max_size=60),
    st.integers(0, 100),
    st.integers(0, 200),
)
def test_in_no_window_do_more_go_than_the_cap_allows(
    asks: list[tuple[int, int]], percent: int, nodes: int
) -> None:
    cap = ChurnCap(percent=percent)
    allowed = max(cap.at_least, nodes * percent // 100)
    ledger = DisruptionLedger(cluster="prod")
    went: dict[str, datetime] = {}
    for number, second in sorted(asks, key=lambda ask: ask[1]):
        now = NOTICED + timedelta(seconds=second)
        changed, turn = ledger.request(f"i-{number}", nodes, cap, now)
        if changed is not None:
            assert turn.verdict is BudgetVerdict.GO
            assert changed.version == ledger.version + 1
            ledger, went[f"i-{number}"] = changed, now
        within = [at for at in went.values() if now - at < cap.within]
        assert len(within) <= allowed
