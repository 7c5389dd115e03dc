"""Instances that are booting when their notice comes: their nodes join late, or never."""

from datetime import timedelta

import pytest
from leeway.execution.attempt import Phase
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudUnavailable
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.outcome import RetirementResult

from tests.fakes.failing import failing
from tests.fakes.retirement import RetirementFakes, retire, retirement_fakes
from tests.retirement.retirements import HOOK, NOTICED

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)
REBALANCES = {"capacity_rebalance": True}
"""A group with Capacity Rebalancing, which leaves an interrupted instance to EC2."""


def booting(kind: NoticeKind, joins_in: float, **more: object) -> RetirementFakes:
    return retirement_fakes(kind, **{"pods": [POD], "blocks": False, "joins_in": joins_in} | more)


def done_at(fakes: RetirementFakes, wanted: str) -> timedelta:
    return next(at for what, at in fakes.actions.done if what == wanted) - NOTICED


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE])
def test_a_late_node_is_cordoned_before_the_successor_is_requested_and_then_drained(
    kind: NoticeKind,
) -> None:
    fakes = booting(kind, joins_in=20, overrides={"launch_unsupported": "has a warm pool"})
    outcome = retire(fakes)
    assert (outcome.result, outcome.node) == (RetirementResult.DRAINED, "node-1")
    assert fakes.actions.order_of("detach", "cordon", "evict")[:2] == ["cordon", "detach"]
    assert fakes.actions.order_of("cordon", "evict")[-1] == "evict"
    assert done_at(fakes, "cordon") < timedelta(seconds=40)
    assert fakes.actions.ended == ["terminated"]


def test_a_late_node_is_drained_before_its_group_terminates_it() -> None:
    fakes = booting(NoticeKind.REBALANCE, joins_in=20, hooks=("leeway-drain",))
    assert retire(fakes).result is RetirementResult.DRAINED
    ends = fakes.actions.order_of("launch", "evict", "terminate and decrement")
    assert ends == ["launch", "evict", "terminate and decrement"]


def test_an_interrupted_instance_that_joins_within_two_minutes_is_drained() -> None:
    fakes = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=40, overrides=REBALANCES)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED
    assert timedelta(seconds=40) <= done_at(fakes, "cordon") < timedelta(seconds=46)
    assert outcome.pods[0].requested_at is not None


def test_an_interrupted_instance_that_does_not_join_costs_one_search_of_all_nodes() -> None:
    fakes = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999, overrides=REBALANCES)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.NO_NODE
    assert timedelta(seconds=110) < fakes.clock.time - NOTICED < timedelta(seconds=120)
    assert fakes.cluster.searches == 1
    assert fakes.steps.operations < 60


def test_a_retirement_does_not_wait_for_the_node_of_an_instance_that_is_terminated_at_once() -> (
    None
):
    detached = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999)
    assert retire(detached).result is RetirementResult.NO_NODE
    assert detached.actions.ended == [], "it may never have been a node, so EC2 terminates it"
    known = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999)
    joined = known.record.facts.model_copy(update={"joined": True})
    known.record = known.record.model_copy(update={"facts": joined})
    assert retire(known).result is RetirementResult.NO_NODE
    assert known.actions.ended == ["terminated"]
    by_group = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999, hooks=("leeway-drain",))
    assert retire(by_group).result is RetirementResult.NO_NODE
    hooked = booting(NoticeKind.TERMINATE_HOOK, joins_in=999)
    assert retire(hooked).result is RetirementResult.NO_NODE
    assert hooked.actions.ended == ["leeway-drain"]
    rebalancing = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999, overrides=REBALANCES)
    rebalancing.record = rebalancing.record.model_copy(update={"hooks": (HOOK,)})
    assert retire(rebalancing).result is RetirementResult.NO_NODE
    assert rebalancing.actions.ended == ["leeway-drain"], "the group waits for nothing else"
    for fakes in (detached, known, by_group, hooked, rebalancing):
        assert fakes.clock.time - NOTICED < timedelta(seconds=20)


def test_a_wait_for_a_late_node_does_not_delay_the_retry_of_the_replacement() -> None:
    fakes = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999)
    error, early = CloudUnavailable("Throttling: Rate exceeded"), NOTICED + timedelta(seconds=20)
    failing(fakes.groups, "rules", error, lambda: fakes.clock.time < early)
    assert retire(fakes).result is RetirementResult.NO_NODE
    assert done_at(fakes, "detach") < timedelta(seconds=40)


def test_a_wait_for_a_late_node_ends_with_a_newer_attempt() -> None:
    fakes = booting(NoticeKind.SPOT_INTERRUPTION, joins_in=999, overrides=REBALANCES)
    ends = {"after": 12, "state": "shutting-down"}
    fakes.steps.at("find-late-node-3")(lambda: fakes.receive(NoticeKind.STATE_CHANGE, **ends))
    assert fakes.run_attempt(1) is None
    assert fakes.record.phase is Phase.NOTICED
