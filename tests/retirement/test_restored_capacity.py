"""Groups with a launched successor: their capacity is restored after failures and crashes."""

from datetime import timedelta

import pytest
from leeway.execution.attempt import OVERDUE
from leeway.notices import NoticeKind
from leeway.notices.parse import EventOrigin, parse_notice
from leeway.policy.rules import DEFAULTS, ClusterPolicy, OnBlocked, rule
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.reconciliation.lost_events import CheckContext, LostEvent, check_overdue_retirement
from leeway.retirement.attempts import apply_notice, undo
from leeway.retirement.outcome import RetirementResult
from leeway.retirement.record import latest_end

from tests.fakes.crashes import Crashed
from tests.fakes.failing import failing
from tests.fakes.retirement import (
    HOOKED,
    POD,
    RetirementFakes,
    next_attempt,
    rebalanced,
    retire,
    retirement_fakes,
)
from tests.retirement.retirements import FACTS, HOOK, NOTICED, REQUESTED, notice, take

ORIGIN = EventOrigin("123456789012", "us-east-1")


def reconcile(fakes: RetirementFakes, state: str | None, late: timedelta = timedelta(0)) -> None:
    """Have reconcile read the record when it is overdue, and receive the notice that it sends."""
    fakes.clock.time = max(fakes.clock.time, latest_end(fakes.record) + OVERDUE) + late
    lost = check_overdue_retirement(fakes.record, state, CheckContext(ORIGIN, fakes.clock.time))
    assert isinstance(lost, LostEvent)
    received = parse_notice(lost.event)
    ruling = rule(received, DEFAULTS[received.kind])
    fakes.record = apply_notice(fakes.record, received, ruling, FACTS).record


def refuse_once(fakes: RetirementFakes) -> None:
    error, once = CloudRefused("AccessDenied: TerminateInstanceInAutoScalingGroup"), iter([True])
    failing(fakes.groups, "terminate_in_group", error, lambda: next(once, False))


def ended(fakes: RetirementFakes) -> list[str]:
    """The instances that the group was asked to terminate."""
    own = ("terminate", "terminate and decrement")
    successors = ("end successor", "end successor and decrement")
    return fakes.actions.order_of(*own, *successors, "end replacement and decrement")


