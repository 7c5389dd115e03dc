"""A watch in its own thread."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import httpx2

from leeway.kubernetes.connection import Connection, raise_for_status
from leeway.kubernetes.transport import TOTAL


def _ignore_start(_: "WatchStream") -> None:
    return


class WatchStream:
    """A running watch of `path` for at most `seconds`. It calls, in its thread:

    - `started` when the API server has accepted the watch,
    - `receive` with the lines of one or more events, each a JSON document,
    - `ended` once, with the error, or None if the server ended the watch or `stop` was called
      before it began.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        parameters: dict[str, str],
        seconds: float,
        receive: "Callable[[WatchStream, list[bytes]], None]",
        ended: "Callable[[WatchStream, Exception | None], None]",
        started: "Callable[[WatchStream], None]" = _ignore_start,
    ) -> None:
        self._connection = connection
        self._path = path
        self._parameters = {"watch": "true", **parameters}
        self._seconds = seconds
        self._receive = receive
        self._ended = ended
        self._started = started
        self._socket: socket.socket | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch. A pending read returns immediately."""
        self._stopped.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def join(self, seconds: float) -> None:
        """Wait until its thread has ended."""
        self._thread.join(seconds)

    def _run(self) -> None:
        error: Exception | None = None
        try:
            self._connection.call(self._read)
        except Exception as caught:  # noqa: BLE001 (`ended` receives it)
            error = caught
        self._ended(self, error)

    def _read(self, connection: Connection) -> None:
        with connection.plain.stream(
            "GET",
            self._path,
            params=self._parameters,
            timeout=httpx2.Timeout(10.0, connect=3.0, read=self._seconds),
            extensions={TOTAL: self._seconds},
        ) as response:
            if response.is_error:
                response.read()
            raise_for_status(response)
            self._socket = response.extensions["network_stream"].get_extra_info("socket")
            if self._stopped.is_set():
                return
            self._started(self)
            for lines in _lines(response):
                self._receive(self, lines)


def _lines(response: httpx2.Response) -> Iterator[list[bytes]]:
    r"""Split a watch into lines at `\n` only. httpx2's line iterator also splits at characters that
    annotations may contain, for example U+0085."""
    rest: list[bytes] = []
    for read in response.iter_bytes():
        first, *others = read.split(b"\n")
        rest.append(first)
        if others:
            yield [b"".join(rest), *others[:-1]]
            rest = [others[-1]]
