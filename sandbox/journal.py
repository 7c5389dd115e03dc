"""What happened in a part of the sandbox, as an outside observer would have seen it."""

import threading
import time
from collections.abc import Mapping
from typing import Any

LONGEST = 300_000  # entries, some 150 MB


class Journal:
    """A numbered list of entries; the oldest fall off when it grows beyond all use."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._entries: list[Mapping[str, Any]] = []
        self._first = 0
        self._lock = threading.Lock()

    def add(self, kind: str, **facts: Any) -> None:
        """Write down that something happened just now."""
        with self._lock:
            self._entries.append({"at": time.time(), "kind": kind, **facts})
            if len(self._entries) > self._longest:
                dropped = max(self._longest // 4, 1)
                del self._entries[:dropped]
                self._first += dropped

    def since(self, number: int) -> dict[str, Any]:
        """`{"next": M, "entries": […]}`: what is left from a number on, and where to read next."""
        with self._lock:
            entries = self._entries[max(0, number - self._first) :]
            return {"next": self._first + len(self._entries), "entries": entries}

    def __len__(self) -> int:
        return len(self._entries)
