"""The control APIs of the sandbox's processes, `/_sandbox/NAME` with JSON bodies: their base and
their client."""

from __future__ import annotations

import inspect
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import urllib3

from leeway_sandbox.errors import NotFoundError, RefusedError, SandboxError

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


class ReadyCounts:
    """Counts Ready nodes and running pods from journal entries."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._pods: set[str] = set()

    @property
    def ready(self) -> int:
        """The number of Ready nodes."""
        return len(self._nodes)

    @property
    def running(self) -> int:
        """The number of running pods."""
        return len(self._pods)

    def update(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Apply new journal entries, in their order."""
        for entry in entries:
            match entry["kind"]:
                case "node-ready":
                    self._nodes.add(entry["node"])
                case "node-deleted":
                    self._nodes.discard(entry["node"])
                case "pod-running":
                    self._pods.add(entry["uid"])
                case "pod-ended":
                    self._pods.discard(entry["uid"])


class Controls:
    """The control APIs by part, such as `aws`, and the entries of their journals."""

    def __init__(
        self, urls: Mapping[str, str], headers: Mapping[str, str], timeout: float = 30.0
    ) -> None:
        self.headers = dict(headers)
        self._urls = urls
        self._http = urllib3.PoolManager(retries=False, timeout=timeout)
        self._read = dict.fromkeys(urls, 0)
        self._entries: list[dict[str, Any]] = []

    def close(self) -> None:
        """Close the connections."""
        self._http.clear()

    def call(self, part: str, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request.

        Raises:
            RefusedError: the process refuses the request.
            SandboxError: the process cannot be reached, or it failed.
        """
        url = f"{self._urls[part]}{PREFIX}{path}"
        try:
            headers = {**self.headers, "Content-Type": "application/json"}
            data = None if body is None else json.dumps(body)
            answer = self._http.request(method, url, body=data, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise SandboxError(
                f"The control API of the process {part} does not answer: {error}."
            ) from error
        if 400 <= answer.status < 500:
            raise RefusedError(_problem(answer.data))
        if answer.status >= 300:
            raise SandboxError(
                f"The control API of the process {part} answered HTTP {answer.status}: "
                f"{_problem(answer.data)}"
            )
        return answer.json()

    def journal(self) -> list[dict[str, Any]]:
        """Return the journal entries of all processes, oldest first."""
        self.new_entries()
        self._entries.sort(key=lambda entry: entry["at"])
        return list(self._entries)

    def new_entries(self) -> list[dict[str, Any]]:
        """Return the journal entries since the last call, oldest first."""
        fresh: list[dict[str, Any]] = []
        for part in self._urls:
            found = self.call(part, "GET", f"journal?since={self._read[part]}")
            self._read[part] = found["next"]
            fresh += found["entries"]
        fresh.sort(key=lambda entry: entry["at"])
        self._entries += fresh
        return fresh


def _problem(data: bytes) -> str:
    """Return the message of `{"error": …}`; the text if it is something else."""
    text = data.decode(errors="replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, LookupError, TypeError):
        return text[:300]
