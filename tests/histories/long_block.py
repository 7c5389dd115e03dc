"""What a drain behind a budget costs: `python -m tests.histories.long_block HOURS [PODS]`.

Runs it in the durable SDK's own runner, in skipped time, and prints what that counted as JSON.
Two days take half a minute of processor time, since every wake replays what was before; with a
hundred pods ten times as long.
"""

import json
import sys

from tests.histories.executing import execute
from tests.histories.scenarios import blocked


def main(hours: float, pods: int = 0) -> None:
    """Run it and print."""
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
