"""Puts together `receive_notice`."""

import os
from functools import cache, partial

from leeway.clock import SystemClock
from leeway.cloud.functions import LambdaExecutions
from leeway.cloud.scheduler import EventBridgeSchedules, ScheduleTarget
from leeway.cloud.unavailable import DynamoUnavailableOfferings
from leeway.reception import Reception, Surroundings
from leeway.records import Retirement
from leeway.wiring.clients import (
    client,
    configuration,
    instances,
    prepare,
    records,
    settings,
)


def _schedule_target() -> ScheduleTarget:
    """Read where schedules are kept and what they invoke, as the template sets it."""
    return ScheduleTarget(
        group=os.environ.get("LEEWAY_SCHEDULE_GROUP", ""),
        role=os.environ.get("LEEWAY_SCHEDULE_ROLE", ""),
        function=os.environ.get("LEEWAY_RECEIVE_NOTICE", ""),
        failures=os.environ.get("LEEWAY_FAILURES", ""),
    )


@cache
def reception() -> Reception:
    """Build the use case."""
    return Reception(
        Surroundings(
            records=records(),
            instances=instances(),
            policies=configuration(),
            retire_node=LambdaExecutions(
                partial(client, "lambda"), settings().retire_node, "retire"
            ),
            schedules=EventBridgeSchedules(partial(client, "scheduler"), _schedule_target()),
            offerings=DynamoUnavailableOfferings(partial(client, "dynamodb"), settings().table),
            clusters=frozenset(settings().clusters),
            clock=SystemClock(),
        )
    )


prepare(["dynamodb", "lambda", "ec2"], [Retirement])
