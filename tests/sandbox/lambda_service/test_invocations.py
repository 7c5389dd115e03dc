"""Lambda describes functions and invokes them: at once, and later with retries and dead letters."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from botocore.exceptions import ClientError
from leeway_sandbox.lambda_service.definitions import FunctionDefinition, ServiceError
from leeway_sandbox.lambda_service.invocation import MOST_INVOCATIONS, lineage_field, lineage_of

from .conftest import ARN, Service, definition, eventually


def test_a_function_gets_its_event_and_a_context(service: Any) -> None:
    answer = service.invoke("echo", {"a": [1, "ü"]})

    assert answer["event"] == {"a": [1, "ü"]}
    assert answer["arn"].endswith(":function:echo")
    assert 0 < answer["remaining"] <= 10_000


@pytest.mark.parametrize(
    ("named", "qualifier"),
    [
        ("echo", None),
        ("echo:live", None),
        ("echo", "live"),
        ("123456789012:function:echo", None),
        ("arn:aws:lambda:us-east-1:123456789012:function:echo:live", None),
        ("arn:aws:lambda:us-east-1:123456789012:function:echo", "1"),
    ],
)
def test_a_function_is_invoked_by_each_form_of_its_name(
    service: Any, named: str, qualifier: str | None
) -> None:
    more = {"Qualifier": qualifier} if qualifier else {}
    response = service.client.invoke(FunctionName=named, Payload=b"{}", **more)

    asked = named.endswith(":live") or qualifier
    assert response["ExecutedVersion"] == ("1" if asked else "$LATEST")


@pytest.mark.parametrize("named", ["nobody", "echo:nowhere"])
def test_a_missing_function_is_not_found(service: Any, named: str) -> None:
    with pytest.raises(ClientError) as raised:
        service.invoke(named)

    assert raised.value.response["Error"]["Code"] == "ResourceNotFoundException"
    assert "Function not found" in raised.value.response["Error"]["Message"]


def test_a_worker_has_only_the_environment_of_lambda_and_of_the_template(service: Any) -> None:
    environment = service.invoke("environment")

    assert environment["COLOUR"] == "green"
    assert environment["AWS_LAMBDA_FUNCTION_NAME"] == "environment"
    assert environment["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "256"
    assert environment["AWS_REGION"] == "us-east-1"
    assert environment["_HANDLER"] == "plain.environment"
    assert environment["AWS_ENDPOINT_URL_LAMBDA"] == service.url
    assert "VIRTUAL_ENV" not in environment
    assert "PYTEST_CURRENT_TEST" not in environment


def test_each_function_has_its_own_credentials(service: Any) -> None:
    status = service.control("GET", "status")["functions"]

    keys = {name: numbers["accessKey"] for name, numbers in status.items()}
    assert len(set(keys.values())) == len(keys)
    assert service.invoke("environment")["AWS_ACCESS_KEY_ID"] == keys["environment"]


@pytest.mark.parametrize("depth", [0, 200])
def test_an_exception_is_a_function_error(service: Any, depth: int) -> None:
    payload = json.dumps({"depth": depth})
    response = service.client.invoke(FunctionName="failing", Payload=payload)
    error = json.loads(response["Payload"].read())

    assert response["StatusCode"] == 200
    assert response["FunctionError"] == "Unhandled"
    assert (error["errorType"], error["errorMessage"]) == ("ValueError", "no good")


def test_log_lines_are_journaled_with_their_request(service: Any) -> None:
    request = service.invoke("echo", {"c": 3})["request_id"]

    lines = [entry["line"] for entry in service.journal("logs", request_id=request)]
    assert lines == [{"seen": {"c": 3}}]


@pytest.mark.parametrize(
    ("payload", "kind", "code"),
    [
        (b"{nonsense", "RequestResponse", "InvalidRequestContentException"),
        (b'"' + b"x" * (6 * 2**20) + b'"', "RequestResponse", "RequestTooLargeException"),
        (b'"' + b"x" * 2**20 + b'"', "Event", "RequestTooLargeException"),
    ],
)
def test_a_payload_that_lambda_refuses_is_refused(
    service: Any, payload: bytes, kind: str, code: str
) -> None:
    with pytest.raises(ClientError) as raised:
        service.client.invoke(FunctionName="echo", InvocationType=kind, Payload=payload)

    assert raised.value.response["Error"]["Code"] == code


def test_a_plain_function_takes_no_execution_name(service: Any) -> None:
    with pytest.raises(ClientError, match="durable execution name"):
        service.invoke("echo", DurableExecutionName="a-name")


def test_a_function_is_active_and_has_no_reserved_concurrency(service: Service) -> None:
    found = service.client.get_function_configuration(FunctionName="echo")
    assert (found["FunctionArn"], found["State"]) == (f"{ARN}echo", "Active")
    reserved = service.client.get_function_concurrency(FunctionName="echo")
    assert "ReservedConcurrentExecutions" not in reserved


def test_a_function_whose_reserved_concurrency_is_zero_is_throttled(service: Service) -> None:
    service.client.put_function_concurrency(FunctionName="echo", ReservedConcurrentExecutions=0)
    reserved = service.client.get_function_concurrency(FunctionName="echo")
    assert reserved["ReservedConcurrentExecutions"] == 0
    with pytest.raises(ClientError, match="TooManyRequestsException"):
        service.client.invoke(FunctionName="echo", Payload=b"{}")
    service.client.delete_function_concurrency(FunctionName="echo")
    assert "FunctionError" not in service.client.invoke(FunctionName="echo", Payload=b"{}")


def test_an_alias_points_to_the_published_version(service: Service) -> None:
    found = service.client.get_alias(FunctionName="echo", Name="live")
    assert (found["AliasArn"], found["FunctionVersion"]) == (f"{ARN}echo:live", "1")


def test_what_does_not_exist_is_not_found(service: Service) -> None:
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        service.client.get_function_configuration(FunctionName="nothing")
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        service.client.get_alias(FunctionName="echo", Name="nothing")


def test_the_account_has_the_default_concurrency(service: Service) -> None:
    limit = service.client.get_account_settings()["AccountLimit"]
    assert limit["UnreservedConcurrentExecutions"] == limit["ConcurrentExecutions"] == 1000
    assert service.client.list_event_source_mappings()["EventSourceMappings"] == []


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


ONE, TWO = (FunctionDefinition(**definition(name, "plain.echo")) for name in ("one", "two"))


def test_a_chain_of_two_functions_ends_at_the_17th_invocation_of_one() -> None:
    header = "Root=1-00000000-0;Sampled=0"
    for _ in range(MOST_INVOCATIONS):
        for function in (ONE, TWO):
            header = f"Root=1;{quote(lineage_field(lineage_of([header], function)))}"
    with pytest.raises(ServiceError, match="recursive loop"):
        lineage_of([header], ONE)


@pytest.mark.parametrize("header", ["", "Lineage=", "Lineage=x", "Root=1;Lineage=a:|:2"])
def test_a_header_without_counts_begins_a_chain(header: str) -> None:
    assert 1 in lineage_of([header], ONE).values()
