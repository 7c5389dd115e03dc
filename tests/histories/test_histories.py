"""Executions in the test runner of the durable SDK: their costs and the replay of histories."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.histories.executing import replay
from tests.histories.scenarios import SCENARIOS, blocked

FOLDER = Path(__file__).parent
HISTORIES = sorted(FOLDER.glob("*.json"))


def run(module: str, *arguments: str) -> str:
    """Run a module of this folder; return what it prints."""
    command = [sys.executable, "-m", f"tests.histories.{module}", *arguments]
    done = subprocess.run(
        command, cwd=FOLDER.parents[1], check=True, stdout=subprocess.PIPE, timeout=300
    )
    return done.stdout.decode()


def steps_in(path: Path) -> list[str]:
    operations = json.loads(path.read_text())["operations"]
    return [operation["Name"] for operation in operations if "Name" in operation]


def without_new_fields(answer: Any, before: Any) -> Any:
    """The answer without the fields that it did not have before: new fields are allowed."""
    if isinstance(answer, dict) and isinstance(before, dict):
        return {name: without_new_fields(answer.get(name), old) for name, old in before.items()}
    if isinstance(answer, list) and isinstance(before, list) and len(answer) == len(before):
        return [without_new_fields(*pair) for pair in zip(answer, before, strict=True)]
    return answer


def test_every_scenario_has_a_history() -> None:
    assert {path.stem for path in HISTORIES} == set(SCENARIOS)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_stored_history_replays_without_a_call_to_a_port(
    path: Path,
) -> None:
    history = json.loads(path.read_text())
    assert without_new_fields(replay(history), history["answer"]) == history["answer"]


def test_a_history_with_other_steps_does_not_replay() -> None:
    history: dict[str, Any] = json.loads((FOLDER / "interruption.json").read_text())
    steps = [o for o in history["operations"] if o["Type"] == "STEP"]
    steps[1]["Name"] = "another-step"
    with pytest.raises(AssertionError, match="request-replacement"):
        replay(history)


def test_the_current_code_runs_the_steps_of_the_histories(tmp_path: Path) -> None:
    run("write", str(tmp_path))
    for path in HISTORIES:
        assert steps_in(path)
        assert steps_in(tmp_path / path.name) == steps_in(path)


def test_a_drain_that_is_blocked_for_hours_keeps_its_hook_and_suspends() -> None:
    hours = 3
    counted = json.loads(run("long_block", str(hours)))
    assert counted["result"] == "drained"
    assert counted["hours"] > hours - 0.1
    assert counted["hooks_answered"] == ["leeway-drain"], "the hook still waited for the answer"
    assert counted["invocations"] > 50, "the execution suspended instead of running"
    # tests/retirement/test_retire_node.py counts the operations of two days without the runner.
    # This test checks that the runner counts the same operations, and one for the execution.
    fakes, _ = blocked(hours)
    assert fakes.run_attempt() is not None
    assert counted["operations"] == fakes.steps.operations + 1


def test_a_pass_over_thirty_blocked_pods_writes_only_changes() -> None:
    counted = json.loads(run("long_block", "0.5", "30"))
    assert counted["result"] == "drained"
    whole = counted["largest_kilobytes"] / 1e3
    assert whole > 0.015, "the first pass writes every pod"
    passes = counted["operations"] / 2
    assert counted["megabytes_written"] < whole * passes / 5, "the other passes write changes"
