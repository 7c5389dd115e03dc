"""A process of the sandbox exits on SIGTERM and with its parent."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SERVES = """
import asyncio, os
from leeway_sandbox.process import report_ready, wait_for_stop
report_ready(pid=os.getpid())
asyncio.run(wait_for_stop())
"""
STARTS = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.parametrize("text", [signal.SIGTERM, signal.SIGINT])
def test_it_exits_cleanly_on_sigterm(text: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVES], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"ready": True, "pid": process.pid}
        _until_it_listens(process.pid)
        process.send_signal(text)

        assert process.wait(60) == 0


def test_it_exits_when_its_parent_process_is_killed() -> None:
    command = [sys.executable, "-c", STARTS, SERVES]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert json.loads(parent.stdout.readline())["pid"] != parent.pid
        parent.kill()

        assert parent.stdout.read() == b"", "the pipe ends when nobody holds it any more"


def _until_it_listens(pid: int) -> None:
    """Wait until it catches SIGTERM."""
    until = time.monotonic() + 60
    while not _caught(pid) >> (signal.SIGTERM - 1) & 1:
        assert time.monotonic() < until
        time.sleep(0.01)


def _caught(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return int(mask, 16)
