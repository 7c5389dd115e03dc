"""Workers that faults kill, and their retried work."""

import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .conftest import eventually


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
