"""LaunchInstances returns its instances or its errors as AWS documents them."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.started import Sandbox, hook

ZONES = ["us-east-1a", "us-east-1b"]
NO_CAPACITY = {
    "service": "autoscaling",
    "action": "Launch",
    "error": "InsufficientInstanceCapacity",
}


def launch(aws: Sandbox, group: str, token: str, **more: Any) -> Any:
    return aws.client("autoscaling").launch_instances(
        AutoScalingGroupName=group, RequestedCapacity=1, ClientToken=token, **more
    )


def code(aws: Sandbox, group: str, token: str = "t-1", **more: Any) -> str:  # noqa: S107
    with pytest.raises(ClientError) as refused:
        launch(aws, group, token, **more)
    result: str = refused.value.response["Error"]["Code"]
    return result


def desired(aws: Sandbox, group: str) -> int:
    described = aws.client("autoscaling").describe_auto_scaling_groups(
        AutoScalingGroupNames=[group]
    )
    wanted: int = described["AutoScalingGroups"][0]["DesiredCapacity"]
    return wanted


def mixed(aws: Sandbox, name: str, share: int, weights: dict[str, str], **more: Any) -> list[str]:
    """A group with a mixed instances policy, a share of On-Demand, and weighted types."""
    template = aws.client("ec2").create_launch_template(
        LaunchTemplateName=f"{name}-mixed", LaunchTemplateData={"ImageId": "ami-12345678"}
    )
    overrides = [{"InstanceType": one, "WeightedCapacity": to} for one, to in weights.items()]
    policy = {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {
                "LaunchTemplateId": template["LaunchTemplate"]["LaunchTemplateId"],
                "Version": "$Latest",
            },
            "Overrides": overrides,
        },
        "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": share},
    }
    aws.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=20,
        AvailabilityZones=ZONES,
        MixedInstancesPolicy=policy,
        **more,
    )
    aws.wait(lambda: set(aws.states(name).values()) == {"InService"} or not more)
    return list(aws.states(name))


def test_it_launches_at_once_in_the_zone_and_raises_the_desired_capacity(aws: Sandbox) -> None:
    aws.group("sync", 2)
    aws.client("autoscaling").put_lifecycle_hook(
        AutoScalingGroupName="sync", **hook("ready", "LAUNCHING")
    )
    answer = launch(aws, "sync", "first", AvailabilityZones=["us-east-1b"])
    [text] = answer["Instances"]
    assert (text["AvailabilityZone"], text["InstanceType"]) == ("us-east-1b", "m5.large")
    assert answer["Errors"] == []
    [successor] = text["InstanceIds"]
    assert aws.states("sync")[successor].startswith("Pending"), "its hooks are waited for"
    assert desired(aws, "sync") == 3


def test_a_known_token_returns_the_same_answer_without_a_launch(aws: Sandbox) -> None:
    aws.group("tokens", 1)
    first = launch(aws, "tokens", "i-1-1", AvailabilityZones=ZONES[:1])
    again = launch(aws, "tokens", "i-1-1", AvailabilityZones=ZONES[:1])
    assert again["Instances"] == first["Instances"]
    assert desired(aws, "tokens") == 2
    other = code(aws, "tokens", "i-1-1", AvailabilityZones=ZONES[1:])
    assert other == "IdempotentParameterMismatch"


def test_a_zone_without_capacity_is_reported_and_the_group_does_not_change(aws: Sandbox) -> None:
    aws.group("full", 1)
    fault = NO_CAPACITY | {"instance_type": "m5.large", "zone": "us-east-1a"}
    aws.control("PUT", "faults", {"faults": [fault]})
    answer = launch(aws, "full", "a", AvailabilityZones=["us-east-1a"])
    [error] = answer["Errors"]
    assert (answer["Instances"], error["ErrorCode"]) == ([], "InsufficientInstanceCapacity")
    assert (error["InstanceType"], error["AvailabilityZone"]) == ("m5.large", "us-east-1a")
    assert desired(aws, "full") == 1
    assert launch(aws, "full", "b", AvailabilityZones=["us-east-1b"])["Instances"]
    retry = {"RetryStrategy": "retry-with-group-configuration"}
    launch(aws, "full", "c", AvailabilityZones=["us-east-1a"], **retry)
    assert desired(aws, "full") == 3
    aws.wait(lambda: len(aws.states("full")) == 3)
    aws.control("PUT", "faults", {"faults": []})


def test_requests_that_aws_documents_as_unsupported_are_refused(aws: Sandbox) -> None:
    aws.group("refused", 1, MaxSize=1)
    assert code(aws, "refused") == "ValidationError", "a zone has to be named"
    assert code(aws, "refused", AvailabilityZones=["us-east-1f"]) == "ValidationError"
    in_zone: dict[str, Any] = {"AvailabilityZones": ZONES[:1]}
    assert code(aws, "refused", **in_zone) == "ValidationError", "it is at its maximum"
    scaling = aws.client("autoscaling")
    scaling.update_auto_scaling_group(AutoScalingGroupName="refused", MaxSize=3)
    scaling.put_warm_pool(AutoScalingGroupName="refused")
    assert code(aws, "refused", **in_zone) == "UnsupportedOperation"
    mixed(aws, "both", 50, {"m5.large": "1"}, DesiredCapacity=1)
    assert code(aws, "both", **in_zone) == "ValidationError"
    scaling.create_launch_configuration(
        LaunchConfigurationName="old", ImageId="ami-12345678", InstanceType="m5.large"
    )
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="old",
        LaunchConfigurationName="old",
        MinSize=0,
        MaxSize=1,
        AvailabilityZones=ZONES,
    )
    assert code(aws, "old", **in_zone) == "ValidationError"


def test_capacity_is_counted_in_units_for_weighted_types(aws: Sandbox) -> None:
    [member] = mixed(aws, "weighs", 0, {"m5.xlarge": "4"}, DesiredCapacity=4)
    described = aws.client("autoscaling").describe_auto_scaling_instances(InstanceIds=[member])
    assert described["AutoScalingInstances"][0]["WeightedCapacity"] == "4"
    aws.client("autoscaling").launch_instances(
        AutoScalingGroupName="weighs",
        RequestedCapacity=4,
        ClientToken="t",
        AvailabilityZones=ZONES[1:],
    )
    assert (len(aws.states("weighs")), desired(aws, "weighs")) == (2, 8)
    aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=member, ShouldDecrementDesiredCapacity=True
    )
    assert desired(aws, "weighs") == 4
