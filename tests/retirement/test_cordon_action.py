"""The action `cordon`: nothing else is done, and later retirements do not remove the cordon."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.notices import NoticeKind
from leeway.policy.rules import DEFAULTS, Action, ClusterPolicy, rule
from leeway.retirement.attempts import apply_notice, undo
from leeway.retirement.outcome import RetirementResult
from leeway.retirement.record import latest_end

from tests.fakes.retirement import (
    HOOKED,
    POD,
    RetirementFakes,
    next_attempt,
    retire,
    retirement_fakes,
)
from tests.retirement.retirements import FACTS, NOTICED, notice

PAUSED = ClusterPolicy(paused=True)
AHEAD = {"effective_at": NOTICED + timedelta(hours=4), "event": "arn:change"}


def only_cordons(
    kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION, **changes: Any
) -> RetirementFakes:
    fakes = retirement_fakes(kind, **{"pods": [POD], "blocks": False, "hooks": HOOKED} | changes)
    fakes.amend(action=Action.CORDON)
    return fakes


def receive_next(fakes: RetirementFakes, kind: NoticeKind, after: float, **more: Any) -> None:
    """Receive another notice, whose policy retires."""
    assert fakes.receive(kind, f"n-{after}", after=after, **more)
    fakes.clock.time = max(fakes.clock.time, NOTICED + timedelta(seconds=after))
    fakes.actions.done.clear()


def test_a_declined_rebalance_keeps_the_cordon_of_an_earlier_notice() -> None:
    fakes = only_cordons(NoticeKind.SCHEDULED_CHANGE)
    assert retire(fakes).result is RetirementResult.CORDONED
    receive_next(fakes, NoticeKind.REBALANCE, after=600)
    fakes.policies.policy = PAUSED
    assert next_attempt(fakes).result is RetirementResult.DECLINED
    assert fakes.actions.done == []


def test_a_repeated_cordon_keeps_the_cordon_while_it_waits_for_the_budget() -> None:
    fakes = only_cordons(NoticeKind.REBALANCE)
    assert retire(fakes).result is RetirementResult.CORDONED
    receive_next(fakes, NoticeKind.REBALANCE, after=600)
    fakes.amend(action=Action.CORDON)
    fakes.policies.policy = PAUSED
    fakes.steps.at("request-disruption-2")(fakes.policies.resume)
    assert next_attempt(fakes).result is RetirementResult.CORDONED
    assert fakes.actions.order_of("release") == []


def test_a_withdrawn_change_keeps_the_cordon_of_an_earlier_notice() -> None:
    fakes = only_cordons(NoticeKind.REBALANCE)
    retire(fakes)
    receive_next(fakes, NoticeKind.SCHEDULED_CHANGE, after=600, **AHEAD)
    fakes.undo(NoticeKind.SCHEDULED_CHANGE, "n-3", after=700, **AHEAD)
    assert next_attempt(fakes).result is RetirementResult.UNDONE
    assert fakes.actions.order_of("release") == []
    runs = notice(NoticeKind.STATE_CHANGE, "n-4", after=9000, state="running")
    assert undo(fakes.record, runs) is None, "it is undone already"


def test_an_instance_that_runs_again_is_uncordoned() -> None:
    fakes = only_cordons()
    retire(fakes)
    receive_next(fakes, NoticeKind.SPOT_INTERRUPTION, after=600)
    assert fakes.record.stays_cordoned
    runs = undo(
        fakes.record.model_copy(update={"phase": Phase.FINISHED}),
        notice(NoticeKind.STATE_CHANGE, "n-3", after=900, state="running"),
    )
    assert runs is not None
    fakes.record = runs.record
    assert next_attempt(fakes).result is RetirementResult.UNDONE
    assert fakes.actions.order_of("release") == ["release", "release"]
    receive_next(fakes, NoticeKind.REBALANCE, after=9000)
    assert not fakes.record.stays_cordoned


def test_the_cordon_of_a_withdrawn_change_is_removed() -> None:
    fakes = only_cordons(NoticeKind.SCHEDULED_CHANGE)
    assert retire(fakes).result is RetirementResult.CORDONED
    fakes.undo(NoticeKind.SCHEDULED_CHANGE, after=600, **AHEAD)
    assert next_attempt(fakes).result is RetirementResult.UNDONE
    assert fakes.actions.order_of("release") == ["release", "release"]


def test_a_cordon_that_fails_at_first_does_not_retire_the_instance() -> None:
    fakes = only_cordons(cordons_refused=3)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.CORDONED
    assert [what for what, _ in fakes.actions.done] == ["cordon"]


@pytest.mark.parametrize("kind", [NoticeKind.TERMINATE_HOOK, NoticeKind.REBALANCE])
def test_a_cordon_that_never_succeeds_is_reported_at_the_end(kind: NoticeKind) -> None:
    fakes = only_cordons(kind, cordons_refused=10_000)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "cannot patch resource" in outcome.reason.message
    assert fakes.actions.done == []
    assert fakes.steps.operations < 1000
    assert outcome.ended_at is not None
    assert outcome.ended_at < latest_end(fakes.record) + timedelta(minutes=6)
    assert fakes.groups.answers == len(fakes.record.hooks), "no hook is left open"


def test_an_instance_that_its_group_replaces_is_cordoned() -> None:
    fakes = only_cordons(NoticeKind.REBALANCE, overrides={"capacity_rebalance": True})
    assert retire(fakes).result is RetirementResult.CORDONED


def test_a_retirement_that_supersedes_a_cordon_keeps_it() -> None:
    cordons = only_cordons(NoticeKind.REBALANCE).record
    change = notice(NoticeKind.SCHEDULED_CHANGE, "n-2", after=60, **AHEAD)
    policy = DEFAULTS[NoticeKind.SCHEDULED_CHANGE]
    change_of_record = apply_notice(cordons, change, rule(change, policy), FACTS)
    assert (change_of_record.start, change_of_record.record.stays_cordoned) == (True, True)
