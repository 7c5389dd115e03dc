"""Starts the processes of the sandbox, waits until each is ready, and always stops them."""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from leeway_sandbox.errors import SandboxError
from leeway_sandbox.installed import ROOT
from leeway_sandbox.nursery import SERVERS, VARIABLE, Forked

STOP_TIMEOUT = 2.5  # seconds between SIGTERM and SIGKILL
LOG_LINES = 15  # of a failed process that an error shows


@dataclass(frozen=True)
class Child:
    """A process of the sandbox; it logs to the file `log`."""

    module: str
    process: subprocess.Popen[bytes] | Forked
    log: Path

    @classmethod
    def start(cls, module: str, arguments: Sequence[str], log: Path) -> Self:
        """Start `python -m MODULE` in a session of its own, so that Ctrl-C does not reach it."""
        nursery = os.environ.get(VARIABLE)
        if nursery and module in SERVERS:
            with log.open("wb") as stderr:
                return cls(module, Forked(nursery, module, arguments, stderr), log)
        search_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": search_path},
            )
        return cls(module, process, log)

    def ready(self, timeout: float) -> Mapping[str, Any]:
        """Return the JSON line that the process prints when it is ready.

        Raises:
            SandboxError: the process exited, printed something else, or printed nothing within
                `timeout` seconds. The message has the end of its log.
        """
        line = self._first_line(time.monotonic() + timeout)
        if line is None:
            raise SandboxError(
                f"{self.module} was not ready after {timeout:.0f} s; {self._log_end()}"
            )
        try:
            report = json.loads(line)
        except ValueError:
            report = None
        if not isinstance(report, dict) or not report.get("ready"):
            self.process.poll()
            raise SandboxError(f"{self.module} did not start; {self._log_end()}")
        return report

    def _first_line(self, deadline: float) -> bytes | None:
        """Return the first line on stdout, empty if the process exits first; None on a timeout."""
        stdout = self.process.stdout
        if stdout is None:
            return b""
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(stdout.fileno(), 65536)
                if not chunk:
                    return line
                line += chunk
        return line

    def _log_end(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        tail = "\n".join(f"  {line}" for line in lines) or "  (empty)"
        return f"the end of its log, {self.log}:\n{tail}"

    def terminate(self) -> None:
        """Send SIGTERM, unless the process has exited."""
        if self.process.poll() is None:
            self.process.terminate()

    def stop(self) -> None:
        """Stop the process by SIGTERM, and by SIGKILL after a timeout."""
        self.terminate()
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def stop_all(children: Sequence[Child]) -> None:
    """Stop all processes at the same time."""
    for child in children:
        child.terminate()
    for child in children:
        child.stop()
