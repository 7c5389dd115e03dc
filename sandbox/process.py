"""How a process of the sandbox says that it serves, and that it ends with whoever started it."""

import asyncio
import json
import os
import signal
from typing import Any

_PARENT = os.getppid()  # read as this is imported: it may be gone before anything serves
_PARENT_CHECK_SECONDS = 0.5


def report_ready(**where: Any) -> None:
    """Print the line that whoever started this process waits for."""
    print(json.dumps({"ready": True, **where}), flush=True)


def has_parent() -> bool:
    """Whether the process that started this one is still there."""
    return os.getppid() == _PARENT


async def wait_for_stop() -> None:
    """Wait for SIGTERM or SIGINT, or until the process that started this one is gone."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    while not stop.is_set() and has_parent():
        try:
            await asyncio.wait_for(stop.wait(), _PARENT_CHECK_SECONDS)
        except TimeoutError:
            continue
