"""Retirements of nodes of a group without capacity, whose successors come from a pool."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.notices import NoticeKind
from leeway.policy.rules import ClusterPolicy
from leeway.retirement.outcome import Outcome, RetirementResult

from tests.fakes.pools import LAUNCHED, LIMIT, of_full_group, report_no_capacity
from tests.fakes.retirement import drained_at, retire

INTERRUPTION, REBALANCE = NoticeKind.SPOT_INTERRUPTION, NoticeKind.REBALANCE


def of_group(kind: NoticeKind, **changes: Any) -> Outcome:
    return retire(of_full_group(kind, **changes))


def test_a_group_without_capacity_is_replaced_from_a_pool_and_shrinks() -> None:
    fakes = of_full_group()
    outcome = retire(fakes)
    assert fakes.actions.order_of("launch", "buy", "evict", "terminate and decrement") == [
        "buy",
        "evict",
        "terminate and decrement",
    ]
    assert (outcome.result, outcome.replacement) == ("drained", "request-capacity")
    told = outcome.replacement_reason.message
    assert "Leeway's pools launch nodes for the pods instead of group ng" in told
    assert "InsufficientInstanceCapacity for m5.large in us-east-1a" in told
    assert LAUNCHED in told
    assert (fakes.groups.desired, fakes.record.is_open) == (2, False)
    assert fakes.groups.missing("ng") == 0, "the group launches no second successor"


def test_groups_do_not_use_pools_unless_the_manifest_allows_it() -> None:
    outcome = of_group(REBALANCE, policy=ClusterPolicy(), starts_in=0)
    assert outcome.replacement == "terminate-in-group"
    fakes = report_no_capacity(of_full_group(INTERRUPTION, policy=ClusterPolicy()))
    assert retire(fakes).replacement == "terminate-in-group"
    assert not fakes.capacity


def test_an_interruption_uses_pools_only_if_ec2_has_reported_no_capacity() -> None:
    assert of_group(INTERRUPTION).replacement == "terminate-in-group"
    fakes = report_no_capacity(of_full_group(INTERRUPTION))
    outcome = retire(fakes)
    assert outcome.replacement == "request-capacity"
    assert "no zone of group ng has capacity" in outcome.replacement_reason.message
    assert drained_at(fakes) == timedelta(0)
    assert fakes.actions.order_of("terminate", "terminate and decrement") == [
        "terminate and decrement"
    ]


def test_a_group_that_refuses_for_another_reason_does_not_use_pools() -> None:
    outcome = of_group(REBALANCE, full=set(), launch_error="AccessDenied", starts_in=0)
    assert outcome.replacement == "terminate-in-group"


def test_a_group_at_its_minimum_keeps_its_desired_capacity() -> None:
    fakes = of_full_group(overrides={"minimum": 3})
    outcome = retire(fakes)
    assert "keeps its desired capacity, which is its minimum of 3" in (
        outcome.replacement_reason.message
    )
    assert fakes.actions.order_of("terminate", "terminate and decrement") == ["terminate"]
    assert fakes.groups.desired == 3


@pytest.mark.parametrize("buyer", [{"launches": False, "refuses": (LIMIT,)}, {"launches": False}])
def test_a_group_for_which_no_pool_launches_keeps_its_desired_capacity(
    buyer: dict[str, Any],
) -> None:
    fakes = of_full_group(INTERRUPTION, buyer=buyer)
    retire(report_no_capacity(fakes))
    assert fakes.actions.order_of("terminate", "terminate and decrement") == ["terminate"]
    assert fakes.groups.desired == 3


def test_a_group_node_that_is_not_drained_stays_in_service() -> None:
    fakes = of_full_group(blocks=True)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert fakes.actions.order_of("terminate", "terminate and decrement") == []
    assert fakes.record.must_restore_capacity, "reconcile has it tried again"


def test_an_instance_that_left_its_group_meanwhile_is_not_terminated() -> None:
    fakes = of_full_group()

    @fakes.steps.at("finish")
    def leaves() -> None:
        fakes.groups.state = None

    retire(fakes)
    assert fakes.actions.order_of("terminate", "terminate and decrement") == []
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)
