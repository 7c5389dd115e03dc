"""Functions that run for minutes, such as one that holds a watch."""

import time
from typing import Any

from .conftest import eventually


def _shorten(service: Any, seconds: float) -> None:
    fault = {"function": "watching", "timeout": seconds}
    service.control("PUT", "faults", {"faults": [fault]})


def _ended(service: Any, request: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = eventually(
        lambda: service.journal("invocation", request_id=request)
    )
    return found


def test_a_function_may_run_for_fifteen_minutes(service: Any) -> None:
    service.send("watching", {})
    began = eventually(lambda: service.control("GET", "status")["functions"]["watching"]["running"])

    time.sleep(1)
    status = service.control("GET", "status")["functions"]["watching"]
    assert began == 1
    assert status["running"] == 1
    assert not service.journal("invocation", function="watching")


def test_a_shorter_timeout_moves_the_deadline_that_the_function_sees(service: Any) -> None:
    _shorten(service, 2)
    began = time.monotonic()

    left = service.invoke("watching", {})

    assert 1.5 < left <= 2
    assert time.monotonic() - began < 5


def test_a_function_that_runs_until_its_timeout_is_killed_and_not_started_again(
    service: Any,
) -> None:
    _shorten(service, 2)
    sent = service.send("watching", {"beyond": 60})
    request = sent["ResponseMetadata"]["RequestId"]

    (dropped,) = eventually(lambda: service.journal("event-dropped", function="watching"))
    (ended,) = service.journal("invocation", request_id=request)
    assert dropped["payload"] == {"beyond": 60}
    assert ended["outcome"] == "timeout"
    assert 2000 <= ended["milliseconds"] < 4000


def test_another_run_starts_beside_one_that_lasts(service: Any) -> None:
    _shorten(service, 4)
    first = service.send("watching", {})["ResponseMetadata"]["RequestId"]
    time.sleep(0.5)
    second = service.send("watching", {})["ResponseMetadata"]["RequestId"]

    for request in (first, second):
        (ended,) = _ended(service, request)
        assert ended["outcome"] == "ok"
        assert ended["milliseconds"] < 4500
