"""Policies: what each notice comes to by default, and by when."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import InstanceId, InterruptionAction, Notice, NoticeKind
from leeway.policy.rules import (
    DEFAULTS,
    Action,
    ChurnCap,
    ClusterPolicy,
    OnBlocked,
    Policy,
    Replacement,
    begins_at,
    rule,
)

NOTICED = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def notice(kind: NoticeKind, **more: Any) -> Notice:
    return Notice("n-1", kind, "123456789012", "eu-west-1", NOTICED, (InstanceId("i-1"),), **more)


def ruling(kind: NoticeKind, **more: Any) -> Any:
    return rule(notice(kind, **more), DEFAULTS[kind])


MINUTE = timedelta(minutes=1)
TABLE = {
    "spot-interruption": (Action.RETIRE, timedelta(seconds=115), "with", "delete", None),
    "rebalance": (Action.RETIRE, 30 * MINUTE, "before", "wait", None),
    "terminate-hook": (Action.RETIRE, 60 * MINUTE, "none", "delete", None),
    "launch-hook": (Action.ADMIT, 15 * MINUTE, "none", "wait", None),
    "state-change": (Action.RETIRE, MINUTE, "none", "delete", None),
    "scheduled-change": (Action.RETIRE, None, "before", "delete", 240 * MINUTE),
    "capacity-reservation": (Action.RETIRE, None, "with", "delete", None),
    "impaired-status": (Action.RETIRE, 15 * MINUTE, "with", "wait", None),
    "test-notification": (Action.IGNORE, None, "none", "wait", None),
}


@pytest.mark.parametrize("kind", NoticeKind)
def test_every_kind_of_notice_has_its_default(kind: NoticeKind) -> None:
    here = DEFAULTS[kind]
    said = (here.action, here.within, here.replacement, here.on_blocked, here.lead)
    assert said == TABLE[kind]


def test_by_default_nothing_is_held_and_a_tenth_of_the_nodes_may_go_in_ten_minutes() -> None:
    policy = ClusterPolicy()
    assert (policy.paused, policy.dry_run, policy.retires_for) == (False, False, frozenset())
    assert policy.churn == ChurnCap(percent=10, at_least=1, within=10 * MINUTE)
    assert policy.notices == DEFAULTS


def test_owners_that_retire_their_own_nodes_are_covered_where_they_are_taken() -> None:
    karpenter, group = Owner(OwnerKind.KARPENTER, "spot"), Owner(OwnerKind.AUTO_SCALING_GROUP, "ng")
    assert ClusterPolicy().retires_nodes_of(group)
    assert not ClusterPolicy().retires_nodes_of(karpenter)
    taken = ClusterPolicy(retires_for=frozenset({OwnerKind.KARPENTER, OwnerKind.FARGATE}))
    assert taken.retires_nodes_of(karpenter)
    assert not taken.retires_nodes_of(Owner(OwnerKind.FARGATE))


def test_a_kind_that_is_ignored_is_not_heeded() -> None:
    ignored = dict(DEFAULTS) | {NoticeKind.REBALANCE: Policy(Action.IGNORE)}
    policy = ClusterPolicy(ignored)
    assert not policy.acts_on(NoticeKind.REBALANCE)
    assert policy.acts_on(NoticeKind.SPOT_INTERRUPTION)


def test_an_interruption_leaves_two_minutes_less_the_margin_from_the_events_own_time() -> None:
    found = ruling(NoticeKind.SPOT_INTERRUPTION, action=InterruptionAction.TERMINATE)
    assert found.deadline == NOTICED + timedelta(seconds=115)
    assert found.on_blocked is OnBlocked.DELETE
    assert found.replacement is Replacement.WITH


def test_hibernation_begins_with_its_warning() -> None:
    found = ruling(NoticeKind.SPOT_INTERRUPTION, action=InterruptionAction.HIBERNATE)
    assert found.deadline == NOTICED


def test_a_reservations_own_termination_time_is_the_deadline() -> None:
    at = NOTICED + timedelta(minutes=10)
    found = ruling(NoticeKind.CAPACITY_RESERVATION, effective_at=at)
    assert found.deadline == at - timedelta(seconds=5)


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
def test_an_instance_on_its_way_out_is_retired(state: str) -> None:
    assert ruling(NoticeKind.STATE_CHANGE, state=state).action is Action.RETIRE


@pytest.mark.parametrize("state", ["pending", "running"])
def test_an_instance_that_runs_is_not(state: str) -> None:
    found = ruling(NoticeKind.STATE_CHANGE, state=state)
    assert found.action is Action.IGNORE
    assert state in found.reason


def test_what_asks_for_nothing_says_so() -> None:
    found = ruling(NoticeKind.TEST_NOTIFICATION)
    assert found.action is Action.IGNORE
    assert found.reason


def test_an_instance_whose_launch_waits_is_admitted_within_a_quarter_of_an_hour() -> None:
    found = ruling(NoticeKind.LAUNCH_HOOK)
    assert found.action is Action.ADMIT
    assert found.deadline == NOTICED + timedelta(minutes=15)


def test_of_two_deadlines_the_earlier_holds() -> None:
    told = notice(NoticeKind.CAPACITY_RESERVATION, effective_at=NOTICED + 10 * MINUTE)
    short, long = Policy(Action.RETIRE, 3 * MINUTE), Policy(Action.RETIRE, 30 * MINUTE)
    assert rule(told, short).deadline == NOTICED + 3 * MINUTE
    assert rule(told, long).deadline == NOTICED + 10 * MINUTE - timedelta(seconds=5)
    endless = notice(NoticeKind.SPOT_INTERRUPTION)
    assert rule(endless, Policy(Action.RETIRE), NOTICED + 9 * MINUTE).deadline is None


def test_only_what_is_announced_for_later_with_a_lead_begins_later() -> None:
    at = NOTICED + 600 * MINUTE
    change = notice(NoticeKind.SCHEDULED_CHANGE, effective_at=at)
    assert begins_at(change, DEFAULTS[change.kind]) == at - 240 * MINUTE
    assert begins_at(change, replace(DEFAULTS[change.kind], lead=None)) is None
    reservation = notice(NoticeKind.CAPACITY_RESERVATION, effective_at=at)
    assert begins_at(reservation, DEFAULTS[reservation.kind]) is None
    rebalance = notice(NoticeKind.REBALANCE)
    assert begins_at(rebalance, replace(DEFAULTS[rebalance.kind], lead=MINUTE)) is None


@pytest.mark.parametrize(
    ("kind", "more", "extended"),
    [
        (NoticeKind.SPOT_INTERRUPTION, {"action": InterruptionAction.STOP}, True),
        (NoticeKind.SPOT_INTERRUPTION, {"action": InterruptionAction.HIBERNATE}, False),
        (NoticeKind.CAPACITY_RESERVATION, {"effective_at": NOTICED + 2 * MINUTE}, True),
        (NoticeKind.SCHEDULED_CHANGE, {"effective_at": NOTICED + 2 * MINUTE}, True),
        (NoticeKind.STATE_CHANGE, {"state": "stopping"}, False),
        (NoticeKind.REBALANCE, {}, False),
    ],
)
def test_only_what_ec2_should_have_ended_by_now_and_may_be_late_with_gets_a_last_chance(
    kind: NoticeKind, more: dict[str, Any], extended: bool
) -> None:
    now = NOTICED + 60 * MINUTE
    deadline = rule(notice(kind, **more), DEFAULTS[kind], now).deadline
    assert (deadline == now + timedelta(seconds=15)) is extended
    assert deadline is not None
    assert extended or deadline < now