def test_a_refused_termination_in_the_group_is_reported_and_retried_by_reconcile() -> None:
    fakes = rebalanced()
    refuse_once(fakes)
    outcome = retire(fakes)
    assert outcome.replacement == "launch-successor"
    (refused,) = outcome.refused
    assert refused.code == "GroupTerminationRefused"
    assert "AccessDenied" in refused.message
    assert (fakes.record.must_restore_capacity, fakes.record.is_open, fakes.groups.desired) == (
        True,
        True,
        4,
    )
    reconcile(fakes, "running")
    assert not next_attempt(fakes).refused
    assert fakes.actions.order_of("launch", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_an_instance_with_a_blocked_pod_keeps_one_successor_over_many_attempts() -> None:
    fakes = rebalanced(blocks=True)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert (
        "The instance stays in service in its group, because its node is not drained."
    ) in outcome.summary.message
    assert fakes.actions.order_of("delete", "terminate", "terminate and decrement") == []
    assert fakes.record.is_open
    for _ in range(4):
        reconcile(fakes, "running")
        assert next_attempt(fakes).result is RetirementResult.INCOMPLETE
    assert (fakes.groups.desired, fakes.record.attempt) == (4, 5), "one successor in all attempts"
    fakes.cluster.blocks = False
    reconcile(fakes, "running")
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_scheduled_change_ends_in_the_group_at_its_deadline() -> None:
    fakes = retirement_fakes(NoticeKind.SCHEDULED_CHANGE, pods=[POD], hooks=HOOKED)
    fakes.amend(on_blocked=OnBlocked.FAIL)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert (
        "The instance stays in service in its group, because its node is not drained."
    ) not in outcome.summary.message
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_paused_cluster_delays_the_next_attempt_and_keeps_the_record() -> None:
    fakes = rebalanced(blocks=True)
    retire(fakes)
    reconcile(fakes, "running")
    fakes.cluster.blocks, fakes.policies.policy = False, ClusterPolicy(paused=True)

    def resume(step: str) -> None:
        if fakes.clock.time - NOTICED > timedelta(hours=30):
            fakes.policies.policy = ClusterPolicy()

    fakes.steps.before_step = resume
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert fakes.groups.desired == 3


def test_an_interruption_of_a_blocked_instance_restores_the_groups_capacity() -> None:
    fakes = rebalanced(blocks=True)
    retire(fakes)
    change = take(fakes.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=7200)
    assert change.start
    fakes.clock.time = NOTICED + timedelta(seconds=7200)
    fakes.record = change.record
    assert next_attempt(fakes).deleted == 1
    assert fakes.actions.order_of("terminate", "terminate and decrement") == [
        "terminate and decrement"
    ]
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def crashed_at(step: str) -> RetirementFakes:
    """A rebalance with a launched successor whose execution crashed before this step."""
    fakes = rebalanced()
    fakes.steps.crash_at(step)
    with pytest.raises(Crashed):
        retire(fakes)
    return fakes


@pytest.mark.parametrize("step", ["check-successor-3", "begin-drain", "finish"])
def test_a_crashed_execution_restores_the_capacity_after_its_instance_is_gone(
    step: str,
) -> None:
    fakes = crashed_at(step)
    assert fakes.groups.desired == 4
    fakes.groups.state = None
    reconcile(fakes, "terminated")
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


@pytest.mark.parametrize("step", ["check-successor-3", "begin-drain", "drain-1", "finish"])
def test_a_crashed_execution_is_finished_by_the_next_attempt(
    step: str,
) -> None:
    fakes = crashed_at(step)
    reconcile(fakes, "running")
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert fakes.actions.order_of("launch", "terminate", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_the_end_of_a_blocked_instance_restores_the_groups_capacity() -> None:
    fakes = rebalanced(blocks=True)
    retire(fakes)
    fakes.groups.state = None
    assert fakes.receive(NoticeKind.STATE_CHANGE, after=7200, state="terminated"), (
        "although the retirement is closed"
    )
    next_attempt(fakes)
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_successor_that_was_never_launched_is_launched_when_its_instance_stops() -> None:
    fakes = rebalanced()
    intent = REQUESTED.model_copy(update={"desired": 4, "to_restore": True})
    fakes.amend(replacement_intent=intent)
    fakes.receive(NoticeKind.STATE_CHANGE, after=5, state="stopping")
    next_attempt(fakes)
    assert fakes.actions.order_of("launch", "terminate", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_the_capacity_of_a_deleted_group_needs_no_restoring() -> None:
    fakes = rebalanced(blocks=True)
    retire(fakes)
    fakes.groups.state = None

    fakes.groups.launched_at = None
    reconcile(fakes, "terminated")
    assert not next_attempt(fakes).refused
    assert not fakes.record.is_open


def test_an_instance_that_runs_again_stays_and_its_successor_is_terminated() -> None:
    fakes = rebalanced(blocks=True)
    retire(fakes)
    runs = notice(NoticeKind.STATE_CHANGE, "n-2", after=7200, state="running")
    change = undo(fakes.record, runs)
    assert change is not None
    fakes.record = change.record
    assert next_attempt(fakes).result is RetirementResult.UNDONE
    assert fakes.actions.order_of("terminate", "terminate and decrement") == []
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_termination_by_the_group_supersedes_a_drain() -> None:
    fakes = rebalanced(blocks=True)

    @fakes.steps.at("drain-1")
    def terminates() -> None:
        fakes.groups.state = "Terminating:Wait"
        assert fakes.receive(NoticeKind.TERMINATE_HOOK, after=90, hook=HOOK), (
            "this retirement did not request it"
        )

    assert fakes.run_attempt(1) is None
    assert next_attempt(fakes).kind is NoticeKind.TERMINATE_HOOK
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_the_hook_of_the_groups_termination_is_answered_by_the_same_attempt() -> None:
    fakes = rebalanced(notifies_hooks=True)
    outcome = retire(fakes)
    assert (outcome.attempt, outcome.hooks) == (1, HOOKED)
    assert fakes.actions.ended == [*HOOKED]
    late = rebalanced()
    retire(late)
    change = take(late.record, NoticeKind.TERMINATE_HOOK, "n-2", after=90, hook=HOOK)
    assert (change.start, change.record.attempt) == (True, 2), "a later attempt answers it"


def test_a_blocked_pod_in_a_group_at_its_maximum_waits_as_long_as_the_hook() -> None:
    fakes = rebalanced(maximum=3, blocks=True, notifies_hooks=True, timeout=7200)
    outcome = retire(fakes)
    assert outcome.ended_at is not None
    assert timedelta(hours=47) < outcome.ended_at - NOTICED < timedelta(hours=49)
    assert (outcome.deleted, outcome.result) == (1, RetirementResult.DRAINED)
    assert fakes.actions.ended == [*HOOKED]
    assert fakes.steps.operations < 2500


@pytest.mark.parametrize("hooks", [(), HOOKED])
def test_a_termination_whose_answer_is_lost_ends_no_successor(hooks: tuple[str, ...]) -> None:
    fakes = rebalanced(hooks=hooks)
    end, lost = fakes.groups.terminate_in_group, iter([True])

    @fakes.steps.at("begin-drain")
    def autoscaler() -> None:
        fakes.groups.desired += 1

    def ends(instance: str, decrement: bool = False) -> None:
        end(instance, decrement)
        if next(lost, False):
            raise CloudUnavailable("ReadTimeoutError")

    fakes.groups.terminate_in_group = ends  # type: ignore[method-assign]
    assert retire(fakes).result is RetirementResult.DRAINED
    assert ended(fakes) == ["terminate and decrement"]
    assert (fakes.groups.desired, fakes.record.is_open) == (4, False)


def test_a_scheduled_change_of_a_node_that_leeway_cannot_read_ends_nothing() -> None:
    """EC2 may only reboot the instance, and its kubelet starts the pods again."""
    fakes = retirement_fakes(NoticeKind.SCHEDULED_CHANGE, pods=[POD], down_for=10**6)
    outcome = retire(fakes)
    assert (outcome.result, ended(fakes)) == (RetirementResult.INCOMPLETE, [])
    assert fakes.record.must_restore_capacity
    fakes.cluster.down_for, fakes.cluster.blocks = 0, False
    reconcile(fakes, "running")
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_group_ends_no_instance_with_a_scheduled_change_before_its_node_is_read() -> None:
    """It cannot call LaunchInstances, so it would launch the successor by ending the instance."""
    unsupported = {"launch_unsupported": "has a warm pool"}

    def make(down_for: int) -> RetirementFakes:
        change = NoticeKind.SCHEDULED_CHANGE
        return retirement_fakes(
            change, pods=[POD], blocks=False, hooks=HOOKED, down_for=down_for, overrides=unsupported
        )

    fakes = make(down_for=10**6)
    assert (retire(fakes).result, ended(fakes)) == (RetirementResult.INCOMPLETE, [])
    deadline = fakes.record.deadline
    assert deadline is not None
    fakes = make(down_for=int((deadline - NOTICED).total_seconds()) - 600)
    assert (retire(fakes).result, ended(fakes)) == (RetirementResult.DRAINED, ["terminate"])


def gone(**changes: object) -> RetirementFakes:
    """A retirement whose successor has pods, and whose instance has ended in another way."""
    fakes = rebalanced(blocks=True, **{"hooks": ()} | changes)
    retire(fakes)
    fakes.groups.state = None
    reconcile(fakes, "terminated")
    return fakes


@pytest.mark.parametrize("late", [0, 20])
def test_what_the_group_launched_for_a_gone_instance_ends_instead_of_the_successor(
    late: int,
) -> None:
    fakes = gone()
    launches_at = fakes.clock.time + timedelta(seconds=late)
    missing = fakes.groups.missing

    def launches(group: str) -> int:
        fakes.groups.replaces |= fakes.clock.time >= launches_at
        return missing(group)

    fakes.groups.missing = launches  # type: ignore[method-assign]
    outcome = next_attempt(fakes)
    assert (ended(fakes), outcome.refused) == (["end replacement and decrement"], ())
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_successor_with_pods_ends_only_if_a_hook_keeps_it() -> None:
    fakes = gone()
    outcome = next_attempt(fakes)
    assert [one.code for one in outcome.refused] == ["SuccessorKept"]
    assert outcome.needs_attention
    assert (ended(fakes), fakes.groups.desired, fakes.record.is_open) == ([], 4, False)
    fakes = gone(hooks=HOOKED)
    assert not next_attempt(fakes).refused
    assert (ended(fakes), fakes.groups.desired) == (["end successor and decrement"], 3)


def test_a_successor_with_pods_that_is_not_ready_for_a_moment_is_kept() -> None:
    fakes = gone()
    fakes.cluster.starts_in, fakes.cluster.successor_pods = 10**6, [POD]
    assert [one.code for one in next_attempt(fakes).refused] == ["SuccessorKept"]
    assert ended(fakes) == []


def test_a_booting_instance_of_a_group_that_others_raised_may_be_theirs() -> None:
    fakes = gone()
    fakes.groups.replaces = True
    fakes.groups.desired += 1
    assert [one.code for one in next_attempt(fakes).refused] == ["SuccessorKept"]
    assert ended(fakes) == []


def test_no_successor_ends_while_its_node_cannot_be_read() -> None:
    fakes = gone()
    fakes.groups.replaces = True
    down = ClusterUnavailable("connection refused")
    opens_at = fakes.clock.time + timedelta(minutes=10)
    failing(fakes.cluster, "node", down, lambda: fakes.clock.time < opens_at)
    outcome = next_attempt(fakes)
    assert [one.code for one in outcome.refused] == ["SuccessorNotRead"]
    assert (ended(fakes), fakes.record.is_open) == ([], True)
    reconcile(fakes, "terminated")
    assert not next_attempt(fakes).refused
    assert ended(fakes) == ["end replacement and decrement"]
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)
