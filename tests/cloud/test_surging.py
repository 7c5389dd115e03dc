"""Groups are made one larger and one smaller again, on an Auto Scaling API and a table."""

from functools import partial
from typing import Any

import pytest
from leeway.clock import SystemClock
from leeway.cloud.autoscaling import AutoScalingGroups
from leeway.cloud.ledgers import DynamoLedgers
from leeway.retirement.surging import Surging

from tests.cloud.stored import TABLE
from tests.sandbox.aws.started import Sandbox, hook


@pytest.fixture
def groups(aws: Sandbox) -> AutoScalingGroups:
    return AutoScalingGroups(partial(aws.client, "autoscaling"))


@pytest.fixture
def surging(aws: Sandbox, groups: AutoScalingGroups) -> Surging:
    ledgers = DynamoLedgers(partial(aws.client, "dynamodb"), TABLE)
    return Surging(ledgers, groups, SystemClock())


def made(aws: Sandbox, name: str, size: int = 2, **more: Any) -> list[str]:
    """The instances of a new group with a terminate hook."""
    limits = {"MinSize": size, "MaxSize": size + 1}
    hooks = [hook("drain")]
    return list(aws.group(name, size, LifecycleHookSpecificationList=hooks, **limits, **more))


def test_an_instance_in_service_is_ended_with_a_decrement_and_once(
    aws: Sandbox, groups: AutoScalingGroups, surging: Surging
) -> None:
    first, second = made(aws, "surged")
    for _ in range(2):
        assert surging.raise_for(first, "surged")
        assert groups.capacity("surged").desired == 3
    assert not surging.raise_for(second, "surged"), "the group is full"
    assert [surging.lower_for(first, "surged") for _ in range(2)] == [True, False]
    after = groups.capacity("surged")
    assert (after.desired, first in after.members, second in after.members) == (2, False, True)


def test_what_is_gone_or_stays_is_taken_back_by_the_desired_capacity(
    aws: Sandbox, groups: AutoScalingGroups, surging: Surging
) -> None:
    for name, gone in (("stays", False), ("gone", True)):
        first, _ = made(aws, name)
        surging.raise_for(first, name)
        if gone:
            groups.detach(first, name)
        assert groups.capacity(name).desired == 3
        assert not surging.lower_for(first, name, stays=not gone)
        assert groups.capacity(name).desired == 2


def test_where_somebody_raised_the_groups_minimum_the_instance_is_replaced_and_nothing_lowered(
    aws: Sandbox, groups: AutoScalingGroups, surging: Surging
) -> None:
    first, _ = made(aws, "grown")
    surging.raise_for(first, "grown")
    aws.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName="grown", MinSize=3)
    assert [surging.lower_for(first, "grown") for _ in range(2)] == [True, False]
    after = groups.capacity("grown")
    assert (after.desired, first in after.members) == (3, False)


def test_a_group_that_somebody_lowered_already_or_removed_is_left_so(
    aws: Sandbox, groups: AutoScalingGroups, surging: Surging
) -> None:
    first, _ = made(aws, "lowered")
    surging.raise_for(first, "lowered")
    groups.set_desired("lowered", 2)
    surging.lower_for(first, "lowered", stays=True)
    assert groups.capacity("lowered").desired == 2
    assert not surging.lower_for(first, "never-was")
