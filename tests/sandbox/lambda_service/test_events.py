"""Asynchronous invocations: retries, dead letters, destinations."""

import json
from pathlib import Path
from typing import Any

from .conftest import ARN, eventually


def test_an_event_is_retried_under_its_request_id_until_it_succeeds(
    service: Any, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    response = service.send("marking", {"marks": str(marks), "needed": 3})

    request = response["ResponseMetadata"]["RequestId"]
    eventually(lambda: service.journal("invocation", request_id=request, outcome="ok"))
    assert response["StatusCode"] == 202
    assert marks.read_text().split() == [request] * 3


def test_an_event_that_keeps_failing_goes_to_the_dead_letter_queue(
    service: Any, messages: Any
) -> None:
    response = service.send("failing", {"notice": 1})

    (message,) = eventually(lambda: messages("failing-dead"))
    attributes = {key: item["StringValue"] for key, item in message["MessageAttributes"].items()}
    assert json.loads(message["Body"]) == {"notice": 1}
    assert attributes["RequestID"] == response["ResponseMetadata"]["RequestId"]
    assert attributes["ErrorMessage"] == "ValueError: no good"
    assert len(service.journal("invocation", request_id=attributes["RequestID"])) == 3
    assert service.journal("dead-letter", function="failing", delivered=True)


def test_a_destination_gets_a_record_of_the_failure(service: Any, messages: Any) -> None:
    service.send("failing-recorded:live", {"notice": 2})

    (message,) = eventually(lambda: messages("failing-recorded"))
    record = json.loads(message["Body"])
    assert record["requestPayload"] == {"notice": 2}
    assert record["requestContext"]["functionArn"] == f"{ARN}failing-recorded:live"
    assert record["requestContext"]["condition"] == "RetriesExhausted"
    assert record["requestContext"]["approximateInvokeCount"] == 3
    assert record["responsePayload"]["errorType"] == "ValueError"


def test_an_event_without_queue_and_destination_is_dropped_and_journaled(service: Any) -> None:
    service.send("failing-dropped", {"notice": 3})

    (entry,) = eventually(lambda: service.journal("event-dropped", function="failing-dropped"))
    assert entry["payload"] == {"notice": 3}
