"""The life of a process of the sandbox: it reports that it is ready, and exits with its parent."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from leeway_sandbox.errors import SandboxError

_PARENT_CHECK_SECONDS = 0.5


@dataclass
class _Parent:
    """The process that started this one: read on import and by a fork, because it may exit before
    the server is ready."""

    pid: int

    def read(self) -> None:
        self.pid = os.getppid()


_parent = _Parent(os.getppid())
os.register_at_fork(after_in_child=_parent.read)


@contextmanager
def exit_on_errors() -> Iterator[None]:
    """Exit with status 1 and one line on an error that a person can correct."""
    try:
        yield
    except SandboxError as error:
        sys.exit(str(error))


def report_ready(**where: Any) -> None:
    """Print the line for which the parent process waits."""
    print(json.dumps({"ready": True, **where}), flush=True)


def has_parent() -> bool:
    """Whether the process that started this one still runs."""
    return os.getppid() == _parent.pid


async def wait_for_stop() -> None:
    """Wait for SIGTERM or SIGINT, or until the process that started this one exits."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    while not stop.is_set() and has_parent():
        try:
            await asyncio.wait_for(stop.wait(), _PARENT_CHECK_SECONDS)
        except TimeoutError:
            continue
