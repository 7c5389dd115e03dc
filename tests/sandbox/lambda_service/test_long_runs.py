"""Functions that run for minutes, such as one that holds a watch."""

import time
from typing import Any

from .conftest import eventually


def _shorten(service: Any, seconds: float) -> None:
    fault = {"function": "watching", "timeout": seconds}
    service.control("PUT", "faults", {"faults": [fault]})


def _running(service: Any) -> int:
    return int(service.control("GET", "status")["functions"]["watching"]["running"])


def _ended(service: Any, request: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = eventually(
        lambda: service.journal("invocation", request_id=request)
    )
    return found


def test_a_function_may_run_for_fifteen_minutes(service: Any) -> None:
    service.send("watching", {})
    assert eventually(lambda: _running(service)) == 1

    time.sleep(1)
    assert _running(service) == 1
    assert not service.journal("invocation", function="watching")


def test_a_shorter_timeout_moves_the_deadline_that_the_function_sees(service: Any) -> None:
    _shorten(service, 4)

    assert 0 < service.invoke("watching", {}) <= 4


def test_a_function_that_runs_until_its_timeout_is_killed_and_not_started_again(
    service: Any,
) -> None:
    _shorten(service, 2)
    sent = service.send("watching", {"beyond": 60})
    request = sent["ResponseMetadata"]["RequestId"]

    (dropped,) = eventually(lambda: service.journal("event-dropped", function="watching"))
    (ended,) = _ended(service, request)
    assert dropped["payload"] == {"beyond": 60}
    assert ended["outcome"] == "timeout"
    assert 2000 <= ended["milliseconds"] < 60_000


def test_another_run_starts_beside_one_that_lasts(service: Any) -> None:
    _shorten(service, 12)  # a busy machine starts the second one seconds later
    requests = [
        service.send("watching", {"beyond": -2})["ResponseMetadata"]["RequestId"]
        for _ in ("first", "second")
    ]

    ended = [one for request in requests for one in _ended(service, request)]
    assert [one["outcome"] for one in ended] == ["ok", "ok"]
    begins = [one["at"] - one["milliseconds"] / 1000 for one in ended]
    assert max(begins) < min(one["at"] for one in ended)
