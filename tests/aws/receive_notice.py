"""ReceiveNotice with the AWS adapters, and instances and notices for it."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from leeway.aws.ec2 import Ec2Instances
from leeway.clock import SystemClock
from leeway.interruption.receive_notice import ReceiveNotice
from leeway.policy.rules import ClusterPolicy

from tests.aws.stored import table_in
from tests.fakes.functions import CleanUps, Starts
from tests.fakes.offerings import OfferingsInMemory
from tests.fakes.policies import OnePolicy
from tests.fakes.schedules import SchedulesInMemory
from tests.notices.events import HERE, event
from tests.sandbox.aws.started import Sandbox

TAGS = {"kubernetes.io/cluster/prod": "owned"}


def client_factory(aws: Sandbox, service: str) -> Callable[[], Any]:
    return partial(aws.client, service)


def launch(aws: Sandbox, tags: dict[str, str]) -> str:
    """Launch an instance with these tags."""
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    launched = aws.client("ec2").run_instances(
        ImageId="ami-12345678",
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": pairs}],
    )
    return str(launched["Instances"][0]["InstanceId"])


def receive_notice(
    aws: Sandbox,
    starts: Starts,
    admissions: Starts | None = None,
    cleaning: CleanUps | None = None,
    **policy: Any,
) -> ReceiveNotice:
    return ReceiveNotice(
        table=table_in(aws),
        origin=HERE,
        instances=Ec2Instances(client_factory(aws, "ec2")),
        policies=OnePolicy(ClusterPolicy(**policy)),
        retire_node=starts,
        schedules=SchedulesInMemory(),
        offerings=OfferingsInMemory(),
        clusters=frozenset({"prod"}),
        clock=SystemClock(),
        admit_node=admissions or Starts(),
        clean_up=cleaning or CleanUps(),
    )


def interruption(instance: str, **changes: Any) -> dict[str, Any]:
    """Return a Spot interruption warning with the current time."""
    detail = {"instance-id": instance, "instance-action": "terminate"}
    return event(**{"detail": detail, "time": datetime.now(UTC).isoformat()} | changes)
