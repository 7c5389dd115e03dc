"""How a retiring instance is replaced, owner by owner, each with its reason."""

from typing import Any

import pytest
from leeway.notices import NoticeKind
from leeway.owners import Owner, OwnerKind
from leeway.policies import Replacement
from leeway.replacement import Decision, GroupFacts, Method, decide_replacement

GROUP = Owner(OwnerKind.AUTO_SCALING_GROUP, "ng")


def group(**changes: Any) -> GroupFacts:
    facts: dict[str, Any] = {
        "name": "ng",
        "lifecycle_state": "InService",
        "capacity_rebalance": False,
        "refreshing": False,
        "suspended": frozenset(),
        "terminate_hooks": (),
    }
    return GroupFacts(**facts | changes)


def decide(facts: GroupFacts | None, owner: Owner = GROUP, **more: Any) -> Decision:
    return decide_replacement(NoticeKind.SPOT_INTERRUPTION, Replacement.WITH, owner, facts, **more)


def test_a_group_with_a_terminate_hook_keeps_the_instance_while_its_successor_starts() -> None:
    decision = decide(group(terminate_hooks=("leeway-drain",)))
    assert decision.method is Method.TERMINATE_IN_GROUP
    assert "leeway-drain" in decision.reason


def test_an_instance_of_a_group_without_one_is_detached() -> None:
    assert decide(group()).method is Method.DETACH


def test_a_group_that_may_not_terminate_gets_no_order_to() -> None:
    facts = group(terminate_hooks=("leeway-drain",), suspended=frozenset({"Terminate"}))
    assert decide(facts).method is Method.DETACH


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"lifecycle_state": "Terminating:Wait"}, "Terminating:Wait"),
        ({"lifecycle_state": "Standby"}, "Standby"),
        ({"capacity_rebalance": True}, "Capacity Rebalancing"),
        ({"refreshing": True}, "instance refresh"),
    ],
)
def test_what_a_group_does_by_itself_is_left_to_it(changes: dict[str, Any], word: str) -> None:
    decision = decide(group(**changes))
    assert decision.method is Method.LEFT_TO_OWNER
    assert word in decision.reason


def test_a_group_whose_launch_process_is_suspended_is_not_robbed_of_an_instance() -> None:
    decision = decide(group(suspended=frozenset({"Launch"})))
    assert decision.method is Method.NOTHING
    assert "Launch" in decision.reason


@pytest.mark.parametrize(
    "kind", [OwnerKind.MANAGED_NODE_GROUP, OwnerKind.AUTO_MODE, OwnerKind.KARPENTER]
)
def test_owners_that_replace_their_own_nodes_are_left_alone(kind: OwnerKind) -> None:
    assert decide(group(), Owner(kind, "x")).method is Method.LEFT_TO_OWNER


@pytest.mark.parametrize(
    ("owner", "asked"),
    [(Owner(OwnerKind.DETACHED, "ng"), False), (GROUP, True), (GROUP, False)],
)
def test_an_instance_that_left_its_group_is_not_replaced_a_second_time(
    owner: Owner, asked: bool
) -> None:
    assert decide(None, owner, asked_already=asked).method is Method.NOTHING


def test_a_terminate_hook_at_scale_in_replaces_nothing() -> None:
    decision = decide_replacement(NoticeKind.TERMINATE_HOOK, Replacement.NONE, GROUP, group())
    assert decision.method is Method.NOTHING
    assert "group" in decision.reason
