"""What a raised group is owed, and instances that are kept while a budget blocks them."""

from datetime import timedelta

import pytest
from leeway.execution.attempt import OVERDUE
from leeway.notices import NoticeKind
from leeway.notices.parse import parse_notice
from leeway.notices.synthetic import EventOrigin
from leeway.policy.rules import DEFAULTS, ClusterPolicy, OnBlocked, rule
from leeway.ports.aws import CloudRefused
from leeway.reconciliation.lost_events import about_retirement
from leeway.retire_node.outcome import RetirementResult
from leeway.retirement.attempts import receive, undo
from leeway.retirement.record import latest_end
from leeway.retirement.replacement_intent import ReplacementIntent, ZoneChoice

from tests.retire_node.retiring import (
    HOOKED,
    POD,
    Surrounding,
    next_attempt,
    rebalanced,
    retire,
    surrounding,
)
from tests.retirement.retirements import FACTS, HOOK, NOTICED, notice, take

PLACE = EventOrigin("123456789012", "us-east-1")


def found(world: Surrounding, state: str | None, late: timedelta = timedelta(0)) -> None:
    """Have reconcile look at the record when it is overdue, and receive what it makes of it."""
    world.now_ = max(world.now_, latest_end(world.record) + OVERDUE) + late
    lost = about_retirement(world.record, state, PLACE, world.now_)
    assert lost is not None
    told = parse_notice(lost.event)
    ruling = rule(told, DEFAULTS[told.kind])
    world.record = receive(world.record, told, ruling, FACTS).record


def refusing_once(world: Surrounding) -> None:
    real, refusals = world.terminate_in_group, 0

    def refuse(instance: str, decrement: bool = False) -> None:
        nonlocal refusals
        refusals += 1
        if refusals == 1:
            raise CloudRefused("AccessDenied: TerminateInstanceInAutoScalingGroup")
        real(instance, decrement)

    world.terminate_in_group = refuse  # type: ignore[method-assign]


