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

from tests.fakes.retirement import (
    HOOKED,
    POD,
    RetirementFakes,
    next_attempt,
    rebalanced,
    retire,
    retirement_fakes,
)
from tests.retirement.retirements import FACTS, HOOK, NOTICED, notice, take

PLACE = EventOrigin("123456789012", "us-east-1")


def found(fakes: RetirementFakes, state: str | None, late: timedelta = timedelta(0)) -> None:
    """Have reconcile look at the record when it is overdue, and receive what it makes of it."""
    fakes.clock.time = max(fakes.clock.time, latest_end(fakes.record) + OVERDUE) + late
    lost = about_retirement(fakes.record, state, PLACE, fakes.clock.time)
    assert lost is not None
    told = parse_notice(lost.event)
    ruling = rule(told, DEFAULTS[told.kind])
    fakes.record = receive(fakes.record, told, ruling, FACTS).record


def refusing_once(fakes: RetirementFakes) -> None:
    real, refusals = fakes.groups.terminate_in_group, 0

    def refuse(instance: str, decrement: bool = False) -> None:
        nonlocal refusals
        refusals += 1
        if refusals == 1:
            raise CloudRefused("AccessDenied: TerminateInstanceInAutoScalingGroup")
        real(instance, decrement)

    fakes.groups.terminate_in_group = refuse  # type: ignore[method-assign]


