"""The last lines of .ci/run list the skipped tests with reasons."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tally import VARIABLE, summary

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

@pytest.fixture
def engine():
    pytest.skip("no engine answers")

@pytest.mark.skipif(True, reason="no such tool")
def test_of_a_tool(): ...

def test_of_an_engine(engine): ...

def test_that_passes(): ...

def test_that_fails():
    raise ValueError("as meant")

def test_without_its_fixture(missing): ...
"""


def test_runs_without_and_with_workers_add_their_skipped_tests_with_reasons(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    tally = tmp_path / "tally"
    folder = str(tmp_path)
    arguments = ["-p", "tests.tally", "-p", "no:cacheprovider", "--rootdir", folder, folder]
    for workers in ([], ["-p", "xdist.plugin", "-n", "1"]):
        subprocess.run(
            [sys.executable, "-m", "pytest", *workers, *arguments],
            cwd=ROOT,
            env={**os.environ, VARIABLE: str(tally), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            check=False,
        )  # it fails, as a test in it does

    said = summary(tally.read_text().splitlines()).splitlines()

    assert said[0] == "Skipped tests by reason:"
    assert said[1:-1] == [
        "  no such tool (2):",
        *["    test_some.py::test_of_a_tool"] * 2,
        "  no engine answers (2):",
        *["    test_some.py::test_of_an_engine"] * 2,
    ]
    assert said[-1] == "2 passed, 4 failed, 4 skipped"


def test_a_run_without_skipped_tests_is_reported() -> None:
    line = '{"passed": 3, "failed": 0, "skipped": []}'

    assert summary([line, line]) == "No test was skipped.\n6 passed, 0 failed, 0 skipped"
