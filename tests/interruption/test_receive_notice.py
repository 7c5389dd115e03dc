"""Notices and their outcomes: by policy, by owner, admissions, clean-ups, undo."""

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from leeway.catalog.unavailable import Offering
from leeway.execution.attempt import Phase
from leeway.execution.retrying import CONFLICT_TRIES
from leeway.instances.facts import Owner, OwnerKind
from leeway.interruption.receive_notice import (
    CLAIM_TIME,
    INSTANCE_CONCURRENCY,
    MAX_CLEAN_UPS,
    NotAllInstancesReceived,
    NoticeResult,
)
from leeway.notices import NoticeKind
from leeway.policy.rules import DEFAULTS, Action, ClusterPolicy, Policy
from leeway.ports.aws import CloudUnavailable
from leeway.retirement.record import RETIREMENT
from leeway.table import Key, RecordChanged

from tests.fakes.functions import CleanUps
from tests.fakes.offerings import OfferingsInMemory
from tests.fakes.policies import OnePolicy
from tests.interruption.receiving import (
    AFTERWARDS,
    FIRST,
    LEAD,
    SECOND,
    WEEKS_BEFORE,
    Receiver,
    ReceiverInTime,
    policy,
    state,
    warning,
)
from tests.notices.events import event, health
from tests.retirement.retirements import FACTS


@pytest.mark.parametrize(
    ("action", "result"),
    [(Action.IGNORE, NoticeResult.IGNORED), (Action.CORDON, NoticeResult.STARTED)],
)
def test_the_policy_sets_the_action_for_a_notice(action: Action, result: NoticeResult) -> None:
    changed = replace(DEFAULTS[NoticeKind.SPOT_INTERRUPTION], action=action)
    receiver = Receiver(policies=OnePolicy(policy(spot_interruption=changed)))
    assert receiver.results(warning("2026-11-20T09:45:00Z")) == [result]
    assert [record.action for record in receiver.stored.values()] == [action] * len(receiver.stored)


@pytest.mark.parametrize(
    "kind", [OwnerKind.MANAGED_NODE_GROUP, OwnerKind.AUTO_MODE, OwnerKind.KARPENTER]
)
def test_nodes_of_owners_that_drain_themselves_are_retired_only_if_the_policy_says_so(
    kind: OwnerKind,
) -> None:
    receiver = Receiver(owner=Owner(kind, "general"))
    assert receiver.results(warning("2026-11-20T09:45:00Z")) == [NoticeResult.LEFT_TO_OWNER]
    receiver.policies = OnePolicy(ClusterPolicy(retires_for=frozenset({kind})))
    assert receiver.results(warning("2026-11-20T09:45:00Z")) == [NoticeResult.STARTED]


@pytest.mark.parametrize("paused", [False, True])
def test_nodes_that_leeway_launched_are_retired_without_an_entry_in_the_policy(
    paused: bool,
) -> None:
    """Also those that have not joined yet."""
    receiver = Receiver(owner=Owner(OwnerKind.LEEWAY, "spot-general"))
    receiver.policies = OnePolicy(ClusterPolicy(paused=paused))
    assert receiver.results(warning("2026-11-20T09:45:00Z")) == [NoticeResult.STARTED]
    recommended = Receiver(owner=Owner(OwnerKind.LEEWAY, "spot-general"))
    assert recommended.results(recommendation("2026-11-20T09:45:00Z")) == [NoticeResult.STARTED]
    assert {one.facts.owner.kind for one in recommended.stored.values()} == {OwnerKind.LEEWAY}


def recommendation(time: str) -> dict[str, Any]:
    return warning(time) | {"detail-type": "EC2 Instance Rebalance Recommendation"}


@pytest.mark.parametrize("action", [Action.IGNORE, Action.CORDON])
def test_an_action_that_leeway_began_continues_after_a_policy_change(action: Action) -> None:
    changed = replace(DEFAULTS[NoticeKind.REBALANCE], action=action)
    receiver = Receiver(policies=OnePolicy(policy(rebalance=changed)))
    body = recommendation("2026-11-20T09:45:00Z")
    assert [one.result for one in receiver.receive(body, Action.RETIRE).instances] == [
        NoticeResult.STARTED
    ]
    assert receiver.stored[FIRST].action is Action.RETIRE


