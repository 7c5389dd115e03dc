"""CloudWatch Logs, where moto differs from AWS: searches, and filter patterns.

Source: "Filter pattern syntax" in its guide.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from leeway_sandbox.aws.log_patterns import BadPatternError, selecting

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


PLAIN = "[ERROR 400] BAD REQUEST"
EVENT = {
    "eventType": "UpdateTrail",
    "sourceIPAddress": "111.111.111.111",
    "arrayKey": ["value", "another value"],
    "objectList": [{"name": "a", "id": 1}, {"name": "b", "id": 2}],
    "SomeObject": None,
    "cluster.name": "c",
    "bandwidth": 75,
    "ThisFlag": True,
}


def test_terms_select_words_and_phrases() -> None:
    expected = {
        "": True,
        "ERROR": True,
        "error": False,
        "ERRO": False,
        "ERROR REQUEST": True,
        "ERROR ARGUMENTS": False,
        "?ERROR ?ARGUMENTS": True,
        "?WARN ?ARGUMENTS": False,
        '?"[ERROR" ?"Task timed out"': True,
        '"BAD REQUEST"': True,
        '"REQUEST BAD"': False,
        "ERROR -BAD": False,
        "ERROR -GOOD": True,
        # With other terms, those with a question mark have no effect.
        "?WARN ERROR": True,
        "%ERROR [0-9]+%": True,
        '{ $.level = "*" }': False,
    }
    assert {one: selecting(one)(PLAIN) for one in expected} == expected


def test_conditions_select_fields() -> None:
    expected = {
        '{ $.eventType = "UpdateTrail" }': True,
        '{$.eventType="UpdateTrail"}': True,
        "{ $.eventType = UpdateTrail }": True,
        '{ $.eventType != "UpdateTrail" }': False,
        '{ $.missing != "x" }': False,
        "{ $.sourceIPAddress != 123.123.* }": True,
        "{ $.sourceIPAddress = 111.111.* }": True,
        '{ $.arrayKey[0] = "value" }': True,
        '{ $.arrayKey[5] = "value" }': False,
        "{ $.objectList[1].id = 2 }": True,
        "{ $.objectList[1].id > 2 }": False,
        "{ $.SomeObject IS NULL }": True,
        "{ $.eventType IS NULL }": False,
        "{ $.SomeOtherObject NOT EXISTS }": True,
        "{ $.SomeObject NOT EXISTS }": False,
        "{ $.ThisFlag IS TRUE }": True,
        "{ $.ThisFlag IS FALSE }": False,
        "{ $.['cluster.name'] = \"c\" }": True,
        "{ $.bandwidth > 74.5 }": True,
        "{ $.bandwidth = 75 }": True,
        '{ $.eventType = "*" }': True,
        '{ $.missing = "*" }': False,
        "{ ($.bandwidth < 3 || $.bandwidth > 70) && $.ThisFlag IS TRUE }": True,
        '{ ($.eventType = "x") || ($.eventType = "UpdateTrail") }': True,
        '{ ($.eventType = "x") && ($.eventType = "UpdateTrail") }': False,
        "{ $.eventType = %^Update[A-Z]% }": True,
    }
    text = json.dumps(EVENT) + "\n"
    assert {one: selecting(one)(text) for one in expected} == expected


def test_a_text_in_quotation_marks_may_hold_quotation_marks() -> None:
    assert selecting('{ $.a = "say \\"x\\"" }')('{"a": "say \\"x\\""}')


def test_a_pattern_that_aws_refuses_is_refused() -> None:
    for pattern in (
        "[ERROR] timed",
        '"open',
        "a-b",
        '{ $.level = "ERROR"',
        "{ level = ERROR }",
        "{ $.level }",
        "{ $.level = }",
        '{ $.level > "x" }',
        "{ $.a = 1 $.b = 2 }",
        "{ ($.a = 1 }",
        "{ $.a NOT NULL }",
    ):
        with pytest.raises((BadPatternError, NotImplementedError)):
            pytest.fail(f"it is taken: {pattern} {selecting(pattern)}")
