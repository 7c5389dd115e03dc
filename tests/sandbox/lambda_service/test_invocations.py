"""Invocations of plain functions with boto3."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError


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
