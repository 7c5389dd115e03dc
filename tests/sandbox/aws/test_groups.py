"""Groups keep their desired size; instances leave them by AWS's rules."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.started import Sandbox, hook


def _steady(aws: Sandbox, group: str, size: int) -> None:
    aws.wait(lambda: list(aws.states(group).values()) == ["InService"] * size)


def _tags(aws: Sandbox, instance: str) -> dict[str, str]:
    [reservation] = aws.client("ec2").describe_instances(InstanceIds=[instance])["Reservations"]
    return {tag["Key"]: tag["Value"] for tag in reservation["Instances"][0].get("Tags", [])}


def _refusal(call: Callable[..., Any], **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return error.value.response["Error"]["Code"], error.value.response["Error"]["Message"]


def test_instances_are_spread_over_the_zones_and_carry_the_groups_tags(aws: Sandbox) -> None:
    tag = {"Key": "kubernetes.io/cluster/demo", "Value": "owned", "PropagateAtLaunch": True}
    instances = aws.group("spread", 4, Tags=[tag])
    members = aws.client("autoscaling").describe_auto_scaling_instances(InstanceIds=instances)
    zones = [member["AvailabilityZone"] for member in members["AutoScalingInstances"]]
    assert sorted(zones) == ["us-east-1a"] * 2 + ["us-east-1b"] * 2
    tags = _tags(aws, instances[0])
    assert tags["aws:autoscaling:groupName"] == "spread"
    assert tags["kubernetes.io/cluster/demo"] == "owned"


def test_a_terminated_instance_is_replaced(aws: Sandbox) -> None:
    first, second = aws.group("dies", 2)
    aws.client("ec2").terminate_instances(InstanceIds=[first])
    aws.wait(lambda: first not in aws.states("dies"))
    _steady(aws, "dies", 2)
    assert second in aws.states("dies")


def test_decrementing_below_the_minimum_is_refused(aws: Sandbox) -> None:
    [instance] = aws.group("least", 1, MinSize=1)
    code, message = _refusal(
        aws.client("autoscaling").terminate_instance_in_auto_scaling_group,
        InstanceId=instance,
        ShouldDecrementDesiredCapacity=True,
    )
    assert code == "ValidationError"
    assert message.startswith("Currently, desiredSize equals minSize (1).")


def test_a_detached_instance_keeps_running_and_its_group_launches_another(aws: Sandbox) -> None:
    first, _ = aws.group("detach", 2)
    aws.client("autoscaling").detach_instances(
        AutoScalingGroupName="detach", InstanceIds=[first], ShouldDecrementDesiredCapacity=False
    )
    assert aws.states("detach")[first] == "Detaching"
    assert _tags(aws, first)["aws:autoscaling:groupName"] == "detach"
    aws.wait(lambda: first not in aws.states("detach"))
    _steady(aws, "detach", 2)
    assert "aws:autoscaling:groupName" not in _tags(aws, first)
    [reservation] = aws.client("ec2").describe_instances(InstanceIds=[first])["Reservations"]
    assert reservation["Instances"][0]["State"]["Name"] == "running"


def test_only_instances_in_service_can_be_detached(aws: Sandbox) -> None:
    [instance] = aws.group("busy", 1, LifecycleHookSpecificationList=[hook("drain")])
    scaling = aws.client("autoscaling")
    scaling.terminate_instance_in_auto_scaling_group(
        InstanceId=instance, ShouldDecrementDesiredCapacity=False
    )
    code, message = _refusal(
        scaling.detach_instances,
        AutoScalingGroupName="busy",
        InstanceIds=[instance],
        ShouldDecrementDesiredCapacity=False,
    )
    assert code == "ValidationError"
    assert message == f"The instance {instance} is not in InService or Standby."


def test_desired_capacity_stays_within_the_groups_limits(aws: Sandbox) -> None:
    aws.group("limits", 1, MinSize=1, MaxSize=2)
    code, message = _refusal(
        aws.client("autoscaling").set_desired_capacity,
        AutoScalingGroupName="limits",
        DesiredCapacity=3,
    )
    assert code == "ValidationError"
    expected = "New SetDesiredCapacity value 3 is above max value 2 for the AutoScalingGroup."
    assert message == expected


def test_nothing_is_launched_while_launch_is_suspended(aws: Sandbox) -> None:
    first, second = aws.group("suspended", 2)
    scaling = aws.client("autoscaling")
    scaling.suspend_processes(AutoScalingGroupName="suspended", ScalingProcesses=["Launch"])
    aws.client("ec2").terminate_instances(InstanceIds=[first])
    aws.wait(lambda: aws.states("suspended") == {second: "InService"})
    scaling.resume_processes(AutoScalingGroupName="suspended", ScalingProcesses=["Launch"])
    _steady(aws, "suspended", 2)
    assert first not in aws.states("suspended")


def test_scale_in_keeps_protected_instances(aws: Sandbox) -> None:
    instances = aws.group("protected", 3)
    scaling = aws.client("autoscaling")
    scaling.set_instance_protection(
        AutoScalingGroupName="protected",
        InstanceIds=instances[:2],
        ProtectedFromScaleIn=True,
    )
    scaling.set_desired_capacity(AutoScalingGroupName="protected", DesiredCapacity=0)
    aws.wait(lambda: set(aws.states("protected")) == set(instances[:2]))
    assert set(aws.states("protected").values()) == {"InService"}


def test_a_failed_launch_sends_an_event_and_is_retried(aws: Sandbox) -> None:
    aws.group("starved", 0)
    fault = {
        "service": "autoscaling",
        "action": "Launch",
        "error": "InsufficientInstanceCapacity",
        "message": "There is no Spot capacity available.",
        "count": 1,
    }
    aws.control("PUT", "faults", {"faults": [fault]})
    aws.client("autoscaling").set_desired_capacity(
        AutoScalingGroupName="starved", DesiredCapacity=1
    )
    assert aws.journal("notice", detail_type="EC2 Instance Launch Unsuccessful")
    _steady(aws, "starved", 1)


def test_a_group_with_instances_is_deleted_only_by_force_and_is_gone_with_the_last_of_them(
    aws: Sandbox,
) -> None:
    scaling = aws.client("autoscaling")
    members = aws.group("forced", 2)
    scaling.put_lifecycle_hook(AutoScalingGroupName="forced", **hook("drain", "TERMINATING"))
    code, _ = _refusal(scaling.delete_auto_scaling_group, AutoScalingGroupName="forced")
    assert code == "ResourceInUse"
    scaling.delete_auto_scaling_group(AutoScalingGroupName="forced", ForceDelete=True)
    groups = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["forced"])
    assert [one["Status"] for one in groups["AutoScalingGroups"]] == ["Delete in progress"]

    def gone() -> bool:
        found = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["forced"])
        return not found["AutoScalingGroups"]

    aws.wait(gone)
    answer = aws.client("ec2").describe_instances(InstanceIds=members)
    states = {one["State"]["Name"] for r in answer["Reservations"] for one in r["Instances"]}
    assert states == {"terminated"}


def test_an_override_names_its_launch_template_by_the_id_or_by_the_name(aws: Sandbox) -> None:
    made = aws.client("ec2").create_launch_template(
        LaunchTemplateName="of-override", LaunchTemplateData={"ImageId": "ami-12345678"}
    )["LaunchTemplate"]
    both = {key: made[key] for key in ("LaunchTemplateId", "LaunchTemplateName")}
    scaling = aws.client("autoscaling")

    def policy(specification: dict[str, str]) -> dict[str, Any]:
        override = {"InstanceType": "m5.large", "LaunchTemplateSpecification": specification}
        own = {"LaunchTemplateId": both["LaunchTemplateId"]}
        template = {"LaunchTemplateSpecification": own, "Overrides": [override]}
        return {"MixedInstancesPolicy": {"LaunchTemplate": template}}

    sizes = {"MinSize": 0, "MaxSize": 1, "AvailabilityZones": ["us-east-1a"]}
    named = policy({"LaunchTemplateName": "of-override"})
    scaling.create_auto_scaling_group(AutoScalingGroupName="of-override", **sizes, **named)
    (group,) = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["of-override"])[
        "AutoScalingGroups"
    ]
    (override,) = group["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]
    assert override["LaunchTemplateSpecification"] == both
    for wrong in (both, {"Version": "1"}):
        with pytest.raises(ClientError, match="either launchTemplateId or LaunchTemplateName"):
            scaling.update_auto_scaling_group(AutoScalingGroupName="of-override", **policy(wrong))
