"""The journal of a process of the sandbox: what an outside observer sees, with times."""

import threading
import time
from collections.abc import Mapping
from typing import Any

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
