"""Composes `receive_notice`."""

import os
from functools import cache, partial
from typing import Any

from leeway.admission.record import Admission
from leeway.aws.eventbridge import EventBridgeSchedules, ScheduleTarget
from leeway.interruption.receive_notice import (
    NotAllInstancesReceived,
    NoticeTelemetry,
    ReceiveNotice,
)
from leeway.manifests.cluster import Cluster
from leeway.notices import MalformedNotice, UnknownNotice
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
def _receive_notice() -> ReceiveNotice:
    schedules = EventBridgeSchedules(partial(client, "scheduler"), _schedule_target())
    return receive_notice_with(schedules)


def receive(event: Any) -> dict[str, Any]:
    """Receive one EventBridge event; return the answer of the function. Log every outcome.

    Raises:
        MalformedNotice, UnknownNotice, NotAllInstancesReceived: as `ReceiveNotice.receive`.
    """
    telemetry = NoticeTelemetry(logger(), metrics())
    try:
        receipt = _receive_notice().receive(event)
    except (MalformedNotice, UnknownNotice, NotAllInstancesReceived) as error:
        if isinstance(error, NotAllInstancesReceived):
            telemetry.received(error.receipt)
        telemetry.rejected(event, error)
        raise
    telemetry.received(receipt)
    return receipt.to_dict()


prepare(["dynamodb", "lambda", "ec2"], [Retirement, Admission, Cluster], fail_fast=["dynamodb"])
