"""The time, and waiting for it: injected, so that every decision can be tested at any moment."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
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
        return datetime.fromtimestamp(time.time(), UTC)

    def sleep(self, seconds: float) -> None:
        """Let this many seconds pass; nothing where the number is not positive."""
        if seconds > 0:
            time.sleep(seconds)


MAX_OFFSET = timedelta(hours=1)
"""AWS takes no request whose time is off by a quarter of an hour, and API servers no such token: an
answer that is dated further off is somebody's in between, or one that was kept."""


class ClockOffset:
    """How far somebody else's clock is ahead of one's own, as far as its answers' dates tell.

    It is only ever as much as a date proves, and nothing where the two may agree: an answer that
    was slow to come, or to be read, proves little.
    """

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def observe(self, date: str, sent: datetime, received: datetime) -> None:
        """Take in the `Date` of an answer, and when by one's own clock its request was sent and it
        was received. A date that can't be read, or can't be true, teaches nothing.

        Source: RFC 9110, 6.6.1: the moment at which the answer was made, in whole seconds.
        """
        try:
            dated = parsedate_to_datetime(date)
            if dated.tzinfo is None:
                return
            least, most = dated - received, dated + timedelta(seconds=1) - sent
        except (ValueError, OverflowError):
            return
        if least <= MAX_OFFSET and most >= -MAX_OFFSET:
            self.ahead = min(max(self.ahead, least), most)


class CorrectedClock:
    """A clock that is put right by the dates of others' answers. Safe to use from any thread."""

    def __init__(self, own: Clock) -> None:
        self.own = own
        self.offset = ClockOffset()

    def now(self) -> datetime:
        """Return the others' time, aware and in UTC."""
        return self.own.now() + self.offset.ahead

    def sleep(self, seconds: float) -> None:
        """Let this many seconds pass; nothing where the number is not positive."""
        self.own.sleep(seconds)
