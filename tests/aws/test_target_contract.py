"""The contract of the Targets port: the fake of the retirements' tests and the adapter keep it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from leeway.aws.target_groups import LoadBalancerTargets
from leeway.ports.aws import CloudRefused, CloudUnavailable, TargetGroup, Targets

from tests.fakes.clock import FakeClock
from tests.fakes.targets import FakeTargets
from tests.sandbox.aws.started import Sandbox

NUMBERS = count(1)
PORT = 30080


@dataclass(frozen=True)
class Case:
    """An instance that two target groups have; `until` waits for a condition."""

    port: Targets
    instance: str
    groups: tuple[str, str]
    deregister: Callable[[str], None]
    until: Callable[[Callable[[], object]], object]

    def states(self, among: tuple[str, ...] | None = None) -> dict[str, str]:
        targets = self.port.of_instance(self.instance, among)
        assert {target.port for target in targets} <= {PORT}
        return {target.group: target.state for target in targets}


def balanced(client: Callable[[str], Any], name: str, instances: list[str], delay: int) -> str:
    """Create a target group of a load balancer with these instances; return its ARN.

    A target group takes no instance that is still pending.
    """
    balancers, ec2 = client("elbv2"), client("ec2")
    if instances:
        boots = ec2.get_waiter("instance_running")
        boots.wait(InstanceIds=instances, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    (vpc, *_) = ec2.describe_vpcs()["Vpcs"]
    subnets = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc["VpcId"]]}])
    (group,) = balancers.create_target_group(
        Name=name, Protocol="TCP", Port=PORT, VpcId=vpc["VpcId"], TargetType="instance"
    )["TargetGroups"]
    arn = str(group["TargetGroupArn"])
    attribute = {"Key": "deregistration_delay.timeout_seconds", "Value": str(delay)}
    balancers.modify_target_group_attributes(TargetGroupArn=arn, Attributes=[attribute])
    ids = [subnet["SubnetId"] for subnet in subnets["Subnets"][:2]]
    (balancer,) = balancers.create_load_balancer(Name=name, Type="network", Subnets=ids)[
        "LoadBalancers"
    ]
    balancers.create_listener(
        LoadBalancerArn=balancer["LoadBalancerArn"],
        Protocol="TCP",
        Port=80,
        DefaultActions=[{"Type": "forward", "TargetGroupArn": arn}],
    )
    targets = [{"Id": instance} for instance in instances]
    balancers.register_targets(TargetGroupArn=arn, Targets=targets)
    return arn


@pytest.fixture(params=["fake", "adapter"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """The same targets behind the fake and behind the adapter."""
    if request.param == "fake":
        clock = FakeClock()
        instances = {"i-0one": PORT, "i-0two": PORT}
        fake = FakeTargets(clock, {"slow": dict(instances), "quick": dict(instances)})

        def passes(condition: Callable[[], object]) -> None:
            clock.sleep(1)
            assert condition()

        def forget(group: str) -> None:
            fake.delay = timedelta(seconds=300 if group == "slow" else 1)
            fake.deregister(group, "i-0one")

        yield Case(fake, "i-0one", ("slow", "quick"), forget, passes)
        return
    aws: Sandbox = request.getfixturevalue("aws")
    number = next(NUMBERS)
    instances_of_aws = aws.group(f"targets-{number}", 2)
    arns = tuple(
        balanced(aws.client, f"{name}-{number}", instances_of_aws, delay)
        for name, delay in (("slow", 300), ("quick", 1))
    )
    instance = instances_of_aws[0]

    def deregister(group: str) -> None:
        targets = [{"Id": instance}]
        aws.client("elbv2").deregister_targets(TargetGroupArn=group, Targets=targets)

    adapter = LoadBalancerTargets(partial(aws.client, "elbv2"))
    yield Case(adapter, instance, (arns[0], arns[1]), deregister, aws.wait)


def test_the_targets_of_an_instance_are_those_of_all_its_groups(case: Case) -> None:
    slow, quick = case.groups
    assert case.states() == {slow: "healthy", quick: "healthy"}
    assert case.states((slow,)) == {slow: "healthy"}


def test_a_group_has_the_states_of_its_instances_and_its_delay(case: Case) -> None:
    slow, quick = case.groups
    assert {slow, quick} <= set(case.port.groups())
    case.deregister(slow)
    case.until(lambda: case.port.group(slow).states.get(case.instance) == ("draining",))
    found = case.port.group(slow)
    assert found.delay == 300
    assert sorted(found.states.values()) == [("draining",), ("healthy",)]


def test_a_deregistered_target_drains_and_is_then_left_out(case: Case) -> None:
    slow, quick = case.groups
    case.deregister(slow)
    case.deregister(quick)
    case.until(lambda: case.states() == {slow: "draining"})


def test_an_instance_that_no_load_balancer_has_is_no_target(case: Case) -> None:
    assert list(case.port.of_instance("i-00000000000000000")) == []


def test_a_group_that_was_deleted_has_no_target(aws: Sandbox) -> None:
    targets = LoadBalancerTargets(partial(aws.client, "elbv2"))
    arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/gone/0123456789abcdef"
    assert list(targets.of_instance("i-00000000000000000", [arn])) == []
    assert targets.group(arn) == TargetGroup({}, 0)


@pytest.mark.parametrize(
    ("code", "error"), [("AccessDenied", CloudRefused), ("Throttling", CloudUnavailable)]
)
def test_an_error_of_the_service_is_one_of_the_port(
    aws: Sandbox, code: str, error: type[Exception]
) -> None:
    fault = {"service": "elasticloadbalancing", "action": "DescribeTargetGroups", "error": code}
    aws.control("PUT", "faults", {"faults": [fault]})
    with pytest.raises(error, match=code):
        LoadBalancerTargets(partial(aws.client, "elbv2")).of_instance("i-00000000000000000")
