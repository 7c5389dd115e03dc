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

from tests.retire_node.retiring import HOOKED, POD, Surrounding, next_attempt, retire, surrounding
from tests.retirement.retirements import FACTS, NOTICED, notice, take

PAUSED = ClusterPolicy(paused=True)
AHEAD = {"effective_at": NOTICED + timedelta(hours=4), "event": "arn:change"}


def only_cordons(kind: NoticeKind = NoticeKind.SPOT_INTERRUPTION, **changes: Any) -> Surrounding:
    world = surrounding(kind, **{"pods": [POD], "blocks": False, "hooks": HOOKED} | changes)
    world.record = world.record.model_copy(update={"action": Action.CORDON})
    return world


def told(world: Surrounding, kind: NoticeKind, after: float, **more: Any) -> None:
    """Another notice comes, whose policy retires."""
    change = take(world.record, kind, f"n-{after}", after=after, **more)
    assert change.start
    world.record = change.record
    world.now_ = max(world.now_, NOTICED + timedelta(seconds=after))
    world.done.clear()


def test_a_recommendation_that_waits_and_is_declined_leaves_the_cordon_of_an_earlier_notice() -> (
    None
):
    world = only_cordons(NoticeKind.SCHEDULED_CHANGE)
    assert retire(world).result is RetirementResult.CORDONED
    told(world, NoticeKind.REBALANCE, after=600)
    world.policy = PAUSED
    assert next_attempt(world).result is RetirementResult.DECLINED
    assert world.done == []


def test_the_same_policy_again_waits_for_its_turn_under_its_own_cordon() -> None:
    world = only_cordons(NoticeKind.REBALANCE)
    assert retire(world).result is RetirementResult.CORDONED
    told(world, NoticeKind.REBALANCE, after=600)
    world.record = world.record.model_copy(update={"action": Action.CORDON})
    world.policy = PAUSED

    def resume(step: str) -> None:
        if step == "turn-2":
            world.policy = ClusterPolicy()

    world.before_step = resume
    assert next_attempt(world).result is RetirementResult.CORDONED
    assert world.order_of("release") == []


def test_a_change_that_is_called_off_leaves_the_cordon_of_an_earlier_notice() -> None:
    world = only_cordons(NoticeKind.REBALANCE)
    retire(world)
    told(world, NoticeKind.SCHEDULED_CHANGE, after=600, **AHEAD)
    off = undo(world.record, notice(NoticeKind.SCHEDULED_CHANGE, "n-3", after=700, **AHEAD))
    assert off is not None
    world.record = off.record
    assert next_attempt(world).result is RetirementResult.UNDONE
    assert world.order_of("release") == []
    runs = notice(NoticeKind.STATE_CHANGE, "n-4", after=9000, state="running")
    assert undo(world.record, runs) is None, "it is undone already"


def test_an_instance_that_runs_again_is_freed_whoever_had_it_cordoned() -> None:
    world = only_cordons()
    retire(world)
    told(world, NoticeKind.SPOT_INTERRUPTION, after=600)
    assert world.record.stays_cordoned
    runs = undo(
        world.record.model_copy(update={"phase": Phase.FINISHED}),
        notice(NoticeKind.STATE_CHANGE, "n-3", after=900, state="running"),
    )
    assert runs is not None
    world.record = runs.record
    assert next_attempt(world).result is RetirementResult.UNDONE
    assert world.order_of("release") == ["release", "release"]
    told(world, NoticeKind.REBALANCE, after=9000)
    assert not world.record.stays_cordoned


def test_a_cordon_for_a_change_that_is_called_off_is_taken_off() -> None:
    world = only_cordons(NoticeKind.SCHEDULED_CHANGE)
    assert retire(world).result is RetirementResult.CORDONED
    off = undo(world.record, notice(NoticeKind.SCHEDULED_CHANGE, "n-2", after=600, **AHEAD))
    assert off is not None
    world.record = off.record
    assert next_attempt(world).result is RetirementResult.UNDONE
    assert world.order_of("release") == ["release", "release"]


def test_where_only_a_cordon_is_asked_for_an_api_server_that_fails_costs_no_instance() -> None:
    world = only_cordons(cordons_refused=3)
    outcome = retire(world)
    assert outcome.result is RetirementResult.CORDONED
    assert [what for what, _ in world.done] == ["cordon"]


@pytest.mark.parametrize("kind", [NoticeKind.TERMINATE_HOOK, NoticeKind.REBALANCE])
def test_a_cordon_that_never_succeeds_is_said_in_the_end(kind: NoticeKind) -> None:
    world = only_cordons(kind, cordons_refused=10_000)
    outcome = retire(world)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "cannot patch resource" in outcome.reason
    assert world.done == []
    assert world.operations < 1000
    assert outcome.ended_at is not None
    assert outcome.ended_at < latest_end(world.record) + timedelta(minutes=6)
    assert world.answers == len(world.record.hooks), "no hook is left open"


def test_a_group_that_replaces_by_itself_is_no_reason_not_to_cordon() -> None:
    world = only_cordons(NoticeKind.REBALANCE, facts_={"capacity_rebalance": True})
    assert retire(world).result is RetirementResult.CORDONED


def test_a_retirement_that_takes_over_from_a_cordon_that_has_not_ended_knows_of_it() -> None:
    cordons = only_cordons(NoticeKind.REBALANCE).record
    change = notice(NoticeKind.SCHEDULED_CHANGE, "n-2", after=60, **AHEAD)
    policy = DEFAULTS[NoticeKind.SCHEDULED_CHANGE]
    taken = receive(cordons, change, rule(change, policy), FACTS)
    assert (taken.start, taken.record.stays_cordoned) == (True, True)
