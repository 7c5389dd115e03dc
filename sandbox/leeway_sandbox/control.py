"""The base of the control APIs of the sandbox's processes: `/_sandbox/NAME`, with JSON bodies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from leeway_sandbox.journal import Journal
from leeway_sandbox.reasons import CONTROL_REQUEST_INVALID, CONTROL_ROUTE_NOT_FOUND, ReasonError

PREFIX = "/_sandbox/"
JSON = "application/json"

type Query = Mapping[str, str]
type Route = Callable[[Any, Query], Any]
"""Takes the body (None if empty) and the query; returns the answer or an awaitable of it."""

# moto has subclasses of str.
_encode = msgspec.json.Encoder(enc_hook=str).encode


class NotFoundError(ReasonError):
    """A request names an object that does not exist."""


class ControlApi:
    """Answers by method and name, such as "PUT faults". All processes have "GET journal?since=N".

    A NotFoundError of a route is answered by 404, another ReasonError, a ValueError or an OSError
    by 400; the body is `{"code": …, "error": …}`.
    """

    def __init__(self, journal: Journal, routes: Mapping[str, Route]) -> None:
        self._routes: dict[str, Route] = {
            "GET journal": lambda _body, query: journal.since(int(query.get("since", 0))),
            **routes,
        }

    async def answer(self, method: str, path: str, query: str, body: bytes) -> tuple[int, bytes]:
        """Handle a request; return status and JSON of the answer."""
        name = path.removeprefix(PREFIX).strip("/")
        route = self._routes.get(f"{method} {name}") if path.startswith(PREFIX) else None
        if route is None:
            missing = ReasonError(CONTROL_ROUTE_NOT_FOUND, method=method, path=path)
            return HTTPStatus.NOT_FOUND, _encode(refusal_body(missing))
        try:
            result = route(msgspec.json.decode(body) if body else None, dict(parse_qsl(query)))
            return HTTPStatus.OK, _encode(await result if inspect.isawaitable(result) else result)
        except NotFoundError as error:
            return HTTPStatus.NOT_FOUND, _encode(refusal_body(error))
        except ReasonError as error:
            return HTTPStatus.BAD_REQUEST, _encode(refusal_body(error))
        except (ValueError, OSError) as error:
            invalid = ReasonError(CONTROL_REQUEST_INVALID, problem=error)
            return HTTPStatus.BAD_REQUEST, _encode(refusal_body(invalid))


def refusal_body(error: ReasonError) -> dict[str, str]:
    """Return the JSON body of a refusal."""
    return {"code": error.code, "error": str(error)}