def test_a_new_attempt_uses_the_present_owner_of_the_instance() -> None:
    receiver = Receiver()
    receiver.receive(warning("2026-11-20T09:45:00Z"))
    receiver.finished()
    detached = Owner(OwnerKind.NONE)
    receiver.index[FIRST] = FACTS.model_copy(update={"instance": FIRST, "owner": detached})
    receiver.receive(warning("2026-11-20T10:45:00Z"))
    assert (receiver.stored[FIRST].attempt, receiver.stored[FIRST].facts.owner) == (2, detached)


def test_nodes_of_fargate_are_never_retired() -> None:
    policy_ = ClusterPolicy(retires_for=frozenset(OwnerKind))
    receiver = Receiver(owner=Owner(OwnerKind.FARGATE), policies=OnePolicy(policy_))
    assert receiver.results(warning("2026-11-20T09:45:00Z")) == [NoticeResult.LEFT_TO_OWNER]


def test_an_interrupted_offering_is_marked_unavailable_for_three_minutes() -> None:
    receiver = Receiver()
    receiver.receive(warning("2026-11-20T09:45:00Z"))
    offering = Offering("eu-west-1", "m5.large", "us-east-1a", "spot")
    reason, until = receiver.offerings.marked[offering]
    assert FIRST in reason
    assert until - receiver.now_ == timedelta(minutes=3)


def test_a_rebalance_recommendation_marks_no_offering_as_unavailable() -> None:
    receiver = Receiver()
    assert receiver.results(recommendation("2026-11-20T09:45:00Z")) == [NoticeResult.STARTED]
    assert receiver.offerings.marked == {}


def test_an_instance_that_starts_costs_one_read_of_the_table() -> None:
    receiver = Receiver()
    assert receiver.results(state("running", "2026-11-20T09:45:00Z")) == [NoticeResult.IGNORED]
    assert receiver.ec2_reads == []


@pytest.mark.parametrize("action", ["stop", "hibernate"])
def test_an_instance_that_was_stopped_and_runs_again_is_released_and_can_be_retired_again(
    action: str,
) -> None:
    receiver = ReceiverInTime()
    receiver.receive(warning("2026-11-20T09:45:00Z", action))
    receiver.finished()
    assert receiver.results(state("stopped", "2026-11-20T09:47:00Z")) == [NoticeResult.KNOWN]
    assert receiver.results(state("running", "2026-11-20T11:00:00Z")) == [NoticeResult.UNDOING]
    record = receiver.stored[FIRST]
    undone = {"phase": Phase.UNDONE, "version": record.version + 1}
    receiver.table.put(RETIREMENT, record.model_copy(update=undone))
    assert receiver.results(state("running", "2026-11-20T11:00:00Z")) == [NoticeResult.IGNORED]
    assert receiver.results(warning("2026-11-20T12:00:00Z", action)) == [NoticeResult.STARTED]
    assert receiver.stored[FIRST].attempt == 3
    assert receiver.stored[FIRST].replacement_intent is None


def test_a_stop_is_undone_when_the_instance_runs_again_during_the_drain() -> None:
    receiver = ReceiverInTime()
    receiver.receive(state("stopping", "2026-11-20T09:45:00Z"))
    assert receiver.results(state("running", "2026-11-20T09:46:00Z")) == [NoticeResult.UNDOING]


def test_an_old_running_event_undoes_nothing() -> None:
    receiver = ReceiverInTime()
    receiver.receive(warning("2026-11-20T09:45:00Z", "stop"))
    assert receiver.results(state("running", "2026-11-20T09:40:00Z")) == [NoticeResult.IGNORED]
    assert receiver.stored[FIRST].phase is Phase.NOTICED


def test_a_running_event_in_the_second_of_an_interruption_does_not_undo_it() -> None:
    receiver = ReceiverInTime()
    receiver.receive(warning("2026-11-20T09:45:00Z", "stop"))
    receiver.finished()
    assert receiver.results(warning("2026-11-20T11:00:00Z", "stop")) == [NoticeResult.STARTED]
    assert receiver.results(state("running", "2026-11-20T11:00:00Z")) == [NoticeResult.IGNORED]
    assert receiver.stored[FIRST].phase is Phase.NOTICED


