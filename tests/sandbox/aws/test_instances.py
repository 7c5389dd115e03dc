"""The lives, addresses and interruptions of instances, and experiments of FIS."""

import json
import time
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network
from itertools import islice
from typing import Any

import pytest
from leeway_sandbox.aws.instances import addresses

from tests.sandbox.aws.started import Recorder, Sandbox

CLUSTER = [{"Key": "kubernetes.io/cluster/demo", "Value": "owned", "PropagateAtLaunch": True}]
TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}


@pytest.fixture(autouse=True)
def linked(aws: Sandbox, recorder: Recorder) -> None:
    """The recorder takes the place of the cluster's control API."""
    aws.control("PUT", "links", {"kubernetes": {"demo": recorder.url}})


def _text(recorder: Recorder, instance: str) -> list[dict[str, Any]]:
    return [r["body"] for r in recorder.requests if r["body"].get("instance") == instance]


def _describe(aws: Sandbox, instance: str) -> dict[str, Any]:
    [reservation] = aws.client("ec2").describe_instances(InstanceIds=[instance])["Reservations"]
    described: dict[str, Any] = reservation["Instances"][0]
    return described


def _spot_request(aws: Sandbox, instance: str) -> dict[str, Any]:
    by_instance = [{"Name": "instance-id", "Values": [instance]}]
    described = aws.client("ec2").describe_spot_instance_requests(Filters=by_instance)
    [request] = described["SpotInstanceRequests"]
    found: dict[str, Any] = request
    return found


