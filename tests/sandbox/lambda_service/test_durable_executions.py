"""Durable executions: names, steps, waits, and how they end."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import ARN, durable, eventually, running_service


def _name() -> str:
    return f"name-{uuid.uuid4()}"


def test_steps_run_once_around_a_wait(service: Any, tmp_path: Path) -> None:
    event = {"marks": str(tmp_path / "marks")}
    name = _name()
    answer = service.run("steps:live", event, DurableExecutionName=name)

    assert answer == {"event": event, "steps": ["first", "second"]}
    assert (tmp_path / "marks").read_text().split() == ["first", "second"]
    assert len(service.journal("invocation", execution=name, outcome="ok")) == 2


def test_an_execution_can_be_looked_up_with_its_history(service: Any) -> None:
    name = _name()
    arn = service.send("steps:live", {"a": 1}, DurableExecutionName=name)["DurableExecutionArn"]
    assert service.ended(arn) == "SUCCEEDED"

    found = service.client.get_durable_execution(DurableExecutionArn=arn)
    history = service.client.get_durable_execution_history(DurableExecutionArn=arn)
    assert f":function:steps:1/durable-execution/{name}/" in arn
    assert found["DurableExecutionName"] == name
    assert found["FunctionArn"] == f"{ARN}steps:1"
    assert json.loads(found["Result"])["steps"] == ["first", "second"]
    assert [e["Name"] for e in history["Events"] if e["EventType"] == "StepSucceeded"] == [
        "first",
        "second",
    ]


def test_starts_above_the_limit_of_a_second_are_throttled() -> None:
    with running_service("--starts", "1") as service:
        functions = [durable("steps", "durable.steps")]
        service.control("PUT", "functions", {"functions": functions})
        with pytest.raises(ClientError) as refused:  # noqa: PT012 (one of them is refused)
            for _ in range(20):
                service.send("steps:live", {}, DurableExecutionName=_name())
    assert refused.value.response["Error"]["Code"] == "TooManyRequestsException"


def test_a_name_starts_one_execution(service: Any, tmp_path: Path) -> None:
    event = {"marks": str(tmp_path / "marks")}
    name = _name()

    def start(_: int) -> str:
        response = service.send("steps:live", event, DurableExecutionName=name)
        assert response["StatusCode"] == 202
        return str(response["DurableExecutionArn"])

    with ThreadPoolExecutor(4) as threads:
        arns = set(threads.map(start, range(4)))
    (arn,) = arns
    assert service.ended(arn) == "SUCCEEDED"
    assert start(0) == arn
    assert (tmp_path / "marks").read_text().split() == ["first", "second"]


@pytest.mark.parametrize(
    ("function", "event"), [("steps:live", {"a": 2}), ("steps:$LATEST", {"a": 1})]
)
def test_a_name_with_another_payload_or_version_is_a_conflict(
    service: Any, function: str, event: Any
) -> None:
    name = _name()
    service.send("steps:live", {"a": 1}, DurableExecutionName=name)

    with pytest.raises(service.client.exceptions.DurableExecutionAlreadyStartedException):
        service.send(function, event, DurableExecutionName=name)


@pytest.mark.parametrize(
    ("function", "more", "result"),
    [
        ("steps", {}, "unqualified ARN"),
        ("steps:live", {"InvocationType": "RequestResponse"}, "greater than 15 minutes"),
        ("steps:live", {"DurableExecutionName": "a b"}, "durableExecutionName"),
    ],
)
def test_invalid_invocations_of_durable_functions_are_refused(
    service: Any, function: str, more: Any, result: str
) -> None:
    with pytest.raises(ClientError, match=result):
        service.send(function, {}, **more)


def test_the_event_of_a_failed_execution_goes_to_the_dead_letter_queue(
    service: Any, messages: Any
) -> None:
    arn = service.send("durable-failing:live", {"notice": 4})["DurableExecutionArn"]

    assert service.ended(arn) == "FAILED"
    (message,) = eventually(lambda: messages("durable-dead"))
    assert json.loads(message["Body"]) == {"notice": 4}


def test_an_execution_can_be_stopped(service: Any, messages: Any) -> None:
    arn = service.send("waiting:live", {"notice": 5})["DurableExecutionArn"]
    service.client.stop_durable_execution(
        DurableExecutionArn=arn, Error={"ErrorType": "Enough", "ErrorMessage": "stop"}
    )

    assert service.ended(arn) == "STOPPED"
    (message,) = eventually(lambda: messages("durable-dead"))
    assert json.loads(message["Body"]) == {"notice": 5}


def test_an_execution_that_takes_too_long_times_out(service: Any) -> None:
    arn = service.send("brief:live", {})["DurableExecutionArn"]

    assert service.ended(arn) == "TIMED_OUT"


def test_an_invocation_that_exceeds_the_functions_timeout_is_run_again(
    service: Any, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    service.control("PUT", "faults", {"faults": [{"function": "overdue", "timeout": 2}]})
    arn = service.send("overdue:live", {"marks": str(marks)})["DurableExecutionArn"]
    eventually(marks.exists)
    service.control("PUT", "faults", {"faults": []})  # the next one has all the time it needs

    assert service.ended(arn) == "SUCCEEDED"
    assert marks.read_text().split() == ["run", "run"]


def test_executions_are_listed_by_function(service: Any) -> None:
    name = _name()
    arn = service.send("waiting:live", {}, DurableExecutionName=name)["DurableExecutionArn"]

    def listed(**more: Any) -> list[str]:
        answer = service.client.list_durable_executions_by_function(
            FunctionName="waiting", DurableExecutionName=name, **more
        )
        return [found["DurableExecutionArn"] for found in answer["DurableExecutions"]]

    started = service.client.get_durable_execution(DurableExecutionArn=arn)["StartTimestamp"]
    assert listed() == [arn]
    assert listed(Statuses=["RUNNING"], StartedAfter=started.replace(year=2000)) == [arn]
    assert listed(Statuses=["SUCCEEDED"]) == []
    assert listed(StartedBefore=started.replace(year=2000)) == []


def test_old_ended_executions_are_deleted_and_their_names_are_free(aws: str) -> None:
    with running_service("--aws", aws, "--keep", "3") as service:
        service.control("PUT", "functions", {"functions": [durable("failing", "durable.failing")]})
        started = [
            service.send("failing:live", {"n": number}, DurableExecutionName=f"n-{number}")
            for number in range(12)
        ]
        eventually(lambda: len(service.journal("execution-ended")) == 12)
        assert sum(service.control("GET", "status")["executions"].values()) == 3
        again = service.send("failing:live", {"other": "payload"}, DurableExecutionName="n-0")
        assert again["DurableExecutionArn"] != started[0]["DurableExecutionArn"]
        assert service.ended(again["DurableExecutionArn"]) == "FAILED"
