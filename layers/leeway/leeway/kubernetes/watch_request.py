"""One watch request, which another thread can end."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

import httpx2
import msgspec
from lightkube import ApiError
from lightkube.core.decoders import WatchEvent, decode_watch_event

from leeway.kubernetes.connection import Connection, raise_for_status
from leeway.kubernetes.transport import TOTAL
from leeway.ports.kubernetes import ClusterUnavailable, WatchExpired

WATCH_SECONDS = 50
"""How long one watch lasts. A connection may be lost without an error, and what is watched is out
of date for at most this long."""

_WATCH_TIMEOUT = WATCH_SECONDS + 10
_TIMEOUT = httpx2.Timeout(10.0, connect=3.0, read=_WATCH_TIMEOUT)

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one event. etcd limits an object to 1.5 MB; a line without an end comes from something
that is no API server, and must not fill the memory."""


class WatchRequest:
    """A watch on objects; `parameters` are those of the query."""

    def __init__(self, connection: Connection, path: str, parameters: Mapping[str, str]) -> None:
        self._connection = connection
        self._path = path
        self._parameters = {
            "watch": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            **parameters,
        }
        self._socket: socket.socket | None = None
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the watch, from another thread. A pending read returns immediately."""
        self._stopped.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def read(
        self, receive: Callable[[WatchEvent], None], began: Callable[[], None] = lambda: None
    ) -> None:
        """Pass each event to `receive` until the watch ends; call `began` when the API server has
        accepted it.

        Raises:
            WatchExpired: the API server answers 410, or sends an ERROR event with this code.
            ClusterUnavailable: another ERROR event, or no connection.
            ClusterRefused, ApiError: as `Connection.call` does.
        """

        def stream(connection: Connection) -> None:
            self._stream(connection, receive, began)

        try:
            self._connection.call(stream)
        except ClusterUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, ApiError) and cause.response.status_code == 410:
                raise WatchExpired(str(error)) from error
            raise

    def _stream(
        self,
        connection: Connection,
        receive: Callable[[WatchEvent], None],
        began: Callable[[], None],
    ) -> None:
        with connection.plain.stream(
            "GET",
            self._path,
            params=self._parameters,
            timeout=_TIMEOUT,
            extensions={TOTAL: _WATCH_TIMEOUT},
        ) as response:
            if response.is_error:
                response.read()
            raise_for_status(response)
            self._socket = response.extensions["network_stream"].get_extra_info("socket")
            if self._stopped.is_set():
                return
            began()
            for line in _lines(response):
                event = decode_watch_event(line)
                if event.type == "ERROR":
                    raise _error(bytes(event.object))
                receive(event)


class _Status(msgspec.Struct):
    code: int = 0


def _error(status: bytes) -> ClusterUnavailable:
    message = f"watch: {status[:200]!r}"
    with contextlib.suppress(msgspec.MsgspecError):
        if msgspec.json.decode(status, type=_Status).code == 410:
            return WatchExpired(message)
    return ClusterUnavailable(message)


def _lines(response: httpx2.Response) -> Iterator[bytes]:
    r"""Split a watch into lines at `\n` only. httpx2's line iterator also splits at characters that
    annotations may contain, for example U+0085."""
    rest = b""
    for read in response.iter_bytes():
        *lines, rest = (rest + read).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise ValueError(f"the watch sent a line of more than {LONGEST_LINE} bytes")
        yield from lines