def test_a_running_event_does_not_undo_an_interruption_that_terminates() -> None:
    receiver = ReceiverInTime()
    receiver.receive(warning("2026-11-20T09:45:00Z"))
    assert receiver.results(state("running", "2026-11-20T09:45:30Z")) == [NoticeResult.IGNORED]


def test_an_undo_whose_start_was_lost_is_started_again() -> None:
    receiver = ReceiverInTime()
    receiver.receive(warning("2026-11-20T09:45:00Z", "stop"))
    for _ in range(2):
        assert receiver.results(state("running", "2026-11-20T11:00:00Z")) == [NoticeResult.UNDOING]
    assert receiver.started == [f"{FIRST}-1", f"{FIRST}-2", f"{FIRST}-2"]


def test_one_instance_that_fails_does_not_block_the_others() -> None:
    receiver = Receiver(now_=LEAD, unreadable=FIRST)
    with pytest.raises(NotAllInstancesReceived, match="does not answer") as raised:
        receiver.receive(health())
    assert [one.instance for one in raised.value.receipt.instances] == [SECOND]
    assert receiver.started == [f"{SECOND}-1"]


def launching(id: str = "launch-1", time: str = "2026-11-20T09:45:00Z") -> dict[str, Any]:  # noqa: A002
    detail = {
        "EC2InstanceId": FIRST,
        "AutoScalingGroupName": "ng",
        "LifecycleHookName": "leeway-admit",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
    }
    body = event(detail=detail, time=time, id=id, source="aws.autoscaling")
    return body | {"detail-type": "EC2 Instance-launch Lifecycle Action"}


def test_an_instance_that_waits_for_a_launch_hook_is_admitted_once() -> None:
    receiver = Receiver()
    assert receiver.results(launching()) == [NoticeResult.STARTED]
    assert receiver.results(launching()) == [NoticeResult.STARTED], (
        "the first start may have been lost"
    )
    assert receiver.results(launching(id="launch-2")) == [NoticeResult.STARTED]
    assert set(receiver.admissions.started) == {(FIRST, "prod", 1)}
    assert receiver.started == []
    assert receiver.admission_records[FIRST].deadline == WEEKS_BEFORE.replace(second=0) + timedelta(
        minutes=15
    )


@pytest.mark.parametrize("destination", ["AutoScalingGroup", "WarmPool"])
def test_an_instance_that_returns_to_service_without_a_stop_is_uncordoned(destination: str) -> None:
    receiver = Receiver()
    hook = launching(time="2026-11-20T09:45:00Z")
    receiver.receive(hook | {"detail-type": "EC2 Instance-terminate Lifecycle Action", "id": "e-1"})
    drained = {"phase": Phase.FINISHED, "version": 2}
    receiver.stored[FIRST] = receiver.stored[FIRST].model_copy(update=drained)
    returns = launching(time="2026-11-20T09:50:00Z")
    returns["detail"] |= {"Destination": destination}
    assert receiver.results(returns) == [NoticeResult.STARTED]
    undone = destination == "AutoScalingGroup"
    assert receiver.stored[FIRST].phase is (Phase.UNDOING if undone else Phase.FINISHED)
    assert receiver.started == [f"{FIRST}-1", *([f"{FIRST}-2"] if undone else [])]
    assert set(receiver.admissions.started) == {(FIRST, "prod", 1)}


def test_a_launch_hook_is_not_answered_if_the_policy_ignores_it_or_in_dry_run_mode() -> None:
    ignored = Receiver(policies=OnePolicy(policy(launch_hook=Policy(Action.IGNORE))))
    assert ignored.results(launching()) == [NoticeResult.IGNORED]
    dry_run = Receiver(policies=OnePolicy(ClusterPolicy(dry_run=True)))
    assert dry_run.results(launching()) == [NoticeResult.IGNORED]
    assert ignored.admissions.started == dry_run.admissions.started == []
    assert ignored.admission_records == dry_run.admission_records == {}


