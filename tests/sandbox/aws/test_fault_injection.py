"""Experiments of Fault Injection Service begin, fail and stop as AWS documents them."""

import json

import pytest

from tests.sandbox.aws.started import Sandbox


@pytest.fixture
def role(aws: Sandbox) -> str:
    trust = {"Effect": "Allow", "Principal": {"Service": "fis.amazonaws.com"}}
    document = {"Version": "2012-10-17", "Statement": [{**trust, "Action": "sts:AssumeRole"}]}
    iam = aws.client("iam")
    found = {one["RoleName"]: one["Arn"] for one in iam.list_roles()["Roles"]}
    if "fis" in found:
        return str(found["fis"])
    created = iam.create_role(RoleName="fis", AssumeRolePolicyDocument=json.dumps(document))
    return str(created["Role"]["Arn"])


def started(aws: Sandbox, role: str, duration: str) -> str:
    """Start an experiment on the Spot instances of a group; return its id."""
    target = {
        "resourceType": "aws:ec2:spot-instance",
        "resourceTags": {"aws:autoscaling:groupName": duration},
        "selectionMode": "ALL",
    }
    action = {
        "actionId": "aws:ec2:send-spot-instance-interruptions",
        "parameters": {"durationBeforeInterruption": duration},
        "targets": {"SpotInstances": "nodes"},
    }
    aws.group(duration, 1, template={"InstanceMarketOptions": {"MarketType": "spot"}})
    fis = aws.client("fis")
    template = fis.create_experiment_template(
        description="test",
        roleArn=role,
        stopConditions=[{"source": "none"}],
        targets={"nodes": target},
        actions={"interrupt": action},
    )["experimentTemplate"]["id"]
    return str(fis.start_experiment(experimentTemplateId=template)["experiment"]["id"])


@pytest.mark.parametrize("duration", ["PT1M", "PT16M"])
def test_an_interruption_begins_two_to_fifteen_minutes_before(
    aws: Sandbox, role: str, duration: str
) -> None:
    experiment = started(aws, role, duration)
    state = aws.client("fis").get_experiment(id=experiment)["experiment"]["state"]
    assert state["status"] == "failed"
    assert state["reason"] == f"durationBeforeInterruption is PT2M to PT15M, got {duration}."


def test_a_rebalance_is_recommended_before_the_interruption(aws: Sandbox, role: str) -> None:
    experiment = started(aws, role, "PT15M")
    (member,) = aws.states("PT15M")
    notices = aws.wait(lambda: aws.journal("notice", instance=member, source="aws.ec2"))
    kinds = {one["detail_type"] for one in notices} - {"EC2 Instance State-change Notification"}
    assert kinds == {"EC2 Instance Rebalance Recommendation"}
    stopped = aws.client("fis").stop_experiment(id=experiment)["experiment"]["state"]["status"]
    assert stopped in ("stopping", "stopped", "completed")
