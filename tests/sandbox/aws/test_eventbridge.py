"""Events reach the functions whose rules match; PutEvents is journaled."""

import json
import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.started import Recorder, Sandbox

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:receive_notice:live"


@pytest.fixture(scope="module", autouse=True)
def rule(aws: Sandbox, recorder: Recorder) -> str:
    """One rule for the sources of the tests, with a dead-letter queue."""
    aws.control("PUT", "links", {"lambda": recorder.url})
    queue: str = aws.client("sqs").create_queue(QueueName="dead")["QueueUrl"]
    events = aws.client("events")
    pattern = {"source": ["aws.health", "leeway.test"], "detail": {"service": ["EC2"]}}
    events.put_rule(Name="test", EventPattern=json.dumps(pattern))
    target = {
        "Id": "function",
        "Arn": FUNCTION,
        "RetryPolicy": {"MaximumRetryAttempts": 1},
        "DeadLetterConfig": {"Arn": "arn:aws:sqs:us-east-1:123456789012:dead"},
    }
    events.put_targets(Rule="test", Targets=[target])
    return queue


def _event(**changes: Any) -> dict[str, Any]:
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "AWS Health Event",
        "source": "aws.health",
        "account": "123456789012",
        "time": "2026-11-20T09:45:00Z",
        "region": "us-east-1",
        "resources": [],
        "detail": {"service": "EC2"},
        **changes,
    }


def _received(recorder: Recorder, event: dict[str, Any]) -> list[dict[str, Any]]:
    return [request for request in recorder.requests if request["body"].get("id") == event["id"]]


def test_a_matching_event_is_posted_to_the_lambda_service_as_it_is(
    aws: Sandbox, recorder: Recorder
) -> None:
    event = _event()
    sent = aws.control("POST", "events", event)
    assert sent == {"sent": [{"id": event["id"], "functions": ["receive_notice"]}]}
    [request] = aws.wait(lambda: _received(recorder, event))
    assert request["body"] == event
    assert request["invocation_type"] == "Event"
    assert request["path"] == (
        "/2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A123456789012%3Afunction"
        "%3Areceive_notice%3Alive/invocations"
    )


def test_an_event_that_matches_no_pattern_is_only_in_the_journal(aws: Sandbox) -> None:
    event = _event(detail={"service": "RDS"})
    assert aws.control("POST", "events", event)["sent"][0]["functions"] == []
    assert aws.journal("notice", id=event["id"], functions=[])


def test_a_disabled_rule_matches_nothing(aws: Sandbox) -> None:
    events = aws.client("events")
    events.disable_rule(Name="test")
    assert aws.control("POST", "events", _event())["sent"][0]["functions"] == []
    events.enable_rule(Name="test")


def test_copies_are_delivered_as_duplicates_with_one_id(aws: Sandbox, recorder: Recorder) -> None:
    event = _event()
    aws.control("POST", "events?copies=3", event)
    assert aws.wait(lambda: len(_received(recorder, event)) == 3)


def test_faults_drop_and_duplicate_deliveries(aws: Sandbox, recorder: Recorder) -> None:
    lost, doubled = _event(), _event()
    faults = [
        {"service": "events", "action": "Deliver", "drop": True, "count": 1},
        {"service": "events", "action": "Deliver", "copies": 2, "count": 1},
    ]
    aws.control("PUT", "faults", {"faults": faults})
    aws.control("POST", "events", [lost, doubled])
    aws.wait(lambda: len(_received(recorder, doubled)) == 2)
    assert not _received(recorder, lost)


def test_a_fault_of_deliveries_can_select_one_detail_type(aws: Sandbox, recorder: Recorder) -> None:
    lost, delivered = _event(), _event()
    lost["detail-type"] = "EC2 Instance Rebalance Recommendation"
    fault = {"service": "events", "action": "Deliver", "detail_type": "*Rebalance*", "drop": True}
    aws.control("PUT", "faults", {"faults": [fault]})
    aws.control("POST", "events", [lost, delivered])
    aws.wait(lambda: _received(recorder, delivered))
    aws.control("PUT", "faults", {"faults": []})
    assert not _received(recorder, lost)


def test_put_events_are_journaled_and_matched(aws: Sandbox, recorder: Recorder) -> None:
    entry = {"Source": "leeway.test", "DetailType": "Outcome", "Detail": '{"service": "EC2"}'}
    aws.client("events").put_events(Entries=[entry])
    detail = {"service": "EC2"}
    assert aws.journal("put-events", source="leeway.test", detail_type="Outcome", detail=detail)
    [request] = aws.wait(
        lambda: [r for r in recorder.requests if r["body"].get("source") == "leeway.test"]
    )
    assert request["body"]["detail"] == detail
    assert request["body"]["time"].endswith("Z")


def test_a_target_that_keeps_failing_leaves_the_event_in_its_dead_letter_queue(
    aws: Sandbox, recorder: Recorder, rule: str
) -> None:
    event = _event()
    recorder.status = 500
    aws.control("POST", "events", event)
    [failure] = aws.wait(lambda: aws.journal("delivery-failed", id=event["id"]))
    recorder.status = 202
    assert failure["attempts"] == 2
    assert len(_received(recorder, event)) == 2
    [message] = aws.client("sqs").receive_message(
        QueueUrl=rule, MessageAttributeNames=["All"], WaitTimeSeconds=5
    )["Messages"]
    assert json.loads(message["Body"]) == event
    assert message["MessageAttributes"]["TARGET_ARN"]["StringValue"] == FUNCTION


@pytest.mark.parametrize(
    "target",
    [
        {"Arn": FUNCTION, "InputPath": "$.detail"},
        {"Arn": "arn:aws:states:us-east-1:123456789012:stateMachine:x"},
    ],
)
def test_an_unsupported_target_is_refused(aws: Sandbox, target: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match="The sandbox"):
        aws.client("events").put_targets(Rule="test", Targets=[{"Id": "other"} | target])


def test_an_invalid_event_is_refused(aws: Sandbox) -> None:
    assert aws.answer("POST", "events", ["nonsense"]).status_code == 400
