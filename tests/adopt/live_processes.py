"""Runs the command line in processes of their own, which end or stop at a step.

`python -m tests.adopt.live_processes` reads requests from stdin, one JSON document a line, and
answers each when its process has ended or stopped. It forks each process, so that none of them
imports boto3 again.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[2]
SERVICES = ("autoscaling", "cloudformation", "dynamodb", "ec2", "eks")


@dataclass(frozen=True)
class Run:
    """A process: how it is, and what it has printed. `code` is None if it is stopped, and negative
    if a signal ended it."""

    pid: int
    code: int | None
    out: str
    err: str


class Processes:
    """Starts processes and continues stopped ones."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, *arguments: str, step: int = 0, sent: signal.Signals = signal.SIGKILL) -> Run:
        """Run a command. When it has said that it has done this step, it sends itself a signal."""
        return self._ask({"arguments": arguments, "step": step, "signal": sent})

    def go_on(self, run: Run) -> Run:
        """Continue a stopped process until it ends."""
        return self._ask({"pid": run.pid})

    def _ask(self, request: dict[str, Any]) -> Run:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Run(**json.loads(self._process.stdout.readline()))


@contextmanager
def live_processes() -> Iterator[Processes]:
    """Start processes while the context lasts, in the environment that it has at its begin."""
    command = [sys.executable, "-m", "tests.adopt.live_processes"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        yield Processes(process)


class Steps:
    """An output that sends a signal to its process when it gets the line of a step."""

    def __init__(self, file: TextIO, step: int, sent: int) -> None:
        self._file, self._line, self._signal = file, f"[{step}/", sent

    def write(self, text: str) -> int:
        """Write, and send the signal."""
        written = self._file.write(text)
        self._file.flush()
        if text.startswith(self._line):
            os.kill(os.getpid(), self._signal)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def serve(folder: Path) -> None:
    """Answer requests until stdin ends."""
    import leeway_cli.adopt.run  # noqa: F401 - what both commands import when they run
    from leeway.wiring.clients import client
    from leeway_cli import main

    for service in SERVICES:
        client(service)
    stopped: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "pid" in request:
            pid = request["pid"]
            os.kill(pid, signal.SIGCONT)
        elif not (pid := os.fork()):
            _become(folder, request, main.run)
        _, status = os.waitpid(pid, os.WUNTRACED)
        printed = {one: (folder / f"{pid}.{one}").read_text() for one in ("out", "err")}
        code = None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        (stopped.add if code is None else stopped.discard)(pid)
        print(json.dumps({"pid": pid, "code": code, **printed}), flush=True)
    for pid in stopped:  # a test has failed before it continued them
        os.kill(pid, signal.SIGKILL)


def _become(folder: Path, request: dict[str, Any], run: Any) -> None:
    """Run the command in this process, and end it."""
    out = (folder / f"{os.getpid()}.out").open("w")
    sys.stdout = Steps(out, request["step"], request["signal"])
    sys.stderr = (folder / f"{os.getpid()}.err").open("w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    code = 70
    try:
        code = run(request["arguments"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        serve(Path(temporary))
