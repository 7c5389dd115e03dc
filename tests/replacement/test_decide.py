"""How a retiring instance is replaced, owner by owner, each with its reason."""

from typing import Any

import pytest
from leeway.instances.groups import GroupFacts
from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import Replacement
from leeway.replacement.decide import Decision, decide_replacement, groups_own_business
from leeway.retirement.replacement_intent import Method

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


def ahead(facts: GroupFacts, kind: NoticeKind = NoticeKind.REBALANCE, **more: Any) -> Decision:
    return decide_replacement(kind, Replacement.BEFORE, GROUP, facts, **more)


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


@pytest.mark.parametrize("kind", [NoticeKind.IMPAIRED_STATUS, NoticeKind.SCHEDULED_CHANGE])
def test_capacity_rebalancing_replaces_no_instance_that_was_not_recommended_to_go(
    kind: NoticeKind,
) -> None:
    assert groups_own_business(kind, group(capacity_rebalance=True)) is None
    assert groups_own_business(NoticeKind.REBALANCE, group(capacity_rebalance=True))


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
    [(GROUP, Method.DETACH), (GROUP, None)],
)
def test_an_instance_that_left_its_group_is_not_replaced_a_second_time(
    owner: Owner, asked: Method | None
) -> None:
    assert decide(None, owner, asked=asked).method is Method.NOTHING


def test_a_terminate_hook_at_scale_in_replaces_nothing() -> None:
    decision = decide_replacement(NoticeKind.TERMINATE_HOOK, Replacement.NONE, GROUP, group())
    assert decision.method is Method.NOTHING
    assert "group" in decision.reason


ROOM = {"desired": 3, "maximum": 4}
HOOKED = {"terminate_hooks": ("leeway-drain",), "desired": 3, "maximum": 4}


def test_where_there_is_time_a_group_with_a_hook_starts_one_more_before_the_instance_goes() -> None:
    decision = ahead(group(**HOOKED))
    assert (decision.method, decision.before) == (Method.LAUNCH, True)
    assert "4 of at most 4" in decision.reason


def test_a_group_at_its_maximum_gets_its_successor_when_the_instance_goes() -> None:
    decision = ahead(group(**HOOKED | {"maximum": 3}))
    assert (decision.method, decision.before) == (Method.TERMINATE_IN_GROUP, True)
    assert "at its maximum of 3" in decision.reason


def test_a_group_without_a_hook_launches_one_more_and_ends_the_instance_when_it_is_drained() -> (
    None
):
    decision = ahead(group(**ROOM))
    assert (decision.method, decision.before) == (Method.LAUNCH, True)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"launch_unsupported": "has a warm pool"}, "has a warm pool"),
        ({"launch_unsupported": "mixes On-Demand and Spot Instances"}, "mixes On-Demand and Spot"),
        ({"maximum": 3}, "is at its maximum of 3"),
        ({"desired": 8, "units": 4, "maximum": 11}, "is at its maximum of 11"),
        ({"suspended": frozenset({"Terminate"})}, "has its Terminate process suspended"),
    ],
)
def test_where_a_group_launches_none_by_name_it_replaces_the_instance_itself_and_says_why(
    facts: dict[str, Any], why: str
) -> None:
    decision = ahead(group(**ROOM | facts))
    assert (decision.method, decision.before) == (Method.DETACH, True)
    assert why in decision.reason


def test_what_the_group_refused_is_not_asked_again_and_stands_in_the_reason() -> None:
    decision = ahead(group(**HOOKED), asked=Method.LAUNCH, refused="AccessDenied")
    assert (decision.method, decision.before) == (Method.TERMINATE_IN_GROUP, True)
    assert decision.reason.startswith("no successor by name: AccessDenied")


def test_who_asked_the_group_to_end_the_instance_still_waits_for_what_it_launches() -> None:
    ending = group(**HOOKED, lifecycle_state="Terminating:Wait")
    decision = ahead(ending, asked=Method.TERMINATE_IN_GROUP)
    assert (decision.method, decision.before) == (Method.LEFT_TO_OWNER, True)


@pytest.mark.parametrize(
    "kind", [NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION, NoticeKind.STATE_CHANGE]
)
def test_an_instance_that_ec2_takes_waits_for_no_successor_whatever_its_policy_says(
    kind: NoticeKind,
) -> None:
    decision = ahead(group(**HOOKED), kind)
    assert (decision.method, decision.before) == (Method.TERMINATE_IN_GROUP, False)


