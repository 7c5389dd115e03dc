"""Policies: the default action and deadline for each kind of notice."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.instances.facts import Owner, OwnerKind
from leeway.notices import InstanceId, InterruptionAction, Notice, NoticeKind
from leeway.policy.rules import (
    DEFAULTS,
    NOTICE_IGNORED,
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
    "unhealthy-node": (Action.RETIRE, 10 * MINUTE, "with", "delete", None),
    "capacity-return": (Action.RETIRE, None, "before", "wait", None),
    "test-notification": (Action.IGNORE, None, "none", "wait", None),
}


@pytest.mark.parametrize("kind", NoticeKind)
def test_every_kind_of_notice_has_its_default(kind: NoticeKind) -> None:
    here = DEFAULTS[kind]
    fields = (here.action, here.within, here.replacement, here.on_blocked, here.lead)
    assert fields == TABLE[kind]


def test_by_default_a_tenth_of_the_nodes_may_retire_in_ten_minutes() -> None:
    policy = ClusterPolicy()
    assert (policy.paused, policy.dry_run, policy.retires_for) == (False, False, frozenset())
    assert policy.churn == ChurnCap(percent=10, at_least=1, within=10 * MINUTE)
    assert policy.notices == DEFAULTS


def test_nodes_of_owners_that_drain_themselves_are_retired_only_if_the_policy_says_so() -> None:
    karpenter, group = Owner(OwnerKind.KARPENTER, "spot"), Owner(OwnerKind.AUTO_SCALING_GROUP, "ng")
    assert ClusterPolicy().retires_nodes_of(group)
    assert not ClusterPolicy().retires_nodes_of(karpenter)
    taken = ClusterPolicy(retires_for=frozenset({OwnerKind.KARPENTER, OwnerKind.FARGATE}))
    assert taken.retires_nodes_of(karpenter)
    assert not taken.retires_nodes_of(Owner(OwnerKind.FARGATE))


def test_a_policy_does_not_act_on_an_ignored_kind() -> None:
    ignored = dict(DEFAULTS) | {NoticeKind.REBALANCE: Policy(Action.IGNORE)}
    policy = ClusterPolicy(ignored)
    assert not policy.acts_on(NoticeKind.REBALANCE)
    assert policy.acts_on(NoticeKind.SPOT_INTERRUPTION)


def test_an_interruption_leaves_two_minutes_minus_the_margin_from_its_own_time() -> None:
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
def test_an_instance_that_stops_or_terminates_is_retired(state: str) -> None:
    assert ruling(NoticeKind.STATE_CHANGE, state=state).action is Action.RETIRE


@pytest.mark.parametrize("state", ["pending", "running"])
def test_an_instance_that_runs_is_not_retired(state: str) -> None:
    found = ruling(NoticeKind.STATE_CHANGE, state=state)
    assert found.action is Action.IGNORE
    assert state in found.reason.message


def test_a_test_notification_is_ignored_with_its_reason() -> None:
    found = ruling(NoticeKind.TEST_NOTIFICATION)
    assert found.action is Action.IGNORE
    assert found.reason == NOTICE_IGNORED(
        "Auto Scaling sends it as a test when a lifecycle hook is created"
    )


def test_an_instance_with_a_launch_hook_is_admitted_within_fifteen_minutes() -> None:
    found = ruling(NoticeKind.LAUNCH_HOOK)
    assert found.action is Action.ADMIT
    assert found.deadline == NOTICED + timedelta(minutes=15)


def test_the_earlier_of_two_deadlines_applies() -> None:
    announced = notice(NoticeKind.CAPACITY_RESERVATION, effective_at=NOTICED + 10 * MINUTE)
    short, long = Policy(Action.RETIRE, 3 * MINUTE), Policy(Action.RETIRE, 30 * MINUTE)
    assert rule(announced, short).deadline == NOTICED + 3 * MINUTE
    assert rule(announced, long).deadline == NOTICED + 10 * MINUTE - timedelta(seconds=5)
    endless = notice(NoticeKind.SPOT_INTERRUPTION)
    assert rule(endless, Policy(Action.RETIRE), NOTICED + 9 * MINUTE).deadline is None


def test_only_an_announced_change_with_a_lead_time_begins_later() -> None:
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
def test_only_an_announced_end_that_is_past_extends_the_deadline(
    kind: NoticeKind, more: dict[str, Any], extended: bool
) -> None:
    now = NOTICED + 60 * MINUTE
    deadline = rule(notice(kind, **more), DEFAULTS[kind], now).deadline
    assert (deadline == now + timedelta(seconds=15)) is extended
    assert deadline is not None
    assert extended or deadline < now
