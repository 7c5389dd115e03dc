"""The connection to an API server: trusts its authority, impersonates users, renews tokens and
translates errors.

Source: Kubernetes documentation, "User impersonation".
"""

import math
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

import httpx2
import msgspec

from leeway.kubernetes.transport import TOTAL, BoundedTransport
from leeway.ports.kubernetes import ClusterForbidden, ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Response


def trust_authority(certificates: str) -> ssl.SSLContext:
    """Accept certificates for the host's name that these authorities (PEM) have signed."""
    return without_strict_identifiers(ssl.create_default_context(cadata=certificates))


def without_strict_identifiers(trust: ssl.SSLContext) -> ssl.SSLContext:
    """Accept certificates without the extension Authority Key Identifier.

    EKS clusters that were created with Kubernetes 1.16 or earlier have such certificates. The
    default context of Python 3.13 refuses them. The chain to the cluster's own authority, the host
    name and the dates are still verified. The strict rules still apply to public authorities.
    Source: Python documentation, ssl.create_default_context and VERIFY_X509_STRICT.
    """
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return trust


_TOKEN = frozenset(b"!#$&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Characters that a header name may contain, without `%`, which escapes all others."""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user to impersonate; an empty `user` means no impersonation."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def overridden_by(self, flags: "Impersonation") -> "Impersonation":
        """Return this with the non-empty fields of `flags`: kubectl's flags override a kubeconfig.

        Raises:
            ValueError: groups, a UID or extra fields are set without a user; or a value contains a
                control character.
        """
        merged = replace(
            self,
            user=flags.user or self.user,
            groups=flags.groups or self.groups,
            uid=flags.uid or self.uid,
            extra={**self.extra, **flags.extra},
        )
        if not merged.user and (merged.groups or merged.uid or merged.extra):
            raise ValueError("a group, UID or extra field is impersonated: expected a user, too")
        for _, value in merged.headers():
            if any(byte < 0x20 or byte == 0x7F for byte in value):
                raise ValueError(f"impersonation: a control character in {value!r}")
        return merged

    def headers(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the impersonation headers."""
        if not self.user:
            return
        yield b"Impersonate-User", self.user.encode()
        if self.uid:
            yield b"Impersonate-Uid", self.uid.encode()
        for group in self.groups:
            yield b"Impersonate-Group", group.encode()
        for key, values in self.extra.items():
            for value in values:
                yield b"Impersonate-Extra-" + _escaped(key), value.encode()


def read_impersonation(user: Mapping[str, Any]) -> Impersonation:
    """Read `as`, `as-groups`, `as-uid` and `as-user-extra` of a kubeconfig's user.

    Raises:
        ValueError: a field does not have the form that kubectl accepts.
    """
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise ValueError("as-user-extra: expected lists by their keys")
    return Impersonation(
        user=_text("as", user.get("as")),
        groups=_texts("as-groups", user.get("as-groups")),
        uid=_text("as-uid", user.get("as-uid")),
        extra={_text("as-user-extra", key): _texts(key, some) for key, some in extra.items()},
    )


class ImpersonationTransport(httpx2.BaseTransport):
    """Adds the impersonation headers to every request."""

    def __init__(self, inner: httpx2.BaseTransport, impersonation: Impersonation) -> None:
        self._inner = inner
        self._headers = tuple(impersonation.headers())
        self._names = {name.lower() for name, _ in self._headers}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. A retried request may have the headers already: they are replaced."""
        others = [pair for pair in request.headers.raw if pair[0].lower() not in self._names]
        request.headers = httpx2.Headers([*others, *self._headers])
        return self._inner.handle_request(request)

    def close(self) -> None:
        """Close the connections that are open."""
        self._inner.close()


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected text, got {value!r}")
    return value


def _texts(name: str, values: object) -> tuple[str, ...]:
    if values is None:
        return ()
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise ValueError(f"{name}: expected a list, got {values!r}")
    return tuple(_text(name, value) for value in values)


def _escaped(key: str) -> bytes:
    """Escape a key for a header name, as client-go does."""
    return b"".join(bytes([byte]) if byte in _TOKEN else b"%%%02X" % byte for byte in key.encode())


FIELD_MANAGER = "leeway"
MERGE = "application/merge-patch+json"
"""The content type of a JSON merge patch."""

TIMEOUT = httpx2.Timeout(10.0, connect=3.0)
"""Seconds. A server that accepts no connection in three seconds counts as unavailable."""

_JSON = httpx2.Headers({"Accept": "application/json", "Content-Type": "application/json"})

NO_LAST_WORD = frozenset({0, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT})
"""The statuses after which the API server may still handle the request; 0 is a lost connection."""

LONGEST_RETRY_AFTER = 60
"""Seconds. A longer Retry-After is cut to this: the deadline of a drain leaves no more time."""


class TokenTransport(httpx2.BaseTransport):
    """Adds a bearer token to every request, and retries once with a new token after a 401.

    `sign` creates a token; `renew_after` is its maximum age in seconds. Safe to use from several
    threads.
    """

    def __init__(self, sign: Callable[[], str], renew_after: float, trust: ssl.SSLContext) -> None:
        self._sign = sign
        self._renew_after = renew_after
        self._inner = BoundedTransport(trust)
        self._lock = threading.Lock()
        self._token = ""
        self._signed_at = -math.inf

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; after a 401, send it again with a new token."""
        token = self._current_token()
        request.headers["Authorization"] = f"Bearer {token}"
        response = self._inner.handle_request(request)
        if response.status_code == 401:
            response.close()
            request.headers["Authorization"] = f"Bearer {self._current_token(refused=token)}"
            response = self._inner.handle_request(request)
        return response

    def close(self) -> None:
        """Close the connections that are open."""
        self._inner.close()

    def _current_token(self, refused: str = "") -> str:
        with self._lock:
            now = time.monotonic()
            if now - self._signed_at > self._renew_after or self._token == refused:
                self._token, self._signed_at = self._sign(), now
            return self._token


class Cause(msgspec.Struct):
    """One cause in a Status."""

    reason: str | None = None
    message: str | None = None


class Details(msgspec.Struct):
    """The details of a Status."""

    causes: list[Cause] | None = None


class Status(msgspec.Struct):
    """How an API server says why a request failed. Source: Kubernetes API, `meta/v1` Status."""

    code: int | None = None
    message: str | None = None
    reason: str | None = None
    details: Details | None = None


_STATUSES = msgspec.json.Decoder(Status)  # built in one thread, as `objects` says


class ApiError(httpx2.HTTPStatusError):
    """An error that an API server answers with.

    Raises:
        MsgspecError: the answer is no JSON, or no object.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self.status = _STATUSES.decode(response.content)
        message = self.status.message or ""
        super().__init__(message, request=response.request, response=response)


class NoCredentials(Exception):
    """The kubeconfig gives no credentials."""


class Connection:
    """An HTTP client of an API server. Safe to use from several threads. With an impersonation,
    every request impersonates that user. `server` is the URL of the API server.
    """

    def __init__(
        self,
        server: str,
        transport: httpx2.BaseTransport,
        auth: httpx2.Auth | None = None,
        impersonation: Impersonation | None = None,
    ) -> None:
        if impersonation is not None and impersonation.user:
            transport = ImpersonationTransport(transport, impersonation)
        self.server = server
        self.transport = transport
        self.plain = httpx2.Client(
            base_url=server, auth=auth, timeout=TIMEOUT, trust_env=False, transport=transport
        )
        self._base = str(self.plain.base_url).rstrip("/")

    def close(self) -> None:
        """Close the connections; requests that are in progress end as unavailable, in any thread,
        as do later ones."""
        self.transport.close()

    def post(self, path: str, body: object, seconds: float) -> httpx2.Response:
        """Post JSON with a timeout in seconds. It builds the request without the client's merging
        of defaults, which took a fifth of the CPU time of a full node's drain."""
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
            ClusterUnavailable: no connection, an answer that is not JSON, 401, 408, 410, 429, 5xx.
            ClusterForbidden: 403.
            ClusterRefused: any other 4xx, or no credentials in the kubeconfig.
            ApiError: 404 and 409, which each caller handles itself.
        """
        try:
            return request(self)
        except ApiError as error:
            raise _translate(error) from error
        except httpx2.TransportError as error:
            message = f"no answer from {self.server}: {_describe(error)}"
            raise ClusterUnavailable(message[:200]) from error
        except (httpx2.HTTPError, KeyError, ValueError, msgspec.MsgspecError) as error:
            # A proxy's answer may lack a Content-Type (KeyError) or have other JSON.
            raise ClusterUnavailable(_describe(error)[:200]) from error
        except httpx2.InvalidURL as error:
            raise ClusterRefused(f"invalid request path: {error}"[:300]) from error
        except (NoCredentials, OSError) as error:
            raise ClusterRefused(f"the kubeconfig gives no credentials: {error}"[:300]) from error

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content: str = "application/json",
    ) -> dict[str, Any]:
        """Make one request with a JSON body of this content type; return the object that the API
        server answers, without fields that are null.

        Raises:
            ClusterUnavailable, ClusterRefused, ApiError: as `call`.
        """

        def send(connection: "Connection") -> dict[str, Any]:
            response = connection.plain.request(
                method,
                path,
                params=params,
                content=None if body is None else msgspec.json.encode(body),
                headers={"Content-Type": content},
            )
            raise_unless_object(response)
            answer: dict[str, Any] = without_nulls(response.json())
            return answer

        return self.call(send)

    def answer(
        self, request: Callable[["Connection"], object], settles: int | None = None
    ) -> Response:
        """Make one request and return the answer with any status; status 0 means no answer. If the
        API server may still handle the request, `settles` is returned as the `retry_after`."""
        try:
            self.call(request)
        except (ApiError, ClusterUnavailable, ClusterRefused) as error:
            cause = error if isinstance(error, ApiError) else error.__cause__
            if isinstance(cause, ApiError) and _is_status(cause):
                response = read_error(cause)
            elif isinstance(cause, httpx2.HTTPStatusError):
                response = _read_plain(cause.response)
            else:
                response = Response(0, str(error))
            may_go_on = response.status in NO_LAST_WORD and _was_sent(cause)
            return replace(response, retry_after=settles) if may_go_on else response
        return Response(200)


_SSL_SOURCE = re.compile(r" ?\(_ssl\.c:\d+\)|_ssl\.c:\d+: ")
"""The line of Python's source code in the text of a TLS error."""


def _describe(error: Exception) -> str:
    name, message = type(error).__name__, _SSL_SOURCE.sub("", str(error))
    return message if message.startswith(name) else f"{name}: {message}"


def _was_sent(cause: BaseException | None) -> bool:
    """Whether the API server may have got a request that failed: a connection was open, and no
    proxy refused the request itself."""
    if isinstance(cause, ApiError | httpx2.HTTPStatusError):
        return cause.response.status_code in NO_LAST_WORD
    unsent = httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout
    return isinstance(cause, httpx2.TransportError) and not isinstance(cause, unsent)


def _translate(error: ApiError) -> Exception:
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
    """Whether an API server sent the error: gateways also answer 404 in JSON."""
    try:
        return msgspec.json.decode(error.response.content, type=_Object).kind == "Status"
    except msgspec.MsgspecError:
        return False


def _read_plain(response: httpx2.Response) -> Response:
    """Read an error that is no Status object. API Priority and Fairness answers 429 in plain text
    with a Retry-After. Any other 4xx comes from a proxy, which knows nothing about the pod or the
    rights: it counts as no answer."""
    status, text = response.status_code, response.text[:200]
    if status == 429 or status >= 500:
        return Response(status, text, retry_after=_retry_after(response))
    return Response(0, f"{status}, but not from an API server: {text}")


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
    """Return the seconds of a Retry-After header, at most LONGEST_RETRY_AFTER."""
    seconds = response.headers.get("Retry-After", "")
    return min(int(seconds[:9]), LONGEST_RETRY_AFTER) if seconds.isdecimal() else None


def raise_for_status(response: httpx2.Response) -> None:
    """Raise an error for an answer that is none of success in JSON: a redirect or a page of a proxy
    is an error as well.

    Raises:
        ApiError: the API server answers with an error.
        HTTPStatusError: a proxy answers with an error.
        ValueError: the answer is not JSON.
    """
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    if response.is_error and is_json:
        raise ApiError(response)
    response.raise_for_status()
    if not is_json:
        raise ValueError(f"the answer is not JSON: {response.headers.get('Content-Type')}")


def is_unknown_path(error: ClusterUnavailable) -> bool:
    """Whether the API server does not have the path of a request, for example because the cluster
    lacks its API group. It says so in plain text; a proxy's 404 is another one."""
    cause = error.__cause__
    return (
        isinstance(cause, httpx2.HTTPStatusError)
        and cause.response.status_code == HTTPStatus.NOT_FOUND
        and cause.response.text.strip() == "404 page not found"
    )


class _Object(msgspec.Struct):
    kind: str


def raise_unless_object(response: httpx2.Response) -> None:
    """Raise as `raise_for_status` does, and if the answer is not a Kubernetes object.

    Raises:
        MsgspecError: the answer has no `kind`.
    """
    raise_for_status(response)
    msgspec.json.decode(response.content, type=_Object)


def without_nulls(value: Any) -> Any:
    """Return JSON without the fields that are null."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value
