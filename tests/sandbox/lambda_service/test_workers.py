"""The worker processes of functions."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import definition, eventually, running_service


def test_a_worker_is_kept_warm(service: Any) -> None:
    first, second = service.invoke("echo"), service.invoke("echo")

    assert first["pid"] == second["pid"]
    (entry,) = service.journal("invocation", request_id=second["request_id"])
    assert (entry["outcome"], entry["cold"]) == ("ok", False)


def test_concurrent_invocations_run_on_separate_workers(service: Any) -> None:
    with ThreadPoolExecutor(3) as threads:
        pids = list(threads.map(lambda _: service.invoke("patient", {"seconds": 3}), range(3)))

    assert len(set(pids)) == 3


def test_a_function_that_exceeds_its_timeout_is_killed(service: Any) -> None:
    fault = {"function": "patient", "timeout": 1}
    service.control("PUT", "faults", {"faults": [fault]})
    error = service.invoke("patient", {"seconds": 30})
    service.control("PUT", "faults", {"faults": []})

    assert error["errorType"] == "Sandbox.Timedout"
    assert error["errorMessage"].endswith("Error: Task timed out after 1.00 seconds")
    assert service.journal("invocation", function="patient", outcome="timeout")
    assert isinstance(service.invoke("patient", {"seconds": 0}), int)


@pytest.mark.parametrize(
    ("status", "message"),
    [(7, "Runtime exited with error: exit status 7"), (0, "Runtime exited without")],
)
def test_an_exit_of_the_process_is_a_runtime_error(service: Any, status: int, message: str) -> None:
    error = service.invoke("leaving", {"status": status})

    assert error["errorType"] == "Runtime.ExitError"
    assert message in error["errorMessage"]


def test_a_failed_import_is_an_error_of_each_invocation(service: Any) -> None:
    for _ in range(2):
        error = service.invoke("broken")

        assert error["errorType"] == "Runtime.ImportModuleError"
        assert "a_module_that_is_not_there" in error["errorMessage"]


def test_a_module_that_exits_on_import_is_an_error_of_each_invocation(service: Any) -> None:
    for _ in range(2):
        assert service.invoke("vanishing")["errorType"] == "Runtime.ExitError"


def test_threads_that_an_import_starts_run_in_every_worker(service: Any) -> None:
    assert service.invoke("threaded") is True


def test_above_the_concurrency_callers_are_throttled_and_events_wait() -> None:
    functions = [definition("slow", "plain.slow"), definition("marking", "plain.marking")]
    with running_service("--concurrency", "1") as service, ThreadPoolExecutor(1) as threads:
        service.control("PUT", "functions", {"functions": functions})
        running = threads.submit(service.invoke, "slow", {"seconds": 2})
        eventually(lambda: service.control("GET", "status")["functions"]["slow"]["running"])
        service.send("slow", {"seconds": 0})
        with pytest.raises(ClientError) as raised:
            service.invoke("slow", {"seconds": 0})
        running.result()
        eventually(lambda: len(service.journal("invocation", outcome="ok")) == 2)

    assert raised.value.response["Error"]["Code"] == "TooManyRequestsException"


def test_a_function_whose_definition_is_unchanged_keeps_its_workers() -> None:
    echo, other = definition("echo", "plain.echo"), definition("slow", "plain.slow")
    with running_service() as service:
        service.control("PUT", "functions", {"functions": [echo, other]})
        pid = service.invoke("echo")["pid"]
        service.control("PUT", "functions", {"functions": [echo]})
        kept = service.invoke("echo")["pid"]
        service.control("PUT", "functions", {"functions": [echo | {"timeout": 5}]})
        changed = service.invoke("echo")["pid"]
        with pytest.raises(ClientError, match="Function not found"):
            service.invoke("slow")

    assert pid == kept
    assert pid != changed


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"timeout": 901}, "functions.0.timeout"),
        ({"handler": None}, "functions.0.handler"),
        ({"colour": "green"}, "functions.0.colour"),
        (
            {"durable": True, "onFailure": "arn:aws:sqs:::q"},
            "a durable function supports no destinations",
        ),
    ],
)
def test_an_invalid_definition_is_refused_with_the_field(
    service: Any, wrong: dict[str, Any], message: str
) -> None:
    body = {"functions": [definition("echo", "plain.echo") | wrong]}
    status, answer = service.raw_control("PUT", "functions", body)

    assert status == 400
    assert message in json.dumps(answer)
