"""The processes of functions: workers, long runs, faults that kill them, and the service's end."""

import json
import os
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from leeway_sandbox.children import Child

from tests.sandbox import control_token

from .conftest import Service, definition, durable, eventually, running_service


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


def _shorten(service: Any, seconds: float) -> None:
    fault = {"function": "watching", "timeout": seconds}
    service.control("PUT", "faults", {"faults": [fault]})


def _running(service: Any) -> int:
    return int(service.control("GET", "status")["functions"]["watching"]["running"])


def _ended(service: Any, request: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = eventually(
        lambda: service.journal("invocation", request_id=request)
    )
    return found


def test_a_function_may_run_for_fifteen_minutes(service: Any) -> None:
    service.send("watching", {})
    assert eventually(lambda: _running(service)) == 1

    time.sleep(1)
    assert _running(service) == 1
    assert not service.journal("invocation", function="watching")


def test_a_shorter_timeout_moves_the_deadline_that_the_function_sees(service: Any) -> None:
    _shorten(service, 4)

    assert 0 < service.invoke("watching", {}) <= 4


def test_a_function_that_runs_until_its_timeout_is_killed_and_not_started_again(
    service: Any,
) -> None:
    _shorten(service, 2)
    sent = service.send("watching", {"beyond": 60})
    request = sent["ResponseMetadata"]["RequestId"]

    (dropped,) = eventually(lambda: service.journal("event-dropped", function="watching"))
    (ended,) = _ended(service, request)
    assert dropped["payload"] == {"beyond": 60}
    assert ended["outcome"] == "timeout"
    assert 2000 <= ended["milliseconds"] < 60_000


def test_another_run_starts_beside_one_that_lasts(service: Any) -> None:
    _shorten(service, 12)  # a busy machine starts the second one seconds later
    requests = [
        service.send("watching", {"beyond": -2})["ResponseMetadata"]["RequestId"]
        for _ in ("first", "second")
    ]

    ended = [one for request in requests for one in _ended(service, request)]
    assert [one["outcome"] for one in ended] == ["ok", "ok"]
    begins = [one["at"] - one["milliseconds"] / 1000 for one in ended]
    assert max(begins) < min(one["at"] for one in ended)


# The checkpoints of the execution: first step and start of the wait, then second step.
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_an_execution_survives_a_kill_at_any_checkpoint(
    service: Any, tmp_path: Path, when: str, step: int
) -> None:
    marks = tmp_path / "marks"
    name = f"fault-{uuid.uuid4()}"
    fault = {"function": "ste*", "execution": "fault-*", "kill": when, "step": step}
    service.control("PUT", "faults", {"faults": [fault]})
    arn = service.send("steps:live", {"marks": str(marks)}, DurableExecutionName=name)[
        "DurableExecutionArn"
    ]

    assert service.ended(arn) == "SUCCEEDED"
    assert service.control("GET", "faults") == {"faults": []}
    (killed,) = service.journal("invocation", execution=name, outcome="killed")
    assert killed["function"] == "steps"
    runs = Counter(marks.read_text().split())
    assert set(runs) == {"first", "second"}
    assert runs.total() == (3 if _step_is_lost(when, step) else 2)


def _step_is_lost(when: str, step: int) -> bool:
    """Whether the kill comes between the work of a step and its record."""
    return when == "before" and step in (1, 3)


@pytest.mark.parametrize(("when", "runs"), [("before", 1), ("after", 2)])
def test_an_event_survives_a_kill_around_its_invocation(
    service: Any, tmp_path: Path, when: str, runs: int
) -> None:
    marks = tmp_path / "marks"
    service.control("PUT", "faults", {"faults": [{"function": "marking", "kill": when}]})
    sent = service.send("marking", {"marks": str(marks), "needed": 1})
    request = sent["ResponseMetadata"]["RequestId"]

    eventually(lambda: service.journal("invocation", request_id=request, outcome="ok"))
    assert len(service.journal("invocation", request_id=request, outcome="killed")) == 1
    assert len(marks.read_text().split()) == runs


def test_a_fault_of_another_execution_does_not_apply(service: Any) -> None:
    fault = {"function": "steps", "execution": "other-*", "kill": "before", "step": 1}
    service.control("PUT", "faults", {"faults": [fault]})
    name = f"spared-{uuid.uuid4()}"
    service.run("steps:live", {}, DurableExecutionName=name)

    assert service.control("GET", "faults") == {"faults": [fault]}
    assert not service.journal("invocation", execution=name, outcome="killed")


def test_an_invalid_fault_is_refused(service: Any) -> None:
    status, answer = service.raw_control("PUT", "faults", {"faults": [{"kill": "soon"}]})

    assert status == 400
    assert "faults.0.kill" in answer["error"]


def test_a_wrong_clock_applies_at_once_to_running_workers(service: Any) -> None:
    def is_wrong_by(seconds: float) -> bool:
        return abs(float(service.invoke("clock")) - time.time() - seconds) < 20

    assert is_wrong_by(0)
    for seconds in (60, -60):
        fault = {"function": "clo*", "clock": seconds}
        service.control("PUT", "faults", {"faults": [fault]})
        eventually(lambda wanted=seconds: is_wrong_by(wanted))  # type: ignore[misc]
    service.control("PUT", "faults", {"faults": [{"function": "echo", "clock": 60}]})
    eventually(lambda: is_wrong_by(0))


def test_the_service_stops_with_its_workers_on_sigterm() -> None:
    arguments = [*control_token.OPTIONS, "--retry-delay", "0.1"]
    child = Child.start("leeway_sandbox.lambda_service", arguments, Path(os.devnull))
    try:
        service = Service(f"http://127.0.0.1:{child.ready(60)['port']}")
        functions = [
            definition("echo", "plain.echo"),
            definition("slow", "plain.slow"),
            durable("waiting", "durable.waiting"),
        ]
        service.control("PUT", "functions", {"functions": functions})
        worker = Path(f"/proc/{service.invoke('echo')['pid']}/stat")
        service.send("slow", {"seconds": 60})
        service.send("waiting:live", {})
        service.client.close()
        child.terminate()

        assert child.process.wait(60) == 0
        assert child.process.stdout is not None
        assert child.process.stdout.read() == b""
    finally:
        child.stop()
    eventually(
        lambda: not worker.exists() or worker.read_text().rpartition(")")[2].split()[0] == "Z"
    )
