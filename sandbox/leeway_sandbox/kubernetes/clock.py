"""The clock of the API server, which a fault can make wrong."""

from __future__ import annotations

import time
from email.utils import formatdate


class Clock:
    """A clock that is `ahead` seconds ahead of the machine's clock; behind if negative."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return time.time() + self.ahead

    def date(self) -> str:
        """Return the time in the format of HTTP's `Date` header."""
        return formatdate(self.now(), usegmt=True)


CLOCK = Clock()
"""The clock of this process."""
