"""Lifecycle hooks wait, and end by the rules of Auto Scaling."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.started import Recorder, Sandbox, hook


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
    aws.group("limits", 0)
    for name, timeout in (("short", 30), ("long", 7200)):
        scaling.put_lifecycle_hook(
            AutoScalingGroupName="limits", **hook(name, HeartbeatTimeout=timeout)
        )
    hooks = scaling.describe_lifecycle_hooks(AutoScalingGroupName="limits")["LifecycleHooks"]
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


@pytest.mark.parametrize(
    "wrong", [{"HeartbeatTimeout": 7201}, {"DefaultResult": "RETRY"}, {"LifecycleTransition": "up"}]
)
def test_a_hook_that_aws_refuses_is_refused(aws: Sandbox, wrong: dict[str, Any]) -> None:
    if not aws.client("autoscaling").describe_auto_scaling_groups(
        AutoScalingGroupNames=["refused"]
    )["AutoScalingGroups"]:
        aws.group("refused", 0)
    with pytest.raises(ClientError, match="ValidationError"):
        aws.client("autoscaling").put_lifecycle_hook(
            AutoScalingGroupName="refused", **(hook("drain") | wrong)
        )
