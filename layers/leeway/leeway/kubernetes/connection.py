"""The connection to an API server: signed with a young token, and what its failures mean."""

import math
import re
import ssl
import threading
import time
from collections.abc import Callable

import httpx2
import msgspec
from lightkube import ApiError, Client, ConfigError
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig

from leeway.kubernetes import decoders as decoders
from leeway.kubernetes.impersonation import Impersonating, Impersonation
from leeway.kubernetes.transport import TOTAL, BoundedTransport
from leeway.kubernetes.trust import trust_kubeconfig
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Response

FIELD_MANAGER = "leeway"
TIMEOUT = httpx2.Timeout(10.0, connect=3.0)
"""Seconds. A server that does not even accept in three is one to try again."""

_JSON = httpx2.Headers({"Accept": "application/json", "Content-Type": "application/json"})

LONGEST_RETRY_AFTER = 60
"""Seconds. Who asks for more is asked again all the same: a drain has not that long."""


class RenewedToken(httpx2.BaseTransport):
    """Signs every request with a token that is young enough, and once more where it is refused.

    `sign` makes a fresh token; `renew_after` is in seconds. Safe to use from several threads.
    """

    def __init__(self, sign: Callable[[], str], renew_after: float, trust: ssl.SSLContext) -> None:
        self._sign = sign
        self._renew_after = renew_after
        self._inner = BoundedTransport(trust)
        self._lock = threading.Lock()
        self._token = ""
        self._signed_at = -math.inf

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, with a new token and once more if the first was answered 401."""
        token = self._young_token()
        request.headers["Authorization"] = f"Bearer {token}"
        response = self._inner.handle_request(request)
        if response.status_code == 401:
            response.close()
            request.headers["Authorization"] = f"Bearer {self._young_token(refused=token)}"
            response = self._inner.handle_request(request)
        return response

    def close(self) -> None:
        """Close the connections that are open."""
        self._inner.close()

    def _young_token(self, refused: str = "") -> str:
        with self._lock:
            now = time.monotonic()
            if now - self._signed_at > self._renew_after or self._token == refused:
                self._token, self._signed_at = self._sign(), now
            return self._token


class Connection:
    """An API server: lightkube's typed client, and a plain one for what that can't say.

    They share their connections, of which each costs a handshake. Safe to use from several threads.
    With an impersonation, every request is made in that user's name.
    """

    def __init__(
        self,
        config: SingleConfig,
        transport: httpx2.BaseTransport | None = None,
        impersonation: Impersonation | None = None,
    ) -> None:
        shared = transport or BoundedTransport(trust_kubeconfig(config))
        if impersonation is not None and impersonation.user:
            shared = Impersonating(shared, impersonation)
        self._server = config.cluster.server
        self.typed = Client(
            config, timeout=TIMEOUT, field_manager=FIELD_MANAGER, trust_env=False, transport=shared
        )
        self.plain = httpx2.Client(
            base_url=config.cluster.server,
            auth=client_adapter.user_auth(config.user),
            timeout=TIMEOUT,
            trust_env=False,
            transport=shared,
        )

        self._base = str(self.plain.base_url).rstrip("/")

    def close(self) -> None:
        """Close what is open."""
        self.typed.close()
        self.plain.close()

    def post(self, path: str, body: object, seconds: float) -> httpx2.Response:
        """Post JSON, and wait so many seconds for the answer. Of a full node's drain, putting each
        eviction's request together as the clients do, from parts that might all differ, would be a
        fifth."""
        content = msgspec.json.encode(body)
        timeout = httpx2.Timeout(seconds, connect=TIMEOUT.connect).as_dict()
        extensions = {"timeout": timeout, TOTAL: seconds}
        return self.plain.send(
            httpx2.Request(
                "POST", self._base + path, headers=_JSON, content=content, extensions=extensions
            )
        )

    def call[T](self, request: Callable[["Connection"], T]) -> T:
        """Make one request.

        Raises:
            ClusterUnavailable: no connection, no JSON answer, 401, 408, 410, 429 or 5xx.
            ClusterRefused: 403, 400, 405, 415 or 422, or a kubeconfig's command gives no token.
            ApiError: 404 and 409, which mean something different to each caller.
        """
        try:
            return request(self)
        except ApiError as error:
            raise _translated(error) from error
        except httpx2.TransportError as error:
            said = f"no answer from {self._server}: {_named(error)}"
            raise ClusterUnavailable(said[:200]) from error
        except (httpx2.HTTPError, KeyError, ValueError, msgspec.MsgspecError) as error:
            # A proxy's answer may lack a Content-Type (KeyError) or be no JSON of the right form.
            raise ClusterUnavailable(_named(error)[:200]) from error
        except httpx2.InvalidURL as error:
            raise ClusterRefused(f"no such path is asked for: {error}"[:300]) from error
        except (ConfigError, OSError) as error:
            raise ClusterRefused(f"the kubeconfig gives no credentials: {error}"[:300]) from error

    def answer(self, request: Callable[["Connection"], object]) -> Response:
        """Make one request and return the answer, whatever it is; status 0 where none came."""
        try:
            self.call(request)
        except (ApiError, ClusterUnavailable, ClusterRefused) as error:
            cause = error if isinstance(error, ApiError) else error.__cause__
            if isinstance(cause, ApiError) and _is_status(cause):
                return read_error(cause)
            if isinstance(cause, httpx2.HTTPStatusError):
                return _read_plain(cause.response)
            return Response(0, str(error))
        return Response(200)


_IN_SOURCE = re.compile(r" ?\(_ssl\.c:\d+\)|_ssl\.c:\d+: ")
"""Where in Python's own source a TLS error was raised, which tells its reader nothing."""


