"""What becomes of notices: by policy, by owner, at once, weeks ahead, or undone."""

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.instances.owners import Owner, OwnerKind
from leeway.interruption.ports import InstanceState
from leeway.interruption.receive_notice import (
    CLEANED_AT_ONCE,
    FOR_EACH,
    HANDS,
    NotAllInstancesReceived,
    NoticeResult,
)
from leeway.notices import NoticeKind
from leeway.policy.rules import DEFAULTS, Action, ClusterPolicy, Policy
from leeway.ports.aws import CloudUnavailable
from leeway.ports.table import Offering

from tests.interruption.desk import (
    AFTERWARDS,
    FIRST,
    LEAD,
    SECOND,
    WEEKS_BEFORE,
    Desk,
    PromptDesk,
    policy,
    state,
    warning,
)
from tests.notices.events import event, health
from tests.retirement.retirements import FACTS
from tests.stand_ins import CleanUps, OfferingsInMemory, OnePolicy


@pytest.mark.parametrize(
    ("action", "result"),
    [(Action.IGNORE, NoticeResult.IGNORED), (Action.CORDON, NoticeResult.STARTED)],
)
def test_a_policy_may_say_what_a_notice_leads_to(action: Action, result: NoticeResult) -> None:
    changed = replace(DEFAULTS[NoticeKind.SPOT_INTERRUPTION], action=action)
    desk = Desk(policies=OnePolicy(policy(spot_interruption=changed)))
    assert desk.results(warning("2026-11-20T09:45:00Z")) == [result]
    assert [record.action for record in desk.stored.values()] == [action] * len(desk.stored)


@pytest.mark.parametrize(
    "kind", [OwnerKind.MANAGED_NODE_GROUP, OwnerKind.AUTO_MODE, OwnerKind.KARPENTER]
)
def test_owners_that_retire_their_own_nodes_are_left_to_unless_the_policy_takes_them(
    kind: OwnerKind,
) -> None:
    desk = Desk(owner=Owner(kind, "general"))
    assert desk.results(warning("2026-11-20T09:45:00Z")) == [NoticeResult.LEFT_TO_OWNER]
    desk.policies = OnePolicy(ClusterPolicy(retires_for=frozenset({kind})))
    assert desk.results(warning("2026-11-20T09:45:00Z")) == [NoticeResult.STARTED]


def recommendation(time: str) -> dict[str, Any]:
    return warning(time) | {"detail-type": "EC2 Instance Rebalance Recommendation"}


@pytest.mark.parametrize("action", [Action.IGNORE, Action.CORDON])
def test_what_leeway_began_goes_on_though_the_policy_would_not_begin_it_now(action: Action) -> None:
    changed = replace(DEFAULTS[NoticeKind.REBALANCE], action=action)
    desk = Desk(policies=OnePolicy(policy(rebalance=changed)))
    told = recommendation("2026-11-20T09:45:00Z")
    assert [one.result for one in desk.receive(told, Action.RETIRE).instances] == [
        NoticeResult.STARTED
    ]
    assert desk.stored[FIRST].action is Action.RETIRE


def test_a_retirement_after_another_knows_whose_the_instance_is_by_now() -> None:
    desk = Desk()
    desk.receive(warning("2026-11-20T09:45:00Z"))
    desk.finished()
    detached = Owner(OwnerKind.NONE)
    desk.index[FIRST] = FACTS.model_copy(update={"instance": FIRST, "owner": detached})
    desk.receive(warning("2026-11-20T10:45:00Z"))
    assert (desk.stored[FIRST].attempt, desk.stored[FIRST].facts.owner) == (2, detached)


def test_fargates_nodes_are_never_taken() -> None:
    takes = ClusterPolicy(retires_for=frozenset(OwnerKind))
    desk = Desk(owner=Owner(OwnerKind.FARGATE), policies=OnePolicy(takes))
    assert desk.results(warning("2026-11-20T09:45:00Z")) == [NoticeResult.LEFT_TO_OWNER]


def test_an_interrupted_offering_is_marked_unavailable_for_three_minutes() -> None:
    desk = Desk()
    desk.receive(warning("2026-11-20T09:45:00Z"))
    offering = Offering("eu-west-1", "m5.large", "us-east-1a", "spot")
    reason, until = desk.offerings.marked[offering]
    assert FIRST in reason
    assert until - desk.now_ == timedelta(minutes=3)


