"""Connections to an API server: where from, for how long, and what their failures mean."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx2
from lightkube import ApiError, Client
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig

from leeway.cluster.ports import ClusterRefused, ClusterUnavailable
from leeway.drain.answers import Response

FIELD_MANAGER = "leeway"
TIMEOUT = httpx2.Timeout(10.0, connect=3.0)
"""Seconds. A server that does not even accept in three is one to try again."""


@dataclass(frozen=True, slots=True)
class Connection:
    """An open connection: the typed client, and the plain one for what that can't say."""

    typed: Client
    plain: httpx2.Client
    opened_at: float


class Connections:
    """Opens a connection when one is needed, and again when its token grows old or is refused.

    `configure` makes a configuration with a fresh token; `renew_after` is in seconds, None for
    credentials that do not age. Safe to use from several threads.
    """

    def __init__(self, configure: Callable[[], SingleConfig], renew_after: float | None) -> None:
        self._configure = configure
        self._renew_after = renew_after
        self._current: Connection | None = None
        self._lock = threading.Lock()

    def current(self) -> Connection:
        """Return a connection whose token is young enough."""
        with self._lock:
            if self._current is None or self._is_old(self._current):
                self._current = self._open()
            return self._current

    def renew(self, refused: Connection) -> None:
        """Forget a connection that was refused, so that the next call opens a new one."""
        with self._lock:
            if self._current is refused:
                self._current = None

    def _is_old(self, connection: Connection) -> bool:
        if self._renew_after is None:
            return False
        return time.monotonic() - connection.opened_at > self._renew_after

    def _open(self) -> Connection:
        config = self._configure()
        params = client_adapter.ConnectionParams(timeout=TIMEOUT, trust_env=False)
        return Connection(
            typed=Client(config, timeout=TIMEOUT, field_manager=FIELD_MANAGER, trust_env=False),
            plain=client_adapter.Client(config, params),
            opened_at=time.monotonic(),
        )

    def call[T](self, request: Callable[[Connection], T]) -> T:
        """Make one request.

        Raises:
            ClusterUnavailable: no connection, no JSON answer, 401, 429 or 5xx.
            ClusterRefused: 403, 400, 405, 415 or 422.
            ApiError: 404 and 409, which mean something different to each caller.
        """
        connection = self.current()
        try:
            return request(connection)
        except ApiError as error:
            if error.response.status_code == 401:
                self.renew(connection)
            raise _translated(error) from error
        except (httpx2.HTTPError, KeyError) as error:
            # lightkube raises KeyError where a proxy answers without a Content-Type.
            raise ClusterUnavailable(f"{type(error).__name__}: {error}"[:200]) from error

    def answer(self, request: Callable[[Connection], object]) -> Response:
        """Make one request and return the answer, whatever it is; status 0 where none came."""
        try:
            self.call(request)
        except (ApiError, ClusterUnavailable, ClusterRefused) as error:
            cause = error if isinstance(error, ApiError) else error.__cause__
            if isinstance(cause, ApiError):
                return read_error(cause)
            if isinstance(cause, httpx2.HTTPStatusError):
                return Response(cause.response.status_code, cause.response.text[:200])
            return Response(0, str(error))
        return Response(200)


def _translated(error: ApiError) -> Exception:
    status = error.response.status_code
    message = f"{status}: {error}"[:300]
    if status in (404, 409):
        return error
    if status in (401, 429) or status >= 500:
        return ClusterUnavailable(message)
    return ClusterRefused(message)


def read_error(error: ApiError) -> Response:
    """Read an error's Status object and headers."""
    details = error.status.details
    causes = (details.causes if details else None) or []
    retry_after = error.response.headers.get("Retry-After", "")
    return Response(
        status=error.response.status_code,
        message=error.status.message or "",
        reason=error.status.reason or "",
        causes=tuple((c.reason or "", c.message or "") for c in causes),
        retry_after=int(retry_after) if retry_after.isdecimal() else None,
    )


def raise_for_status(response: httpx2.Response) -> None:
    """Raise what lightkube would for an answer that its plain client got."""
    if not response.is_error:
        return
    if response.headers.get("Content-Type") == "application/json":
        raise ApiError(request=response.request, response=response)
    response.raise_for_status()