def _named(error: Exception) -> str:
    name, said = type(error).__name__, _IN_SOURCE.sub("", str(error))
    return said if said.startswith(name) else f"{name}: {said}"


def _translated(error: ApiError) -> Exception:
    status = error.response.status_code
    message = f"{status}: {error}"[:300]
    if not _is_status(error):
        return ClusterUnavailable(
            f"{status}, but not from an API server: {error.response.text}"[:200]
        )
    if status in (404, 409):
        return error
    if status in (401, 408, 410, 429) or status >= 500:
        return ClusterUnavailable(message)
    return ClusterForbidden(message) if status == 403 else ClusterRefused(message)


def _is_status(error: ApiError) -> bool:
    """Whether an API server says it: gateways answer in JSON as well, that they know no route."""
    try:
        return msgspec.json.decode(error.response.content, type=_Object).kind == "Status"
    except msgspec.MsgspecError:
        return False


def _read_plain(response: httpx2.Response) -> Response:
    """Read an error that is no Status. Priority and fairness refuses in plain text, and says when
    to come again; but of a pod, or of rights, nobody in between can say anything."""
    status, said = response.status_code, response.text[:200]
    if status == 429 or status >= 500:
        return Response(status, said, retry_after=_retry_after(response))
    return Response(0, f"{status}, but not from an API server: {said}")


def read_error(error: ApiError) -> Response:
    """Read an error's Status object and headers."""
    details = error.status.details
    causes = (details.causes if details else None) or []
    return Response(
        status=error.response.status_code,
        message=error.status.message or "",
        reason=error.status.reason or "",
        causes=tuple((c.reason or "", c.message or "") for c in causes),
        retry_after=_retry_after(error.response),
    )


def _retry_after(response: httpx2.Response) -> int | None:
    """Return for how many seconds an API server asks for patience: at most LONGEST_RETRY_AFTER."""
    seconds = response.headers.get("Retry-After", "")
    return min(int(seconds[:9]), LONGEST_RETRY_AFTER) if seconds.isdecimal() else None


def raise_for_status(response: httpx2.Response) -> None:
    """Raise what lightkube would for an answer that its plain client got, and for one that can't be
    an API server's: somebody in between redirects, or has a page for whoever asks.

    Raises:
        ApiError: an API server says that it did not do it.
        HTTPStatusError: somebody else does.
        ValueError: it is no JSON.
    """
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    if response.is_error and is_json:
        raise ApiError(request=response.request, response=response)
    response.raise_for_status()
    if not is_json:
        raise ValueError(f"the answer is no JSON: {response.headers.get('Content-Type')}")


class _Object(msgspec.Struct):
    kind: str


def raise_unless_object(response: httpx2.Response) -> None:
    """Raise as `raise_for_status` does, and where the answer is no object of Kubernetes.

    Raises:
        MsgspecError: it is none.
    """
    raise_for_status(response)
    msgspec.json.decode(response.content, type=_Object)
