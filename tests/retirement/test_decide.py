"""The decision how a retiring instance is replaced, with its reason."""

from itertools import product
from typing import Any

import pytest
from leeway.instances.facts import GroupFacts, Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import VOLUNTARY, Replacement
from leeway.retirement.decide_replacement import (
    ReplacementDecision,
    decide_replacement,
    why_group_replaces,
)
from leeway.retirement.record import Method

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


def before_drain(
    facts: GroupFacts, kind: NoticeKind = NoticeKind.REBALANCE, **more: Any
) -> ReplacementDecision:
    return decide_replacement(kind, Replacement.BEFORE, GROUP, facts, **more)


def decide(facts: GroupFacts | None, owner: Owner = GROUP, **more: Any) -> ReplacementDecision:
    return decide_replacement(NoticeKind.SPOT_INTERRUPTION, Replacement.WITH, owner, facts, **more)


def test_a_group_with_a_terminate_hook_keeps_the_instance_while_its_successor_starts() -> None:
    decision = decide(group(terminate_hooks=("leeway-drain",)))
    assert decision.method is Method.TERMINATE_IN_GROUP
    assert "leeway-drain" in decision.reason.message


def test_an_instance_of_a_group_without_one_is_detached() -> None:
    assert decide(group()).method is Method.DETACH


def test_a_group_with_a_suspended_terminate_process_is_not_asked_to_terminate() -> None:
    facts = group(terminate_hooks=("leeway-drain",), suspended=frozenset({"Terminate"}))
    assert decide(facts).method is Method.DETACH


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lifecycle_state": "Terminating:Wait"}, "in lifecycle state"),
        ({"lifecycle_state": "Standby"}, "in lifecycle state"),
        ({"capacity_rebalance": True}, "Capacity Rebalancing is on"),
        ({"refreshing": True}, "An instance refresh of group"),
    ],
)
def test_a_group_that_replaces_the_instance_itself_gets_no_request(
    changes: dict[str, Any], why: str
) -> None:
    decision = decide(group(**changes))
    assert decision.method is Method.LEFT_TO_OWNER
    assert why in decision.reason.message


@pytest.mark.parametrize("kind", [NoticeKind.IMPAIRED_STATUS, NoticeKind.SCHEDULED_CHANGE])
def test_capacity_rebalancing_replaces_only_after_a_rebalance_recommendation(
    kind: NoticeKind,
) -> None:
    assert why_group_replaces(kind, group(capacity_rebalance=True)) is None
    assert why_group_replaces(NoticeKind.REBALANCE, group(capacity_rebalance=True))


def test_a_group_with_a_suspended_launch_process_keeps_its_instance() -> None:
    decision = decide(group(suspended=frozenset({"Launch"})))
    assert decision.method is Method.NOTHING
    assert decision.reason.code == "GroupLaunchesNoSuccessor"
    assert "Launch process is suspended" in decision.reason.message


@pytest.mark.parametrize(
    ("owner", "requested"),
    [(GROUP, Method.DETACH), (GROUP, None)],
)
def test_an_instance_that_left_its_group_is_not_replaced_a_second_time(
    owner: Owner, requested: Method | None
) -> None:
    assert decide(None, owner, requested=requested).method is Method.NOTHING


def test_a_terminate_hook_notice_replaces_nothing() -> None:
    decision = decide_replacement(NoticeKind.TERMINATE_HOOK, Replacement.NONE, GROUP, group())
    assert decision.method is Method.NOTHING
    assert "decides itself" in decision.reason.message


SPARE_CAPACITY = {"desired": 3, "maximum": 4}
HOOKED = {"terminate_hooks": ("leeway-drain",), "desired": 3, "maximum": 4}


def test_a_voluntary_retirement_launches_the_successor_before_the_drain() -> None:
    decision = before_drain(group(**HOOKED))
    assert (decision.method, decision.before) == (Method.LAUNCH, True)
    assert "4 of at most 4" in decision.reason.message


def test_a_group_at_its_maximum_launches_the_successor_when_the_instance_leaves() -> None:
    decision = before_drain(group(**HOOKED | {"maximum": 3}))
    assert (decision.method, decision.before) == (Method.TERMINATE_IN_GROUP, True)
    assert "exceed the maximum of group ng, which is 3" in decision.reason.message


def test_a_group_without_a_hook_launches_the_successor_before_the_drain() -> None:
    decision = before_drain(group(**SPARE_CAPACITY))
    assert (decision.method, decision.before) == (Method.LAUNCH, True)


