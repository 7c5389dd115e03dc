"""A cache of short-lived values in the table, so that many functions do not all read them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.clock import Clock
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.table import Record, Table, UnreadableRecord
from leeway.typed_json import BadValue, dumps, loads

FRESH_FOR = timedelta(seconds=15)
"""How long a cached value is used."""


READ_WITHIN = timedelta(seconds=2)
"""How long a function claims to read a value. After that another function reads it."""


POLL_EVERY = 0.2
"""Seconds between two polls for the value that another function reads."""


MAX_POLLS = 20
"""How often a function polls, which is long enough for two functions that read one after the other.
If reading fails for all, hundreds of functions would wait for a claim each, so each of them reads
by itself after that."""


KEPT_FOR = timedelta(hours=1)
"""How long the table keeps a value after it was read."""


@dataclass(frozen=True, slots=True)
class CachedValue:
    """A cached value: `body` is its JSON, `read_at` is when it was read from its source."""

    body: str
    read_at: datetime


CACHED = Record(
    CachedValue, "CACHE#{what}", "VALUE", kept_for=lambda value: value.read_at + KEPT_FOR
)


class SharedCache:
    """A cache for one warm function, in memory and in the table.

    A table that does not answer is not waited for: the value is read then.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._values: dict[str, CachedValue] = {}
        self._polled_in_vain: dict[str, datetime] = {}

    def get_or_read[T](self, what: str, kind: type[T], read: Callable[[], T]) -> T:
        """Return the cached value of this name, a `kind`; call `read` and cache its result if there
        is no fresh one. Raises what `read` raises."""
        cached = self._values.get(what)
        polls = MAX_POLLS if self._may_poll(what) else 1
        claimed_at: datetime | None = None  # when another function's claim was seen
        # During a deployment the table can have a value of another shape: it is read again.
        with suppress(CloudUnavailable, CloudRefused, UnreadableRecord, BadValue):
            while True:
                now = self._clock.now()
                if cached is not None and _is_fresh(cached, now):
                    value = loads(kind, cached.body)
                    self._values[what] = cached
                    return value
                if not polls:
                    self._polled_in_vain[what] = now
                    break
                polls -= 1
                cached = self._table.get(CACHED, consistent=False, what=what)
                if cached is not None and _is_fresh(cached, now):
                    continue
                # A claim that fails costs a write too, and hundreds of functions may wait here.
                if claimed_at is None or now - claimed_at > READ_WITHIN:
                    if self._table.claim(what, now + READ_WITHIN):
                        break
                    claimed_at = now
                self._clock.sleep(POLL_EVERY)
        read_at = self._clock.now()
        value = read()
        self._values[what] = CachedValue(dumps(value).decode(), read_at)
        with suppress(CloudUnavailable, CloudRefused):  # other functions read the value themselves
            self._table.put(CACHED, self._values[what], what=what)
        return value

    def _may_poll(self, what: str) -> bool:
        since = self._polled_in_vain.get(what)
        return since is None or abs(self._clock.now() - since) >= FRESH_FOR


def _is_fresh(cached: CachedValue, now: datetime) -> bool:
    """Return whether a value is fresh. A value from the future comes from a wrong clock and is
    not."""
    return abs(now - cached.read_at) < FRESH_FOR
