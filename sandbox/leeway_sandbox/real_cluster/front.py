"""The endpoint that functions reach: EKS tokens in front, the real cluster behind.

EKS maps the role of a token to a user and groups by its access entries. The front does that, and
impersonates them at the real cluster, whose own RBAC and admission policies decide.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter, defaultdict

import httpx2 as httpx
from aiohttp import web

from leeway_sandbox.control import Journal
from leeway_sandbox.kubernetes import errors
from leeway_sandbox.kubernetes.authentication import Authenticator, User
from leeway_sandbox.kubernetes.objects import encode
from leeway_sandbox.real_cluster.observer import Links, Observer
from leeway_sandbox.real_cluster.upstream import JSON, Upstream

_log = logging.getLogger(__name__)
_EVICTION = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/eviction")
_NODES = re.compile(r"/api/v1/nodes(/[^/]+(/status)?)?")
# Those of one connection, those that the front sets, and those that would change who asks.
_OWN_HEADERS = {
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
}
_ANSWERED = ("Content-Type", "Retry-After", "Warning", "Date")
_UNREACHABLE = 503


class Front:
    """Handles the requests to one cluster."""

    def __init__(
        self,
        upstream: Upstream,
        authenticator: Authenticator,
        links: Links,
        observer: Observer,
        journal: Journal,
    ) -> None:
        self._upstream = upstream
        self._authenticator = authenticator
        self._links = links
        self._observer = observer
        self._journal = journal
        self._evictions: list[str] = []  # the paths of those that are open
        self.requests = 0
        self.calls: defaultdict[str, Counter[str]] = defaultdict(Counter)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        self.requests += 1
        user = self._authenticator.user(request.headers.get("Authorization", ""))
        if user is None:
            return _status(errors.unauthorized())
        if any(name.lower().startswith("impersonate-") for name in request.headers):
            message = "the sandbox impersonates for its functions, and for nobody else"
            return _status(errors.ApiError(403, "Forbidden", message))
        self.calls[user.name][f"{request.method} {request.path}"] += 1
        body = await request.read()
        # Without evictions, a list that nobody reads.
        posts = self._evictions if _EVICTION.fullmatch(request.path) else []
        if request.path in posts:
            self._journal.add("eviction-repeated", **self._evicted(request), user=user.name)
        posts.append(request.path)
        try:
            return await self._pass(request, user, body)
        except httpx.HTTPError as error:
            _log.warning("%s %s: %s", request.method, request.path, error)
            message = f"the real cluster does not answer: {error}"
            return _status(errors.ApiError(_UNREACHABLE, "ServiceUnavailable", message))
        finally:
            posts.remove(request.path)

    async def _pass(self, request: web.BaseRequest, user: User, body: bytes) -> web.StreamResponse:
        watching = request.query.get("watch") in ("1", "true")
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if name.lower() not in _OWN_HEADERS
        ]
        headers += _impersonation(user)
        path = request.rel_url.raw_path_qs
        sending = self._upstream.send(request.method, path, headers, body, watching)
        async with sending as answer:
            if watching and answer.status_code < 400:
                return await self._stream(request, answer)
            data = await answer.aread()
            self._note_eviction(request, user, answer.status_code)
            if _NODES.fullmatch(request.path) and _is_json(answer):
                data = self._shown(data)
            response = web.Response(body=data, status=answer.status_code)
            _copy(answer, response)
            return response

    async def _stream(self, request: web.BaseRequest, answer: httpx.Response) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status_code)
        _copy(answer, response)
        await response.prepare(request)
        of_nodes = bool(_NODES.fullmatch(request.path)) and _is_json(answer)
        if of_nodes:
            async for line in answer.aiter_lines():
                event = json.loads(line)
                event["object"] = self._links.shown(event["object"])
                await response.write(encode(event) + b"\n")
        else:
            async for chunk in answer.aiter_bytes():
                await response.write(chunk)
        await response.write_eof()
        return response

    def _shown(self, data: bytes) -> bytes:
        found = json.loads(data)
        if isinstance(found.get("items"), list):
            found["items"] = [self._links.shown(one) for one in found["items"]]
            return encode(found)
        return encode(self._links.shown(found))

    def _note_eviction(self, request: web.BaseRequest, user: User, status: int) -> None:
        if _EVICTION.fullmatch(request.path) is not None:
            evicted = self._evicted(request)
            self._journal.add("eviction", **evicted, status=status, answered=True, user=user.name)

    def _evicted(self, request: web.BaseRequest) -> dict[str, str | None]:
        *_, namespace, _, name, _ = request.path.split("/")
        pod = self._observer.pod(f"{namespace}/{name}")
        return {
            "pod": f"{namespace}/{name}",
            "uid": pod.uid if pod else None,
            "node": pod.node if pod else None,
        }


def _impersonation(user: User) -> list[tuple[str, str]]:
    """Return the headers of a function's user. The admin of the sandbox acts with the rights of the
    kubeconfig."""
    if "system:masters" in user.groups:
        return []
    groups = [("Impersonate-Group", group) for group in user.groups]
    return [("Impersonate-User", user.name), *groups]


def _is_json(answer: httpx.Response) -> bool:
    return answer.headers.get("Content-Type", "").partition(";")[0] == JSON


def _copy(answer: httpx.Response, response: web.StreamResponse) -> None:
    for name in _ANSWERED:
        for value in answer.headers.get_list(name):
            response.headers.add(name, value)


def _status(error: errors.ApiError) -> web.Response:
    return web.Response(body=encode(error.status), status=error.code, content_type=JSON)
