"""CloudWatch Logs of the sandbox, where moto's answers differ from those of AWS."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.started import Sandbox, started

GROUP = "/aws/lambda/x"


@pytest.fixture(scope="module")
def logs() -> Iterator[Any]:
    """A client, with lines of two streams in one group."""
    with started() as (_, url):
        sandbox = Sandbox(url)
        client = sandbox.client("logs")
        client.create_log_group(logGroupName=GROUP)
        now = int(time.time() * 1000)
        for number, stream in enumerate(("a", "b")):
            client.create_log_stream(logGroupName=GROUP, logStreamName=stream)
            lines = [
                {"timestamp": now + 2 * at + number, "message": f'{{"n":{2 * at + number}}}\n'}
                for at in range(3)
            ]
            client.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=lines)
        yield client
        sandbox.close()


def messages(logs: Any, **asked: Any) -> list[str]:
    pages = logs.get_paginator("filter_log_events").paginate(logGroupName=GROUP, **asked)
    return [event["message"].strip() for page in pages for event in page["events"]]


def test_the_events_of_all_streams_come_in_the_order_of_time(logs: Any) -> None:
    assert messages(logs) == [f'{{"n":{number}}}' for number in range(6)]
    assert messages(logs, logStreamNames=["b"]) == ['{"n":1}', '{"n":3}', '{"n":5}']


def test_pages_hold_at_most_the_limit_and_miss_nothing(logs: Any) -> None:
    first = logs.filter_log_events(logGroupName=GROUP, limit=4)
    rest = logs.filter_log_events(logGroupName=GROUP, limit=4, nextToken=first["nextToken"])
    assert (len(first["events"]), len(rest["events"])) == (4, 2)
    assert "nextToken" not in rest or rest["nextToken"] is None


def test_a_page_may_be_empty_before_the_last_one(logs: Any) -> None:
    first = logs.filter_log_events(logGroupName=GROUP, filterPattern="{ $.n > 4 }")
    assert first["events"] == []
    assert first["nextToken"]
    assert messages(logs, filterPattern="{ $.n > 4 }") == ['{"n":5}']


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"logGroupName": "/aws/lambda/none"}, "ResourceNotFoundException"),
        ({"filterPattern": "a-b"}, "InvalidParameterException"),
        ({"startTime": 2, "endTime": 1}, "InvalidParameterException"),
        ({"nextToken": "x"}, "InvalidParameterException"),
        ({"filterPattern": "[a, b]"}, "NotImplemented"),
    ],
)
def test_what_aws_refuses_is_refused(logs: Any, asked: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as refused:
        logs.filter_log_events(**{"logGroupName": GROUP, **asked})
    assert refused.value.response["Error"]["Code"] == code


def test_queries_of_insights_are_not_answered_wrongly(logs: Any) -> None:
    query = {"startTime": 0, "endTime": 1, "queryString": "fields @message"}
    with pytest.raises(ClientError, match="does not support logs:StartQuery"):
        logs.start_query(logGroupName=GROUP, **query)
