"""Requests to the API server of a real cluster, with the credentials of the kubeconfig.

lightkube's HTTP client knows every way of a kubeconfig to authenticate, such as client certificates
and commands. Only objects as they are on the wire are used, because the proxy must not lose fields.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx2 as httpx
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import SingleConfig

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_NOT_FOUND = 404
_TIMEOUT = httpx.Timeout(30.0, pool=None)
_WATCHING = httpx.Timeout(30.0, read=None, pool=None)
type Object = dict[str, Any]


class RefusedRequestError(Exception):
    """The API server refused a request of the sandbox itself."""

    def __init__(self, method: str, path: str, status: int, body: bytes) -> None:
        super().__init__(f"{method} {path}: HTTP {status}: {body[:300].decode(errors='replace')}")
        self.status = status


class Upstream:
    """The API server behind the sandbox. Use it within its event loop."""

    def __init__(self, config: SingleConfig) -> None:
        self._http = AsyncClient(config, ConnectionParams(timeout=_TIMEOUT, trust_env=False))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def send(
        self,
        method: str,
        path_and_query: str,
        headers: list[tuple[str, str]],
        body: bytes = b"",
        watching: bool = False,
    ) -> AsyncIterator[httpx.Response]:
        """Send a request; the body of the answer is not read yet.

        Raises:
            httpx.HTTPError: the server cannot be reached.
        """
        request = self._http.build_request(
            method,
            path_and_query,
            headers=[*headers, ("Accept-Encoding", "identity")],
            content=body,
            timeout=_WATCHING if watching else _TIMEOUT,
        )
        response = await self._http.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def call(self, method: str, path: str, body: object = None, kind: str = JSON) -> Object:
        """Send a JSON request and return the answer.

        Raises:
            RefusedRequestError: the server answers with an error.
            httpx.HTTPError: the server cannot be reached.
        """
        content = b"" if body is None else json.dumps(body).encode()
        headers = [("Content-Type", kind), ("Accept", JSON)]
        async with self.send(method, path, headers, content) as response:
            data = await response.aread()
            if response.status_code >= 400:
                raise RefusedRequestError(method, path, response.status_code, data)
            found: Object = json.loads(data)
            return found

    async def find(self, path: str) -> Object | None:
        """Read an object; None if there is none."""
        try:
            return await self.call("GET", path)
        except RefusedRequestError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    async def watch(self, path: str, version: str) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the events of a watch from a version on, until the server ends it."""
        query = f"{path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        async with self.send("GET", query, [("Accept", JSON)], watching=True) as response:
            if response.status_code >= 400:
                data = await response.aread()
                raise RefusedRequestError("WATCH", path, response.status_code, data)
            async for line in response.aiter_lines():
                if line:
                    yield json.loads(line)
