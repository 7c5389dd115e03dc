"""The boto3 adapters and ReceiveNotice, against the sandbox."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.functions import LambdaExecutions, RateLimit
from leeway.instances.facts import Owner, OwnerKind
from leeway.interruption.receive_notice import NotAllInstancesReceived, NoticeResult
from leeway.ports.aws import (
    CloudUnavailable,
)

from tests.aws.receive_notice import TAGS, client_factory, interruption, launch, receive_notice
from tests.fakes.functions import Starts
from tests.notices.events import EVENTS, event
from tests.sandbox.aws.started import Sandbox


def test_an_instance_is_read_with_its_cluster_and_owner(aws: Sandbox) -> None:
    instances = Ec2Instances(client_factory(aws, "ec2"))
    found = instances.describe(launch(aws, TAGS))
    assert found is not None
    assert (found.cluster, found.owner) == ("prod", Owner(OwnerKind.NONE))
    assert not found.joined
    assert found.private_dns_name.startswith("ip-")
    assert instances.describe(launch(aws, {"Name": "lonely"})) is None
    assert instances.describe("i-0ffffffffffffffff") is None


def test_an_instance_with_the_tag_of_eks_has_joined(aws: Sandbox) -> None:
    instances = Ec2Instances(client_factory(aws, "ec2"))
    plain = instances.describe(launch(aws, {"eks:cluster-name": "prod"}))
    by_eks = instances.describe(launch(aws, {"aws:eks:cluster-name": "prod"}))
    assert plain is not None
    assert by_eks is not None
    assert (plain.joined, by_eks.joined) == (False, True)


def test_terminating_an_unknown_instance_is_not_an_error(aws: Sandbox) -> None:
    def calls() -> int:
        return int(aws.control("GET", "status")["calls"].get("ec2:TerminateInstances", 0))

    before = calls()
    Ec2Instances(client_factory(aws, "ec2")).terminate("i-0ffffffffffffffff")
    assert calls() == before + 1


def test_the_current_state_of_an_instance_is_read(aws: Sandbox) -> None:
    instances = Ec2Instances(client_factory(aws, "ec2"))
    instance = launch(aws, TAGS)
    now = instances.current_instance(instance)
    assert now is not None
    assert now.state in {"pending", "running"}
    assert not now.interrupted
    assert datetime.now(UTC) - now.launched_at < timedelta(minutes=1)
    aws.client("ec2").stop_instances(InstanceIds=[instance])
    stopped = instances.current_instance(instance)
    assert stopped is not None
    assert stopped.state in {"stopping", "stopped"}
    assert instances.current_instance("i-0123456789abcdef0") is None


class RecordsInvocations:
    """A fake of Lambda that records invocations."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def invoke(self, **parameters: Any) -> None:
        self.names.append(parameters["DurableExecutionName"])


class SteppingClock:
    """A clock that does not advance and records sleeps."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def test_executions_of_two_tables_never_share_a_name() -> None:
    invocations = RecordsInvocations()
    for table in ("leeway-Table-1AAA", "leeway-Table-1BBB"):
        rate_limit = RateLimit(SteppingClock())
        executions = LambdaExecutions(lambda: invocations, "arn", "retire", table, rate_limit)
        executions.start("i-0b662ef9931388ba0", "prod", 1)
        executions.start("i-0b662ef9931388ba0", "prod", 1)
    assert invocations.names[0] == invocations.names[1]
    assert len(set(invocations.names)) == 2
    assert all(
        re.fullmatch(r"retire-i-0b662ef9931388ba0-1-[0-9a-f]{8}", n) for n in invocations.names
    )
    assert all(len(name) <= 64 for name in invocations.names)


def test_starts_are_rate_limited_and_the_first_does_not_wait() -> None:
    clock = SteppingClock()
    rate_limit = RateLimit(clock, per_second=100)
    for _ in range(101):
        rate_limit.wait()
    assert len(clock.slept) == 100
    assert clock.slept[0] == pytest.approx(0.01)
    assert clock.slept[-1] == pytest.approx(1)


def test_the_next_delivery_starts_a_retirement_that_was_only_recorded(
    aws: Sandbox,
) -> None:
    instance = launch(aws, TAGS)
    starts = Starts(failures=1)
    with pytest.raises(NotAllInstancesReceived):
        receive_notice(aws, starts).receive(interruption(instance))
    receipt = receive_notice(aws, starts).receive(interruption(instance))
    assert [one.result for one in receipt.instances] == [NoticeResult.STARTED]
    assert starts.started == [(instance, "prod", 1)]


def test_a_write_with_a_lost_answer_is_not_repeated(aws: Sandbox) -> None:
    instance = launch(aws, TAGS)
    lost = {"service": "dynamodb", "action": "PutItem", "when": "after", "count": 1}
    fault = lost | {"error": "InternalServerError", "status": 500}
    aws.control("PUT", "faults", {"faults": [fault]})
    starts = Starts()
    with pytest.raises(NotAllInstancesReceived):
        receive_notice(aws, starts).receive(interruption(instance))
    receipt = receive_notice(aws, starts).receive(interruption(instance))
    assert [one.attempt for one in receipt.instances] == [1]
    assert starts.started == [(instance, "prod", 1)]


def test_one_instance_that_fails_does_not_stop_the_others_of_its_notice(aws: Sandbox) -> None:
    first, second = launch(aws, TAGS), launch(aws, TAGS)
    soon = (datetime.now(UTC) + timedelta(minutes=2)).isoformat()
    body = event(
        resources=[f"arn:aws:ec2:us-east-1:123456789012:instance/{second}"],
        detail={"instance-id": first, "instance-termination-time": soon},
    )
    body["detail-type"] = "EC2 Capacity Reservation Instance Interruption Warning"

    class FailsFirst(Starts):
        def start(self, instance: str, cluster: str, attempt: int) -> None:
            if instance == first:
                raise CloudUnavailable("Lambda does not answer")
            super().start(instance, cluster, attempt)

    starts = FailsFirst()
    with pytest.raises(NotAllInstancesReceived) as failed:
        receive_notice(aws, starts).receive(body)
    assert [instance for instance, *_ in starts.started] == [second]
    assert [one.instance for one in failed.value.receipt.instances] == [second]


def test_instances_of_no_cluster_of_ours_are_listed_and_not_changed(aws: Sandbox) -> None:
    for tags in ({"kubernetes.io/cluster/stranger": "owned"}, {"Name": "no-node"}):
        starts = Starts()
        receipt = receive_notice(aws, starts).receive(interruption(launch(aws, tags)))
        assert [one.result for one in receipt.instances] == [NoticeResult.NOT_OURS], tags
        assert receipt.instances[0].reason
        assert starts.started == []


def test_a_notice_without_an_action_has_a_reason(aws: Sandbox) -> None:
    greeting = json.loads((EVENTS / "lifecycle-test-notification.json").read_text())
    receipt = receive_notice(aws, Starts()).receive({**greeting, "region": "eu-west-1"})
    assert [one.result for one in receipt.instances] == [NoticeResult.IGNORED]
    assert json.dumps(receipt.to_dict())
