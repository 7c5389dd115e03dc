"""Events that are received again later, as one-time EventBridge Scheduler schedules, by boto3."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of

RETRIED_FOR = 3600
"""Seconds for which Scheduler tries to deliver; what it can't goes to the queue of failures."""


@dataclass(frozen=True, slots=True)
class ScheduleTarget:
    """Where schedules are kept and what they invoke: ARNs, but for the group's name."""

    group: str
    role: str
    function: str
    failures: str


class EventBridgeSchedules:
    """The Schedules Protocol; `client` makes boto3's Scheduler client when first asked."""

    def __init__(self, client: Callable[[], Any], target: ScheduleTarget) -> None:
        self._client = client
        self._target = target

    def put(self, name: str, at: datetime, event: Mapping[str, Any]) -> None:
        """Have an event received again at this time; a schedule of this name is set anew.

        One that has fired deletes itself.
        """
        schedule = {
            "Name": name,
            "GroupName": self._target.group,
            "ScheduleExpression": f"at({at.astimezone(UTC):%Y-%m-%dT%H:%M:%S})",
            "ScheduleExpressionTimezone": "UTC",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "ActionAfterCompletion": "DELETE",
            "Target": {
                "Arn": self._target.function,
                "RoleArn": self._target.role,
                "Input": json.dumps(event),
                "RetryPolicy": {
                    "MaximumEventAgeInSeconds": RETRIED_FOR,
                    "MaximumRetryAttempts": 20,
                },
                "DeadLetterConfig": {"Arn": self._target.failures},
            },
        }
        with aws_errors():
            try:
                self._client().create_schedule(**schedule)
            except ClientError as error:
                if code_of(error) != "ConflictException":
                    raise
                self._client().update_schedule(**schedule)

    def remove(self, name: str) -> None:
        """Have it received no more; that there is no such schedule is no error."""
        with aws_errors():
            try:
                self._client().delete_schedule(Name=name, GroupName=self._target.group)
            except ClientError as error:
                if code_of(error) != "ResourceNotFoundException":
                    raise
