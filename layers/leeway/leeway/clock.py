"""The current time and waiting, behind a Protocol, so that tests can set any time."""

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Protocol


class Clock(Protocol):
    """The current time, and waiting."""

    def now(self) -> datetime:
        """Return the current time, aware and in UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait this many seconds; return at once if the number is zero or negative."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the current time, aware and in UTC."""
        return datetime.fromtimestamp(time.time(), UTC)

    def sleep(self, seconds: float) -> None:
        """Wait this many seconds; return at once if the number is zero or negative."""
        if seconds > 0:
            time.sleep(seconds)


MAX_OFFSET = timedelta(hours=1)
"""The largest offset that a `Date` header can prove. AWS rejects requests whose time is wrong by 15
minutes, and API servers reject such tokens: a larger offset comes from a proxy or from a cached
response."""


class ClockOffset:
    """How far a server's clock is ahead of the local clock, measured from `Date` headers.

    `ahead` is the smallest offset that the headers prove. It is zero if the two clocks may agree. A
    slow response proves little and does not make the measured offset worse.
    """

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def observe(self, date: str, sent: datetime, received: datetime) -> None:
        """Update the offset from the `Date` header of one response.

        `sent` and `received` are the local times of the request and the response. A header that
        cannot be parsed, or that proves more than MAX_OFFSET, changes nothing.

        Source: RFC 9110, 6.6.1: the time at which the message was originated, in whole seconds.
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
    """The local clock, corrected by the offset to the servers' clocks. Thread-safe."""

    def __init__(self, own: Clock) -> None:
        self.own = own
        self.offset = ClockOffset()

    def now(self) -> datetime:
        """Return the servers' time, aware and in UTC."""
        return self.own.now() + self.offset.ahead

    def sleep(self, seconds: float) -> None:
        """Wait this many seconds; return at once if the number is zero or negative."""
        self.own.sleep(seconds)


def follow_dates(events: Any, clock: CorrectedClock) -> None:
    """Adjust a clock by the Date header of every answer of AWS: instances end by AWS's time.
    `events` is the event system of a session of boto3; call this before it builds clients.

    Source: botocore's guide to events. botocore emits the events of a request and of its answer in
    the same thread.
    """
    sent = threading.local()

    def before_send(**_: Any) -> None:
        sent.at = clock.own.now()

    def response_received(response_dict: Mapping[str, Any] | None, **_: Any) -> None:
        date = (response_dict or {}).get("headers", {}).get("date")
        if date and (sent_at := getattr(sent, "at", None)):
            clock.offset.observe(date, sent_at, clock.own.now())

    events.register("before-send", before_send)
    events.register("response-received", response_received)