def test_a_recommendation_marks_nothing() -> None:
    desk = Desk()
    assert desk.results(recommendation("2026-11-20T09:45:00Z")) == [NoticeResult.STARTED]
    assert desk.offerings.marked == {}


def test_a_launch_that_begins_to_run_costs_one_read() -> None:
    desk = Desk()
    assert desk.results(state("running", "2026-11-20T09:45:00Z")) == [NoticeResult.IGNORED]
    assert desk.asked == []


@pytest.mark.parametrize("action", ["stop", "hibernate"])
def test_an_instance_that_was_stopped_and_runs_again_is_freed_and_can_be_retired_again(
    action: str,
) -> None:
    desk = PromptDesk()
    desk.receive(warning("2026-11-20T09:45:00Z", action))
    desk.finished()
    assert desk.results(state("stopped", "2026-11-20T09:47:00Z")) == [NoticeResult.KNOWN]
    assert desk.results(state("running", "2026-11-20T11:00:00Z")) == [NoticeResult.UNDOING]
    record = desk.stored[FIRST]
    desk.write(record.model_copy(update={"phase": Phase.UNDONE, "version": record.version + 1}))
    assert desk.results(state("running", "2026-11-20T11:00:00Z")) == [NoticeResult.IGNORED]
    assert desk.results(warning("2026-11-20T12:00:00Z", action)) == [NoticeResult.STARTED]
    assert desk.stored[FIRST].attempt == 3
    assert desk.stored[FIRST].replacement_intent is None


def test_a_stop_while_it_is_drained_that_is_over_at_once_is_undone() -> None:
    desk = PromptDesk()
    desk.receive(state("stopping", "2026-11-20T09:45:00Z"))
    assert desk.results(state("running", "2026-11-20T09:46:00Z")) == [NoticeResult.UNDOING]


def test_running_that_arrives_late_undoes_nothing() -> None:
    desk = PromptDesk()
    desk.receive(warning("2026-11-20T09:45:00Z", "stop"))
    assert desk.results(state("running", "2026-11-20T09:40:00Z")) == [NoticeResult.IGNORED]
    assert desk.stored[FIRST].phase is Phase.NOTICED


def test_running_in_the_second_of_the_next_interruption_does_not_undo_it() -> None:
    desk = PromptDesk()
    desk.receive(warning("2026-11-20T09:45:00Z", "stop"))
    desk.finished()
    assert desk.results(warning("2026-11-20T11:00:00Z", "stop")) == [NoticeResult.STARTED]
    assert desk.results(state("running", "2026-11-20T11:00:00Z")) == [NoticeResult.IGNORED]
    assert desk.stored[FIRST].phase is Phase.NOTICED


def test_running_says_nothing_about_an_interruption_that_terminates() -> None:
    desk = PromptDesk()
    desk.receive(warning("2026-11-20T09:45:00Z"))
    assert desk.results(state("running", "2026-11-20T09:45:30Z")) == [NoticeResult.IGNORED]


def test_an_undo_whose_start_was_lost_is_started_again() -> None:
    desk = PromptDesk()
    desk.receive(warning("2026-11-20T09:45:00Z", "stop"))
    for _ in range(2):
        assert desk.results(state("running", "2026-11-20T11:00:00Z")) == [NoticeResult.UNDOING]
    assert desk.started == [f"{FIRST}-1", f"{FIRST}-2", f"{FIRST}-2"]


def test_one_instance_that_fails_keeps_no_other_from_being_seen_to() -> None:
    desk = Desk(now_=LEAD, broken=FIRST)
    with pytest.raises(NotAllInstancesReceived, match="does not answer") as raised:
        desk.receive(health())
    assert [one.instance for one in raised.value.receipt.instances] == [SECOND]
    assert desk.started == [f"{SECOND}-1"]


def launching(id: str = "launch-1", time: str = "2026-11-20T09:45:00Z") -> dict[str, Any]:  # noqa: A002
    detail = {
        "EC2InstanceId": FIRST,
        "AutoScalingGroupName": "ng",
        "LifecycleHookName": "leeway-admit",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
    }
    told = event(detail=detail, time=time, id=id, source="aws.autoscaling")
    return told | {"detail-type": "EC2 Instance-launch Lifecycle Action"}


