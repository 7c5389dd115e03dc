"""Cron windows: whether a window is open at an instant, and when that may change.

A window is open if its next end is not later than its next start. A window with several starts
before an end therefore opens at the last of them. The rule is KEDA's. It uses local wall-clock
time, so a change to or from daylight saving time does not swap the start and the end of a window.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from leeway.headroom.cron import Cron

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Window:
    """A recurring window with `replicas`. `start` is inside the window, `end` is not."""

    timezone: ZoneInfo
    start: Cron
    end: Cron
    replicas: int

    def is_open(self, at: datetime) -> bool:
        """Whether the window is open at an aware instant."""
        local = self._wall_clock(at)
        return self.end.next(local) <= self.start.next(local)

    def moments(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the instants in (after, until), in UTC and in order, at which the window may open
        or close: starts, ends, and changes of the zone's UTC offset."""
        for begin, end in self._constant_offsets(after.astimezone(UTC), until.astimezone(UTC)):
            if begin > after:
                yield begin
            local = self._wall_clock(begin)
            offset = local - begin.replace(tzinfo=None)
            last = end.replace(tzinfo=None) + offset
            for time in heapq.merge(
                _between(self.start, local, last), _between(self.end, local, last)
            ):
                yield (time - offset).replace(tzinfo=UTC)

    def _wall_clock(self, at: datetime) -> datetime:
        return at.astimezone(self.timezone).replace(tzinfo=None)

    def _constant_offsets(
        self, begin: datetime, end: datetime
    ) -> Iterator[tuple[datetime, datetime]]:
        """Split a span of UTC time at the changes of the zone's UTC offset."""
        while begin < end:
            change = self._next_change(begin, end)
            yield begin, change
            begin = change

    def _next_change(self, begin: datetime, end: datetime) -> datetime:
        offset = self._offset(begin)
        low = begin
        while low < end and self._offset(low + _HOUR) == offset:
            low += _HOUR
        high = low + _HOUR
        while high - low > timedelta(seconds=1):
            middle = low + (high - low) // 2
            low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
        return min(high.replace(microsecond=0), end)

    def _offset(self, at: datetime) -> timedelta | None:
        return at.astimezone(self.timezone).utcoffset()


def _between(cron: Cron, after: datetime, until: datetime) -> Iterator[datetime]:
    return takewhile(lambda at: at < until, cron.times(after))