def test_the_policy_sets_the_deadline_of_an_admission() -> None:
    slow = Policy(Action.ADMIT, timedelta(hours=1))
    receiver = Receiver(policies=OnePolicy(policy(launch_hook=slow)))
    receiver.receive(launching())
    admission = receiver.admission_records[FIRST]
    assert admission.deadline - admission.noticed_at == timedelta(hours=1)


def test_a_policy_without_a_deadline_starts_no_admission_and_says_why() -> None:
    receiver = Receiver(policies=OnePolicy(policy(launch_hook=Policy(Action.ADMIT))))
    (outcome,) = receiver.receive(launching()).instances
    assert outcome.result is NoticeResult.IGNORED
    assert outcome.reason.code == "AdmissionNeedsDeadline"
    assert receiver.admission_records == {}


def test_a_terminated_instance_is_cleaned_up_after_its_retirement_too() -> None:
    receiver = Receiver()
    receiver.receive(warning("2026-11-20T09:45:00Z"))
    receiver.finished()
    receiver.receive(state("shutting-down", "2026-11-20T09:47:00Z"))
    assert receiver.clean_ups.started == []
    assert receiver.results(state("terminated", "2026-11-20T09:47:30Z")) == [NoticeResult.KNOWN]
    assert receiver.clean_ups.started == [(FIRST, "prod")]
    assert receiver.started == [f"{FIRST}-1"], "no second retirement starts"


def test_an_empty_node_starts_no_clean_up_unless_the_instance_kept_running() -> None:
    receiver = ReceiverInTime()
    receiver.receive(warning("2026-11-20T09:45:00Z"))
    receiver.finished()
    before = receiver.stored[FIRST]
    ended_at = before.noticed_at + timedelta(seconds=60)
    receiver.stored[FIRST] = before.model_copy(update={"node_is_empty": True, "ended_at": ended_at})
    receiver.receive(state("terminated", "2026-11-20T09:47:30Z"))
    assert receiver.clean_ups.started == []
    receiver.receive(state("terminated", "2026-11-20T11:47:30Z"))
    assert receiver.clean_ups.started == [(FIRST, "prod")], "it may have had pods since"
    receiver.table.items.clear()
    undone = {"node_is_empty": True, "phase": Phase.UNDONE}
    receiver.stored[FIRST] = before.model_copy(update=undone)
    receiver.receive(state("terminated", "2026-11-20T11:47:31Z"))
    assert receiver.clean_ups.started == [(FIRST, "prod")] * 2
    assert not receiver.stored[FIRST].node_is_empty, "a new attempt has begun"


def test_an_error_contains_ten_of_hundreds_of_failures() -> None:
    named = [{"entityValue": f"i-0{number:016x}"} for number in range(300)]
    with pytest.raises(NotAllInstancesReceived) as failed:
        Receiver(unreadable="i-").receive({**health(affectedEntities=named), "resources": []})
    assert str(failed.value).endswith("; and 290 more")
    assert len(str(failed.value)) < 2000


def test_only_some_clean_ups_start_when_many_instances_terminate() -> None:
    receiver = Receiver(now_=AFTERWARDS)

    def end(number: int) -> str:
        body = state("terminated", f"{AFTERWARDS:%Y-%m-%dT%H:%M:%SZ}", id=f"n-{number}")
        body["detail"]["instance-id"] = f"i-0{number:016x}"
        (received,) = receiver.receive(body).instances
        assert received.result is NoticeResult.STARTED
        return received.reason.message

    reasons = [end(number) for number in range(200)]
    assert len(receiver.clean_ups.started) == MAX_CLEAN_UPS
    delayed = [reason for reason in reasons if "many instances terminate" in reason]
    assert len(delayed) == 200 - MAX_CLEAN_UPS
    receiver.now_ += CLAIM_TIME + timedelta(seconds=1)
    end(1000)
    assert len(receiver.clean_ups.started) == MAX_CLEAN_UPS + 1


class ThrottledLambda(CleanUps):
    """Lambda throttles."""

    def start(self, instance: str, cluster: str) -> None:
        raise CloudUnavailable("TooManyRequestsException")