def test_instances_and_spot_requests_are_filtered_and_paged(aws: Sandbox) -> None:
    ec2 = aws.client("ec2")
    tags = [{"Key": "crew", "Value": "seven"}]
    ids = set()
    for _ in range(7):
        launched = ec2.run_instances(
            ImageId="ami-12345678",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
            **SPOT,
        )
        ids.add(launched["Instances"][0]["InstanceId"])
    own = [
        {"Name": "tag:crew", "Values": ["seven"]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    pages = ec2.get_paginator("describe_instances")

    def found() -> list[set[str]]:
        answers = pages.paginate(Filters=own, PaginationConfig={"PageSize": 5})
        return [
            {instance["InstanceId"] for r in answer["Reservations"] for instance in r["Instances"]}
            for answer in answers
        ]

    first, second = aws.wait(lambda: found() if sum(map(len, found())) == 7 else None)
    assert (len(first), first | second) == (5, ids)
    requests = ec2.get_paginator("describe_spot_instance_requests")
    cut = requests.paginate(PaginationConfig={"PageSize": 5})
    listed = [[entry["InstanceId"] for entry in one["SpotInstanceRequests"]] for one in cut]
    assert len(listed) > 1
    assert all(len(entries) == 5 for entries in listed[:-1])
    assert ids <= {instance for entries in listed for instance in entries}
    ec2.terminate_instances(InstanceIds=list(ids))


def test_an_instance_passes_through_each_state_with_its_event(aws: Sandbox) -> None:
    [instance] = aws.group("life", 1)
    aws.client("ec2").terminate_instances(InstanceIds=[instance])
    passed = ["pending", "running", "shutting-down", "terminated"]
    aws.wait(lambda: aws.journal("instance-state", instance=instance, state="terminated"))
    entries = aws.journal("instance-state", instance=instance)
    assert [entry["state"] for entry in entries] == passed
    assert {entry["group"] for entry in entries} == {"life"}
    changes = aws.journal(
        "notice", instance=instance, detail_type="EC2 Instance State-change Notification"
    )
    assert len(changes) == len(passed)


def test_a_running_instance_joins_its_cluster_as_the_node_of_its_kubelet(
    aws: Sandbox, recorder: Recorder
) -> None:
    tags = [
        *CLUSTER,
        {"Key": f"{TEMPLATE}/label/team", "Value": "a", "PropagateAtLaunch": True},
        {"Key": f"{TEMPLATE}/taint/gpu", "Value": "yes:NoSchedule", "PropagateAtLaunch": True},
    ]
    [instance] = aws.group("joins", 1, Tags=tags, template=SPOT)
    [text] = aws.wait(lambda: _text(recorder, instance))
    described, node = _describe(aws, instance), text["node"]
    zone = described["Placement"]["AvailabilityZone"]
    assert text["state"] == "running"
    assert node["metadata"]["name"] == described["PrivateDnsName"]
    assert node["spec"]["providerID"] == f"aws:///{zone}/{instance}"
    assert node["spec"]["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    labels = node["metadata"]["labels"]
    assert labels["node.kubernetes.io/instance-type"] == "m5.large"
    assert labels["topology.kubernetes.io/zone"] == zone
    assert labels["kubernetes.io/arch"] == "amd64"
    assert labels["eks.amazonaws.com/capacityType"] == "SPOT"
    assert labels["team"] == "a"
    capacity, allocatable = node["status"]["capacity"], node["status"]["allocatable"]
    assert (capacity["cpu"], capacity["memory"], capacity["pods"]) == ("2", "7577Mi", "29")
    assert (allocatable["cpu"], allocatable["memory"]) == ("1930m", "6903Mi")


def test_the_cluster_gets_a_report_when_an_instance_shuts_down(
    aws: Sandbox, recorder: Recorder
) -> None:
    [instance] = aws.group("leaves", 1, Tags=CLUSTER)
    aws.client("ec2").terminate_instances(InstanceIds=[instance])
    text = aws.wait(lambda: [one["state"] for one in _text(recorder, instance)][1:])
    assert text == ["terminated"]


def test_a_stopped_spot_instance_comes_back_as_the_same_node(
    aws: Sandbox, recorder: Recorder
) -> None:
    ec2 = aws.client("ec2")
    tags = [{"Key": tag["Key"], "Value": tag["Value"]} for tag in CLUSTER]
    launched = ec2.run_instances(
        ImageId="ami-12345678",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        **SPOT,
    )
    instance = launched["Instances"][0]["InstanceId"]
    aws.wait(lambda: _text(recorder, instance))
    command = {"instance": instance, "action": "stop", "warning": 1}
    aws.control("POST", "interrupt", command)
    assert _spot_request(aws, instance)["Status"]["Code"] == "marked-for-stop"
    aws.wait(lambda: _describe(aws, instance)["State"]["Name"] == "stopped")
    assert _spot_request(aws, instance)["State"] == "disabled"
    ec2.start_instances(InstanceIds=[instance])
    aws.wait(lambda: len(_text(recorder, instance)) == 3)
    text = _text(recorder, instance)
    assert [one["state"] for one in text] == ["running", "stopped", "running"]
    assert text[0]["node"] == text[2]["node"]
    request = _spot_request(aws, instance)
    assert (request["State"], request["Status"]["Code"]) == ("active", "fulfilled")


def test_instances_without_a_linked_cluster_join_nothing(aws: Sandbox, recorder: Recorder) -> None:
    [instance] = aws.group("stranger", 1)
    [member] = aws.group("member", 1, Tags=CLUSTER)
    aws.wait(lambda: _text(recorder, member))
    assert not _text(recorder, instance)


def test_an_instance_that_terminates_early_is_not_interrupted(aws: Sandbox) -> None:
    [instance] = aws.group("in-time", 1, template=SPOT)
    command = {"instance": instance, "warning": 2}
    [answer] = aws.control("POST", "interrupt", command)["interruptions"]
    aws.client("ec2").terminate_instances(InstanceIds=[instance])
    aws.wait(lambda: time.time() > answer["reclaim_at"] + 0.2)
    assert not aws.journal("reclaimed", instance=instance)


def test_a_rebalance_recommendation_can_come_without_a_warning(aws: Sandbox) -> None:
    [instance] = aws.group("advised", 1, template=SPOT)
    command = {"instance": instance, "warning": None, "rebalance": True}
    aws.control("POST", "interrupt", command)
    assert aws.journal(
        "notice", instance=instance, detail_type="EC2 Instance Rebalance Recommendation"
    )
    assert not aws.journal(
        "notice", instance=instance, detail_type="EC2 Spot Instance Interruption Warning"
    )
    assert aws.states("advised") == {instance: "InService"}


def test_with_capacity_rebalancing_the_group_launches_before_it_terminates(
    aws: Sandbox,
) -> None:
    [instance] = aws.group("rebalanced", 1, template=SPOT, CapacityRebalance=True)
    command = {"instance": instance, "warning": None, "rebalance": True}
    aws.control("POST", "interrupt", command)
    aws.wait(lambda: instance not in aws.states("rebalanced"))
    moves = [(entry["instance"], entry["state"]) for entry in aws.journal("lifecycle")]
    [other] = aws.states("rebalanced")
    assert moves.index((other, "InService")) < moves.index((instance, "Terminating"))


def test_a_list_of_instances_is_interrupted_completely_or_not_at_all(aws: Sandbox) -> None:
    instances = aws.group("storm", 3, template=SPOT)
    answer = aws.answer(
        "POST", "interrupt", {"instance": [*instances, "i-0123456789abcdef0"], "warning": 5}
    )
    assert answer.status_code == 404
    assert not aws.journal(
        "notice", instance=instances[0], detail_type="EC2 Spot Instance Interruption Warning"
    )
    answer = aws.control("POST", "interrupt", {"instance": instances, "warning": 60})
    assert [entry["instance"] for entry in answer["interruptions"]] == instances


def test_hibernation_begins_with_its_notice(aws: Sandbox) -> None:
    [instance] = aws.group("hibernated", 1, template=SPOT)
    aws.control("POST", "interrupt", {"instance": instance, "action": "hibernate"})
    assert aws.wait(lambda: aws.journal("instance-state", instance=instance, state="stopped"))


def test_the_warning_of_a_capacity_reservation_has_the_documented_shape(
    aws: Sandbox, recorder: Recorder
) -> None:
    events = aws.client("events")
    function = "arn:aws:lambda:us-east-1:123456789012:function:receive"
    events.put_rule(Name="reserved", EventPattern='{"detail": {"azId": [{"exists": true}]}}')
    events.put_targets(Rule="reserved", Targets=[{"Id": "one", "Arn": function}])
    aws.control("PUT", "links", {"lambda": recorder.url})
    [instance] = aws.group("reserved", 1)
    command = {"instance": instance, "reservation": True, "warning": 1}
    [begun] = aws.control("POST", "interrupt", command)["interruptions"]
    [event] = aws.wait(
        lambda: [r["body"] for r in recorder.requests if r["body"].get("id") == begun["event"]]
    )
    assert event["detail-type"] == "EC2 Capacity Reservation Instance Interruption Warning"
    assert event["resources"].endswith(f":instance/{instance}")
    assert event["detail"]["azId"].startswith("use1-az")
    ends = datetime.fromisoformat(event["detail"]["instance-termination-time"]).timestamp()
    assert abs(ends - begun["reclaim_at"]) < 1
    aws.wait(lambda: aws.journal("reclaimed", instance=instance))
    events.remove_targets(Rule="reserved", Ids=["one"])
    events.delete_rule(Name="reserved")


def test_fifty_thousand_addresses_are_unique() -> None:
    drawn = [IPv4Address(one) for one in islice(addresses(), 50_000)]
    assert len(set(drawn)) == 50_000
    assert all(one in IPv4Network("10.0.0.0/8") for one in drawn)


def test_instances_without_a_subnet_get_unique_addresses(aws: Sandbox) -> None:
    ec2 = aws.client("ec2")
    launched = ec2.run_instances(ImageId="ami-12345678", MinCount=5, MaxCount=5)["Instances"]
    given = {one["PrivateIpAddress"] for one in launched}
    assert len(given) == 5
    assert given <= set(islice(addresses(), 100))


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


def experiment(aws: Sandbox, role: str, duration: str) -> str:
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
    begun = experiment(aws, role, duration)
    state = aws.client("fis").get_experiment(id=begun)["experiment"]["state"]
    assert state["status"] == "failed"
    assert state["reason"] == f"durationBeforeInterruption is PT2M to PT15M, got {duration}."


def test_a_rebalance_is_recommended_before_the_interruption(aws: Sandbox, role: str) -> None:
    begun = experiment(aws, role, "PT15M")
    (member,) = aws.states("PT15M")
    notices = aws.wait(lambda: aws.journal("notice", instance=member, source="aws.ec2"))
    kinds = {one["detail_type"] for one in notices} - {"EC2 Instance State-change Notification"}
    assert kinds == {"EC2 Instance Rebalance Recommendation"}
    stopped = aws.client("fis").stop_experiment(id=begun)["experiment"]["state"]["status"]
    assert stopped in ("stopping", "stopped", "completed")
