"""The clock follows AWS's time if the machine's clock is wrong."""

from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.exceptions import ClientError
from leeway.clock import CorrectedClock, SystemClock, follow_dates

from tests.sandbox.aws.started import Sandbox


class WrongClock(SystemClock):
    """The machine's clock with an error."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by


def session_with(clock: CorrectedClock) -> boto3.Session:
    session = boto3.Session("AKIAIOSFODNN7EXAMPLE", "none", region_name="us-east-1")
    follow_dates(session.events, clock)
    return session


def test_one_answer_of_any_service_corrects_the_clock(aws: Sandbox) -> None:
    clock = CorrectedClock(WrongClock(timedelta(seconds=-60)))
    session_with(clock).client("sqs", endpoint_url=aws.url).list_queues()
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=10)


def test_an_error_answer_corrects_the_clock(aws: Sandbox) -> None:
    clock = CorrectedClock(WrongClock(timedelta(seconds=60)))
    with pytest.raises(ClientError):
        session_with(clock).client("dynamodb", endpoint_url=aws.url).describe_table(TableName="no")
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=10)


def test_a_call_without_an_answer_does_not_change_the_clock(aws: Sandbox) -> None:
    clock = CorrectedClock(WrongClock(timedelta(seconds=60)))
    slow = {"service": "sqs", "latency": 1.5}
    aws.control("PUT", "faults", {"faults": [slow]})
    client = session_with(clock).client("sqs", endpoint_url=aws.url)
    client.list_queues()
    known = clock.offset.ahead
    unreached = session_with(clock).client("sqs", endpoint_url="http://127.0.0.1:1")
    with pytest.raises(Exception, match="Could not connect"):
        unreached.list_queues()
    assert clock.offset.ahead == known
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=10)
