"""HTTP connections with a timeout for each whole request.

The timeouts of an HTTP client apply to single reads. A server or a proxy that sends one byte per
second would never exceed them, and a drain would miss its deadline.
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
"""The client's name in audit logs, and in managed fields without a field manager."""

REQUEST_SECONDS = 15.0
"""Timeout of a request up to the last byte of its answer: longer than the read timeout."""

TOTAL = "leeway.total"
"""The request extension that replaces REQUEST_SECONDS, for example for a watch: seconds."""

MAX_CONNECTIONS = 512
"""More than the hanging requests of a drain, so that a list still gets a connection."""

KEEPALIVE_CONNECTIONS = 32
"""As many as requests that run at the same time."""

KEEPALIVE_SECONDS = 5.0


class _Deadlines(threading.local):
    """A thread's deadlines by the monotonic clock: for its request, and its group of requests."""

    group = math.inf
    request = math.inf


_deadlines = _Deadlines()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the total time of all requests that this thread makes in the block."""
    outer = _deadlines.group
    _deadlines.group = min(outer, time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadlines.group = outer


def _remaining(timeout: float | None) -> float:
    """Return the seconds that a read or a write may take now.

    Raises:
        ReadTimeout: the deadline has passed.
    """
    remaining = _deadlines.request - time.monotonic()
    if remaining <= 0:
        raise httpcore2.ReadTimeout("the request exceeded its total timeout")
    return remaining if timeout is None else min(timeout, remaining)


class BoundedTransport(httpx2.BaseTransport):
    """Sends requests with a total timeout over a connection pool. Safe to use from several threads,
    if the thread that sends a request reads its answer."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._pool = httpcore2.ConnectionPool(
            ssl_context=trust,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=KEEPALIVE_CONNECTIONS,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=_Network(),
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            HTTPError: no answer, or no complete answer within the timeout.
        """
        total = request.extensions.get(TOTAL, REQUEST_SECONDS)
        _deadlines.request = min(_deadlines.group, time.monotonic() + total)
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
    """Raise httpcore2's errors as the matching errors of httpx2."""
    try:
        yield
    except Exception as error:
        for httpcore_error, httpx_error in _ERRORS:
            if isinstance(error, httpcore_error):
                raise httpx_error(f"{type(error).__name__}: {error}") from error
        raise


class _Network(httpcore2.NetworkBackend):
    """A network backend that applies the deadlines of the calling thread."""

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
            self._plain.connect_tcp(host, port, _remaining(timeout), local_address, socket_options)
        )


class _Stream(httpcore2.NetworkStream):
    """A connection that sends the head and the body of a request together, before it reads the
    answer: two packets would wake the server twice."""

    def __init__(self, plain: httpcore2.NetworkStream) -> None:
        self._plain = plain
        self._unsent = b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            # A server may answer and close the connection before it has read the whole request.
            with suppress(httpcore2.WriteError):
                self._plain.write(unsent, _remaining(timeout))
        return self._plain.read(max_bytes, _remaining(timeout))

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
        return _Stream(self._plain.start_tls(ssl_context, server_hostname, _remaining(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._plain.get_extra_info(info)
