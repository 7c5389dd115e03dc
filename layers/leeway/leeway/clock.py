"""The time, and waiting for it: injected, so that every decision can be tested at any moment."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now(self) -> datetime:
        """Return the time, aware and in UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let this many seconds pass; nothing where the number is not positive."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the time, aware and in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Let this many seconds pass; nothing where the number is not positive."""
        if seconds > 0:
            time.sleep(seconds)
