"""HTTP connections with a timeout for each whole request, which any thread may end.

The timeouts of an HTTP client apply to single reads. A server or a proxy that sends one byte per
second would never exceed them, and a drain would miss its deadline.

A thread that reads a socket goes on with its file descriptor after another thread has closed it.
The number is used again at once, and the TLS library takes the next five bytes, a record's header,
from a file or a connection that was opened meanwhile. So only the thread that uses a socket closes
it: every other thread shuts it down, which wakes the first one.
"""

import math
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

import httpcore2
import httpx2

from leeway import __version__

USER_AGENT = f"leeway/{__version__}"
"""The client's name in audit logs, and in managed fields without a field manager."""

REQUEST_SECONDS = 15.0
"""Timeout of a request up to the last byte of its answer: longer than the read timeout."""

TOTAL = "leeway.total"
"""The request extension that replaces REQUEST_SECONDS, for example for a watch: seconds."""

STOP = "leeway.stop"
"""The request extension with the Stop of a request that another thread may end."""

CLOSE_SECONDS = 2.0
"""How long `close` waits for the threads whose sockets it has shut down. Each one that takes longer
closes its own socket later."""

MAX_CONNECTIONS = 512
"""More than the hanging requests of a drain, so that a list still gets a connection."""

KEEPALIVE_CONNECTIONS = 32
"""As many as requests that run at the same time."""

KEEPALIVE_SECONDS = 5.0


class Stop:
    """Ends one request, from any thread and at any time; in the thread of the request it raises a
    ReadError."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._stream: _Stream | None = None

    def __call__(self) -> None:
        """End the request unless it has ended already. If it begins later, it ends at once."""
        with self._lock:
            self._stopped = True
            if self._stream is not None:
                self._stream.close()

    def is_at(self, stream: "_Stream | None") -> None:
        """Note which connection serves the request; None after its end, when the connection serves
        other requests."""
        with self._lock:
            self._stream = stream
            if stream is not None and self._stopped:
                stream.close()


class _Request(threading.local):
    """A thread's request: its deadline by the monotonic clock, that of its group of requests, and
    what ends it."""

    group = math.inf
    deadline = math.inf
    stop: Stop


_request = _Request()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the total time of all requests that this thread makes in the block."""
    outer = _request.group
    _request.group = min(outer, time.monotonic() + seconds)
    try:
        yield
    finally:
        _request.group = outer


def _remaining(timeout: float | None) -> float:
    """Return the seconds that a read or a write may take now.

    Raises:
        ReadTimeout: the deadline has passed.
    """
    remaining = _request.deadline - time.monotonic()
    if remaining <= 0:
        raise httpcore2.ReadTimeout("the request exceeded its total timeout")
    return remaining if timeout is None else min(timeout, remaining)


class BoundedTransport(httpx2.BaseTransport):
    """Sends requests with a total timeout over a connection pool. Safe to use from several threads,
    if the thread that sends a request reads its answer."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._network = _Network()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=trust,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=KEEPALIVE_CONNECTIONS,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=self._network,
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. A connection that ends before the request is sent is opened once more:
        load balancers end some while EKS replaces an API server.

        Raises:
            HTTPError: no answer, no complete answer within the timeout, or it was ended.
        """
        total = request.extensions.get(TOTAL, REQUEST_SECONDS)
        _request.deadline = min(_request.group, time.monotonic() + total)
        _request.stop = stop = request.extensions.get(STOP) or Stop()
        request.headers["User-Agent"] = USER_AGENT
        url = request.url
        sent = httpcore2.Request(
            request.method,
            httpcore2.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx2():
            try:
                answer = self._pool.handle_request(sent)
            # The pool's own `retries` would repeat timeouts too, which a deadline has no time for.
            except httpcore2.ConnectError:
                answer = self._pool.handle_request(sent)
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer, stop),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        """Close all connections, and end the requests that use them. Requests that begin later
        fail."""
        self._network.close()
        self._pool.close()


class _Body(httpx2.SyncByteStream):
    def __init__(self, answer: httpcore2.Response, stop: Stop) -> None:
        self._answer = answer
        self._stop = stop

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx2():
            yield from self._answer.iter_stream()

    def close(self) -> None:
        self._stop.is_at(None)  # before the connection serves other requests
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
    """A network backend that applies the deadlines of the calling thread. `changed` guards its
    connections, and is notified when a thread stops using one."""

    def __init__(self) -> None:
        self._plain = httpcore2.SyncBackend()
        self._streams: WeakSet[_Stream] = WeakSet()
        self._closed = False
        self.changed = threading.Condition()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> "_Stream":
        plain = self._plain.connect_tcp(
            host, port, _remaining(timeout), local_address, socket_options
        )
        stream = _Stream(plain, self.changed)
        with self.changed:
            self._streams.add(stream)
            if self._closed:
                stream.close()
        return stream

    def close(self) -> None:
        with self.changed:
            self._closed, streams = True, list(self._streams)
        for stream in streams:
            stream.close()
        with self.changed:
            self.changed.wait_for(lambda: not any(one.used for one in streams), CLOSE_SECONDS)


class _Stream(httpcore2.NetworkStream):
    """A connection that sends the head and the body of a request together, before it reads the
    answer: two packets would wake the server twice. `changed` is that of its network."""

    def __init__(self, plain: httpcore2.NetworkStream, changed: threading.Condition) -> None:
        self._plain = plain
        self._changed = changed
        self._unsent = b""
        self._closed = False
        self.used = False
        """Whether a thread uses the socket now. HTTP/1.1 has one request at a time."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with self._use():
            if self._unsent:
                unsent, self._unsent = self._unsent, b""
                # A server may answer and close the connection before it has read the whole request.
                with suppress(httpcore2.WriteError):
                    self._plain.write(unsent, _remaining(timeout))
            return self._plain.read(max_bytes, _remaining(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent += buffer

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> "_Stream":
        with self._use():
            self._plain = self._plain.start_tls(ssl_context, server_hostname, _remaining(timeout))
        return self

    def close(self) -> None:
        """Close the socket; if a thread uses it, shut it down, and that thread closes it."""
        with self._changed:
            self._closed = True
            if not self.used:
                self._plain.close()
                return
            # SSLSocket.shutdown would also let the reader go on without decryption.
            with suppress(OSError):
                socket.socket.shutdown(self._plain.get_extra_info("socket"), socket.SHUT_RDWR)

    def get_extra_info(self, info: str) -> Any:
        with self._changed:  # a pool polls the sockets of idle connections
            return self._plain.get_extra_info(info)

    @contextmanager
    def _use(self) -> Iterator[None]:
        """Use the socket in this thread; close it at the end if another thread has asked for it.

        Raises:
            ReadError: the connection was closed, maybe while the socket was used.
        """
        _request.stop.is_at(self)
        with self._changed:
            if self._closed:
                raise httpcore2.ReadError("the connection was closed")
            self.used = True
        try:
            yield
        finally:
            with self._changed:
                self.used = False
                if self._closed:
                    self._plain.close()
                self._changed.notify_all()
        if self._closed:
            # What was read may be cut, and must not look like a complete answer.
            raise httpcore2.ReadError("the connection was closed")
