"""What retirements agree on by the table, groups that are raised, and schedules, on the sandbox."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from leeway.clock import SystemClock
from leeway.cloud.autoscaling import AutoScalingGroups
from leeway.cloud.ledgers import DynamoLedgers
from leeway.cloud.memory import DynamoMemory
from leeway.cloud.ports import CloudRefused, GroupGone
from leeway.cloud.scheduler import EventBridgeSchedules, ScheduleTarget
from leeway.cloud.stores import Offering, RecordChanged
from leeway.cloud.unavailable import DynamoUnavailableOfferings
from leeway.policies import ChurnCap
from leeway.records.surges import SurgeLedger
from leeway.records.turns import ChurnLedger
from leeway.retirement.recollection import KnownGroups, Recollection

from tests.cloud.stored import TABLE
from tests.sandbox.aws.started import Sandbox, hook

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def maker(aws: Sandbox, service: str) -> Callable[[], Any]:
    return partial(aws.client, service)


@pytest.fixture
def ledgers(aws: Sandbox) -> DynamoLedgers:
    return DynamoLedgers(maker(aws, "dynamodb"), TABLE)


def test_of_two_that_take_a_turn_at_once_one_learns_that_it_must_look_again(
    ledgers: DynamoLedgers,
) -> None:
    read = ledgers.churn("two-at-once")
    for instance, loses in (("i-a", False), ("i-b", True)):
        taken, _ = read.take(instance, 10, ChurnCap(), NOW)
        assert taken is not None
        if loses:
            with pytest.raises(RecordChanged):
                ledgers.write(taken)
        else:
            ledgers.write(taken)
    assert list(ledgers.churn("two-at-once").turns) == ["i-a"]


def test_ledgers_are_read_as_they_were_written(ledgers: DynamoLedgers) -> None:
    assert ledgers.surge("fresh") == SurgeLedger(group="fresh")
    assert ledgers.churn("fresh") == ChurnLedger(cluster="fresh")
    ledger = ledgers.surge("fresh").next_for("i-a", 3, 9, NOW).ledger
    assert ledger is not None
    ledgers.write(ledger)
    assert ledgers.surge("fresh") == ledger


def test_an_unavailable_offering_is_an_item_that_expires(aws: Sandbox) -> None:
    until = datetime.now(UTC) + timedelta(minutes=3)
    offerings = DynamoUnavailableOfferings(maker(aws, "dynamodb"), TABLE)
    offerings.mark(Offering("us-east-1", "m5.large", "us-east-1a", "spot"), "interrupted", until)
    key = {"pk": {"S": "OFFERINGS#us-east-1"}, "sk": {"S": "UNAVAILABLE#spot#m5.large#us-east-1a"}}
    item = aws.client("dynamodb").get_item(TableName=TABLE, Key=key)["Item"]
    assert item["reason"] == {"S": "interrupted"}
    assert item["expires"] == {"N": str(int(until.timestamp()))}


def test_a_storm_writes_an_offering_once_in_a_while_and_not_for_every_instance(
    aws: Sandbox,
) -> None:
    offering = Offering("eu-west-1", "m5.large", "eu-west-1a", "spot")
    offerings = DynamoUnavailableOfferings(maker(aws, "dynamodb"), TABLE)
    key = {"pk": {"S": "OFFERINGS#eu-west-1"}, "sk": {"S": "UNAVAILABLE#spot#m5.large#eu-west-1a"}}
    first = datetime.now(UTC) + timedelta(minutes=3)
    kept = []
    for after in (0, 1, 29, 30):
        offerings.mark(offering, f"interrupted {after}", first + timedelta(seconds=after))
        item = aws.client("dynamodb").get_item(TableName=TABLE, Key=key)["Item"]
        kept.append(item["reason"]["S"])
    assert kept == ["interrupted 0"] * 3 + ["interrupted 30"]


def test_an_offering_that_another_function_has_just_marked_is_not_written_again(
    aws: Sandbox,
) -> None:
    def writes() -> int:
        return int(aws.control("GET", "status")["calls"]["dynamodb:PutItem"])

    offering = Offering("eu-north-1", "m5.large", "eu-north-1a", "spot")
    until = datetime.now(UTC) + timedelta(minutes=3)
    functions = [DynamoUnavailableOfferings(maker(aws, "dynamodb"), TABLE) for _ in range(10)]
    functions[0].mark(offering, "interrupted", until)
    before = writes()
    for function in functions[1:]:
        function.mark(offering, "interrupted", until + timedelta(seconds=5))
    assert writes() == before
    functions[9].mark(offering, "interrupted", until + timedelta(seconds=40))
    assert writes() == before + 1


def test_a_group_is_raised_by_one_and_ends_an_instance_with_a_decrement(aws: Sandbox) -> None:
    first, *_ = aws.group("surging", 2, MaxSize=3, LifecycleHookSpecificationList=[hook("drain")])
    groups = AutoScalingGroups(maker(aws, "autoscaling"))
    before = groups.capacity("surging")
    assert (before.minimum, before.desired, before.maximum) == (0, 2, 3)
    assert len(before.members) == 2
    groups.set_desired("surging", 3)
    came = set(groups.capacity("surging").members) - set(before.members)
    assert len(came) == 1
    aws.client("autoscaling").suspend_processes(
        AutoScalingGroupName="surging", ScalingProcesses=["Launch"]
    )
    assert groups.capacity("surging").missing == 0
    groups.terminate_in_group(came.pop())
    assert groups.capacity("surging").missing == 1, "it has one to start"
    groups.terminate_in_group(first, decrement=True)
    after = groups.capacity("surging")
    assert after.desired == 2
    assert first not in after.members, "what is on its way out counts no more"
    with pytest.raises(CloudRefused):
        groups.set_desired("surging", 4)


class Weighing:
    """What Auto Scaling says of a group whose types weigh, after its API reference."""

    def describe_auto_scaling_groups(self, **_: Any) -> dict[str, Any]:
        member = {"LifecycleState": "InService", "WeightedCapacity": "4"}
        members = [{"InstanceId": f"i-{number}", **member} for number in range(10)]
        sizes = {"DesiredCapacity": 46, "MaxSize": 60, "MinSize": 0}
        return {"AutoScalingGroups": [{**sizes, "Instances": members}]}


def test_of_a_group_that_counts_units_it_is_known_how_many_instances_are_missing() -> None:
    assert AutoScalingGroups(Weighing).capacity("weighing").missing == 2, "6 units, 4 each"


def test_a_group_that_is_not_there_is_said_to_be_none(aws: Sandbox) -> None:
    with pytest.raises(GroupGone, match="there is no group never-was"):
        AutoScalingGroups(maker(aws, "autoscaling")).capacity("never-was")


def test_an_instances_group_says_how_far_it_may_grow(aws: Sandbox) -> None:
    (member,) = aws.group("growing", 1, MaxSize=4)
    facts = AutoScalingGroups(maker(aws, "autoscaling")).facts(member)
    assert facts is not None
    assert (facts.desired, facts.maximum, facts.protected) == (1, 4, False)
    assert facts.zones >= 1


TARGET = ScheduleTarget(
    group="notices",
    role="arn:aws:iam::123456789012:role/leeway-schedules",
    function="arn:aws:lambda:us-east-1:123456789012:function:receive",
    failures="arn:aws:sqs:us-east-1:123456789012:failures",
)


def test_a_schedule_is_made_once_moved_and_removed(aws: Sandbox) -> None:
    client = aws.client("scheduler")
    client.create_schedule_group(Name="notices")
    schedules = EventBridgeSchedules(maker(aws, "scheduler"), TARGET)
    at = datetime(2027, 12, 3, 22, 0, tzinfo=UTC)
    for when in (at, at, at + timedelta(days=1)):
        schedules.put("i-a-1", when, {"id": "e-1"})
    assert [s["Name"] for s in client.list_schedules(GroupName="notices")["Schedules"]] == ["i-a-1"]
    found = client.get_schedule(Name="i-a-1", GroupName="notices")
    assert found["ScheduleExpression"] == "at(2027-12-04T22:00:00)"
    assert found["ActionAfterCompletion"] == "DELETE"
    assert json.loads(found["Target"]["Input"]) == {"id": "e-1"}
    assert found["Target"]["DeadLetterConfig"] == {"Arn": TARGET.failures}
    for _ in range(2):
        schedules.remove("i-a-1")
    assert client.list_schedules(GroupName="notices")["Schedules"] == []


def test_what_is_remembered_of_a_group_is_its_rules_as_they_were_read(aws: Sandbox) -> None:
    aws.group("remembered", 1, LifecycleHookSpecificationList=[hook("leeway-drain")])
    rules = AutoScalingGroups(maker(aws, "autoscaling")).rules("remembered")
    assert rules.terminate_hooks == ("leeway-drain",)
    assert rules.timeouts["leeway-drain"] >= 30
    memory = DynamoMemory(maker(aws, "dynamodb"), TABLE)
    assert memory.recall("group/remembered") is None
    groups = AutoScalingGroups(maker(aws, "autoscaling"))
    before = aws.control("GET", "status")["calls"]["autoscaling:DescribeLifecycleHooks"]
    for _ in range(2):
        known = KnownGroups(groups, Recollection(memory, SystemClock()))
        assert known.rules_of("remembered") == rules
    after = aws.control("GET", "status")["calls"]["autoscaling:DescribeLifecycleHooks"]
    assert after == before + 1


def test_of_those_who_would_ask_about_a_group_at_once_one_does(aws: Sandbox) -> None:
    memory = DynamoMemory(maker(aws, "dynamodb"), TABLE)
    now = datetime.now(UTC)
    until = now + timedelta(seconds=2)
    assert memory.claim("asked-about", now, until)
    assert not memory.claim("asked-about", now + timedelta(seconds=1), until)
    assert memory.claim("asked-about", until + timedelta(milliseconds=1), until)


def test_a_group_without_rules_is_not_there(aws: Sandbox) -> None:
    with pytest.raises(CloudRefused, match="there is no group never-was"):
        AutoScalingGroups(maker(aws, "autoscaling")).rules("never-was")