@pytest.mark.parametrize(
    ("facts", "fact"),
    [
        ({"launch_unsupported": "has a warm pool"}, "has a warm pool"),
        ({"launch_unsupported": "mixes On-Demand and Spot Instances"}, "mixes On-Demand and Spot"),
        ({"maximum": 3}, "maximum of group ng, which is 3"),
        ({"desired": 8, "units": 4, "maximum": 11}, "maximum of group ng, which is 11"),
        ({"suspended": frozenset({"Terminate"})}, "its Terminate process is suspended"),
    ],
)
def test_a_group_that_cannot_use_launch_instances_replaces_a_detached_instance(
    facts: dict[str, Any], fact: str
) -> None:
    decision = before_drain(group(**SPARE_CAPACITY | facts))
    assert (decision.method, decision.before) == (Method.DETACH, True)
    assert fact in decision.reason.message


def test_a_refused_launch_is_not_repeated_and_is_part_of_the_reason() -> None:
    refused = "LaunchInstances was refused: AccessDenied."
    decision = before_drain(group(**HOOKED), requested=Method.LAUNCH, refused=refused)
    assert (decision.method, decision.before) == (Method.TERMINATE_IN_GROUP, True)
    assert refused in decision.reason.message


def test_a_repeated_termination_in_the_group_waits_for_its_successor() -> None:
    ending = group(**HOOKED, lifecycle_state="Terminating:Wait")
    decision = before_drain(ending, requested=Method.TERMINATE_IN_GROUP)
    assert (decision.method, decision.before) == (Method.LEFT_TO_OWNER, True)


@pytest.mark.parametrize(
    "kind", [NoticeKind.SPOT_INTERRUPTION, NoticeKind.CAPACITY_RESERVATION, NoticeKind.STATE_CHANGE]
)
def test_an_interruption_does_not_wait_for_a_successor(
    kind: NoticeKind,
) -> None:
    decision = before_drain(group(**HOOKED), kind)
    assert (decision.method, decision.before) == (Method.TERMINATE_IN_GROUP, False)


def test_an_interruption_keeps_the_successor_of_an_earlier_attempt() -> None:
    decision = decide(group(**HOOKED), requested=Method.LAUNCH)
    assert (decision.method, decision.before) == (Method.LAUNCH, False)
    ending = decide(group(**HOOKED, lifecycle_state="Terminating:Wait"), requested=Method.LAUNCH)
    assert ending.method is Method.LEFT_TO_OWNER, "the group terminates it already"


def test_a_drain_does_not_wait_for_a_successor_under_replacement_with() -> None:
    for facts in (group(**HOOKED), group(**SPARE_CAPACITY)):
        decision = decide_replacement(NoticeKind.REBALANCE, Replacement.WITH, GROUP, facts)
        assert (decision.method, decision.before) == (Method.LAUNCH, False)


OTHERS = {"foreign_terminate_hooks": ("cmdb",), "desired": 3, "maximum": 4}


def test_a_hook_that_notifies_another_target_does_not_keep_the_instance() -> None:
    foreign = decide(group(**OTHERS))
    assert foreign.method is Method.DETACH
    assert "terminate hook cmdb notifies another target" in foreign.reason.message
    both = decide(group(**OTHERS, terminate_hooks=("leeway-drain",)))
    assert both.method is Method.TERMINATE_IN_GROUP


def test_a_group_with_a_foreign_hook_terminates_the_drained_instance_itself() -> None:
    decision = before_drain(group(**OTHERS))
    assert (decision.method, decision.before) == (Method.LAUNCH, True)
    for changes in ({"maximum": 3}, {"suspended": frozenset({"Terminate"})}):
        decision = before_drain(group(**OTHERS | changes))
        assert (decision.method, decision.before) == (Method.DETACH, True)
    beside = decide_replacement(NoticeKind.REBALANCE, Replacement.WITH, GROUP, group(**OTHERS))
    assert (beside.method, beside.before) == (Method.LAUNCH, False)


def test_the_reason_names_zones_and_scale_in_protection() -> None:
    zones = ("us-east-1a", "us-east-1b", "us-east-1c")
    reason = before_drain(group(**HOOKED, zones=zones, protected=True)).reason
    assert "zones" not in reason.message, "LaunchInstances names one zone"
    assert "any of the group's 3 zones" in decide(group(**HOOKED, zones=zones)).reason.message
    assert "scale-in protection does not prevent" in reason.message
    plain = before_drain(group(**HOOKED)).reason.message
    assert "zones" not in plain
    assert "protection" not in plain
    assert "has no terminate hook" in decide(group()).reason.message
    facts = group(**HOOKED, suspended=frozenset({"Terminate"}))
    assert "its Terminate process is suspended" in decide(facts).reason.message
    assert "is no longer in group" in decide(None).reason.message
    assert "is in no Auto Scaling group" in decide(None, Owner(OwnerKind.NONE)).reason.message


def test_a_managed_group_that_leeway_retires_is_treated_like_another_group() -> None:
    owner = Owner(OwnerKind.MANAGED_NODE_GROUP, "ng")
    assert decide(group(**HOOKED), owner).method is Method.TERMINATE_IN_GROUP


def test_no_instance_of_a_managed_group_is_detached() -> None:
    decision = decide(group(), Owner(OwnerKind.MANAGED_NODE_GROUP, "ng"))
    assert decision.method is Method.NOTHING
    assert "EKS does not let instances leave" in decision.reason.message


