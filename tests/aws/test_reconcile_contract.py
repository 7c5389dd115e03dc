"""The ports of reconcile, schedules and Leeway events: fakes and adapters keep one contract."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import pytest
from leeway.aws.ec2 import Ec2Sweep
from leeway.aws.eventbridge import EventBridgeLeewayEvents, EventBridgeSchedules, ScheduleTarget
from leeway.ports.aws import CloudRefused, LeewayEvents, Sweep
from leeway.ports.functions import Schedules

from tests.aws.receive_notice import client_factory, launch
from tests.fakes.reports import EventBusInMemory
from tests.fakes.schedules import SchedulesInMemory
from tests.reconciliation.account import Account, facts, observed
from tests.sandbox.aws.started import Sandbox

BOTH = pytest.mark.parametrize("fake", [True, False], ids=["fake", "adapter"])
UNKNOWN = "i-0ffffffffffffffff"
"""An id of no instance."""


@dataclass(frozen=True)
class Swept:
    """A sweep, and an instance of each of two clusters."""

    port: Sweep
    ours: str
    theirs: str


def swept(aws: Sandbox, fake: bool) -> Swept:
    if fake:
        ours, theirs = facts(1, "contract-a"), facts(2, "contract-b")
        return Swept(
            Account(instances_=[observed(ours), observed(theirs)]), ours.instance, theirs.instance
        )
    launched = [launch(aws, {"eks:cluster-name": name}) for name in ("contract-a", "contract-b")]
    return Swept(Ec2Sweep(client_factory(aws, "ec2")), *launched)


@BOTH
def test_a_sweep_lists_the_instances_of_the_clusters_only(aws: Sandbox, fake: bool) -> None:
    case = swept(aws, fake)
    names = {one.facts.instance for one in case.port.instances(["contract-a"])}
    assert case.ours in names
    assert case.theirs not in names
    assert case.port.instances([]) == []


@BOTH
def test_a_sweep_finds_instances_by_name_and_state(aws: Sandbox, fake: bool) -> None:
    case = swept(aws, fake)
    found = {one.facts.instance: one for one in case.port.instances(["contract-a", "contract-b"])}
    ours, nobodys = found[case.ours].facts, "ip-192-0-2-1.ec2.internal"
    assert [one.facts for one in case.port.named([ours.private_dns_name, nobodys])] == [ours]
    assert case.port.named([nobodys]) == case.port.named([]) == []
    states = case.port.states([case.ours, UNKNOWN])
    assert states[case.ours] in {"pending", "running"}
    assert states[UNKNOWN] == "terminated"


@BOTH
def test_a_schedule_of_one_name_is_replaced_and_removed_twice(aws: Sandbox, fake: bool) -> None:
    group = "contract"
    client = aws.client("scheduler")
    target = ScheduleTarget(
        group=group,
        role="arn:aws:iam::123456789012:role/leeway-schedules",
        function="arn:aws:lambda:us-east-1:123456789012:function:receive",
        failures="arn:aws:sqs:us-east-1:123456789012:failures",
    )
    memory = SchedulesInMemory()
    port: Schedules = memory if fake else EventBridgeSchedules(lambda: client, target)
    if not fake:
        client.create_schedule_group(Name=group)

    def due() -> dict[str, str]:
        if fake:
            return {name: f"{at:%Y-%m-%dT%H:%M}" for name, (at, _) in memory.due.items()}
        listed = client.list_schedules(GroupName=group)["Schedules"]
        found = [client.get_schedule(GroupName=group, Name=one["Name"]) for one in listed]
        return {one["Name"]: one["ScheduleExpression"][3:19] for one in found}

    port.put("i-1-change", datetime(2030, 1, 1, 9, tzinfo=UTC), {"id": "n-1"})
    port.put("i-1-change", datetime(2030, 1, 1, 10, tzinfo=UTC), {"id": "n-2"})
    assert due() == {"i-1-change": "2030-01-01T10:00"}
    if not fake:
        stored = client.get_schedule(GroupName=group, Name="i-1-change")
        assert stored["ActionAfterCompletion"] == "DELETE"
        assert json.loads(stored["Target"]["Input"]) == {"id": "n-2"}
        assert stored["Target"]["DeadLetterConfig"] == {"Arn": target.failures}
    port.remove("i-1-change")
    port.remove("i-1-change")
    assert due() == {}


@BOTH
def test_a_leeway_event_is_published_or_refused(aws: Sandbox, fake: bool) -> None:
    memory = EventBusInMemory()
    port: LeewayEvents = memory if fake else EventBridgeLeewayEvents(partial(aws.client, "events"))
    port.publish("Leeway Node Retired", json.dumps({"instance": "i-1"}))
    if not fake:
        (put,) = aws.journal("put-events", source="leeway")
        assert put["detail"] == {"instance": "i-1"}
    memory.refuses = True
    denied = {"service": "events", "action": "PutEvents", "status": 400}
    aws.control("PUT", "faults", {"faults": [{**denied, "error": "AccessDeniedException"}]})
    with pytest.raises(CloudRefused):
        port.publish("Leeway Node Retired", json.dumps({"instance": "i-1"}))