def test_an_instance_that_waits_for_a_launch_hook_is_admitted_once() -> None:
    desk = Desk()
    assert desk.results(launching()) == [NoticeResult.STARTED]
    assert desk.results(launching()) == [NoticeResult.STARTED], "the first start may have been lost"
    assert desk.results(launching(id="launch-2")) == [NoticeResult.STARTED]
    assert set(desk.admissions.started) == {(FIRST, "prod", 1)}
    assert desk.started == []
    assert desk.arrivals.stored[FIRST].deadline == WEEKS_BEFORE.replace(second=0) + timedelta(
        minutes=15
    )


def test_a_launch_hook_that_the_policy_ignores_or_that_is_only_rehearsed_is_left_alone() -> None:
    ignoring = Desk(policies=OnePolicy(policy(launch_hook=Policy(Action.IGNORE))))
    assert ignoring.results(launching()) == [NoticeResult.IGNORED]
    rehearsing = Desk(policies=OnePolicy(ClusterPolicy(dry_run=True)))
    assert rehearsing.results(launching()) == [NoticeResult.IGNORED]
    assert ignoring.admissions.started == rehearsing.admissions.started == []
    assert ignoring.arrivals.stored == rehearsing.arrivals.stored == {}


def test_the_policys_own_wait_for_a_node_holds() -> None:
    patient = Policy(Action.ADMIT, timedelta(hours=1))
    desk = Desk(policies=OnePolicy(policy(launch_hook=patient)))
    desk.receive(launching())
    arrival = desk.arrivals.stored[FIRST]
    assert arrival.deadline - arrival.noticed_at == timedelta(hours=1)


def test_what_a_terminated_instance_leaves_is_cleaned_up_also_after_its_retirement() -> None:
    desk = Desk()
    desk.receive(warning("2026-11-20T09:45:00Z"))
    desk.finished()
    desk.receive(state("shutting-down", "2026-11-20T09:47:00Z"))
    assert desk.cleaning.started == []
    assert desk.results(state("terminated", "2026-11-20T09:47:30Z")) == [NoticeResult.KNOWN]
    assert desk.cleaning.started == [(FIRST, "prod")]
    assert desk.started == [f"{FIRST}-1"], "and no second retirement is"


def test_an_empty_node_is_left_to_the_minute_and_one_that_filled_up_again_is_not() -> None:
    desk = PromptDesk()
    desk.receive(warning("2026-11-20T09:45:00Z"))
    desk.finished()
    before = desk.stored[FIRST]
    ended_at = before.noticed_at + timedelta(seconds=60)
    desk.stored[FIRST] = before.model_copy(update={"node_is_empty": True, "ended_at": ended_at})
    desk.receive(state("terminated", "2026-11-20T09:47:30Z"))
    assert desk.cleaning.started == []
    desk.receive(state("terminated", "2026-11-20T11:47:30Z"))
    assert desk.cleaning.started == [(FIRST, "prod")], "it has lived on, and may have had pods"
    desk.claims.until.clear()
    undone = {"node_is_empty": True, "phase": Phase.UNDONE}
    desk.stored[FIRST] = before.model_copy(update=undone)
    desk.receive(state("terminated", "2026-11-20T11:47:31Z"))
    assert desk.cleaning.started == [(FIRST, "prod")] * 2
    assert not desk.stored[FIRST].node_is_empty, "another retirement has begun"


def test_hundreds_of_failures_are_told_in_some_lines() -> None:
    class Broken(Desk):
        def known(self, instance: str) -> InstanceState:
            raise CloudUnavailable(f"{instance}: the table does not answer")

    named = [{"entityValue": f"i-0{number:016x}"} for number in range(300)]
    with pytest.raises(NotAllInstancesReceived) as failed:
        Broken().receive({**health(affectedEntities=named), "resources": []})
    assert str(failed.value).endswith("; and 290 more")
    assert len(str(failed.value)) < 2000


