"""Limits the starts of durable executions in a second, as Lambda does for a region.

Source: Lambda developer guide, "Lambda quotas".
"""

import time
from collections.abc import Callable

STARTS_A_SECOND = 300


class StartQuota:
    """A token bucket of starts; a rate of 0 means no limit."""

    def __init__(
        self, per_second: int = STARTS_A_SECOND, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._left = float(per_second)
        self._filled_at = clock()

    def take(self) -> bool:
        """Take a token; return whether there was one."""
        if not self._per_second:
            return True
        now = self._clock()
        refilled = self._left + (now - self._filled_at) * self._per_second
        self._left, self._filled_at = min(float(self._per_second), refilled), now
        if self._left < 1:
            return False
        self._left -= 1
        return True
