"""Retries: while a service is unavailable, and after write conflicts."""

from datetime import UTC, datetime, timedelta

import pytest
from leeway.execution.retrying import (
    CONFLICT_TRIES,
    RETRY_TIMEOUT,
    retry_conflicts,
    retry_while_unavailable,
)
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.table import RecordChanged

START = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


class Clock:
    """The Clock Protocol: time passes only in `sleep`."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def failing(times: int, error: Exception) -> list[Exception | None]:
    """The results of calls: `error` this many times, then success."""
    return [*[error] * times, None]


def call(results: list[Exception | None]) -> str:
    result = results.pop(0)
    if result is not None:
        raise result
    return "done"


@pytest.mark.parametrize("conflicts", [0, 1, CONFLICT_TRIES - 1])
def test_a_write_is_repeated_after_conflicts(conflicts: int) -> None:
    results = failing(conflicts, RecordChanged("i-1"))
    assert retry_conflicts("the record of i-1", lambda: call(results)) == "done"
    assert results == []


def test_a_write_that_always_conflicts_is_an_outage() -> None:
    results = failing(CONFLICT_TRIES, RecordChanged("i-1"))
    with pytest.raises(CloudUnavailable, match="the record of i-1 was changed by other writers"):
        retry_conflicts("the record of i-1", lambda: call(results))
    assert results == [None]


def test_a_call_is_repeated_until_the_service_is_available() -> None:
    clock, results = Clock(), failing(3, CloudUnavailable("Throttling"))
    assert retry_while_unavailable(clock, lambda: call(results)) == "done"


def test_a_call_is_not_repeated_after_the_timeout_or_a_refusal() -> None:
    clock, results = Clock(), failing(100, CloudUnavailable("Throttling"))
    with pytest.raises(CloudUnavailable):
        retry_while_unavailable(clock, lambda: call(results))
    assert clock.now() == START + RETRY_TIMEOUT
    with pytest.raises(CloudRefused):
        retry_while_unavailable(Clock(), lambda: call(failing(1, CloudRefused("AccessDenied"))))