class ThrottledTable(OfferingsInMemory):
    """The table throttles writes of one item."""

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        raise CloudUnavailable("ThrottlingException")


def test_a_failed_side_effect_is_reported_and_does_not_fail_the_notice() -> None:
    receiver = Receiver(now_=AFTERWARDS, offerings=ThrottledTable(), clean_ups=ThrottledLambda())
    (warned,) = receiver.receive(warning("2026-11-20T12:00:00Z")).instances
    assert warned.result is NoticeResult.STARTED
    assert "not marked as unavailable: ThrottlingException" in warned.reason.message
    (ended,) = receiver.receive(state("terminated", "2026-11-20T12:02:00Z")).instances
    assert "cleans up after the instance: TooManyRequestsException" in ended.reason.message


def test_the_instances_of_a_notice_are_handled_concurrently() -> None:
    barrier = threading.Barrier(INSTANCE_CONCURRENCY, timeout=60)

    receiver = Receiver()

    def slow(operation: str, key: Key) -> None:
        if key[0].startswith("RETIREMENT#") and operation == "get":
            barrier.wait()

    receiver.table.before = slow
    named = [f"i-0{number:016x}" for number in range(2 * INSTANCE_CONCURRENCY)]
    body = health(affectedEntities=[{"entityValue": one} for one in named])
    received = receiver.receive({**body, "resources": []}).instances
    assert [one.instance for one in received] == named
    assert {one.result for one in received} == {NoticeResult.SCHEDULED}


def test_no_clean_up_starts_for_a_foreign_or_a_stopped_instance() -> None:
    receiver = Receiver(owner=Owner(OwnerKind.KARPENTER, "default"))
    receiver.receive(state("terminated", "2026-11-20T09:47:30Z"))
    own = Receiver()
    own.receive(state("stopped", "2026-11-20T09:47:30Z"))
    assert receiver.clean_ups.started == own.clean_ups.started == []


def test_a_terminate_hook_of_eks_starts_a_drain_and_is_not_answered() -> None:
    policy_ = ClusterPolicy(retires_for=frozenset({OwnerKind.MANAGED_NODE_GROUP}))
    receiver = Receiver(
        owner=Owner(OwnerKind.MANAGED_NODE_GROUP, "ng"), policies=OnePolicy(policy_)
    )
    detail = {
        "EC2InstanceId": FIRST,
        "AutoScalingGroupName": "eks-ng-1",
        "LifecycleHookName": "Terminate-LC-Hook",
    }
    body = event(source="aws.autoscaling", detail=detail)
    body["detail-type"] = "EC2 Instance-terminate Lifecycle Action"
    assert receiver.results(body) == [NoticeResult.STARTED]
    assert receiver.stored[FIRST].hooks == ()


def test_a_launch_hook_of_eks_is_ignored() -> None:
    policy_ = ClusterPolicy(retires_for=frozenset({OwnerKind.MANAGED_NODE_GROUP}))
    receiver = Receiver(
        owner=Owner(OwnerKind.MANAGED_NODE_GROUP, "ng"), policies=OnePolicy(policy_)
    )
    body = launching()
    body["detail"]["LifecycleHookName"] = "Launch-LC-Hook"
    assert receiver.results(body) == [NoticeResult.IGNORED]
    assert receiver.admissions.started == []


def with_conflicts(conflicts: int) -> Receiver:
    """Other functions write the record before each of the first writes."""
    receiver, writes = Receiver(), count(1)

    def change(operation: str, key: Key) -> None:
        if operation == "put" and next(writes) <= conflicts:
            raise RecordChanged(key[0])

    receiver.table.before = change
    return receiver


def test_a_notice_is_applied_again_after_a_write_conflict() -> None:
    receiver = with_conflicts(CONFLICT_TRIES - 1)
    assert receiver.results(warning("2026-11-20T09:45:00Z")) == [NoticeResult.STARTED]
    assert receiver.started == [f"{FIRST}-1"]
    receiver = with_conflicts(CONFLICT_TRIES)
    with pytest.raises(NotAllInstancesReceived, match=f"the record of {FIRST} was changed"):
        receiver.receive(warning("2026-11-20T09:45:00Z"))
    assert receiver.started == []
