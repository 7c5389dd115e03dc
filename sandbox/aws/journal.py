"""Keeps what happened, in order, as somebody outside would have seen it."""

import threading
import time
from typing import Any


class Journal:
    """Append-only entries `{"at": epoch seconds, "kind": …, …}`, read by position."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def record(self, kind: str, **facts: Any) -> None:
        """Append one entry with the time of now."""
        with self._lock:
            self._entries.append({"at": time.time(), "kind": kind, **facts})

    def since(self, position: int) -> dict[str, Any]:
        """`{"next": M, "entries": […]}`: everything from `position` on, and where to read next."""
        with self._lock:
            start = max(position, 0)
            return {"next": len(self._entries), "entries": self._entries[start:]}

    def __len__(self) -> int:
        return len(self._entries)
