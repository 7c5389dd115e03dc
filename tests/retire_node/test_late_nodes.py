"""Machines that were still booting when they were told of: their nodes join late, or never."""

from datetime import timedelta

import pytest
from leeway.execution.attempt import Phase
from leeway.instances.groups import GroupRules
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudUnavailable
from leeway.ports.kubernetes_objects import Pod
from leeway.retire_node.outcome import RetirementResult

from tests.retire_node.retiring import Surrounding, retire, surrounding
from tests.retirement.retirements import HOOK, NOTICED, take

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)
REBALANCES = {"capacity_rebalance": True}
"""A group that replaces by itself, and leaves an interrupted instance to EC2."""


def booting(kind: NoticeKind, joins_in: float, **more: object) -> Surrounding:
    return surrounding(kind, **{"pods": [POD], "blocks": False, "joins_in": joins_in} | more)


def done_at(world: Surrounding, wanted: str) -> timedelta:
    return next(at for what, at in world.done if what == wanted) - NOTICED


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE])
def test_a_node_that_joins_late_is_cordoned_before_a_successor_is_asked_for_and_then_drained(
    kind: NoticeKind,
) -> None:
    world = booting(kind, joins_in=20, facts_={"launch_unsupported": "has a warm pool"})
    outcome = retire(world)
    assert (outcome.result, outcome.node) == (RetirementResult.DRAINED, "node-1")
    assert world.order_of("detach", "cordon", "evict")[:2] == ["cordon", "detach"]
    assert world.order_of("cordon", "evict")[-1] == "evict"
    assert done_at(world, "cordon") < timedelta(seconds=40)
    assert world.ended == ["terminated"]


def test_from_a_group_with_a_hook_it_is_drained_before_its_group_ends_it() -> None:
    world = booting(NoticeKind.REBALANCE, joins_in=20, hooks=("leeway-drain",))
    assert retire(world).result is RetirementResult.DRAINED
    ends = world.order_of("launch", "evict", "terminate and decrement")
    assert ends == ["launch", "evict", "terminate and decrement"]


def test_an_interrupted_machine_that_joins_within_its_two_minutes_is_drained() -> None:
    world = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=40, facts_=REBALANCES)
    outcome = retire(world)
    assert outcome.result is RetirementResult.DRAINED
    assert timedelta(seconds=40) <= done_at(world, "cordon") < timedelta(seconds=46)
    assert outcome.pods[0].asked_at is not None


def test_one_that_does_not_join_is_given_up_at_its_deadline_and_all_nodes_are_listed_once() -> None:
    world = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999, facts_=REBALANCES)
    outcome = retire(world)
    assert outcome.result is RetirementResult.NO_NODE
    assert timedelta(seconds=110) < world.now_ - NOTICED < timedelta(seconds=120)
    assert world.searched == 1
    assert world.operations < 60


def test_what_leeway_or_its_group_ends_at_once_is_not_waited_for() -> None:
    detached = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999)
    assert retire(detached).result is RetirementResult.NO_NODE
    assert detached.ended == [], "it may never have been a node: it is left to EC2"
    known = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999)
    joined = known.record.facts.model_copy(update={"joined": True})
    known.record = known.record.model_copy(update={"facts": joined})
    assert retire(known).result is RetirementResult.NO_NODE
    assert known.ended == ["terminated"]
    by_group = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999, hooks=("leeway-drain",))
    assert retire(by_group).result is RetirementResult.NO_NODE
    hooked = booting(NoticeKind.TERMINATE_HOOK, joins_in=999)
    assert retire(hooked).result is RetirementResult.NO_NODE
    assert hooked.ended == ["leeway-drain"]
    rebalancing = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999, facts_=REBALANCES)
    rebalancing.record = rebalancing.record.model_copy(update={"hooks": (HOOK,)})
    assert retire(rebalancing).result is RetirementResult.NO_NODE
    assert rebalancing.ended == ["leeway-drain"], "its group waits for nothing else"
    for world in (detached, known, by_group, hooked, rebalancing):
        assert world.now_ - NOTICED < timedelta(seconds=20)


def test_a_successor_that_could_not_be_asked_for_is_not_put_off_for_a_node_that_may_join() -> None:
    world = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999)
    real = world.rules

    def rules(group: str) -> GroupRules:
        if world.now_ < NOTICED + timedelta(seconds=20):
            raise CloudUnavailable("Throttling: Rate exceeded")
        return real(group)

    world.rules = rules  # type: ignore[method-assign]
    assert retire(world).result is RetirementResult.NO_NODE
    assert done_at(world, "detach") < timedelta(seconds=40)


def test_an_interruption_that_finds_no_node_gives_way_to_what_is_told_meanwhile() -> None:
    world = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999, facts_=REBALANCES)

    def ends(step: str) -> None:
        if step == "expect-3" and world.record.attempt == 1:
            more = {"after": 12, "state": "shutting-down"}
            told = take(world.record, NoticeKind.STATE_CHANGE, "n-2", **more)
            world.record = told.record

    world.before_step = ends
    assert world.run_attempt(1) is None
    assert world.record.phase is Phase.NOTICED