@pytest.mark.parametrize("kind", [OwnerKind.KARPENTER, OwnerKind.AUTO_MODE])
def test_owners_that_launch_for_pods_replace_the_nodes_that_leeway_retires(
    kind: OwnerKind,
) -> None:
    decision = decide(None, Owner(kind, "general"))
    assert decision.method is Method.LEFT_TO_OWNER
    assert "launches the capacity that the evicted pods need" in decision.reason.message


def test_a_retirement_waits_for_the_successor_of_an_earlier_detachment() -> None:
    decision = decide_replacement(
        NoticeKind.REBALANCE, Replacement.BEFORE, GROUP, None, requested=Method.DETACH
    )
    assert (decision.method, decision.before) == (Method.NOTHING, True)


POOL = Owner(OwnerKind.LEEWAY, "spot-general")
NOTICES = [
    NoticeKind.SPOT_INTERRUPTION,
    NoticeKind.CAPACITY_RESERVATION,
    NoticeKind.REBALANCE,
    NoticeKind.SCHEDULED_CHANGE,
    NoticeKind.IMPAIRED_STATUS,
    NoticeKind.STATE_CHANGE,
    NoticeKind.TERMINATE_HOOK,
]


def test_an_instance_of_a_pool_is_replaced_by_pools_unless_the_policy_forbids_it() -> None:
    for case in product(NOTICES, Replacement, [None, Method.REQUEST_CAPACITY], [False, True]):
        kind, replacement, requested, use_pools = case
        decision = decide_replacement(kind, replacement, POOL, None, requested, "", use_pools)
        if replacement is Replacement.NONE:
            assert (decision.method, decision.before) == (Method.NOTHING, False), case
            continue
        assert decision.method is Method.REQUEST_CAPACITY, case
        assert "pool spot-general" in decision.reason.message, case
        before = replacement is Replacement.BEFORE and kind in VOLUNTARY
        assert decision.before is before, case


def test_only_a_group_without_capacity_whose_cluster_allows_it_uses_pools() -> None:
    groups = {OwnerKind.AUTO_SCALING_GROUP, OwnerKind.MANAGED_NODE_GROUP}
    others = [one for one in OwnerKind if one is not OwnerKind.LEEWAY]
    for case in product(NOTICES, Replacement, others):
        kind, replacement, owner = case
        facts = group(desired=3, maximum=4) if owner in groups else None
        without, using = (
            decide_replacement(kind, replacement, Owner(owner, "ng"), facts, None, "", use)
            for use in (False, True)
        )
        assert without.method is not Method.REQUEST_CAPACITY, case
        uses = owner in groups and replacement is not Replacement.NONE
        assert (using.method is Method.REQUEST_CAPACITY) is uses, case
        if not uses:
            assert without == using, case
        else:
            before = replacement is Replacement.BEFORE and kind in VOLUNTARY
            assert using.before is before, case


@pytest.mark.parametrize(
    ("changes", "method"),
    [
        ({"lifecycle_state": "Terminating:Wait"}, Method.LEFT_TO_OWNER),
        ({"capacity_rebalance": True}, Method.LEFT_TO_OWNER),
        ({"refreshing": True}, Method.LEFT_TO_OWNER),
        ({"suspended": frozenset({"Launch"})}, Method.NOTHING),
    ],
)
def test_pools_do_not_add_to_a_replacement_of_the_group(
    changes: dict[str, Any], method: Method
) -> None:
    assert decide(group(**changes), use_pools=True).method is method


@pytest.mark.parametrize("earlier", [Method.DETACH, Method.TERMINATE_IN_GROUP, Method.LAUNCH])
def test_pools_do_not_add_to_a_request_of_an_earlier_attempt(earlier: Method) -> None:
    ending = group(**HOOKED, lifecycle_state="Terminating:Wait")
    assert decide(ending, requested=earlier, use_pools=True).method is Method.LEFT_TO_OWNER
    assert decide(None, requested=earlier, use_pools=True).method is Method.NOTHING
    if earlier is Method.LAUNCH:
        in_service = decide(group(**HOOKED), requested=earlier, use_pools=True)
        assert in_service.method is Method.LAUNCH, "its successor was launched"


def test_an_attempt_continues_with_the_pools_that_an_earlier_one_used() -> None:
    decision = decide(group(**HOOKED), requested=Method.REQUEST_CAPACITY)
    assert (decision.method, decision.before) == (Method.REQUEST_CAPACITY, False)


def test_the_reason_says_how_the_group_changes() -> None:
    shrinks = before_drain(group(desired=3, minimum=1), use_pools=True)
    assert "terminates the instance after the drain with a decrement." in shrinks.reason.message
    at_minimum = before_drain(group(desired=3, minimum=3), use_pools=True)
    assert "keeps its desired capacity, which is its minimum of 3." in at_minimum.reason.message
