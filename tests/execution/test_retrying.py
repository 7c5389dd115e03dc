"""Retries: while a service is unavailable, and after write conflicts."""

import pytest
from leeway.execution.retrying import (
    CONFLICT_TRIES,
    RETRY_TIMEOUT,
    Conflicts,
    WhileUnavailable,
)
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.table import RecordChanged

from tests.fakes.clock import StillClock
from tests.retirement.retirements import NOTICED


def failing(times: int, error: Exception) -> list[Exception | None]:
    """The results of calls: `error` this many times, then success."""
    return [*[error] * times, None]


def call(results: list[Exception | None], again: Conflicts | WhileUnavailable) -> str:
    while True:
        with again:
            result = results.pop(0)
            if result is not None:
                raise result
            return "done"


@pytest.mark.parametrize("conflicts", [0, 1, CONFLICT_TRIES - 1])
def test_a_write_is_repeated_after_conflicts(conflicts: int) -> None:
    results = failing(conflicts, RecordChanged("i-1"))
    assert call(results, Conflicts("the record of i-1")) == "done"
    assert results == []


def test_a_write_that_always_conflicts_is_an_outage() -> None:
    results = failing(CONFLICT_TRIES, RecordChanged("i-1"))
    with pytest.raises(CloudUnavailable, match="the record of i-1 was changed by other writers"):
        call(results, Conflicts("the record of i-1"))
    assert results == [None]


def test_a_call_is_repeated_until_the_service_is_available() -> None:
    clock, results = StillClock(), failing(3, CloudUnavailable("Throttling"))
    assert call(results, WhileUnavailable(clock)) == "done"


def test_a_call_is_not_repeated_after_the_timeout_or_a_refusal() -> None:
    clock, results = StillClock(), failing(100, CloudUnavailable("Throttling"))
    with pytest.raises(CloudUnavailable):
        call(results, WhileUnavailable(clock))
    assert clock.now() == NOTICED + RETRY_TIMEOUT
    with pytest.raises(CloudRefused):
        call(failing(1, CloudRefused("AccessDenied")), WhileUnavailable(StillClock()))
