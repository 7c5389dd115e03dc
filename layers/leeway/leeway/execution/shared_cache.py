"""execution.shared_cache"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from pydantic import ValidationError

from leeway.clock import Clock
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.table import CachedValue, CacheStore
from leeway.typed_json import adapter_of

FRESH_FOR = timedelta(seconds=15)
"""How long what was read is believed."""


ASKS_FOR = timedelta(seconds=2)
"""How long whoever reads it is waited for; after that the next one does."""


LOOK_EVERY = 0.2
"""Seconds between two looks whether it has been read."""


LOOKS = 20
"""How many looks a caller has in all, for two who read it. Where those who read fail one after the
other, hundreds would wait for their turn to fail, and their pods with them: each asks by itself."""


class SharedCache:
    """Knows what somebody read at most FRESH_FOR ago; one for a warm function."""

    def __init__(self, memory: CacheStore, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock
        self._known: dict[str, CachedValue] = {}
        self._in_vain: dict[str, datetime] = {}

    def get_or_read[T](self, what: str, kind: type[T], read: Callable[[], T]) -> T:
        """Return what is remembered under this name, or else read it for all. A table that does not
        answer is not waited for; what `read` raises is raised."""
        with suppress(CloudUnavailable, CloudRefused, ValidationError):  # or another version's
            recalled = self._recalled(what)
            if recalled is not None:
                value = adapter_of(kind).validate_json(recalled.body)
                self._known[what] = recalled
                return value
        read_at = self._clock.now()
        value = read()
        self._known[what] = CachedValue(adapter_of(kind).dump_json(value).decode(), read_at)
        with suppress(CloudUnavailable, CloudRefused):  # the next one asks, too
            self._memory.put(what, self._known[what])
        return value

    def _recalled(self, what: str) -> CachedValue | None:
        """Return what is remembered and fresh; None says that it is on the caller to ask."""
        known = self._known.get(what)
        if known is not None and _is_fresh(known, self._clock.now()):
            return known
        anothers_since: datetime | None = None
        for _ in range(LOOKS if self._may_wait(what) else 1):
            now = self._clock.now()
            recalled = self._memory.get(what)
            if recalled is not None and _is_fresh(recalled, now):
                return recalled
            # A claim that fails costs a write like one that succeeds, and hundreds wait here.
            if anothers_since is None or now - anothers_since > ASKS_FOR:
                if self._memory.claim(what, now, now + ASKS_FOR):
                    return None
                anothers_since = now
            self._clock.sleep(LOOK_EVERY)
        self._in_vain[what] = self._clock.now()
        return None

    def _may_wait(self, what: str) -> bool:
        since = self._in_vain.get(what)
        return since is None or abs(self._clock.now() - since) >= FRESH_FOR


def _is_fresh(recalled: CachedValue, now: datetime) -> bool:
    """Whether it is believed. What was read in the future was read by a clock that was wrong."""
    return abs(now - recalled.read_at) < FRESH_FOR
