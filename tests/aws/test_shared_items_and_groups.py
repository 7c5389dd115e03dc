"""The ledger, offerings, groups, the cache and schedules over the embedded AWS."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from leeway.aws.autoscaling import AutoScalingGroups
from leeway.aws.ec2 import Ec2Instances
from leeway.clock import SystemClock
from leeway.execution.shared_cache import CACHED, SharedCache
from leeway.instances.facts import Owner, OwnerKind
from leeway.notices import LifecycleHook
from leeway.ports.aws import CloudRefused
from leeway.retirement.hooks import GroupCache

from tests.aws.stored import table_in
from tests.sandbox.aws.started import Sandbox, hook

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def maker(aws: Sandbox, service: str) -> Callable[[], Any]:
    return partial(aws.client, service)


def test_launch_instances_raises_a_group_and_a_decrement_lowers_it(aws: Sandbox) -> None:
    first, *_ = aws.group("surging", 2, MaxSize=3, LifecycleHookSpecificationList=[hook("drain")])
    groups = AutoScalingGroups(maker(aws, "autoscaling"))
    # EC2 reports launch times in whole seconds: the next launch is in a later one.
    created = datetime.now(UTC).replace(microsecond=0)
    since: datetime = aws.wait(lambda: (now := datetime.now(UTC)) > created + SECOND and now)
    [came] = groups.launch("surging", "us-east-1b", 1, "i-a-1-us-east-1b").instances
    aws.wait(lambda: aws.states("surging")[came.instance] == "InService")
    assert (came.instance_type, came.zone) == ("m5.large", "us-east-1b")
    facts = groups.facts(first)
    assert facts is not None
    assert (facts.minimum, facts.desired, facts.maximum, facts.units) == (0, 3, 3, 1)
    assert {"us-east-1a", "us-east-1b"} <= {*facts.zones}
    assert not facts.launch_unsupported
    aws.client("autoscaling").suspend_processes(
        AutoScalingGroupName="surging", ScalingProcesses=["Launch"]
    )
    assert groups.missing("surging") == 0
    groups.terminate_in_group(came.instance)
    assert groups.missing("surging") == 1, "it has one to start"
    groups.terminate_in_group(first, decrement=True)
    assert groups.missing("surging") == 1, "what is on its way out is not wanted any more"
    tags = [{"Key": "eks:cluster-name", "Value": "prod"}]
    aws.client("ec2").create_tags(Resources=[came.instance], Tags=tags)
    instances = Ec2Instances(maker(aws, "ec2"))
    assert [one.instance for one in instances.launched_in("surging", since)] == [came.instance]
    assert instances.launched_in("surging", since + timedelta(minutes=1)) == []
    of_cluster = partial(instances.launched_by_groups, "prod")
    assert came.instance in {one.facts.instance for one in of_cluster(since)}
    assert of_cluster(since + timedelta(minutes=1)) == []
    assert instances.launched_by_groups("another", since) == []
    assert came.instance in instances.members("surging")
    assert instances.members("nothing") == frozenset()
    assert groups.lifecycle_states([came.instance, "i-0ffffffffffffffff"]) == {
        came.instance: aws.states("surging")[came.instance]
    }


def test_instances_of_a_managed_node_group_are_members_of_its_auto_scaling_group(
    aws: Sandbox,
) -> None:
    group, since = "eks-web-01234567-89ab-cdef-0123-456789abcdef", datetime.now(UTC)
    (member,) = aws.group(group, 1)
    tags = {"eks:cluster-name": "managing", "eks:nodegroup-name": "web"}
    aws.client("ec2").create_tags(
        Resources=[member], Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
    )
    instances = Ec2Instances(maker(aws, "ec2"))
    (one,) = instances.launched_by_groups("managing", since)
    assert one.facts.owner == Owner(OwnerKind.MANAGED_NODE_GROUP, "web")
    assert one.facts.instance in instances.members(one.group)


def test_lifecycle_states_are_read_for_fifty_instances_at_once() -> None:
    asked: list[int] = []

    class Listing:
        def get_paginator(self, call: str) -> "Listing":
            assert call == "describe_auto_scaling_instances"
            return self

        def paginate(self, InstanceIds: list[str]) -> list[dict[str, Any]]:  # noqa: N803
            asked.append(len(InstanceIds))
            found = [{"InstanceId": one, "LifecycleState": "Warmed:Running"} for one in InstanceIds]
            return [{"AutoScalingInstances": [one]} for one in found]

    groups, names = AutoScalingGroups(Listing), [f"i-{number}" for number in range(120)]
    assert groups.lifecycle_states(names) == dict.fromkeys(names, "Warmed:Running")
    assert groups.lifecycle_states([]) == {}, "without ids, Auto Scaling would list all instances"
    assert asked == [50, 50, 20]


def test_a_zone_without_capacity_returns_an_error_for_the_type(aws: Sandbox) -> None:
    aws.group("starving", 1)
    fault = {"service": "autoscaling", "action": "Launch", "zone": "us-east-1a"}
    lost = fault | {"error": "InsufficientInstanceCapacity", "message": "none"}
    aws.control("PUT", "faults", {"faults": [lost]})
    groups = AutoScalingGroups(maker(aws, "autoscaling"))
    answer = groups.launch("starving", "us-east-1a", 1, "i-a-1-us-east-1a")
    aws.control("PUT", "faults", {"faults": []})
    assert answer.instances == ()
    [error] = answer.errors
    assert (error.instance_type, error.zone, error.lacks_capacity) == (
        "m5.large",
        "us-east-1a",
        True,
    )


class Described:
    """What Auto Scaling says of a group, after its API reference."""

    def __init__(self, **group: Any) -> None:
        self._group = {"AutoScalingGroupName": "ng", "AvailabilityZones": [], **group}

    def describe_auto_scaling_groups(self, **_: Any) -> dict[str, Any]:
        return {"AutoScalingGroups": [self._group]}

    def describe_lifecycle_hooks(self, **_: Any) -> dict[str, Any]:
        return {"LifecycleHooks": []}

    def describe_instance_refreshes(self, **_: Any) -> dict[str, Any]:
        return {"InstanceRefreshes": []}


def mixed(types: tuple[str, ...] = (), **distribution: Any) -> dict[str, Any]:
    overrides = [{"InstanceType": one} for one in types]
    policy = {"LaunchTemplate": {"Overrides": overrides}, "InstancesDistribution": distribution}
    return {"MixedInstancesPolicy": policy}


ABOVE_BASE, BASE = "OnDemandPercentageAboveBaseCapacity", "OnDemandBaseCapacity"


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ({"LaunchTemplate": {}}, ""),
        ({"LaunchConfigurationName": "old"}, "uses a launch configuration"),
        ({"LaunchTemplate": {}, "WarmPoolConfiguration": {}}, "has a warm pool"),
        (mixed(), ""),
        (mixed((), **{ABOVE_BASE: 100, BASE: 2}), ""),
        (mixed((), **{ABOVE_BASE: 0, BASE: 0}), ""),
        (mixed((), **{ABOVE_BASE: 0, BASE: 1}), "mixes On-Demand and Spot Instances"),
        (mixed((), **{ABOVE_BASE: 50}), "mixes On-Demand and Spot Instances"),
    ],
)
def test_a_group_names_why_launch_instances_does_not_work(group: dict[str, Any], why: str) -> None:
    assert AutoScalingGroups(lambda: Described(**group)).rules("ng").launch_unsupported == why


def test_the_instance_types_of_a_group_are_read() -> None:
    group = mixed(("m5.large", "m6i.large"))
    rules = AutoScalingGroups(lambda: Described(**group)).rules("ng")
    assert rules.types == ("m5.large", "m6i.large")


def test_missing_capacity_is_counted_in_the_units_of_the_group() -> None:
    member = {"LifecycleState": "InService", "WeightedCapacity": "4"}
    weighing = Described(DesiredCapacity=46, Instances=[member] * 10)
    assert AutoScalingGroups(lambda: weighing).missing("ng") == 6


def test_the_weight_of_an_instance_is_its_number_of_units() -> None:
    class Weighing(Described):
        def describe_auto_scaling_instances(self, **_: Any) -> dict[str, Any]:
            member = {"AutoScalingGroupName": "ng", "WeightedCapacity": "4"}
            state = {"LifecycleState": "InService", "ProtectedFromScaleIn": False}
            return {"AutoScalingInstances": [member | state]}

    group = Weighing(DesiredCapacity=46, MinSize=44, MaxSize=50)
    facts = AutoScalingGroups(lambda: group).facts("i-a")
    assert facts is not None
    assert (facts.units, facts.may_shrink) == (4, False)


def test_a_missing_group_is_refused_and_has_no_hooks(aws: Sandbox) -> None:
    groups = AutoScalingGroups(maker(aws, "autoscaling"))
    with pytest.raises(CloudRefused, match="there is no group never-was"):
        groups.missing("never-was")
    assert groups.hook_settings(LifecycleHook("never-was", "leeway-drain")) is None


def test_the_cached_rules_of_a_group_equal_those_that_were_read(aws: Sandbox) -> None:
    aws.group("remembered", 1, LifecycleHookSpecificationList=[hook("leeway-drain")])
    rules = AutoScalingGroups(maker(aws, "autoscaling")).rules("remembered")
    assert rules.terminate_hooks == ("leeway-drain",)
    assert rules.timeouts["leeway-drain"] >= 30
    memory = table_in(aws)
    assert memory.get(CACHED, what="group/remembered") is None
    groups = AutoScalingGroups(maker(aws, "autoscaling"))
    before = aws.control("GET", "status")["calls"]["autoscaling:DescribeLifecycleHooks"]
    for _ in range(2):
        known = GroupCache(groups, SharedCache(memory, SystemClock()))
        assert known.rules_of("remembered") == rules
    after = aws.control("GET", "status")["calls"]["autoscaling:DescribeLifecycleHooks"]
    assert after == before + 1
