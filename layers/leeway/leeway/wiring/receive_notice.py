"""Builds `receive_notice`."""

import os
from functools import cache, partial

from leeway.admission.record import Admission
from leeway.aws.scheduler import EventBridgeSchedules, ScheduleTarget
from leeway.interruption.receive_notice import NoticeTelemetry, ReceiveNotice
from leeway.retirement.record import Retirement
from leeway.wiring.clients import client, logger, metrics, prepare
from leeway.wiring.notices import receive_notice_with


def _schedule_target() -> ScheduleTarget:
    """Read the target of schedules from the environment, as the template sets it."""
    return ScheduleTarget(
        group=os.environ.get("LEEWAY_SCHEDULE_GROUP", ""),
        role=os.environ.get("LEEWAY_SCHEDULE_ROLE", ""),
        function=os.environ.get("LEEWAY_RECEIVE_NOTICE", ""),
        failures=os.environ.get("LEEWAY_FAILURES", ""),
    )


@cache
def receive_notice() -> ReceiveNotice:
    """Build the use case."""
    return receive_notice_with(
        EventBridgeSchedules(partial(client, "scheduler"), _schedule_target())
    )


@cache
def telemetry() -> NoticeTelemetry:
    """Build the telemetry of notices."""
    return NoticeTelemetry(logger(), metrics())


prepare(["dynamodb", "lambda", "ec2"], [Retirement, Admission], fail_fast=["dynamodb"])
