"""Detached instances: Leeway terminates an instance only if retire_node wrote that it detached
it."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.instances.facts import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudRefused
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.finish import TERMINATION_ATTEMPTS
from leeway.retirement.outcome import RetirementResult
from leeway.retirement.reasons import INSTANCE_LEFT_RUNNING
from leeway.retirement.record import DETACHED

from tests.fakes.failing import failing
from tests.fakes.retirement import (
    HOOKED,
    POD,
    RetirementFakes,
    next_attempt,
    retire,
    retirement_fakes,
)
from tests.retirement.retirements import NOTICED

MINUTE = 60  # seconds
NEVER = 10**9
"""Seconds: the node does not join during the test."""


def voluntary(**changes: Any) -> RetirementFakes:
    """A rebalance for an instance of a group without a hook and without LaunchInstances."""
    usual = {"pods": [POD], "blocks": False, "overrides": {"launch_unsupported": "has a warm pool"}}
    return retirement_fakes(NoticeKind.REBALANCE, **usual | changes)


def with_facts(fakes: RetirementFakes, **facts: Any) -> RetirementFakes:
    """The same fakes, with these facts in the record."""
    known = fakes.record.facts.model_copy(update=facts)
    fakes.amend(facts=known)
    return fakes


def receive_again(fakes: RetirementFakes) -> None:
    """Receive the notice that reconcile makes for a detached instance that still runs."""
    after = (fakes.clock.time - NOTICED).total_seconds() + 10 * MINUTE
    name = f"detached-{fakes.record.attempt}"
    facts = fakes.record.facts
    fakes.receive(NoticeKind.REBALANCE, name, after=after)
    fakes.amend(facts=facts)
    fakes.clock.sleep(10 * MINUTE)


def test_an_instance_that_leeway_detached_is_terminated_once() -> None:
    fakes = voluntary()
    assert retire(fakes).terminated
    assert fakes.actions.ended == ["terminated"]
    assert fakes.record.replacement_intent is not None
    assert (fakes.record.replacement_intent.to_terminate, fakes.record.is_open) == (True, False)


@pytest.mark.parametrize("joined", [False, True])
def test_an_instance_outside_any_group_is_not_terminated_without_a_record_of_its_detachment(
    joined: bool,
) -> None:
    """Tags alone do not prove it: a client that may tag instances could name any instance."""
    fakes = with_facts(voluntary(state=None), owner=Owner(OwnerKind.NONE), joined=joined)
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "nothing")
    assert fakes.actions.ended == []
    assert not fakes.record.is_open


def test_a_record_that_another_function_wrote_terminates_nothing() -> None:
    """receive_notice, reconcile and provision_nodes write retirements too."""
    fakes = voluntary(blocks=True)
    retire(fakes)
    assert fakes.record.needs_termination
    fakes.table.delete(DETACHED, cluster=fakes.record.cluster, instance=fakes.record.instance)
    receive_again(fakes)
    fakes.cluster.blocks = False
    outcome = next_attempt(fakes)
    assert "the table does not say that retire_node detached it" in outcome.summary.message
    assert fakes.actions.ended == []


def test_an_intended_detachment_that_failed_terminates_nothing() -> None:
    fakes = voluntary(overrides={"capacity_rebalance": True})
    intended = voluntary(detaches=False)
    retire(intended)
    assert intended.record.replacement_intent is not None
    fakes.amend(replacement_intent=intended.record.replacement_intent)
    assert retire(fakes).replacement == "left-to-owner"
    assert fakes.actions.ended == []


def test_an_instance_that_was_attached_to_a_group_again_is_not_terminated() -> None:
    fakes = voluntary(blocks=True)
    retire(fakes)
    assert fakes.record.needs_termination
    receive_again(fakes)
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
    assert "left running, because its node is not drained" in outcome.summary.message
    assert fakes.record.phase is Phase.FINISHED
    assert fakes.record.needs_termination
    for _ in range(TERMINATION_ATTEMPTS + 1):
        receive_again(fakes)
        next_attempt(fakes)
    assert fakes.record.needs_termination, "there is no limit while a budget blocks"
    receive_again(fakes)
    fakes.cluster.blocks = False
    assert next_attempt(fakes).terminated
    assert not fakes.record.is_open


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE])
@pytest.mark.parametrize("hooks", [(), HOOKED])
@pytest.mark.parametrize("maximum", [3, 6])
def test_an_instance_that_never_joins_stays_in_its_group(
    kind: NoticeKind, hooks: tuple[str, ...], maximum: int
) -> None:
    """It may be no node at all."""
    fakes = retirement_fakes(kind, hooks=hooks, maximum=maximum, joins_in=NEVER)
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.NO_NODE, "nothing")
    assert fakes.actions.done == []
    assert fakes.actions.ended == []
    assert timedelta(minutes=10) <= fakes.clock.time - NOTICED < timedelta(minutes=11)
    assert not fakes.record.is_open


def test_a_wait_for_a_node_ends_with_a_newer_attempt() -> None:
    fakes = retirement_fakes(NoticeKind.REBALANCE, joins_in=NEVER)
    fakes.steps.at("find-node-3")(lambda: fakes.receive(NoticeKind.SPOT_INTERRUPTION, after=30))
    assert fakes.run_attempt(1) is None
    assert fakes.record.phase is Phase.NOTICED


def without_its_node(fakes: RetirementFakes) -> RetirementFakes:
    """The same fakes after an attempt that a budget blocked, without the Node object."""
    retire(fakes)
    receive_again(fakes)
    fakes.cluster.joins_in, fakes.cluster.pods = NEVER, []
    return fakes


def test_an_instance_without_a_node_does_not_count_as_drained() -> None:
    fakes = without_its_node(voluntary(blocks=True))
    outcome = next_attempt(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.NO_NODE, False)
    assert outcome.left_running == INSTANCE_LEFT_RUNNING(
        "it has no node and is not known to have had one"
    )
    assert outcome.left_running.message in outcome.summary.message
    assert outcome.needs_attention
    assert fakes.actions.ended == []
    assert fakes.record.needs_termination


def test_an_instance_with_the_tag_of_eks_and_without_a_node_is_terminated() -> None:
    fakes = with_facts(voluntary(joins_in=NEVER), joined=True)
    assert retire(fakes).terminated
    assert fakes.actions.ended == ["terminated"]


def test_an_instance_whose_node_was_drained_before_it_was_deleted_is_terminated() -> None:
    fakes = voluntary(protected=True)
    retire(fakes)
    assert fakes.record.node_is_empty
    fakes.cluster.joins_in, fakes.instances.protected = NEVER, False
    receive_again(fakes)
    assert next_attempt(fakes).terminated
    assert fakes.actions.ended == ["terminated"]


def test_a_refused_termination_is_retried_six_times_and_then_reported() -> None:
    fakes = voluntary(protected=True)
    messages = [retire(fakes).summary.message]
    while fakes.record.is_open:
        assert len(messages) < TERMINATION_ATTEMPTS
        receive_again(fakes)
        messages.append(next_attempt(fakes).summary.message)
    assert len(messages) == TERMINATION_ATTEMPTS
    assert all("left running, because EC2 refuses to terminate it" in one for one in messages)
    assert ["terminate it yourself" in one for one in messages] == [False] * (
        TERMINATION_ATTEMPTS - 1
    ) + [True]
    assert "disableApiTermination" in messages[-1]


def test_an_instance_whose_node_is_gone_before_the_drain_keeps_its_place_in_the_group() -> None:
    fakes = without_its_node(voluntary(blocks=True, hooks=HOOKED, overrides={}))
    next_attempt(fakes)
    ends = fakes.actions.order_of(
        "launch", "end successor and decrement", "terminate and decrement"
    )
    assert ends == ["launch", "end successor and decrement"]
    joined = without_its_node(
        with_facts(voluntary(blocks=True, hooks=HOOKED, overrides={}), joined=True)
    )
    next_attempt(joined)
    assert joined.actions.order_of("end successor and decrement", "terminate and decrement") == [
        "terminate and decrement"
    ]
    assert (fakes.groups.desired, joined.groups.desired) == (3, 3)


def test_a_refused_termination_of_an_interrupted_instance_is_left_to_ec2() -> None:
    fakes = retirement_fakes(pods=[Pod("shop", "web-1", "u-1", "Running", 30, None)], blocks=False)
    fakes.instances.protected = True
    retire(fakes)
    assert not fakes.record.is_open, "EC2 takes it back anyway"


def test_a_detached_instance_that_cannot_be_read_is_not_terminated() -> None:
    fakes = voluntary(blocks=True)
    retire(fakes)
    receive_again(fakes)
    fakes.cluster.blocks = False
    error = CloudRefused("AccessDenied: autoscaling:DescribeAutoScalingInstances")
    failing(fakes.groups, "facts", error)
    outcome = next_attempt(fakes)
    assert outcome.replacement == "failed"
    assert outcome.replacement_reason.code == "ReplacementRequestFailed"
    assert fakes.actions.ended == []
    assert fakes.record.needs_termination
