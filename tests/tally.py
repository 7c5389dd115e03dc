"""Counts the passed, failed and skipped tests of several runs of pytest.

`conftest.py` registers the hook. If `LEEWAY_TALLY` has the path of a file, each run adds a line to
it. `python -m tests.tally FILE` prints the skipped tests with their reasons, and the totals last.
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
    """Add this run to the tally file, if there is one. The controller of pytest-xdist counts for
    its workers, which have their own summaries."""
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
    """Return the reason of a skipped test."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def summary(lines: Iterable[str]) -> str:
    """Return the skipped tests with their reasons, and the totals in the last line."""
    runs = [json.loads(line) for line in lines]
    skipped: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        for test, reason in run["skipped"]:
            skipped[reason].append(test)
    text = ["Skipped tests by reason:"] if skipped else ["No test was skipped."]
    for reason, tests in skipped.items():
        text += [f"  {reason} ({len(tests)}):", *(f"    {test}" for test in tests)]
    passed, failed = (sum(run[key] for run in runs) for key in ("passed", "failed"))
    skipped_count = sum(len(tests) for tests in skipped.values())
    return "\n".join([*text, f"{passed} passed, {failed} failed, {skipped_count} skipped"])


if __name__ == "__main__":
    print(summary(Path(sys.argv[1]).read_text().splitlines()))
