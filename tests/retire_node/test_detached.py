"""Detached instances: Leeway terminates those of which its own record says that it did it."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudRefused
from leeway.ports.kubernetes_objects import Pod
from leeway.retire_node.finish import ATTEMPTS
from leeway.retire_node.outcome import RetirementResult

from tests.retire_node.retiring import HOOKED, POD, Surrounding, next_attempt, retire, surrounding
from tests.retirement.retirements import NOTICED, take

MINUTE = 60  # seconds
NEVER = 10**9
"""Seconds until a node joins that never does."""


def voluntary(**changes: Any) -> Surrounding:
    """A recommendation for an instance of a group without a hook, which launches none by name."""
    usual = {"pods": [POD], "blocks": False, "facts_": {"launch_unsupported": "has a warm pool"}}
    return surrounding(NoticeKind.REBALANCE, **usual | changes)


def knowing(world: Surrounding, **facts: Any) -> Surrounding:
    """The same, where the record has these facts."""
    known = world.record.facts.model_copy(update=facts)
    world.record = world.record.model_copy(update={"facts": known})
    return world


def again(world: Surrounding) -> None:
    """Take the notice that reconcile makes of a detached instance that still runs."""
    after = (world.now_ - NOTICED).total_seconds() + 10 * MINUTE
    name = f"detached-{world.record.attempt}"
    taken = take(world.record, NoticeKind.REBALANCE, name, after=after).record
    world.record = taken.model_copy(update={"facts": world.record.facts})
    world.sleep(10 * MINUTE)


def test_an_instance_that_leeway_detached_is_terminated_once_and_its_record_is_closed() -> None:
    world = voluntary()
    assert retire(world).terminated
    assert world.ended == ["terminated"]
    assert world.record.replacement_intent is not None
    assert (world.record.replacement_intent.detached, world.record.is_open) == (True, False)


@pytest.mark.parametrize("joined", [False, True])
def test_an_instance_outside_any_group_is_not_terminated_without_a_record_of_its_detachment(
    joined: bool,
) -> None:
    """Whoever may tag instances can say of any that it is one of the cluster, and was detached."""
    world = knowing(voluntary(state=None), owner=Owner(OwnerKind.NONE), joined=joined)
    outcome = retire(world)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "nothing")
    assert world.ended == []
    assert not world.record.is_open


def test_a_detachment_that_was_intended_and_not_done_terminates_nothing() -> None:
    world = voluntary(facts_={"capacity_rebalance": True})
    intended = voluntary(detaches=False)
    retire(intended)
    assert intended.record.replacement_intent is not None
    world.record = world.record.model_copy(
        update={"replacement_intent": intended.record.replacement_intent}
    )
    assert retire(world).replacement == "left-to-owner"
    assert world.ended == []


def test_an_instance_that_somebody_attached_to_a_group_again_is_not_terminated() -> None:
    world = voluntary(blocks=True)
    retire(world)
    assert world.record.needs_termination
    again(world)
    world.state, world.blocks, world.facts_ = "InService", False, {"capacity_rebalance": True}
    assert next_attempt(world).replacement == "left-to-owner"
    assert world.ended == []
    assert not world.record.needs_termination


def test_a_detached_instance_whose_pods_are_blocked_stays_open_until_it_is_drained() -> None:
    world = voluntary(blocks=True)
    outcome = retire(world)
    assert (outcome.result, outcome.terminated) == (RetirementResult.INCOMPLETE, False)
    assert "detached and left running, since it is not drained" in outcome.sentence
    assert world.record.phase is Phase.FINISHED
    assert world.record.needs_termination
    for _ in range(ATTEMPTS + 1):
        again(world)
        next_attempt(world)
    assert world.record.needs_termination, "a budget that blocks is waited for without an end"
    again(world)
    world.blocks = False
    assert next_attempt(world).terminated
    assert not world.record.is_open


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE])
@pytest.mark.parametrize("hooks", [(), HOOKED])
@pytest.mark.parametrize("maximum", [3, 6])
def test_an_instance_that_never_joins_is_left_in_its_group(
    kind: NoticeKind, hooks: tuple[str, ...], maximum: int
) -> None:
    """It may be no node at all, and serve something else."""
    world = surrounding(kind, hooks=hooks, maximum=maximum, joins_in=NEVER)
    outcome = retire(world)
    assert (outcome.result, outcome.replacement) == (RetirementResult.NO_NODE, "nothing")
    assert world.done == []
    assert world.ended == []
    assert timedelta(minutes=10) <= world.now_ - NOTICED < timedelta(minutes=11)
    assert not world.record.is_open


def test_waiting_for_a_node_gives_way_to_what_is_told_meanwhile() -> None:
    world = surrounding(NoticeKind.REBALANCE, joins_in=NEVER)

    def interrupts(step: str) -> None:
        if step == "join-3" and world.record.attempt == 1:
            world.record = take(world.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=30).record

    world.before_step = interrupts
    assert world.run_attempt(1) is None
    assert world.record.phase is Phase.NOTICED


def without_its_node(world: Surrounding) -> Surrounding:
    """The same after an attempt that a budget blocked, when the Node has gone."""
    retire(world)
    again(world)
    world.joins_in, world.pods = NEVER, []
    return world


def test_no_node_is_not_taken_for_a_drained_one() -> None:
    world = without_its_node(voluntary(blocks=True))
    outcome = next_attempt(world)
    assert (outcome.result, outcome.terminated) == (RetirementResult.NO_NODE, False)
    assert "left running, since it has no node, and nothing shows that it had one" in (
        outcome.sentence
    )
    assert outcome.troubled
    assert world.ended == []
    assert world.record.needs_termination


def test_an_instance_that_joined_by_ekss_own_tag_and_has_no_node_any_more_is_terminated() -> None:
    world = knowing(voluntary(joins_in=NEVER), joined=True)
    assert retire(world).terminated
    assert world.ended == ["terminated"]


def test_an_instance_whose_node_was_emptied_before_it_went_is_terminated() -> None:
    world = voluntary(protected=True)
    retire(world)
    assert world.record.node_is_empty
    world.joins_in, world.protected = NEVER, False
    again(world)
    assert next_attempt(world).terminated
    assert world.ended == ["terminated"]


def test_an_instance_that_ec2_refuses_to_terminate_is_tried_some_times_and_then_reported() -> None:
    world = voluntary(protected=True)
    said = [retire(world).sentence]
    while world.record.is_open:
        assert len(said) < ATTEMPTS
        again(world)
        said.append(next_attempt(world).sentence)
    assert len(said) == ATTEMPTS
    assert all("left running, since EC2 refuses to terminate it" in one for one in said)
    assert ["terminate it yourself" in one for one in said] == [False] * (ATTEMPTS - 1) + [True]
    assert "disableApiTermination" in said[-1]


def test_an_instance_whose_node_went_before_it_was_drained_stays_and_its_successor_goes() -> None:
    world = without_its_node(voluntary(blocks=True, hooks=HOOKED, facts_={}))
    next_attempt(world)
    ends = world.order_of("launch", "end successor and decrement", "terminate and decrement")
    assert ends == ["launch", "end successor and decrement"]
    joined = without_its_node(knowing(voluntary(blocks=True, hooks=HOOKED, facts_={}), joined=True))
    next_attempt(joined)
    assert joined.order_of("end successor and decrement", "terminate and decrement") == [
        "terminate and decrement"
    ]
    assert (world.desired, joined.desired) == (3, 3)


def test_an_interrupted_instance_that_is_detached_is_left_to_ec2_after_its_first_end() -> None:
    world = surrounding(pods=[Pod("shop", "web-1", "u-1", "Running", 30, None)], blocks=False)
    world.protected = True
    retire(world)
    assert not world.record.is_open, "EC2 takes it, whatever protects it"


def test_a_detached_instance_that_cannot_be_asked_about_is_not_terminated() -> None:
    world = voluntary(blocks=True)
    retire(world)
    again(world)
    world.blocks = False

    def refused(instance: str) -> None:
        raise CloudRefused("AccessDenied: autoscaling:DescribeAutoScalingInstances")

    world.facts = refused  # type: ignore[method-assign]
    assert next_attempt(world).replacement == "failed"
    assert world.ended == []
    assert world.record.needs_termination
