"""What a drain behind a budget costs: `python -m tests.histories.long_block HOURS`.

Runs it in the durable SDK's own runner, in skipped time, and prints what that counted as JSON.
Two days take half a minute of processor time, since every wake replays what was before.
"""

import json
import sys

from tests.histories.executing import execute
from tests.histories.scenarios import blocked


def main(hours: float) -> None:
    """Run it and print."""
    world, order = blocked(hours)
    ran = execute(world, order, real_seconds=900)
    counted = {
        "operations": len(ran.operations),
        "invocations": ran.invocations,
        "result": ran.answer["result"],
        "hours": (world.now_ - world.record.noticed_at).total_seconds() / 3600,
        "hooks_answered": world.ended,
    }
    print(json.dumps(counted))


if __name__ == "__main__":
    main(float(sys.argv[1]))
