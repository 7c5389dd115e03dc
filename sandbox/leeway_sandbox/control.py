"""The base of the control APIs of the sandbox's processes: `/_sandbox/NAME`, with JSON bodies."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from leeway_sandbox.errors import NotFoundError, SandboxError

LONGEST = 300_000  # entries, some 150 MB


class Journal:
    """A numbered list of entries; the oldest are dropped when it is too long."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._entries: list[Mapping[str, Any]] = []
        self._first = 0
        self._lock = threading.Lock()

    def add(self, kind: str, **facts: Any) -> None:
        """Add an entry with the present time."""
        with self._lock:
            self._entries.append({"at": time.time(), "kind": kind, **facts})
            if len(self._entries) > self._longest:
                dropped = max(self._longest // 4, 1)
                del self._entries[:dropped]
                self._first += dropped

    def since(self, number: int) -> dict[str, Any]:
        """Return the entries from a number on, `{"next": NUMBER, "entries": […]}`."""
        with self._lock:
            entries = self._entries[max(0, number - self._first) :]
            return {"next": self._first + len(self._entries), "entries": entries}

    def __len__(self) -> int:
        return len(self._entries)


PREFIX = "/_sandbox/"
JSON = "application/json"

type Query = Mapping[str, str]
type Route = Callable[[Any, Query], Any]
"""Takes the body (None if empty) and the query; returns the answer or an awaitable of it."""

# moto has subclasses of str.
_encode = msgspec.json.Encoder(enc_hook=str).encode


class ControlApi:
    """Answers by method and name, such as "PUT faults". All processes have "GET journal?since=N".

    A NotFoundError of a route is answered by 404, another SandboxError, a ValueError or an OSError
    by 400; the body is `{"error": …}`.
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
            problem = f"The control API has no route {method} {path}."
            return HTTPStatus.NOT_FOUND, refusal_body(problem)
        try:
            result = route(msgspec.json.decode(body) if body else None, dict(parse_qsl(query)))
            return HTTPStatus.OK, _encode(await result if inspect.isawaitable(result) else result)
        except NotFoundError as error:
            return HTTPStatus.NOT_FOUND, refusal_body(str(error))
        except SandboxError as error:
            return HTTPStatus.BAD_REQUEST, refusal_body(str(error))
        except (ValueError, OSError) as error:
            return HTTPStatus.BAD_REQUEST, refusal_body(f"The request is not valid: {error}")


def refusal_body(problem: str) -> bytes:
    """Return the JSON body of a refusal."""
    return _encode({"error": problem})