def test_of_a_storm_that_ended_undrained_only_some_are_cleaned_up_after_at_once() -> None:
    desk = Desk(now_=AFTERWARDS)

    def end(number: int) -> str:
        told = state("terminated", f"{AFTERWARDS:%Y-%m-%dT%H:%M:%SZ}", id=f"n-{number}")
        told["detail"]["instance-id"] = f"i-0{number:016x}"
        (received,) = desk.receive(told).instances
        assert received.result is NoticeResult.STARTED
        return received.reason

    reasons = [end(number) for number in range(200)]
    assert len(desk.cleaning.started) == CLEANED_AT_ONCE
    put_off = [reason for reason in reasons if "many instances end just now" in reason]
    assert len(put_off) == 200 - CLEANED_AT_ONCE
    desk.now_ += FOR_EACH + timedelta(seconds=1)
    end(1000)
    assert len(desk.cleaning.started) == CLEANED_AT_ONCE + 1


class ThrottledLambda(CleanUps):
    """Lambda, when it takes no more."""

    def start(self, instance: str, cluster: str) -> None:
        raise CloudUnavailable("TooManyRequestsException")


class ThrottledTable(OfferingsInMemory):
    """The table, when one of its items is written by all of a storm."""

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        raise CloudUnavailable("ThrottlingException")


def test_what_a_notice_leads_to_besides_does_not_fail_it_and_is_said() -> None:
    desk = Desk(now_=AFTERWARDS, offerings=ThrottledTable(), cleaning=ThrottledLambda())
    (warned,) = desk.receive(warning("2026-11-20T12:00:00Z")).instances
    assert warned.result is NoticeResult.STARTED
    assert "not marked as unavailable: ThrottlingException" in warned.reason
    (ended,) = desk.receive(state("terminated", "2026-11-20T12:02:00Z")).instances
    assert "by the minute, and not at once: TooManyRequestsException" in ended.reason


def test_the_instances_of_a_notice_are_seen_to_by_many_hands_at_once() -> None:
    together = threading.Barrier(HANDS, timeout=20)

    class Slow(Desk):
        def known(self, instance: str) -> InstanceState:
            together.wait()
            return super().known(instance)

    named = [f"i-0{number:016x}" for number in range(2 * HANDS)]
    told = health(affectedEntities=[{"entityValue": one} for one in named])
    received = Slow().receive({**told, "resources": []}).instances
    assert [one.instance for one in received] == named
    assert {one.result for one in received} == {NoticeResult.SCHEDULED}


def test_what_a_strangers_instance_or_a_stopped_one_leaves_is_not() -> None:
    desk = Desk(owner=Owner(OwnerKind.KARPENTER, "default"))
    desk.receive(state("terminated", "2026-11-20T09:47:30Z"))
    own = Desk()
    own.receive(state("stopped", "2026-11-20T09:47:30Z"))
    assert desk.cleaning.started == own.cleaning.started == []


def test_a_hook_of_ekss_own_is_drained_for_and_left_for_eks_to_answer() -> None:
    takes = ClusterPolicy(retires_for=frozenset({OwnerKind.MANAGED_NODE_GROUP}))
    desk = Desk(owner=Owner(OwnerKind.MANAGED_NODE_GROUP, "ng"), policies=OnePolicy(takes))
    detail = {
        "EC2InstanceId": FIRST,
        "AutoScalingGroupName": "eks-ng-1",
        "LifecycleHookName": "Terminate-LC-Hook",
    }
    told = event(source="aws.autoscaling", detail=detail)
    told["detail-type"] = "EC2 Instance-terminate Lifecycle Action"
    assert desk.results(told) == [NoticeResult.STARTED]
    assert desk.stored[FIRST].hooks == ()


def test_a_launch_hook_of_ekss_own_is_left_for_eks_to_answer() -> None:
    takes = ClusterPolicy(retires_for=frozenset({OwnerKind.MANAGED_NODE_GROUP}))
    desk = Desk(owner=Owner(OwnerKind.MANAGED_NODE_GROUP, "ng"), policies=OnePolicy(takes))
    told = launching()
    told["detail"]["LifecycleHookName"] = "Launch-LC-Hook"
    assert desk.results(told) == [NoticeResult.IGNORED]
    assert desk.admissions.started == []
