"""What happened in the cluster, as an outside observer would have seen it: append only."""

from __future__ import annotations

import time
from typing import Any

_LONGEST = 500_000


class Journal:
    """A numbered list of entries; the oldest fall off when it grows beyond all use."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._first = 0

    def add(self, kind: str, **facts: Any) -> None:
        """Write down that something happened just now."""
        self._entries.append({"at": time.time(), "kind": kind, **facts})
        if len(self._entries) > _LONGEST:
            dropped = _LONGEST // 4
            del self._entries[:dropped]
            self._first += dropped

    def since(self, number: int) -> dict[str, Any]:
        """Return the entries from a number on, and the number to ask from next time."""
        entries = self._entries[max(0, number - self._first) :]
        return {"next": self._first + len(self._entries), "entries": entries}