def test_an_end_in_the_group_that_is_refused_is_said_and_found_again() -> None:
    fakes = rebalanced()
    refusing_once(fakes)
    outcome = retire(fakes)
    assert outcome.replacement == "launch-successor"
    assert any("AccessDenied" in said for said in outcome.refused)
    assert (fakes.record.must_restore_capacity, fakes.record.is_open, fakes.groups.desired) == (
        True,
        True,
        4,
    )
    found(fakes, "running")
    assert not next_attempt(fakes).refused
    assert fakes.actions.order_of("launch", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_pod_that_stays_blocked_keeps_its_instance_and_its_successor_round_after_round() -> None:
    fakes = rebalanced(blocks=True)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "left in service, since it is not drained" in outcome.summary.message
    assert fakes.actions.order_of("delete", "terminate", "terminate and decrement") == []
    assert fakes.record.is_open
    for _ in range(4):
        found(fakes, "running")
        assert next_attempt(fakes).result is RetirementResult.INCOMPLETE
    assert (fakes.groups.desired, fakes.record.attempt) == (4, 5), (
        "one successor, whatever it takes"
    )
    fakes.cluster.blocks = False
    found(fakes, "running")
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_what_ec2_has_scheduled_is_ended_in_its_group_when_its_time_is_up() -> None:
    fakes = retirement_fakes(NoticeKind.SCHEDULED_CHANGE, pods=[POD], hooks=HOOKED)
    fakes.record = fakes.record.model_copy(update={"on_blocked": OnBlocked.FAIL})
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "left in service" not in outcome.summary.message
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_cluster_that_is_paused_meanwhile_holds_up_the_next_round_and_forgets_nothing() -> None:
    fakes = rebalanced(blocks=True)
    retire(fakes)
    found(fakes, "running")
    fakes.cluster.blocks, fakes.policies.policy = False, ClusterPolicy(paused=True)

    def resume(step: str) -> None:
        if fakes.clock.time - NOTICED > timedelta(hours=30):
            fakes.policies.policy = ClusterPolicy()

    fakes.steps.before_step = resume
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert fakes.groups.desired == 3


def test_an_interruption_of_an_instance_that_was_kept_ends_it_and_what_it_owed() -> None:
    fakes = rebalanced(blocks=True)
    retire(fakes)
    told = take(fakes.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=7200)
    assert told.start
    fakes.clock.time = NOTICED + timedelta(seconds=7200)
    fakes.record = told.record
    assert next_attempt(fakes).deleted == 1
    assert fakes.actions.order_of("terminate", "terminate and decrement") == [
        "terminate and decrement"
    ]
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def died_at(step: str) -> RetirementFakes:
    """A group that was raised by a rebalance whose execution died before this step."""
    fakes = rebalanced()

    def die(name: str) -> None:
        if name == step and fakes.record.attempt == 1:
            raise Died

    fakes.steps.before_step = die
    with pytest.raises(Died):
        retire(fakes)
    return fakes


@pytest.mark.parametrize("step", ["successor-3", "begin", "finish"])
def test_a_raise_whose_execution_dies_for_good_is_taken_back_when_its_instance_is_gone(
    step: str,
) -> None:
    fakes = died_at(step)
    assert fakes.groups.desired == 4
    fakes.groups.state = None
    found(fakes, "terminated")
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


@pytest.mark.parametrize("step", ["successor-3", "begin", "drain-1", "finish"])
def test_a_raise_whose_execution_dies_for_good_is_finished_while_its_instance_is_there(
    step: str,
) -> None:
    fakes = died_at(step)
    found(fakes, "running")
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert fakes.actions.order_of("launch", "terminate", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_what_was_kept_and_ends_by_itself_is_known_to_owe_its_group_one() -> None:
    fakes = rebalanced(blocks=True)
    retire(fakes)
    fakes.groups.state = None
    told = take(fakes.record, NoticeKind.STATE_CHANGE, "n-2", after=7200, state="terminated")
    assert told.start, "though its retirement is closed"
    fakes.record = told.record
    next_attempt(fakes)
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_successor_that_was_never_launched_is_launched_when_its_instance_stops() -> None:
    fakes = rebalanced()
    asked = ReplacementIntent(
        method="launch-successor",
        reason=SUCCESSOR_REQUESTED(group="ng"),
        asked_at=NOTICED,
        group="ng",
        zones=(ZoneChoice("us-east-1a", SAME_ZONE()),),
        desired=4,
        to_restore=True,
    )
    fakes.record = fakes.record.model_copy(update={"replacement_intent": asked})
    told = take(fakes.record, NoticeKind.STATE_CHANGE, "n-2", after=5, state="stopping")
    fakes.record = told.record
    next_attempt(fakes)
    assert fakes.actions.order_of("launch", "terminate", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_group_that_is_gone_is_owed_nothing() -> None:
    fakes = rebalanced(blocks=True)
    retire(fakes)
    fakes.groups.state = None

    fakes.groups.launched_at = None
    found(fakes, "terminated")
    assert not next_attempt(fakes).refused
    assert not fakes.record.is_open


def test_an_instance_that_runs_again_stays_and_its_group_gives_back_the_one_more() -> None:
    fakes = rebalanced(blocks=True)
    retire(fakes)
    runs = notice(NoticeKind.STATE_CHANGE, "n-2", after=7200, state="running")
    told = undo(fakes.record, runs)
    assert told is not None
    fakes.record = told.record
    assert next_attempt(fakes).result is RetirementResult.UNDONE
    assert fakes.actions.order_of("terminate", "terminate and decrement") == []
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_the_groups_own_termination_in_the_midst_of_a_drain_takes_over() -> None:
    fakes = rebalanced(blocks=True)

    def terminates(step: str) -> None:
        if step == "drain-1" and fakes.record.attempt == 1:
            fakes.groups.state = "Terminating:Wait"
            told = take(fakes.record, NoticeKind.TERMINATE_HOOK, "n-2", after=90, hook=HOOK)
            assert told.start, "it is not what this retirement asked for"
            fakes.record = told.record

    fakes.steps.before_step = terminates
    assert fakes.run_attempt(1) is None
    assert next_attempt(fakes).kind is NoticeKind.TERMINATE_HOOK
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_the_hook_that_its_end_calls_is_answered_by_the_same_attempt() -> None:
    fakes = rebalanced(notifies_hooks=True)
    outcome = retire(fakes)
    assert (outcome.attempt, outcome.hooks) == (1, HOOKED)
    assert fakes.actions.ended == [*HOOKED]
    late = rebalanced()
    retire(late)
    told = take(late.record, NoticeKind.TERMINATE_HOOK, "n-2", after=90, hook=HOOK)
    assert (told.start, told.record.attempt) == (True, 2), "it is answered all the same"


def test_in_a_full_group_a_blocked_pod_is_waited_for_as_long_as_the_hook_can_be_kept() -> None:
    fakes = rebalanced(maximum=3, blocks=True, notifies_hooks=True, timeout=7200)
    outcome = retire(fakes)
    assert outcome.ended_at is not None
    assert timedelta(hours=47) < outcome.ended_at - NOTICED < timedelta(hours=49)
    assert (outcome.deleted, outcome.result) == (1, RetirementResult.DRAINED)
    assert fakes.actions.ended == [*HOOKED]
    assert fakes.steps.operations < 2500


class Died(BaseException):
    """The execution failed for good."""
