"""What happened, in order, as an observer outside would have seen it."""

import time
from typing import Any


class Journal:
    """Append-only record of entries ``{"at": epoch seconds, "kind": …, …}``."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []

    def add(self, kind: str, **fields: Any) -> None:
        """Record an entry. Safe from any thread."""
        self._entries.append({"at": time.time(), "kind": kind, **fields})

    def since(self, position: int) -> dict[str, Any]:
        """The entries from ``position`` on, and the position to ask from the next time."""
        entries = self._entries[max(position, 0) :]
        return {"next": max(position, 0) + len(entries), "entries": entries}
