"""Connections to an API server on which nothing takes longer, in all, than it may.

An HTTP client's timeouts hold for each read by itself. An API server, or somebody in between, that
sends a byte a second would keep a drain past its deadline without ever being late.
"""

import math
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpcore2
import httpx2

from leeway import __version__

USER_AGENT = f"leeway/{__version__}"
"""What audit logs, and fields without a manager, name as the client."""

REQUEST_SECONDS = 15.0
"""What one request may take, to the last byte of its answer: some seconds more than the first byte
may be waited for."""

TOTAL = "leeway.total"
"""The extension of a request that may take longer, as a watch does: seconds."""

MOST_CONNECTIONS = 512
"""More than a drain's requests that hang can take, so that a list still finds a connection."""

KEPT_OPEN = 32
"""Connections, and for KEPT_SECONDS: as many as are used at once."""

KEPT_SECONDS = 5.0


class _Until(threading.local):
    """Moments of the monotonic clock: when a thread's request, and its group of them, must end."""

    group = math.inf
    request = math.inf


_until = _Until()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Give all the requests that this thread makes meanwhile so many seconds, together."""
    outer = _until.group
    _until.group = min(outer, time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.group = outer


def _left(timeout: float | None) -> float:
    """Return how long a read or a write may wait now.

    Raises:
        ReadTimeout: not at all any more.
    """
    left = _until.request - time.monotonic()
    if left <= 0:
        raise httpcore2.ReadTimeout("its answer took too long in all")
    return left if timeout is None else min(timeout, left)


class BoundedTransport(httpx2.BaseTransport):
    """Sends requests over connections that are kept, each in its time. Safe to use from several
    threads, if an answer is read by the thread that asked."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._pool = httpcore2.ConnectionPool(
            ssl_context=trust,
            max_connections=MOST_CONNECTIONS,
            max_keepalive_connections=KEPT_OPEN,
            keepalive_expiry=KEPT_SECONDS,
            network_backend=_Network(),
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            HTTPError: no answer came, or it did not come in time.
        """
        total = request.extensions.get(TOTAL, REQUEST_SECONDS)
        _until.request = min(_until.group, time.monotonic() + total)
        request.headers["User-Agent"] = USER_AGENT
        url = request.url
        with _as_httpx2():
            answer = self._pool.handle_request(
                httpcore2.Request(
                    request.method,
                    httpcore2.URL(
                        scheme=url.raw_scheme,
                        host=url.raw_host,
                        port=url.port,
                        target=url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        """Close the connections that are open."""
        self._pool.close()


class _Body(httpx2.SyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx2():
            yield from self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()


_ERRORS: tuple[tuple[type[Exception], type[httpx2.TransportError]], ...] = (
    (httpcore2.ConnectTimeout, httpx2.ConnectTimeout),
    (httpcore2.ReadTimeout, httpx2.ReadTimeout),
    (httpcore2.WriteTimeout, httpx2.WriteTimeout),
    (httpcore2.PoolTimeout, httpx2.PoolTimeout),
    (httpcore2.ConnectError, httpx2.ConnectError),
    (httpcore2.ReadError, httpx2.ReadError),
    (httpcore2.WriteError, httpx2.WriteError),
    (httpcore2.NetworkError, httpx2.NetworkError),
    (httpcore2.RemoteProtocolError, httpx2.RemoteProtocolError),
    (httpcore2.ProtocolError, httpx2.ProtocolError),
    (httpcore2.UnsupportedProtocol, httpx2.UnsupportedProtocol),
)


@contextmanager
def _as_httpx2() -> Iterator[None]:
    """Turn what the connections raise into what users of httpx2 expect."""
    try:
        yield
    except Exception as error:
        for theirs, ours in _ERRORS:
            if isinstance(error, theirs):
                raise ours(f"{type(error).__name__}: {error}") from error
        raise


class _Network(httpcore2.NetworkBackend):
    """The network, for as long as a thread's request has time."""

    def __init__(self) -> None:
        self._plain = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> "_Stream":
        return _Stream(
            self._plain.connect_tcp(host, port, _left(timeout), local_address, socket_options)
        )


class _Stream(httpcore2.NetworkStream):
    """A connection that sends a request as a whole, when its answer is about to be read: its head
    and its body by themselves would wake the server twice."""

    def __init__(self, plain: httpcore2.NetworkStream) -> None:
        self._plain = plain
        self._unsent = b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            # A server may answer, and close, before it has read everything.
            with suppress(httpcore2.WriteError):
                self._plain.write(unsent, _left(timeout))
        return self._plain.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent += buffer

    def close(self) -> None:
        self._plain.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> "_Stream":
        return _Stream(self._plain.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._plain.get_extra_info(info)
