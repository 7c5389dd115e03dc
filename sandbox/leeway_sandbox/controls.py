"""Calls the control APIs of the processes of a sandbox."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import urllib3

from leeway_sandbox.errors import RefusedError, SandboxError


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

    def __init__(self, urls: Mapping[str, str], headers: Mapping[str, str]) -> None:
        self.headers = dict(headers)
        self._urls = urls
        self._http = urllib3.PoolManager(retries=False, timeout=30.0)
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
        url = f"{self._urls[part]}/_sandbox/{path}"
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
