"""Puts together what receives notices, for all functions that do."""

import os
from functools import cache, partial

from leeway.clock import SystemClock
from leeway.cloud.functions import LambdaCleanUp, LambdaExecutions
from leeway.cloud.scheduler import EventBridgeSchedules, ScheduleTarget
from leeway.cloud.unavailable import DynamoUnavailableOfferings
from leeway.reception import Reception, Surroundings
from leeway.wiring.clients import client, configuration, instances, records, settings


@cache
def retirements() -> LambdaExecutions:
    """Build what starts `retire_node`."""
    return LambdaExecutions(partial(client, "lambda"), settings().retire_node, "retire")


@cache
def admissions() -> LambdaExecutions:
    """Build what starts `admit_node`."""
    return LambdaExecutions(partial(client, "lambda"), settings().admit_node, "admit")


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
            retire_node=retirements(),
            schedules=EventBridgeSchedules(partial(client, "scheduler"), _schedule_target()),
            offerings=DynamoUnavailableOfferings(partial(client, "dynamodb"), settings().table),
            clusters=frozenset(settings().clusters),
            clock=SystemClock(),
            arrivals=records(),
            admit_node=admissions(),
            cleaning=LambdaCleanUp(partial(client, "lambda"), settings().reconcile),
        )
    )
