"""Executions in the durable SDK's own runner: what they cost, and that their histories replay."""

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
    """Run a module of this folder; what it prints."""
    command = [sys.executable, "-m", f"tests.histories.{module}", *arguments]
    done = subprocess.run(
        command, cwd=FOLDER.parents[1], check=True, stdout=subprocess.PIPE, timeout=300
    )
    return done.stdout.decode()


def steps_in(path: Path) -> list[str]:
    operations = json.loads(path.read_text())["operations"]
    return [operation["Name"] for operation in operations if "Name" in operation]


def without_what_is_new(answer: Any, before: Any) -> Any:
    """The answer without fields that it did not have before: they may come at any time."""
    if isinstance(answer, dict) and isinstance(before, dict):
        return {name: without_what_is_new(answer.get(name), told) for name, told in before.items()}
    if isinstance(answer, list) and isinstance(before, list) and len(answer) == len(before):
        return [without_what_is_new(*pair) for pair in zip(answer, before, strict=True)]
    return answer


def test_every_scenario_has_a_history() -> None:
    assert {path.stem for path in HISTORIES} == set(SCENARIOS)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_history_that_was_written_before_replays_on_this_code_and_does_nothing(
    path: Path,
) -> None:
    history = json.loads(path.read_text())
    assert without_what_is_new(replay(history), history["answer"]) == history["answer"]


def test_a_history_of_other_steps_does_not_pass_for_this_codes() -> None:
    history: dict[str, Any] = json.loads((FOLDER / "interruption.json").read_text())
    steps = [o for o in history["operations"] if o["Type"] == "STEP"]
    steps[1]["Name"] = "somewhat-else"
    with pytest.raises(AssertionError, match="request-replacement"):
        replay(history)


def test_this_code_takes_the_steps_that_the_histories_have(tmp_path: Path) -> None:
    run("write", str(tmp_path))
    for path in HISTORIES:
        assert steps_in(path)
        assert steps_in(tmp_path / path.name) == steps_in(path)


def test_half_a_day_behind_a_budget_costs_what_its_steps_say_and_keeps_its_hook() -> None:
    counted = json.loads(run("long_block", "12"))
    assert counted["result"] == "drained"
    assert counted["hours"] > 11.9
    assert counted["hooks_answered"] == ["leeway-drain"], "it was still there to be answered"
    assert counted["invocations"] > 100, "it was suspended, rather than paid for"
    # Two days are counted in steps alone, in tests/retire_node/test_retire_node.py. That the runner
    # counts the same, and the execution itself as one, is seen here.
    fakes, _ = blocked(12)
    assert fakes.run_attempt() is not None
    assert counted["operations"] == fakes.steps.operations + 1


def test_of_thirty_pods_behind_a_budget_a_pass_writes_down_what_changed() -> None:
    counted = json.loads(run("long_block", "0.5", "30"))
    assert counted["result"] == "drained"
    whole = counted["largest_kilobytes"] / 1e3
    assert whole > 0.015, "the first pass tells of every pod"
    passes = counted["operations"] / 2
    assert counted["megabytes_written"] < whole * passes / 5, "and the others of what changed"
