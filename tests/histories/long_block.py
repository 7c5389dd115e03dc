"""Measures a drain that a budget blocks: `python -m tests.histories.long_block HOURS [PODS]`.

Runs the drain in the test runner of the durable SDK, with simulated time, and prints the counts as
JSON. Two days take half a minute of CPU time, because every invocation replays all operations
before it; with a hundred pods it takes ten times as long.
"""

import json
import sys

from tests.histories.executing import execute
from tests.histories.scenarios import blocked


def main(hours: float, pods: int = 0) -> None:
    """Run the drain and print the counts."""
    fakes, order = blocked(hours, pods)
    ran = execute(fakes, order, real_seconds=900)
    counted = {
        "operations": len(ran.operations),
        "invocations": ran.invocations,
        "megabytes_written": round(sum(ran.written) / 1e6, 2),
        "largest_kilobytes": round(max(ran.written) / 1e3, 1),
        "result": ran.answer["result"],
        "hours": (fakes.clock.time - fakes.record.noticed_at).total_seconds() / 3600,
        "hooks_answered": fakes.actions.ended,
    }
    print(json.dumps(counted))


if __name__ == "__main__":
    main(float(sys.argv[1]), *map(int, sys.argv[2:]))
