"""Lists in pages, watches, and how their answers are decoded."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import httpx2
import msgspec
from msgspec import Raw, Struct, ValidationError, field
from msgspec.json import Decoder, decode, encode

from leeway.kubernetes.connection import (
    ApiError,
    Connection,
    is_unknown_path,
    raise_for_status,
    without_nulls,
)
from leeway.kubernetes.transport import STOP, TOTAL, Stop
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable, WatchExpired


class ListMeta(Struct):
    """A list's resource version, and its continue token: empty on the last page."""

    resourceVersion: str = ""  # noqa: N815 (Kubernetes's name)
    next_page: str = field(name="continue", default="")


class ObjectList[T](Struct):
    """A list, or a page of one. An answer without kind or metadata is an error: a proxy may have
    sent it, and it must not count as a list without objects."""

    kind: str
    metadata: ListMeta
    items: list[T] = field(default_factory=list)


class WatchEvent(Struct):
    """One event of a watch; its type says what `object` is."""

    type: str
    object: Raw


_EVENTS = Decoder(WatchEvent)  # built in one thread, as `objects` says


def read_json[T](content: bytes | Raw, decoder: Decoder[T]) -> T:
    """Decode JSON of an API server. A field that is null is a missing field: the API server writes
    null for a list or map of Go that was never made, and for a time that is not set.

    Raises:
        MsgspecError: it is no JSON, or does not have the shape of the type.
    """
    try:
        return decoder.decode(content)
    except ValidationError:
        if b"null" not in bytes(content):
            raise
        return decoder.decode(encode(without_nulls(decode(content))))


PAGE = 500
"""Objects per page."""

type Parameters = dict[str, str]


def list_objects[T](
    connection: Connection,
    path: str,
    pages: Decoder[ObjectList[T]],
    kept: Callable[[list[T]], list[T]] = list,
    selection: Parameters | None = None,
) -> list[T]:
    """List all objects of a path that the selectors of `selection` select; `kept` returns what is
    kept of a page.

    Raises:
        ApiError, ValueError, MsgspecError: as `list_pages`, and for an answer that is no list.
    """

    def read(parameters: Parameters) -> ObjectList[T]:
        response = connection.plain.request("GET", path, params=parameters)
        raise_for_status(response)
        return read_json(response.content, pages)

    found: list[T] = []
    for first, page in list_pages(read, selection or {}, PAGE):
        if first:
            found = []
        found += kept(page.items)
    return found


_OBJECTS = Decoder(ObjectList[dict[str, Any]])  # built in one thread, as `objects` says


def list_any(
    connection: Connection, path: str, selection: Parameters | None = None
) -> list[dict[str, Any]]:
    """List objects of any kind, without fields that are null; none if the API server does not have
    the path.

    Raises:
        ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
    """
    try:
        return connection.call(
            lambda one: list_objects(one, path, _OBJECTS, without_nulls, selection)
        )
    except ClusterUnavailable as error:
        if is_unknown_path(error):
            return []
        raise
    except ApiError as error:
        if error.response.status_code == 404:
            return []
        raise ClusterRefused(str(error)) from error


def list_pages[T](
    read: Callable[[Parameters], ObjectList[T]], selection: Parameters, limit: int
) -> Iterator[tuple[bool, ObjectList[T]]]:
    """List with at most `limit` objects per page (0: in one page); yield (first, page).

    If the continue token has expired, list all objects again in one page, which is a first page
    again: another list in pages would expire again. Source: Kubernetes API, "Retrieving large
    results sets in chunks".

    Raises:
        ApiError: the API server answers with an error.
        ValueError: the list repeats its continue token.
    """
    parameters = selection | ({"limit": str(limit)} if limit else {})
    asked, first = parameters, True
    while True:
        try:
            page = read(asked)
        except ApiError as error:
            if error.response.status_code != 410 or asked == selection:
                raise
            parameters = asked = selection
            first = True
            continue
        yield first, page
        token = page.metadata.next_page
        if not token:
            return
        if token == asked.get("continue"):
            raise ValueError("the list repeats its continue token")
        asked, first = parameters | {"continue": token}, False


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
    query, `accept` is the form of the answer."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        parameters: Mapping[str, str],
        seconds: float = WATCH_SECONDS,
        accept: str = "application/json",
    ) -> None:
        self._connection = connection
        self._path = path
        self._parameters = {"watch": "true", "timeoutSeconds": str(round(seconds)), **parameters}
        self._timeout = seconds + EXTRA_SECONDS
        self._headers = {"Accept": accept}
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
            headers=self._headers,
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
        event = _EVENTS.decode(line)
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
        started: "Callable[[WatchStream], None]" = lambda _: None,
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