def test_an_end_in_the_group_that_is_refused_is_said_and_found_again() -> None:
    world = rebalanced()
    refusing_once(world)
    outcome = retire(world)
    assert outcome.replacement == "launch-successor"
    assert any("AccessDenied" in said for said in outcome.refused)
    assert (world.record.must_restore_capacity, world.record.is_open, world.desired) == (
        True,
        True,
        4,
    )
    found(world, "running")
    assert not next_attempt(world).refused
    assert world.order_of("launch", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert (world.desired, world.record.is_open) == (3, False)


def test_a_pod_that_stays_blocked_keeps_its_instance_and_its_successor_round_after_round() -> None:
    world = rebalanced(blocks=True)
    outcome = retire(world)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "left in service, since it is not drained" in outcome.sentence
    assert world.order_of("delete", "terminate", "terminate and decrement") == []
    assert world.record.is_open
    for _ in range(4):
        found(world, "running")
        assert next_attempt(world).result is RetirementResult.INCOMPLETE
    assert (world.desired, world.record.attempt) == (4, 5), "one successor, whatever it takes"
    world.blocks = False
    found(world, "running")
    assert next_attempt(world).result is RetirementResult.DRAINED
    assert (world.desired, world.record.is_open) == (3, False)


def test_what_ec2_has_scheduled_is_ended_in_its_group_when_its_time_is_up() -> None:
    world = surrounding(NoticeKind.SCHEDULED_CHANGE, pods=[POD], hooks=HOOKED)
    world.record = world.record.model_copy(update={"on_blocked": OnBlocked.FAIL})
    outcome = retire(world)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "left in service" not in outcome.sentence
    assert (world.desired, world.record.is_open) == (3, False)


def test_a_cluster_that_is_paused_meanwhile_holds_up_the_next_round_and_forgets_nothing() -> None:
    world = rebalanced(blocks=True)
    retire(world)
    found(world, "running")
    world.blocks, world.policy = False, ClusterPolicy(paused=True)

    def resume(step: str) -> None:
        if world.now_ - NOTICED > timedelta(hours=30):
            world.policy = ClusterPolicy()

    world.before_step = resume
    assert next_attempt(world).result is RetirementResult.DRAINED
    assert world.desired == 3


def test_an_interruption_of_an_instance_that_was_kept_ends_it_and_what_it_owed() -> None:
    world = rebalanced(blocks=True)
    retire(world)
    told = take(world.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=7200)
    assert told.start
    world.now_ = NOTICED + timedelta(seconds=7200)
    world.record = told.record
    assert next_attempt(world).deleted == 1
    assert world.order_of("terminate", "terminate and decrement") == ["terminate and decrement"]
    assert (world.desired, world.record.is_open) == (3, False)


def died_at(step: str) -> Surrounding:
    """A group that was raised by a rebalance whose execution died before this step."""
    world = rebalanced()

    def die(name: str) -> None:
        if name == step and world.record.attempt == 1:
            raise Died

    world.before_step = die
    with pytest.raises(Died):
        retire(world)
    return world


@pytest.mark.parametrize("step", ["successor-3", "begin", "finish"])
def test_a_raise_whose_execution_dies_for_good_is_taken_back_when_its_instance_is_gone(
    step: str,
) -> None:
    world = died_at(step)
    assert world.desired == 4
    world.state = None
    found(world, "terminated")
    assert next_attempt(world).result is RetirementResult.DRAINED
    assert (world.desired, world.record.is_open) == (3, False)


@pytest.mark.parametrize("step", ["successor-3", "begin", "drain-1", "finish"])
def test_a_raise_whose_execution_dies_for_good_is_finished_while_its_instance_is_there(
    step: str,
) -> None:
    world = died_at(step)
    found(world, "running")
    assert next_attempt(world).result is RetirementResult.DRAINED
    assert world.order_of("launch", "terminate", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert (world.desired, world.record.is_open) == (3, False)


def test_what_was_kept_and_ends_by_itself_is_known_to_owe_its_group_one() -> None:
    world = rebalanced(blocks=True)
    retire(world)
    world.state = None
    told = take(world.record, NoticeKind.STATE_CHANGE, "n-2", after=7200, state="terminated")
    assert told.start, "though its retirement is closed"
    world.record = told.record
    next_attempt(world)
    assert (world.desired, world.record.is_open) == (3, False)


def test_a_successor_that_was_never_launched_is_launched_when_its_instance_stops() -> None:
    world = rebalanced()
    asked = ReplacementIntent(
        method="launch-successor",
        reason="",
        asked_at=NOTICED,
        group="ng",
        zones=(ZoneChoice("us-east-1a", "its own"),),
        desired=4,
        to_restore=True,
    )
    world.record = world.record.model_copy(update={"replacement_intent": asked})
    told = take(world.record, NoticeKind.STATE_CHANGE, "n-2", after=5, state="stopping")
    world.record = told.record
    next_attempt(world)
    assert world.order_of("launch", "terminate", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert (world.desired, world.record.is_open) == (3, False)


def test_a_group_that_is_gone_is_owed_nothing() -> None:
    world = rebalanced(blocks=True)
    retire(world)
    world.state = None

    world.launched_at = None
    found(world, "terminated")
    assert not next_attempt(world).refused
    assert not world.record.is_open


def test_an_instance_that_runs_again_stays_and_its_group_gives_back_the_one_more() -> None:
    world = rebalanced(blocks=True)
    retire(world)
    runs = notice(NoticeKind.STATE_CHANGE, "n-2", after=7200, state="running")
    told = undo(world.record, runs)
    assert told is not None
    world.record = told.record
    assert next_attempt(world).result is RetirementResult.UNDONE
    assert world.order_of("terminate", "terminate and decrement") == []
    assert (world.desired, world.record.is_open) == (3, False)


def test_the_groups_own_termination_in_the_midst_of_a_drain_takes_over() -> None:
    world = rebalanced(blocks=True)

    def terminates(step: str) -> None:
        if step == "drain-1" and world.record.attempt == 1:
            world.state = "Terminating:Wait"
            told = take(world.record, NoticeKind.TERMINATE_HOOK, "n-2", after=90, hook=HOOK)
            assert told.start, "it is not what this retirement asked for"
            world.record = told.record

    world.before_step = terminates
    assert world.run_attempt(1) is None
    assert next_attempt(world).kind is NoticeKind.TERMINATE_HOOK
    assert (world.desired, world.record.is_open) == (3, False)


def test_the_hook_that_its_end_calls_is_answered_by_the_same_attempt() -> None:
    world = rebalanced(tells_of_hooks=True)
    outcome = retire(world)
    assert (outcome.attempt, outcome.hooks) == (1, HOOKED)
    assert world.ended == [*HOOKED]
    late = rebalanced()
    retire(late)
    told = take(late.record, NoticeKind.TERMINATE_HOOK, "n-2", after=90, hook=HOOK)
    assert (told.start, told.record.attempt) == (True, 2), "it is answered all the same"


def test_in_a_full_group_a_blocked_pod_is_waited_for_as_long_as_the_hook_can_be_kept() -> None:
    world = rebalanced(maximum=3, blocks=True, tells_of_hooks=True, timeout=7200)
    outcome = retire(world)
    assert outcome.ended_at is not None
    assert timedelta(hours=47) < outcome.ended_at - NOTICED < timedelta(hours=49)
    assert (outcome.deleted, outcome.result) == (1, RetirementResult.DRAINED)
    assert world.ended == [*HOOKED]
    assert world.operations < 2500


class Died(BaseException):
    """The execution failed for good."""
