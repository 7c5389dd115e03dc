"""The clock on the API server's wall, which may be told to be wrong."""

from __future__ import annotations

import time
from email.utils import formatdate


class Clock:
    """A clock that is so many seconds ahead of the machine's own; behind where negative."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        """Return what it shows, in seconds since the epoch."""
        return time.time() + self.ahead

    def date(self) -> str:
        """Return what it shows, as HTTP's `Date` has it."""
        return formatdate(self.now(), usegmt=True)


CLOCK = Clock()
"""The one clock of this process, which is one API server's machine."""
