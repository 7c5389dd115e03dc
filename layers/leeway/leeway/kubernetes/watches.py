"""Watches: one request, which another thread can end, and a watch in its own thread."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import httpx2
import msgspec
from lightkube import ApiError
from lightkube.core.decoders import WatchEvent, decode_watch_event

from leeway.kubernetes.connection import Connection, raise_for_status
from leeway.kubernetes.decoders import read_json
from leeway.kubernetes.transport import STOP, TOTAL, Stop
from leeway.ports.kubernetes import ClusterUnavailable, WatchExpired

WATCH_SECONDS = 50.0
"""How long one watch lasts. A connection may be lost without an error, and what is watched is out
of date for at most this long."""

EXTRA_SECONDS = 10.0
"""How much longer than its time a watch may stay open."""

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one event. etcd limits an object to 1.5 MB; a line without an end comes from something
that is no API server, and must not fill the memory."""


class WatchRequest:
    """A watch on the objects of `path` that lasts for `seconds`; `parameters` are those of the
    query."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        parameters: Mapping[str, str],
        seconds: float = WATCH_SECONDS,
    ) -> None:
        self._connection = connection
        self._path = path
        self._parameters = {"watch": "true", "timeoutSeconds": str(round(seconds)), **parameters}
        self._timeout = seconds + EXTRA_SECONDS
        self.stop = Stop()
        """Ends the watch, from another thread."""

    def read(
        self, receive: Callable[[list[bytes]], None], began: Callable[[], None] = lambda: None
    ) -> None:
        """Pass the lines of one or more events to `receive` until the watch ends; call `began` when
        the API server has accepted it. `events_in` decodes lines.

        Raises:
            WatchExpired: the API server answers 410.
            ClusterUnavailable: no connection, or the watch was stopped.
            ClusterRefused, ApiError: as `Connection.call` does.
            Exception: an error of `receive`.
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
        receive: Callable[[list[bytes]], None],
        began: Callable[[], None],
    ) -> None:
        with connection.plain.stream(
            "GET",
            self._path,
            params=self._parameters,
            timeout=httpx2.Timeout(10.0, connect=3.0, read=self._timeout),
            extensions={TOTAL: self._timeout, STOP: self.stop},
        ) as response:
            if response.is_error:
                response.read()
            raise_for_status(response)
            began()
            for lines in _lines(response):
                receive(lines)


def events_in(lines: Iterable[bytes]) -> Iterator[WatchEvent]:
    """Decode the events of a watch.

    Raises:
        WatchExpired: the API server sent an ERROR event with the code 410.
        ClusterUnavailable: it sent another ERROR event.
    """
    for line in lines:
        event = decode_watch_event(line)
        if event.type == "ERROR":
            raise _error(bytes(event.object))
        yield event


class _Status(msgspec.Struct):
    code: int = 0


_STATUSES = msgspec.json.Decoder(_Status)


def _error(status: bytes) -> ClusterUnavailable:
    message = f"watch: {status[:200]!r}"
    with contextlib.suppress(msgspec.MsgspecError):
        if read_json(status, _STATUSES).code == 410:
            return WatchExpired(message)
    return ClusterUnavailable(message)


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
        if sum(map(len, rest)) > LONGEST_LINE:
            raise ValueError(f"the watch sent a line of more than {LONGEST_LINE} bytes")


def _ignore_start(_: "WatchStream") -> None:
    return


class WatchStream:
    """A running watch; the arguments are those of WatchRequest. It calls, in its thread:

    - `started` when the API server has accepted the watch,
    - `receive` with the lines of one or more events,
    - `ended` once, with the error, or None if the server ended the watch.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        parameters: Mapping[str, str],
        receive: "Callable[[WatchStream, list[bytes]], None]",
        ended: "Callable[[WatchStream, Exception | None], None]",
        started: "Callable[[WatchStream], None]" = _ignore_start,
        seconds: float = WATCH_SECONDS,
    ) -> None:
        self._request = WatchRequest(connection, path, parameters, seconds)
        self._receive = receive
        self._ended = ended
        self._started = started
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch; its thread ends soon after."""
        self._request.stop()

    def join(self, seconds: float) -> None:
        """Wait until its thread has ended."""
        self._thread.join(seconds)

    def _run(self) -> None:
        error: Exception | None = None
        try:
            self._request.read(
                lambda lines: self._receive(self, lines), lambda: self._started(self)
            )
        except Exception as caught:  # noqa: BLE001 (`ended` receives it)
            error = caught
        self._ended(self, error)
