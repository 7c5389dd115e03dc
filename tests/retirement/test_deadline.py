"""The latest moment of a pod, and the grace period that fits before the deadline."""

from datetime import UTC, datetime, timedelta

import pytest
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.pods import Terms, grace_that_fits, latest_moment

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
IN_100_S = Terms(NOW + timedelta(seconds=100))


def pod(grace: int, volumes: bool = False) -> Pod:
    return Pod(
        "shop", "web-1", "u-1", "Running", grace, None, claims=("shop/data",) if volumes else ()
    )


@pytest.mark.parametrize(
    ("grace", "volumes", "seconds_before"),
    [
        (30, False, 30),
        (0, False, 2),
        (45, False, 45),
        (600, False, 45),
        (30, True, 50),
        (600, True, 65),
        (2**63 - 1, False, 45),
    ],
)
def test_the_latest_moment_reserves_the_grace_period_up_to_the_cap_and_the_request(
    grace: int, volumes: bool, seconds_before: int
) -> None:
    assert IN_100_S.deadline is not None
    expected = IN_100_S.deadline - timedelta(seconds=seconds_before)
    assert latest_moment(pod(grace, volumes), IN_100_S) == expected


def test_without_a_deadline_there_is_no_latest_moment_and_no_shorter_grace_period() -> None:
    assert latest_moment(pod(600), Terms()) is None
    assert grace_that_fits(pod(600), Terms(), NOW) is None


@pytest.mark.parametrize(
    ("grace", "after", "granted"),
    [
        (30, 0, None),
        (100, 0, None),
        (300, 0, 100),
        (300, 60, 40),
        (30, 90, 10),
        (30, 100, 1),
        (30, 500, 1),
        (0, 500, 0),
    ],
)
def test_a_grace_period_beyond_the_deadline_is_shortened_to_the_time_left(
    grace: int, after: int, granted: int | None
) -> None:
    assert grace_that_fits(pod(grace), IN_100_S, NOW + timedelta(seconds=after)) == granted


@pytest.mark.parametrize(("late", "granted"), [(0.004, None), (0.9, None), (1.0, 9), (1.5, 8)])
def test_a_request_some_milliseconds_after_the_latest_moment_shortens_nothing(
    late: float, granted: int | None
) -> None:
    ten = pod(10)
    latest = latest_moment(ten, IN_100_S)
    assert latest is not None
    assert grace_that_fits(ten, IN_100_S, latest + timedelta(seconds=late)) == granted


def test_a_grace_period_for_all_pods_replaces_their_own_and_is_shortened_too() -> None:
    terms = Terms(IN_100_S.deadline, grace=200)
    assert grace_that_fits(pod(30), terms, NOW) == 100
    assert grace_that_fits(pod(30), Terms(grace=5), NOW) == 5


def test_the_grace_period_of_a_pod_with_volumes_reserves_time_to_detach_them() -> None:
    assert grace_that_fits(pod(300, volumes=True), IN_100_S, NOW) == 80
    assert grace_that_fits(pod(80, volumes=True), IN_100_S, NOW) is None
