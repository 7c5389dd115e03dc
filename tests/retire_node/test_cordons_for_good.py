"""A policy that says `cordon`: nothing else is done, and nothing later takes the cordon off."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.notices import NoticeKind
from leeway.policy.rules import DEFAULTS, Action, ClusterPolicy, rule
from leeway.retire_node.outcome import RetirementResult
from leeway.retirement.attempts import receive, undo
from leeway.retirement.record import latest_end

from tests.fakes.retirement import (
    HOOKED,
    POD,
    RetirementFakes,
    next_attempt,
    retire,
    retirement_fakes,
)
from tests.retirement.retirements import FACTS, NOTICED, notice, take

PAUSED = ClusterPolicy(paused=True)
AHEAD = {"effective_at": NOTICED + timedelta(hours=4), "event": "arn:change"}


def only_cordons(
    kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION, **changes: Any
) -> RetirementFakes:
    fakes = retirement_fakes(kind, **{"pods": [POD], "blocks": False, "hooks": HOOKED} | changes)
    fakes.record = fakes.record.model_copy(update={"action": Action.CORDON})
    return fakes


def told(fakes: RetirementFakes, kind: NoticeKind, after: float, **more: Any) -> None:
    """Another notice comes, whose policy retires."""
    change = take(fakes.record, kind, f"n-{after}", after=after, **more)
    assert change.start
    fakes.record = change.record
    fakes.clock.time = max(fakes.clock.time, NOTICED + timedelta(seconds=after))
    fakes.actions.done.clear()


def test_a_recommendation_that_waits_and_is_declined_leaves_the_cordon_of_an_earlier_notice() -> (
    None
):
    fakes = only_cordons(NoticeKind.SCHEDULED_CHANGE)
    assert retire(fakes).result is RetirementResult.CORDONED
    told(fakes, NoticeKind.REBALANCE, after=600)
    fakes.policies.policy = PAUSED
    assert next_attempt(fakes).result is RetirementResult.DECLINED
    assert fakes.actions.done == []


def test_the_same_policy_again_waits_for_its_turn_under_its_own_cordon() -> None:
    fakes = only_cordons(NoticeKind.REBALANCE)
    assert retire(fakes).result is RetirementResult.CORDONED
    told(fakes, NoticeKind.REBALANCE, after=600)
    fakes.record = fakes.record.model_copy(update={"action": Action.CORDON})
    fakes.policies.policy = PAUSED

    def resume(step: str) -> None:
        if step == "turn-2":
            fakes.policies.policy = ClusterPolicy()

    fakes.steps.before_step = resume
    assert next_attempt(fakes).result is RetirementResult.CORDONED
    assert fakes.actions.order_of("release") == []


def test_a_change_that_is_called_off_leaves_the_cordon_of_an_earlier_notice() -> None:
    fakes = only_cordons(NoticeKind.REBALANCE)
    retire(fakes)
    told(fakes, NoticeKind.SCHEDULED_CHANGE, after=600, **AHEAD)
    off = undo(fakes.record, notice(NoticeKind.SCHEDULED_CHANGE, "n-3", after=700, **AHEAD))
    assert off is not None
    fakes.record = off.record
    assert next_attempt(fakes).result is RetirementResult.UNDONE
    assert fakes.actions.order_of("release") == []
    runs = notice(NoticeKind.STATE_CHANGE, "n-4", after=9000, state="running")
    assert undo(fakes.record, runs) is None, "it is undone already"


def test_an_instance_that_runs_again_is_freed_whoever_had_it_cordoned() -> None:
    fakes = only_cordons()
    retire(fakes)
    told(fakes, NoticeKind.SPOT_INTERRUPTION, after=600)
    assert fakes.record.stays_cordoned
    runs = undo(
        fakes.record.model_copy(update={"phase": Phase.FINISHED}),
        notice(NoticeKind.STATE_CHANGE, "n-3", after=900, state="running"),
    )
    assert runs is not None
    fakes.record = runs.record
    assert next_attempt(fakes).result is RetirementResult.UNDONE
    assert fakes.actions.order_of("release") == ["release", "release"]
    told(fakes, NoticeKind.REBALANCE, after=9000)
    assert not fakes.record.stays_cordoned


def test_a_cordon_for_a_change_that_is_called_off_is_taken_off() -> None:
    fakes = only_cordons(NoticeKind.SCHEDULED_CHANGE)
    assert retire(fakes).result is RetirementResult.CORDONED
    off = undo(fakes.record, notice(NoticeKind.SCHEDULED_CHANGE, "n-2", after=600, **AHEAD))
    assert off is not None
    fakes.record = off.record
    assert next_attempt(fakes).result is RetirementResult.UNDONE
    assert fakes.actions.order_of("release") == ["release", "release"]


def test_where_only_a_cordon_is_asked_for_an_api_server_that_fails_costs_no_instance() -> None:
    fakes = only_cordons(cordons_refused=3)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.CORDONED
    assert [what for what, _ in fakes.actions.done] == ["cordon"]


@pytest.mark.parametrize("kind", [NoticeKind.TERMINATE_HOOK, NoticeKind.REBALANCE])
def test_a_cordon_that_never_succeeds_is_said_in_the_end(kind: NoticeKind) -> None:
    fakes = only_cordons(kind, cordons_refused=10_000)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "cannot patch resource" in outcome.reason.message
    assert fakes.actions.done == []
    assert fakes.steps.operations < 1000
    assert outcome.ended_at is not None
    assert outcome.ended_at < latest_end(fakes.record) + timedelta(minutes=6)
    assert fakes.groups.answers == len(fakes.record.hooks), "no hook is left open"


def test_a_group_that_replaces_by_itself_is_no_reason_not_to_cordon() -> None:
    fakes = only_cordons(NoticeKind.REBALANCE, overrides={"capacity_rebalance": True})
    assert retire(fakes).result is RetirementResult.CORDONED


def test_a_retirement_that_takes_over_from_a_cordon_that_has_not_ended_knows_of_it() -> None:
    cordons = only_cordons(NoticeKind.REBALANCE).record
    change = notice(NoticeKind.SCHEDULED_CHANGE, "n-2", after=60, **AHEAD)
    policy = DEFAULTS[NoticeKind.SCHEDULED_CHANGE]
    taken = receive(cordons, change, rule(change, policy), FACTS)
    assert (taken.start, taken.record.stays_cordoned) == (True, True)
