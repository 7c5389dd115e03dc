"""The log of a worker: its standard output and error, line by line."""

import asyncio
import json
import os
from typing import Any

from leeway_sandbox.journal import Journal
from leeway_sandbox.lambda_service.invocation import Invocation

_CHUNK = 65536


class WorkerLog:
    """Reads the pipe of one worker into the journal."""

    def __init__(self, descriptor: int, function: str, journal: Journal) -> None:
        self.invocation: Invocation | None = None
        self._descriptor: int | None = descriptor
        self._function = function
        self._journal = journal
        self._rest = b""
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self.drain)

    def drain(self) -> None:
        """Read all available lines, so that the journal has them with the present invocation."""
        while self._descriptor is not None:
            try:
                data = os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._record(line)

    def close(self) -> None:
        """Record an unfinished last line and close the pipe."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
            self._record(self._rest)

    def _record(self, line: bytes) -> None:
        # The runtime client separates the lines of a traceback with carriage returns.
        text = line.decode(errors="replace").replace("\r", "\n")
        if not text.strip():
            return
        self._journal.add(
            "logs",
            function=self._function,
            request_id=self.invocation.request_id if self.invocation else None,
            line=_parsed(text),
        )


def _parsed(text: str) -> Any:
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
