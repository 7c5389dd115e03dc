"""Starts the sandbox's processes, waits until each says that it is ready, and always ends them."""

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

ROOT = Path(__file__).resolve().parent.parent
STOP_TIMEOUT = 2.5  # seconds that a child has to end by itself
TAIL = 15  # lines of a failed child's log that are shown


class SandboxError(Exception):
    """The sandbox, or a part of it, did not come up or does not answer."""


class RefusedError(SandboxError):
    """The sandbox does not accept what it was told to do; the message says why."""


@dataclass(frozen=True)
class Child:
    """A process of the sandbox; what it logs goes to the file `log`."""

    module: str
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, module: str, arguments: Sequence[str], log: Path) -> Self:
        """Start `python -m MODULE` in a session of its own: Ctrl-C reaches it through us."""
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
        """The line of JSON that it prints once it serves.

        Raises:
            SandboxError: it ended, said something else or said nothing within `timeout` seconds;
                with the end of its log.
        """
        line = self._first_line(time.monotonic() + timeout)
        if line is None:
            raise SandboxError(self._complain(f"was not ready after {timeout:.0f} s"))
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict) or not said.get("ready"):
            self.process.poll()
            raise SandboxError(self._complain("did not start"))
        return said

    def _first_line(self, deadline: float) -> bytes | None:
        """Its first line on stdout, empty when it ends without one; None when time runs out."""
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

    def _complain(self, what: str) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL:]
        said = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
        return f"{self.module} {what}; the end of its log, {self.log}:\n{said}"

    def tell_to_end(self) -> None:
        """Send SIGTERM, unless it has ended."""
        if self.process.poll() is None:
            self.process.terminate()

    def stop(self) -> None:
        """End it: by SIGTERM, and by SIGKILL where that is not enough."""
        self.tell_to_end()
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def stop_all(children: Sequence[Child]) -> None:
    """End all of them, at once rather than one after the other."""
    for child in children:
        child.tell_to_end()
    for child in children:
        child.stop()
