"""Executions in the test runner of the durable SDK: their costs and the replay of histories."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_durable_execution_sdk_python.serdes import SerDesContext
from leeway.execution.durable import Typed

from tests.fakes.clock import FakeClock
from tests.fakes.steps import FakeSteps
from tests.histories.executing import replay
from tests.histories.scenarios import SCENARIOS, blocked

FOLDER = Path(__file__).parent
HISTORIES = sorted(FOLDER.glob("*.json"))
HOURS = 3
RUN = f"""
import sys
from pathlib import Path
from tests.histories import long_block, write

write.main(Path(sys.argv[1]))
long_block.main({HOURS})
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with the histories that the current code writes, and the counts of a drain that a
    budget blocks for hours. One process runs both."""
    folder = tmp_path_factory.mktemp("written")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder)],
        cwd=FOLDER.parents[1],
        check=True,
        stdout=subprocess.PIPE,
        timeout=300,
    )
    return folder, json.loads(done.stdout)


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


def test_the_current_code_runs_the_steps_of_the_histories(
    ran: tuple[Path, dict[str, Any]],
) -> None:
    for path in HISTORIES:
        assert steps_in(path)
        assert steps_in(ran[0] / path.name) == steps_in(path)


def test_a_drain_that_is_blocked_for_hours_keeps_its_hook_and_suspends(
    ran: tuple[Path, dict[str, Any]],
) -> None:
    counted = ran[1]
    assert counted["result"] == "drained"
    assert counted["hours"] > HOURS - 0.1
    assert counted["hooks_answered"] == ["leeway-drain"], "the hook still waited for the answer"
    assert counted["invocations"] > 50, "the execution suspended instead of running"
    # tests/retirement/test_retire_node.py counts the operations of two days without the runner.
    # This test checks that the runner counts the same operations, and one for the execution.
    fakes, _ = blocked(HOURS)
    assert fakes.run_attempt() is not None
    assert counted["operations"] == fakes.steps.operations + 1


class MeasuredSteps(FakeSteps):
    """Measures the results of the steps as the durable engine stores them, in bytes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.written: list[int] = []

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        result = super().run(name, kind, work)
        stored = Typed(kind).serialize(result, SerDesContext(name, "arn"))
        self.written.append(len(stored))
        return result


def test_a_pass_over_thirty_blocked_pods_writes_only_changes() -> None:
    fakes, _ = blocked(0.25, 30)
    fakes.steps = steps = MeasuredSteps(fakes.clock)
    outcome = fakes.run_attempt()
    assert outcome is not None
    assert outcome.to_dict()["result"] == "drained"
    whole, *others = sorted(steps.written, reverse=True)
    assert whole > 15_000, "the first pass writes every pod"
    assert sum(others) < whole * len(others) / 10, "the other passes write changes"
