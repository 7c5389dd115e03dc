"""Detached instances: Leeway terminates those of which its own record says that it did it."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudRefused
from leeway.ports.kubernetes_objects import Pod
from leeway.retire_node.outcome import RetirementResult

from tests.fakes.retirement import (
    HOOKED,
    POD,
    RetirementFakes,
    next_attempt,
    retire,
    retirement_fakes,
)
from tests.retirement.retirements import NOTICED, take

MINUTE = 60  # seconds
NEVER = 10**9
"""Seconds until a node joins that never does."""


def voluntary(**changes: Any) -> RetirementFakes:
    """A recommendation for an instance of a group without a hook, which launches none by name."""
    usual = {"pods": [POD], "blocks": False, "overrides": {"launch_unsupported": "has a warm pool"}}
    return retirement_fakes(NoticeKind.REBALANCE, **usual | changes)


def knowing(fakes: RetirementFakes, **facts: Any) -> RetirementFakes:
    """The same, where the record has these facts."""
    known = fakes.record.facts.model_copy(update=facts)
    fakes.record = fakes.record.model_copy(update={"facts": known})
    return fakes


def again(fakes: RetirementFakes) -> None:
    """Take the notice that reconcile makes of a detached instance that still runs."""
    after = (fakes.clock.time - NOTICED).total_seconds() + 10 * MINUTE
    name = f"detached-{fakes.record.attempt}"
    taken = take(fakes.record, NoticeKind.REBALANCE, name, after=after).record
    fakes.record = taken.model_copy(update={"facts": fakes.record.facts})
    fakes.clock.sleep(10 * MINUTE)


def test_an_instance_that_leeway_detached_is_terminated_once_and_its_record_is_closed() -> None:
    fakes = voluntary()
    assert retire(fakes).terminated
    assert fakes.actions.ended == ["terminated"]
    assert fakes.record.replacement_intent is not None
    assert (fakes.record.replacement_intent.detached, fakes.record.is_open) == (True, False)


@pytest.mark.parametrize("joined", [False, True])
def test_an_instance_outside_any_group_is_not_terminated_without_a_record_of_its_detachment(
    joined: bool,
) -> None:
    """Whoever may tag instances can say of any that it is one of the cluster, and was detached."""
    fakes = knowing(voluntary(state=None), owner=Owner(OwnerKind.NONE), joined=joined)
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "nothing")
    assert fakes.actions.ended == []
    assert not fakes.record.is_open


def test_a_detachment_that_was_intended_and_not_done_terminates_nothing() -> None:
    fakes = voluntary(overrides={"capacity_rebalance": True})
    intended = voluntary(detaches=False)
    retire(intended)
    assert intended.record.replacement_intent is not None
    fakes.record = fakes.record.model_copy(
        update={"replacement_intent": intended.record.replacement_intent}
    )
    assert retire(fakes).replacement == "left-to-owner"
    assert fakes.actions.ended == []


def test_an_instance_that_somebody_attached_to_a_group_again_is_not_terminated() -> None:
    fakes = voluntary(blocks=True)
    retire(fakes)
    assert fakes.record.needs_termination
    again(fakes)
    fakes.groups.state, fakes.cluster.blocks, fakes.groups.overrides = (
        "InService",
        False,
        {"capacity_rebalance": True},
    )
    assert next_attempt(fakes).replacement == "left-to-owner"
    assert fakes.actions.ended == []
    assert not fakes.record.needs_termination


def test_a_detached_instance_whose_pods_are_blocked_stays_open_until_it_is_drained() -> None:
    fakes = voluntary(blocks=True)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.INCOMPLETE, False)
    assert "detached and left running, since it is not drained" in outcome.summary.message
    assert fakes.record.phase is Phase.FINISHED
    assert fakes.record.needs_termination
    for _ in range(TERMINATION_ATTEMPTS + 1):
        again(fakes)
        next_attempt(fakes)
    assert fakes.record.needs_termination, "a budget that blocks is waited for without an end"
    again(fakes)
    fakes.cluster.blocks = False
    assert next_attempt(fakes).terminated
    assert not fakes.record.is_open


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE])
@pytest.mark.parametrize("hooks", [(), HOOKED])
@pytest.mark.parametrize("maximum", [3, 6])
def test_an_instance_that_never_joins_is_left_in_its_group(
    kind: NoticeKind, hooks: tuple[str, ...], maximum: int
) -> None:
    """It may be no node at all, and serve something else."""
    fakes = retirement_fakes(kind, hooks=hooks, maximum=maximum, joins_in=NEVER)
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.NO_NODE, "nothing")
    assert fakes.actions.done == []
    assert fakes.actions.ended == []
    assert timedelta(minutes=10) <= fakes.clock.time - NOTICED < timedelta(minutes=11)
    assert not fakes.record.is_open


def test_waiting_for_a_node_gives_way_to_what_is_told_meanwhile() -> None:
    fakes = retirement_fakes(NoticeKind.REBALANCE, joins_in=NEVER)

    def interrupts(step: str) -> None:
        if step == "join-3" and fakes.record.attempt == 1:
            fakes.record = take(fakes.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=30).record

    fakes.steps.before_step = interrupts
    assert fakes.run_attempt(1) is None
    assert fakes.record.phase is Phase.NOTICED


def without_its_node(fakes: RetirementFakes) -> RetirementFakes:
    """The same after an attempt that a budget blocked, when the Node has gone."""
    retire(fakes)
    again(fakes)
    fakes.cluster.joins_in, fakes.cluster.pods = NEVER, []
    return fakes


def test_no_node_is_not_taken_for_a_drained_one() -> None:
    fakes = without_its_node(voluntary(blocks=True))
    outcome = next_attempt(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.NO_NODE, False)
    assert "left running, since it has no node, and nothing shows that it had one" in (
        outcome.summary.message
    )
    assert outcome.needs_attention
    assert fakes.actions.ended == []
    assert fakes.record.needs_termination


def test_an_instance_that_joined_by_ekss_own_tag_and_has_no_node_any_more_is_terminated() -> None:
    fakes = knowing(voluntary(joins_in=NEVER), joined=True)
    assert retire(fakes).terminated
    assert fakes.actions.ended == ["terminated"]


def test_an_instance_whose_node_was_emptied_before_it_went_is_terminated() -> None:
    fakes = voluntary(protected=True)
    retire(fakes)
    assert fakes.record.node_is_empty
    fakes.cluster.joins_in, fakes.instances.protected = NEVER, False
    again(fakes)
    assert next_attempt(fakes).terminated
    assert fakes.actions.ended == ["terminated"]


def test_an_instance_that_ec2_refuses_to_terminate_is_tried_some_times_and_then_reported() -> None:
    fakes = voluntary(protected=True)
    said = [retire(fakes).summary.message]
    while fakes.record.is_open:
        assert len(said) < TERMINATION_ATTEMPTS
        again(fakes)
        said.append(next_attempt(fakes).summary.message)
    assert len(said) == TERMINATION_ATTEMPTS
    assert all("left running, since EC2 refuses to terminate it" in one for one in said)
    assert ["terminate it yourself" in one for one in said] == [False] * (
        TERMINATION_ATTEMPTS - 1
    ) + [True]
    assert "disableApiTermination" in said[-1]


def test_an_instance_whose_node_went_before_it_was_drained_stays_and_its_successor_goes() -> None:
    fakes = without_its_node(voluntary(blocks=True, hooks=HOOKED, overrides={}))
    next_attempt(fakes)
    ends = fakes.actions.order_of(
        "launch", "end successor and decrement", "terminate and decrement"
    )
    assert ends == ["launch", "end successor and decrement"]
    joined = without_its_node(
        knowing(voluntary(blocks=True, hooks=HOOKED, overrides={}), joined=True)
    )
    next_attempt(joined)
    assert joined.actions.order_of("end successor and decrement", "terminate and decrement") == [
        "terminate and decrement"
    ]
    assert (fakes.groups.desired, joined.groups.desired) == (3, 3)


def test_an_interrupted_instance_that_is_detached_is_left_to_ec2_after_its_first_end() -> None:
    fakes = retirement_fakes(pods=[Pod("shop", "web-1", "u-1", "Running", 30, None)], blocks=False)
    fakes.instances.protected = True
    retire(fakes)
    assert not fakes.record.is_open, "EC2 takes it, whatever protects it"


def test_a_detached_instance_that_cannot_be_asked_about_is_not_terminated() -> None:
    fakes = voluntary(blocks=True)
    retire(fakes)
    again(fakes)
    fakes.cluster.blocks = False

    def refused(instance: str) -> None:
        raise CloudRefused("AccessDenied: autoscaling:DescribeAutoScalingInstances")

    fakes.groups.facts = refused  # type: ignore[method-assign]
    assert next_attempt(fakes).replacement == "failed"
    assert fakes.actions.ended == []
    assert fakes.record.needs_termination
