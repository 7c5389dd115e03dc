"""Auto Scaling groups: their instances, LaunchInstances, and lifecycle hooks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.started import Recorder, Sandbox, hook, started


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


@pytest.fixture(scope="module")
def slow() -> Iterator[Sandbox]:
    """A process whose short states last long enough to be read on a busy machine."""
    with started("--detach=4", "--instance-stop=4") as (_, url):
        sandbox = Sandbox(url)
        yield sandbox
        sandbox.close()


def test_a_detached_instance_keeps_running_and_its_group_launches_another(slow: Sandbox) -> None:
    first, _ = slow.group("detach", 2)
    slow.client("autoscaling").detach_instances(
        AutoScalingGroupName="detach", InstanceIds=[first], ShouldDecrementDesiredCapacity=False
    )
    assert slow.states("detach")[first] == "Detaching"
    assert _tags(slow, first)["aws:autoscaling:groupName"] == "detach"
    slow.wait(lambda: first not in slow.states("detach"))
    _steady(slow, "detach", 2)
    assert "aws:autoscaling:groupName" not in _tags(slow, first)
    [reservation] = slow.client("ec2").describe_instances(InstanceIds=[first])["Reservations"]
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
    slow: Sandbox,
) -> None:
    scaling = slow.client("autoscaling")
    members = slow.group("forced", 2)
    scaling.put_lifecycle_hook(AutoScalingGroupName="forced", **hook("drain", "TERMINATING"))
    code, _ = _refusal(scaling.delete_auto_scaling_group, AutoScalingGroupName="forced")
    assert code == "ResourceInUse"
    scaling.delete_auto_scaling_group(AutoScalingGroupName="forced", ForceDelete=True)
    groups = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["forced"])
    assert [one["Status"] for one in groups["AutoScalingGroups"]] == ["Delete in progress"]

    def gone() -> bool:
        found = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["forced"])
        return not found["AutoScalingGroups"]

    slow.wait(gone)
    answer = slow.client("ec2").describe_instances(InstanceIds=members)
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


def _terminate(aws: Sandbox, instance: str) -> None:
    aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=instance, ShouldDecrementDesiredCapacity=False
    )


def _waits(aws: Sandbox, group: str, instance: str, state: str = "Terminating:Wait") -> None:
    aws.wait(lambda: aws.states(group).get(instance) == state)


def _gone(aws: Sandbox, group: str, instance: str) -> None:
    aws.wait(lambda: instance not in aws.states(group))


def test_a_terminating_instance_keeps_running_during_its_hook_and_is_replaced(aws: Sandbox) -> None:
    [instance] = aws.group("waits", 1, LifecycleHookSpecificationList=[hook("drain")])
    _terminate(aws, instance)
    _waits(aws, "waits", instance)
    replaced = aws.wait(lambda: "InService" in aws.states("waits").values())
    described = aws.client("ec2").describe_instances(InstanceIds=[instance])
    assert described["Reservations"][0]["Instances"][0]["State"]["Name"] == "running"
    assert replaced
    assert aws.states("waits")[instance] == "Terminating:Wait"


def test_the_notice_of_a_hook_has_the_documented_shape(aws: Sandbox, recorder: Recorder) -> None:
    aws.control("PUT", "links", {"lambda": recorder.url})
    events = aws.client("events")
    pattern = '{"source": ["aws.autoscaling"], "detail-type": [{"suffix": "Lifecycle Action"}]}'
    events.put_rule(Name="hooks", EventPattern=pattern)
    arn = "arn:aws:lambda:us-east-1:123456789012:function:receive:live"
    events.put_targets(Rule="hooks", Targets=[{"Id": "f", "Arn": arn}])
    [instance] = aws.group(
        "shape",
        1,
        LifecycleHookSpecificationList=[hook("drain", NotificationMetadata="some words")],
    )
    _terminate(aws, instance)
    [request] = aws.wait(
        lambda: [r for r in recorder.requests if r["body"]["detail"]["EC2InstanceId"] == instance]
    )
    event, token = request["body"], request["body"]["detail"].pop("LifecycleActionToken")
    group = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=["shape"])
    assert event["detail-type"] == "EC2 Instance-terminate Lifecycle Action"
    assert event["resources"] == [group["AutoScalingGroups"][0]["AutoScalingGroupARN"]]
    assert event["detail"] == {
        "AutoScalingGroupName": "shape",
        "LifecycleHookName": "drain",
        "EC2InstanceId": instance,
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "NotificationMetadata": "some words",
        "Origin": "AutoScalingGroup",
        "Destination": "EC2",
    }
    aws.client("autoscaling").complete_lifecycle_action(
        AutoScalingGroupName="shape",
        LifecycleHookName="drain",
        LifecycleActionToken=token,
        LifecycleActionResult="CONTINUE",
    )
    _gone(aws, "shape", instance)


def test_a_missing_heartbeat_ends_the_wait_with_the_default_result(aws: Sandbox) -> None:
    [instance] = aws.group(
        "silent", 1, LifecycleHookSpecificationList=[hook("drain", HeartbeatTimeout=1)]
    )
    _terminate(aws, instance)
    _gone(aws, "silent", instance)
    outcomes = [entry["outcome"] for entry in aws.journal("lifecycle-action", instance=instance)]
    assert outcomes == ["begun", "timed-out"]


def test_the_global_timeout_is_a_hundred_heartbeats_up_to_48_hours(aws: Sandbox) -> None:
    scaling = aws.client("autoscaling")
    aws.group("timeouts", 0)
    for name, timeout in (("short", 30), ("long", 7200)):
        scaling.put_lifecycle_hook(
            AutoScalingGroupName="timeouts", **hook(name, HeartbeatTimeout=timeout)
        )
    hooks = scaling.describe_lifecycle_hooks(AutoScalingGroupName="timeouts")["LifecycleHooks"]
    limits = {hook["LifecycleHookName"]: hook["GlobalTimeout"] for hook in hooks}
    assert limits == {"short": 3000, "long": 172800}
    assert {hook["DefaultResult"] for hook in hooks} == {"ABANDON"}


def test_a_launching_instance_is_not_in_service_before_its_hook_is_completed(aws: Sandbox) -> None:
    aws.group("admit", 0, LifecycleHookSpecificationList=[hook("admit", "LAUNCHING")])
    scaling = aws.client("autoscaling")
    scaling.set_desired_capacity(AutoScalingGroupName="admit", DesiredCapacity=1)
    aws.wait(lambda: list(aws.states("admit").values()) == ["Pending:Wait"])
    [instance] = aws.states("admit")
    scaling.complete_lifecycle_action(
        AutoScalingGroupName="admit",
        LifecycleHookName="admit",
        InstanceId=instance,
        LifecycleActionResult="CONTINUE",
    )
    assert aws.states("admit") == {instance: "InService"}


def test_abandoning_a_launch_terminates_the_instance_and_another_is_launched(aws: Sandbox) -> None:
    aws.group("abandon", 0, LifecycleHookSpecificationList=[hook("admit", "LAUNCHING")])
    scaling = aws.client("autoscaling")
    scaling.set_desired_capacity(AutoScalingGroupName="abandon", DesiredCapacity=1)
    aws.wait(lambda: list(aws.states("abandon").values()) == ["Pending:Wait"])
    [instance] = aws.states("abandon")
    scaling.complete_lifecycle_action(
        AutoScalingGroupName="abandon",
        LifecycleHookName="admit",
        InstanceId=instance,
        LifecycleActionResult="ABANDON",
    )
    aws.wait(lambda: list(aws.states("abandon").values()) == ["Pending:Wait"])
    assert instance not in aws.states("abandon")
    unsuccessful = "EC2 Instance Launch Unsuccessful"
    assert aws.journal("notice", detail_type=unsuccessful, instance=instance)


def test_an_instance_waits_for_all_hooks_unless_one_is_abandoned(aws: Sandbox) -> None:
    hooks = [hook("drain"), hook("logs")]
    first, second = aws.group("several", 2, LifecycleHookSpecificationList=hooks)
    scaling = aws.client("autoscaling")

    def complete(instance: str, name: str, result: str) -> None:
        scaling.complete_lifecycle_action(
            AutoScalingGroupName="several",
            LifecycleHookName=name,
            InstanceId=instance,
            LifecycleActionResult=result,
        )

    for instance in (first, second):
        _terminate(aws, instance)
        _waits(aws, "several", instance)
    complete(first, "drain", "CONTINUE")
    assert aws.states("several")[first] == "Terminating:Wait"
    complete(first, "logs", "CONTINUE")
    complete(second, "drain", "ABANDON")
    _gone(aws, "several", first)
    _gone(aws, "several", second)


def test_instances_continue_when_their_hook_is_deleted(aws: Sandbox) -> None:
    [instance] = aws.group("deleted", 1, LifecycleHookSpecificationList=[hook("drain")])
    _terminate(aws, instance)
    _waits(aws, "deleted", instance)
    aws.client("autoscaling").delete_lifecycle_hook(
        AutoScalingGroupName="deleted", LifecycleHookName="drain"
    )
    _gone(aws, "deleted", instance)
    assert instance not in aws.states("deleted")


def test_a_hook_that_aws_refuses_is_refused(aws: Sandbox) -> None:
    aws.group("no-hook", 0)
    wrong = {"HeartbeatTimeout": 7201}, {"DefaultResult": "RETRY"}, {"LifecycleTransition": "up"}
    for one in wrong:
        with pytest.raises(ClientError, match="ValidationError"):
            aws.client("autoscaling").put_lifecycle_hook(
                AutoScalingGroupName="no-hook", **(hook("drain") | one)
            )
