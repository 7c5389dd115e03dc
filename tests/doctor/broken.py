"""What somebody can break in a deployment that works, and the one finding that the doctor has."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from leeway_sandbox.provisioning import ACCOUNT, client
from leeway_sandbox.sandbox import Sandbox

CLUSTER, GROUP, STACK = "care", "web", "leeway"
ALARM = "leeway-NoticesLateAlarm"
RULE = "leeway-ReceiveNoticeFunctionWarnings"


@contextmanager
def disabled_rule(sandbox: Sandbox) -> Iterator[None]:
    events = client("events", sandbox.aws_url)
    (rule,) = [r for r in events.list_rules()["Rules"] if r["Name"].startswith(RULE)]
    events.disable_rule(Name=rule["Name"])
    yield
    events.enable_rule(Name=rule["Name"])


@contextmanager
def disabled_schedule(sandbox: Sandbox) -> Iterator[None]:
    scheduler = client("scheduler", sandbox.aws_url)
    found = scheduler.get_schedule(Name="leeway-reconcile")
    names = ("Name", "ScheduleExpression", "Target", "FlexibleTimeWindow")
    same = {name: found[name] for name in names}
    scheduler.update_schedule(**same, State="DISABLED")
    yield
    scheduler.update_schedule(**same, State="ENABLED")


@contextmanager
def failed_notice(sandbox: Sandbox) -> Iterator[None]:
    sqs = client("sqs", sandbox.aws_url)
    (url,) = sqs.list_queues(QueueNamePrefix="leeway-ReceiveNoticeFailures")["QueueUrls"]
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    yield
    sqs.purge_queue(QueueUrl=url)


@contextmanager
def alarm(sandbox: Sandbox) -> Iterator[None]:
    cloudwatch = client("cloudwatch", sandbox.aws_url)
    cloudwatch.set_alarm_state(AlarmName=ALARM, StateValue="ALARM", StateReason="late")
    yield
    cloudwatch.set_alarm_state(AlarmName=ALARM, StateValue="OK", StateReason="in time")


@contextmanager
def suspended(sandbox: Sandbox) -> Iterator[None]:
    scaling = client("autoscaling", sandbox.aws_url)
    launch = {"AutoScalingGroupName": GROUP, "ScalingProcesses": ["Launch"]}
    scaling.suspend_processes(**launch)
    yield
    scaling.resume_processes(**launch)


@contextmanager
def full(sandbox: Sandbox) -> Iterator[None]:
    scaling = client("autoscaling", sandbox.aws_url)
    scaling.update_auto_scaling_group(AutoScalingGroupName=GROUP, MaxSize=2)
    yield
    scaling.update_auto_scaling_group(AutoScalingGroupName=GROUP, MaxSize=4)


@contextmanager
def untagged(sandbox: Sandbox) -> Iterator[None]:
    scaling = client("autoscaling", sandbox.aws_url)
    tag = {
        "ResourceId": GROUP,
        "ResourceType": "auto-scaling-group",
        "Key": "eks:cluster-name",
        "Value": CLUSTER,
        "PropagateAtLaunch": True,
    }
    scaling.delete_tags(Tags=[tag])
    yield
    scaling.create_or_update_tags(Tags=[tag])


@contextmanager
def second_rule(sandbox: Sandbox) -> Iterator[None]:
    events = client("events", sandbox.aws_url)
    pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]}
    events.put_rule(Name="theirs", EventPattern=json.dumps(pattern))
    target = {"Id": "queue", "Arn": "arn:aws:sqs:us-east-1:123456789012:nth"}
    events.put_targets(Rule="theirs", Targets=[target])
    yield
    events.remove_targets(Rule="theirs", Ids=["queue"])
    events.delete_rule(Name="theirs")


@contextmanager
def no_entry(sandbox: Sandbox) -> Iterator[None]:
    eks = client("eks", sandbox.aws_url)
    role = f"arn:aws:iam::{ACCOUNT}:role/leeway-RetireNodeRole"
    of = {"clusterName": CLUSTER, "principalArn": role}
    eks.delete_access_entry(**of)
    yield
    eks.create_access_entry(**of, kubernetesGroups=["leeway:drain"])


@contextmanager
def no_spot_role(sandbox: Sandbox) -> Iterator[None]:
    iam = client("iam", sandbox.aws_url)
    iam.delete_service_linked_role(RoleName="AWSServiceRoleForEC2Spot")
    yield
    iam.create_service_linked_role(AWSServiceName="spot.amazonaws.com")


def role_of(sandbox: Sandbox, function: str) -> str:
    assert sandbox.deployed
    (found,) = [f for f in sandbox.deployed.functions if f.name == f"{STACK}-{function}"]
    return sandbox.deployed.stack.roles[found.role].name


@contextmanager
def without(sandbox: Sandbox, lost: Mapping[str, str]) -> Iterator[None]:
    """Take a statement from the role of each of some functions."""
    iam, before = client("iam", sandbox.aws_url), []
    for function, sid in lost.items():
        role = role_of(sandbox, function)
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
            document = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            before.append((role, name, document))
            kept = [one for one in document["Statement"] if one["Sid"] != sid]
            changed = json.dumps({**document, "Statement": kept})
            iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=changed)
    try:
        yield
    finally:
        for role, name, document in before:
            text = json.dumps(document)
            iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=text)


BROKEN = {
    "sends events `EC2 Spot Instance Interruption Warning`": (
        disabled_rule,
        "fails",
        "FunctionNotInvoked",
    ),
    "The schedule leeway-reconcile is disabled": (disabled_schedule, "fails", "FunctionNotInvoked"),
    "about work that failed": (failed_notice, "warns", "FailuresWait"),
    "Alarm leeway-NoticesLateAlarm is on": (alarm, "warns", "AlarmIsOn"),
    "Process Launch of group web is suspended": (suspended, "fails", "GroupLimitsReplacement"),
    "Group web is at its maximum": (full, "warns", "GroupLimitsReplacement"),
    "Group web has no tag eks:cluster-name": (untagged, "fails", "ClusterSettingDiffers"),
    "Rule theirs sends events": (second_rule, "warns", "SecondHandler"),
    "has no access entry for": (no_entry, "fails", "ClusterSettingDiffers"),
}
"""By words of the finding: what breaks it, and the severity and the code of the finding."""
