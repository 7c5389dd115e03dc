"""A process of the sandbox exits on SIGTERM, with its parent, and if it cannot start."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from leeway_sandbox.access import new_token
from leeway_sandbox.children import Child

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


@pytest.mark.parametrize("part", ["aws", "kubernetes", "lambda_service"])
def test_a_process_that_cannot_start_exits_with_one_line(tmp_path: Path, part: str) -> None:
    token = tmp_path / "token"
    new_token(token)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        in_use = started(tmp_path, part, "--port", str(port), "--control-token", str(token))
    missing = started(tmp_path, part, "--control-token", str(tmp_path / "none"))

    assert in_use[0] == 1
    assert in_use[1].startswith(f"Port {port} of 127.0.0.1 is already in use. Stop the process")
    assert missing[1].startswith("The control token cannot be read from")


def test_access_rules_that_cannot_be_read_end_the_cluster_with_one_line(tmp_path: Path) -> None:
    token = tmp_path / "token"
    new_token(token)
    rules = tmp_path / "rules.yaml"
    arguments = ("--control-token", str(token), "--rbac", str(rules))

    missing = started(tmp_path, "kubernetes", *arguments)
    rules.write_text("kind: Pod")
    other_kind = started(tmp_path, "kubernetes", *arguments)

    assert missing[1].startswith(f"The access rules in {rules} cannot be")
    assert other_kind[1].startswith(f"{rules}: the kind 'Pod' is not")


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


def started(folder: Path, part: str, *arguments: str) -> tuple[int, str]:
    """Run a process that cannot start; return its exit status and the last line of its stderr."""
    child = Child.start(f"leeway_sandbox.{part}", arguments, folder / "log")
    try:
        code = child.process.wait(60)
    finally:
        child.stop()
    log = child.log.read_text()
    assert "Traceback" not in log
    return code, log.splitlines()[-1]
