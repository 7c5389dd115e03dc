"""Clocks that only advance when the code under test sleeps or reads them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.retirement.retirements import NOTICED


class StillClock:
    """The Clock Protocol: time passes only in `sleep`, or if a test sets it."""

    def __init__(self, time: datetime = NOTICED) -> None:
        self.time = time

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@dataclass
class FakeClock:
    """The Clock Protocol: every reading takes a millisecond."""

    time: datetime = NOTICED

    def now(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=max(0.0, seconds))