def test_an_interruption_takes_up_the_successor_that_was_asked_for_before() -> None:
    decision = decide(group(**HOOKED), asked=Method.LAUNCH)
    assert (decision.method, decision.before) == (Method.LAUNCH, False)
    ending = decide(group(**HOOKED, lifecycle_state="Terminating:Wait"), asked=Method.LAUNCH)
    assert ending.method is Method.LEFT_TO_OWNER, "its group ends it already"


def test_a_successor_that_a_policy_wants_beside_the_drain_is_not_waited_for() -> None:
    for facts in (group(**HOOKED), group(**ROOM)):
        decision = decide_replacement(NoticeKind.REBALANCE, Replacement.WITH, GROUP, facts)
        assert (decision.method, decision.before) == (Method.LAUNCH, False)


OTHERS = {"foreign_terminate_hooks": ("cmdb",), "desired": 3, "maximum": 4}


def test_a_hook_that_calls_somebody_else_keeps_no_instance_for_its_pods() -> None:
    taken = decide(group(**OTHERS))
    assert taken.method is Method.DETACH
    assert "its hook cmdb calls others" in taken.reason
    ours_too = decide(group(**OTHERS, terminate_hooks=("leeway-drain",)))
    assert ours_too.method is Method.TERMINATE_IN_GROUP


def test_where_there_is_time_a_group_ends_the_drained_instance_so_that_others_are_called() -> None:
    decision = ahead(group(**OTHERS))
    assert (decision.method, decision.before) == (Method.LAUNCH, True)
    for alone in ({"maximum": 3}, {"suspended": frozenset({"Terminate"})}):
        decision = ahead(group(**OTHERS | alone))
        assert (decision.method, decision.before) == (Method.DETACH, True)
    beside = decide_replacement(NoticeKind.REBALANCE, Replacement.WITH, GROUP, group(**OTHERS))
    assert (beside.method, beside.before) == (Method.LAUNCH, False)


def test_capacity_rebalancing_does_not_follow_scheduled_changes() -> None:
    facts = group(**HOOKED, capacity_rebalance=True)
    assert ahead(facts).method is Method.LEFT_TO_OWNER
    assert ahead(facts, NoticeKind.SCHEDULED_CHANGE).method is Method.LAUNCH


def test_what_may_surprise_is_said() -> None:
    zones = ("us-east-1a", "us-east-1b", "us-east-1c")
    reason = ahead(group(**HOOKED, zones=zones, protected=True)).reason
    assert "zones" not in reason, "it names the one"
    assert "any of 3 zones" in decide(group(**HOOKED, zones=zones)).reason
    assert "protection from scale-in does not hold" in reason
    plain = ahead(group(**HOOKED)).reason
    assert "zones" not in plain
    assert "protection" not in plain
    assert "has no terminate hook" in decide(group()).reason
    facts = group(**HOOKED, suspended=frozenset({"Terminate"}))
    assert "has its Terminate process suspended" in decide(facts).reason
    assert "has the instance no more" in decide(None).reason
    assert "belongs to no group" in decide(None, Owner(OwnerKind.NONE)).reason


def test_a_managed_group_that_the_policy_takes_is_worked_on_like_any_other() -> None:
    owner = Owner(OwnerKind.MANAGED_NODE_GROUP, "ng")
    assert decide(group(**HOOKED), owner, taken=True).method is Method.TERMINATE_IN_GROUP


def test_no_instance_is_taken_out_of_a_managed_group_since_eks_does_not_let_it_go() -> None:
    decision = decide(group(), Owner(OwnerKind.MANAGED_NODE_GROUP, "ng"), taken=True)
    assert decision.method is Method.NOTHING
    assert "EKS" in decision.reason


@pytest.mark.parametrize("kind", [OwnerKind.KARPENTER, OwnerKind.AUTO_MODE])
def test_those_who_launch_for_pods_are_left_to_do_so_when_their_nodes_are_taken(
    kind: OwnerKind,
) -> None:
    decision = decide(None, Owner(kind, "general"), taken=True)
    assert decision.method is Method.LEFT_TO_OWNER
    assert "launches what the evicted pods need" in decision.reason


def test_a_successor_that_was_asked_for_by_detaching_is_still_waited_for() -> None:
    decision = decide_replacement(
        NoticeKind.REBALANCE, Replacement.BEFORE, GROUP, None, asked=Method.DETACH
    )
    assert (decision.method, decision.before) == (Method.NOTHING, True)
