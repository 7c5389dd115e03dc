"""A clock that only advances when the code under test sleeps or reads it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.retirement.retirements import NOTICED


@dataclass
class FakeClock:
    """The Clock Protocol: every reading takes a millisecond."""

    time: datetime = NOTICED

    def now(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=max(0.0, seconds))
