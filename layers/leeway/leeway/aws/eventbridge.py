"""EventBridge, by boto3: Leeway's own events, and schedules that deliver an event again later."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.ports.aws import CloudUnavailable

SOURCE = "leeway"


class EventBridgeLeewayEvents:
    """The LeewayEvents Protocol; `client` returns boto3's EventBridge client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def publish(self, detail_type: str, detail: str) -> None:
        """Put one event. An entry that EventBridge rejects raises CloudUnavailable."""
        with aws_errors():
            answer = self._client().put_events(
                Entries=[{"Source": SOURCE, "DetailType": detail_type, "Detail": detail}]
            )
        if answer.get("FailedEntryCount"):
            entry = answer["Entries"][0]
            raise CloudUnavailable(
                f"PutEvents: {entry.get('ErrorCode')}: {entry.get('ErrorMessage')}"
            )


RETRIED_FOR = 3600
"""Seconds for which Scheduler retries a delivery. It then sends the event to the dead-letter
queue."""


@dataclass(frozen=True, slots=True)
class ScheduleTarget:
    """The name of the schedule group, and the ARNs of the role, of the function to invoke and of
    the dead-letter queue."""

    group: str
    role: str
    function: str
    failures: str


class EventBridgeSchedules:
    """The Schedules Protocol; `client` returns boto3's Scheduler client."""

    def __init__(self, client: Callable[[], Any], target: ScheduleTarget) -> None:
        self._client = client
        self._target = target

    def put(self, name: str, at: datetime, event: Mapping[str, Any]) -> None:
        """Create or update the schedule of this name. Scheduler deletes it after delivery."""
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
        """Delete a schedule; a missing one is not an error."""
        with aws_errors():
            try:
                self._client().delete_schedule(Name=name, GroupName=self._target.group)
            except ClientError as error:
                if code_of(error) != "ResourceNotFoundException":
                    raise
