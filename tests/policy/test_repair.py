"""Which conditions make a node unhealthy, for how long each is tolerated, and the brake."""

from datetime import UTC, datetime, timedelta

import pytest
from leeway.policy.repair import TOLERATED, too_many, why_unhealthy
from leeway.ports.kubernetes_objects import FOREVER, Condition

SINCE = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(("condition", "minutes"), [(one, 30) for one in TOLERATED])
def test_conditions_and_their_times_are_those_of_karpenter(
    condition: tuple[str, str], minutes: int
) -> None:
    if condition[0] == "AcceleratedHardwareReady":
        minutes = 10
    why = why_unhealthy([Condition(*condition, SINCE)])
    assert why is not None
    assert (why.condition, why.status) == condition
    assert why.due == SINCE + timedelta(minutes=minutes)
    assert f"its condition {condition[0]} is {condition[1]} since 2026-11-20 09:00" in str(why)


def test_a_node_monitoring_agent_that_does_not_know_makes_no_node_unhealthy() -> None:
    healthy = [
        Condition("Ready", "True", SINCE),
        Condition("KernelReady", "Unknown", SINCE),
        Condition("DiskPressure", "True", SINCE),
        Condition("MyOwnReady", "False", SINCE),
    ]
    assert why_unhealthy(healthy) is None
    assert why_unhealthy([]) is None


def test_the_condition_whose_time_ends_first_counts() -> None:
    later = Condition("Ready", "False", SINCE)
    first = Condition("AcceleratedHardwareReady", "False", SINCE + timedelta(minutes=5))
    why = why_unhealthy([later, first])
    assert why is not None
    assert why.due == SINCE + timedelta(minutes=15)


@pytest.mark.parametrize("since", [None, FOREVER])
def test_a_condition_without_a_usable_time_is_unhealthy_and_never_due(
    since: datetime | None,
) -> None:
    why = why_unhealthy([Condition("Ready", "Unknown", since)])
    assert why is not None
    assert why.due == FOREVER


@pytest.mark.parametrize(
    ("unhealthy", "nodes", "braked"),
    [
        (1, 1, False),
        (2, 2, True),
        (1, 3, False),
        (2, 5, True),
        (2, 6, False),
        (20, 100, False),
        (21, 100, True),
        (100, 100, True),
    ],
)
def test_a_fifth_of_the_nodes_rounded_up_may_be_unhealthy(
    unhealthy: int, nodes: int, braked: bool
) -> None:
    assert too_many(unhealthy, nodes) is braked
