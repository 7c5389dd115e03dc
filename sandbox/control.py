"""What the control APIs of the sandbox's processes share: `/_sandbox/NAME`, JSON in and out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from sandbox.journal import Journal

PREFIX = "/_sandbox/"
JSON = "application/json"

type Query = Mapping[str, str]
type Route = Callable[[Any, Query], Any]
"""Takes the body (None where there is none) and the query; what it returns may be awaited."""

# Strings of classes of moto's own are strings.
_encode = msgspec.json.Encoder(enc_hook=str).encode


class UnknownError(LookupError):
    """There is nothing of that name."""


class ControlApi:
    """Answers by method and name, as in "PUT faults"; "GET journal?since=N" is the same for all.

    What a route refuses, by a ValueError or OSError, is answered by 400 and
    `{"error": …}`, an UnknownError by 404.
    """

    def __init__(self, journal: Journal, routes: Mapping[str, Route]) -> None:
        self._routes: dict[str, Route] = {
            "GET journal": lambda _body, query: journal.since(int(query.get("since", 0))),
            **routes,
        }

    async def answer(self, method: str, path: str, query: str, body: bytes) -> tuple[int, bytes]:
        """Do what a request asks; the answer's status and JSON."""
        name = path.removeprefix(PREFIX).strip("/")
        route = self._routes.get(f"{method} {name}") if path.startswith(PREFIX) else None
        if route is None:
            return HTTPStatus.NOT_FOUND, _encode({"error": f"no control API {method} {path}"})
        try:
            said = route(msgspec.json.decode(body) if body else None, dict(parse_qsl(query)))
            return HTTPStatus.OK, _encode(await said if inspect.isawaitable(said) else said)
        except UnknownError as error:
            return HTTPStatus.NOT_FOUND, _encode({"error": str(error)})
        except (ValueError, OSError) as error:
            return HTTPStatus.BAD_REQUEST, _encode({"error": str(error)})
