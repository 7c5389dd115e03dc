"""What several runs of pytest have passed, failed and skipped, counted as one.

`conftest.py` takes the hook in. With `LEEWAY_TALLY` set to the path of a file, each run adds a line
to it; `python -m tests.tally FILE` prints what was not run and why, and the totals last.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

VARIABLE = "LEEWAY_TALLY"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add this run to the tally, where one is kept. The controller of pytest-xdist counts for its
    workers, which have a summary of their own."""
    path = os.environ.get(VARIABLE)
    if path is None or hasattr(terminalreporter.config, "workerinput"):
        return
    stats = terminalreporter.stats
    run = {
        "passed": len(stats.get("passed", [])),
        "failed": len(stats.get("failed", [])) + len(stats.get("error", [])),
        "skipped": [[one.nodeid, reason_of(one)] for one in stats.get("skipped", [])],
    }
    with Path(path).open("a") as tally:
        tally.write(json.dumps(run) + "\n")


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test was skipped, as its author wrote it."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix("Skipped: ")


def summary(lines: Iterable[str]) -> str:
    """Return what the runs of a tally did not run and why, and the totals in the last line."""
    runs = [json.loads(line) for line in lines]
    skipped: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        for test, reason in run["skipped"]:
            skipped[reason].append(test)
    said = ["Not run, and why:"] if skipped else ["Every test was run."]
    for reason, tests in skipped.items():
        said += [f"  {reason} ({len(tests)}):", *(f"    {test}" for test in tests)]
    passed, failed = (sum(run[key] for run in runs) for key in ("passed", "failed"))
    left_out = sum(len(tests) for tests in skipped.values())
    return "\n".join([*said, f"{passed} passed, {failed} failed, {left_out} skipped"])


if __name__ == "__main__":
    print(summary(Path(sys.argv[1]).read_text().splitlines()))
