"""CreateFleet of type instant answers as EC2 does."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.fleet_calls import (
    codes,
    described,
    image,
    launched,
    overrides,
    profile,
    request,
    subnets,
    template,
)
from tests.sandbox.aws.started import Sandbox


@pytest.fixture(autouse=True)
def healed(aws: Sandbox) -> Iterator[None]:
    """Each test begins without faults."""
    aws.control("PUT", "faults", {"faults": []})
    yield
    aws.control("PUT", "faults", {"faults": []})


def _faults(aws: Sandbox, *faults: dict[str, Any]) -> None:
    aws.control("PUT", "faults", {"faults": list(faults)})


def _no_capacity(instance_type: str = "*", zone: str = "*", **more: Any) -> dict[str, Any]:
    pool = {"instance_type": instance_type, "zone": zone}
    error = {"error": "InsufficientInstanceCapacity"}
    return {"service": "*", "action": "Launch", **pool, **error, **more}


def _create(aws: Sandbox, *arguments: Any, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = aws.client("ec2").create_fleet(**request(*arguments, **more))
    return answer


def _refusal(aws: Sandbox, wanted: dict[str, Any]) -> str:
    with pytest.raises(ClientError) as refused:
        aws.client("ec2").create_fleet(**wanted)
    return str(refused.value.response["Error"]["Code"])


def _cheapest_spot(aws: Sandbox, types: list[str], zones: list[str]) -> tuple[str, str]:
    history = aws.client("ec2").describe_spot_price_history(
        InstanceTypes=types, ProductDescriptions=["Linux/UNIX"]
    )["SpotPriceHistory"]
    offers = [one for one in history if one["AvailabilityZone"] in zones]
    best = min(offers, key=lambda one: float(one["SpotPrice"]))
    return best["InstanceType"], best["AvailabilityZone"]


def test_spot_is_launched_in_the_cheapest_pool(aws: Sandbox) -> None:
    types = ["m5.large", "c5.large", "r5.large", "m5.xlarge"]
    pools = overrides(aws, *types)
    answer = _create(aws, template(aws), pools, 3)
    [entry] = answer["Instances"]
    cheapest = _cheapest_spot(aws, types, [pool["AvailabilityZone"] for pool in pools])
    chosen = entry["LaunchTemplateAndOverrides"]["Overrides"]
    assert (chosen["InstanceType"], chosen["AvailabilityZone"]) == cheapest
    assert (entry["Lifecycle"], len(entry["InstanceIds"]), answer["Errors"]) == ("spot", 3, [])
    for instance in described(aws, *entry["InstanceIds"]):
        assert instance["InstanceType"] == cheapest[0]
        assert instance["Placement"]["AvailabilityZone"] == cheapest[1]
        assert instance["InstanceLifecycle"] == "spot"
        assert instance["SubnetId"] == chosen["SubnetId"]
        assert instance["SpotInstanceRequestId"].startswith("sir-")


def test_on_demand_takes_the_lowest_price_of_the_types(aws: Sandbox) -> None:
    pools = overrides(aws, "m5.2xlarge", "c5.large", "m5.large")
    answer = _create(aws, template(aws), pools, market="on-demand")
    [entry] = answer["Instances"]
    assert (entry["InstanceType"], entry["Lifecycle"]) == ("c5.large", "on-demand")
    [instance] = described(aws, *entry["InstanceIds"])
    assert "InstanceLifecycle" not in instance


def test_a_fault_can_be_any_error_of_a_pool(aws: Sandbox) -> None:
    code = "VcpuLimitExceeded"
    _faults(aws, {"service": "ec2", "action": "Launch", "error": code, "message": "no"})
    answer = _create(aws, template(aws), overrides(aws, "m5.large"))
    assert set(codes(answer)) == {code}
    assert launched(answer) == []


def test_a_pool_can_launch_a_part_before_its_error(aws: Sandbox) -> None:
    _faults(aws, _no_capacity(launched=1))
    answer = _create(aws, template(aws), overrides(aws, "m5.large")[:2], 3)
    assert len(launched(answer)) == 2
    assert codes(answer) == ["InsufficientInstanceCapacity"] * 2
    enough = _create(aws, template(aws), overrides(aws, "m5.large")[:2], 1)
    assert (len(launched(enough)), codes(enough)) == (1, [])


@pytest.mark.parametrize(
    ("data", "pool", "code"),
    [
        ({"ImageId": "ami-0123456789abcdef0"}, {}, "InvalidAMIID.NotFound"),
        ({}, {"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound"),
        ({}, {"SubnetId": "subnet-0123456789abcdef0"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, {}, "InvalidGroup.NotFound"),
        ({"IamInstanceProfile": {"Name": "none"}}, {}, "InvalidParameterValue"),
        ({}, {"InstanceType": "m6g.large"}, "InvalidParameterValue"),
        ({}, {"InstanceType": "m99.large"}, "InvalidParameterValue"),
        ({}, {"InstanceType": "p3.2xlarge", "AvailabilityZone": "us-east-1e"}, "InvalidFleetConf"),
    ],
)
def test_a_resource_that_does_not_exist_or_match_is_an_error_of_its_pool(
    aws: Sandbox, data: dict[str, Any], pool: dict[str, Any], code: str
) -> None:
    [valid] = overrides(aws, "m5.large", zones=("us-east-1a",))
    wrong = valid | pool
    if "AvailabilityZone" in pool:
        wrong["SubnetId"] = subnets(aws)[pool["AvailabilityZone"]]
    answer = _create(aws, template(aws, **data), [wrong], market="on-demand")
    assert launched(answer) == []
    [found] = codes(answer)
    assert found.startswith(code)


def test_an_instance_profile_needs_a_role(aws: Sandbox) -> None:
    aws.client("iam").create_instance_profile(InstanceProfileName="without-role")
    own = template(aws, IamInstanceProfile={"Name": "without-role"})
    answer = _create(aws, own, overrides(aws, "m5.large", zones=("us-east-1a",)))
    assert codes(answer) == ["InvalidParameterValue"]
    assert "has no associated IAM Roles" in answer["Errors"][0]["ErrorMessage"]


def test_fifty_tags_are_the_most_and_tags_of_aws_do_not_count(aws: Sandbox) -> None:
    def specification(number: int) -> list[dict[str, Any]]:
        tags = [{"Key": f"key-{n}", "Value": "v"} for n in range(number)]
        return [{"ResourceType": "instance", "Tags": tags}]

    pools = overrides(aws, "m5.large", zones=("us-east-1a",))
    answer = _create(aws, template(aws), pools, TagSpecifications=specification(50))
    [instance] = described(aws, *launched(answer))
    assert len(instance["Tags"]) == 53
    wanted = request(template(aws), pools, TagSpecifications=specification(51))
    assert _refusal(aws, wanted) == "TagLimitExceeded"
    more = [{"ResourceType": "instance", "Tags": [{"Key": "one-more", "Value": "v"}]}]
    own = template(aws, TagSpecifications=more)
    answer = _create(aws, own, pools, TagSpecifications=specification(50))
    assert codes(answer) == ["TagLimitExceeded"]


def test_an_arm_image_starts_on_arm(aws: Sandbox) -> None:
    arm = image(aws, "/aws/service/bottlerocket/aws-k8s-1.34/arm64/latest/image_id")
    pools = overrides(aws, "m5.large", "m6g.large", zones=("us-east-1a",))
    answer = _create(aws, template(aws, ImageId=arm), pools, market="on-demand")
    assert [entry["InstanceType"] for entry in answer["Instances"]] == ["m6g.large"]


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"LaunchTemplateName": "none"}, "InvalidLaunchTemplateName.NotFoundException"),
        ({}, "MissingParameter"),
    ],
)
def test_a_template_that_does_not_exist_fails_the_call(
    aws: Sandbox, named: dict[str, str], code: str
) -> None:
    wanted = request("lt-1", overrides(aws, "m5.large"))
    wanted["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"] = named | {"Version": "1"}
    assert _refusal(aws, wanted) == code


@pytest.mark.parametrize("version", ["3", "latest"])
def test_a_version_that_does_not_exist_fails_the_call(aws: Sandbox, version: str) -> None:
    wanted = request(template(aws), overrides(aws, "m5.large"))
    wanted["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["Version"] = version
    assert _refusal(aws, wanted) == "InvalidLaunchTemplateId.VersionNotFound"


def test_two_subnets_of_one_zone_are_duplicate_pools(aws: Sandbox) -> None:
    ec2 = aws.client("ec2")
    vpc = ec2.describe_subnets()["Subnets"][0]["VpcId"]
    second = ec2.create_subnet(
        VpcId=vpc, CidrBlock="172.31.241.0/24", AvailabilityZone="us-east-1a"
    )["Subnet"]["SubnetId"]
    pools = overrides(aws, "m5.large", zones=("us-east-1a",))
    wanted = request(template(aws), [*pools, {"InstanceType": "m5.large", "SubnetId": second}])
    assert _refusal(aws, wanted) == "InvalidFleetConfig"


def test_a_token_whose_call_failed_may_be_used_again(aws: Sandbox) -> None:
    wanted = request("lt-0123456789abcdef0", overrides(aws, "m5.large"), ClientToken="token-three")
    assert _refusal(aws, wanted) == "InvalidLaunchTemplateId.NotFound"
    wanted = request(template(aws), overrides(aws, "m5.large"), ClientToken="token-three")
    assert launched(aws.client("ec2").create_fleet(**wanted))


def test_the_journal_has_the_offerings_of_a_fleet(aws: Sandbox) -> None:
    shortage = {"service": "ec2", "action": "Launch", "instance_type": "m5.large"}
    _faults(aws, {**shortage, "error": "InsufficientInstanceCapacity"})
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "a"}]}]
    wanted = request(template(aws), overrides(aws, "m5.large", "m5.xlarge"), TagSpecifications=tags)
    (instance,) = launched(aws.client("ec2").create_fleet(**wanted))
    entry = aws.journal("fleet")[-1]
    (made,) = entry["launched"]
    assert (made["instance"], made["instance_type"]) == (instance, "m5.xlarge")
    assert made["capacity_type"] == entry["refused"][0]["capacity_type"]
    assert {one["instance_type"] for one in entry["refused"]} == {"m5.large"}
    assert {one["code"] for one in entry["refused"]} == {"InsufficientInstanceCapacity"}
    assert entry["tags"] == {"team": "a"}


def test_resources_are_tagged_at_creation(aws: Sandbox) -> None:
    ec2 = aws.client("ec2")
    own = template(
        aws,
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "template"}]},
            {"ResourceType": "network-interface", "Tags": [{"Key": "eni", "Value": "yes"}]},
        ],
    )
    specifications = [
        {"ResourceType": kind, "Tags": [{"Key": "a", "Value": kind}, {"Key": "b", "Value": "c"}]}
        for kind in ("instance", "volume", "fleet", "spot-instances-request")
    ]
    answer = _create(aws, own, overrides(aws, "m5.large"), TagSpecifications=specifications)
    [instance] = described(aws, *launched(answer))
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags["a"] == "instance"
    assert tags["aws:ec2:fleet-id"] == answer["FleetId"]
    assert tags["aws:ec2launchtemplate:id"] == own

    def tags_of(resource: str) -> dict[str, str]:
        found = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [resource]}])["Tags"]
        return {tag["Key"]: tag["Value"] for tag in found}

    [volume] = instance["BlockDeviceMappings"]
    assert tags_of(volume["Ebs"]["VolumeId"]) == {"a": "volume", "b": "c"}
    assert tags_of(instance["NetworkInterfaces"][0]["NetworkInterfaceId"]) == {"eni": "yes"}
    assert tags_of(instance["SpotInstanceRequestId"]) == {"a": "spot-instances-request", "b": "c"}
    [fleet] = ec2.describe_fleets(FleetIds=[answer["FleetId"]])["Fleets"]
    assert {tag["Key"]: tag["Value"] for tag in fleet["Tags"]} == {"a": "fleet", "b": "c"}
    assert fleet["Type"] == "instant"
    assert [entry["InstanceIds"] for entry in fleet["Instances"]] == [launched(answer)]


@pytest.mark.parametrize(
    ("kind", "key"), [("launch-template", "a"), ("subnet", "a"), ("instance", "aws:mine")]
)
def test_other_resources_and_reserved_keys_are_refused(aws: Sandbox, kind: str, key: str) -> None:
    tags = [{"ResourceType": kind, "Tags": [{"Key": key, "Value": "b"}]}]
    wanted = request(template(aws), overrides(aws, "m5.large"), TagSpecifications=tags)
    assert _refusal(aws, wanted) == "InvalidParameterValue"


def test_tags_of_spot_requests_are_an_error_of_on_demand_pools(aws: Sandbox) -> None:
    tags = [{"ResourceType": "spot-instances-request", "Tags": [{"Key": "a", "Value": "b"}]}]
    pools = overrides(aws, "m5.large")
    answer = _create(aws, template(aws), pools, market="on-demand", TagSpecifications=tags)
    assert set(codes(answer)) == {"InvalidParameterValue"}
    assert launched(answer) == []


def test_an_instance_has_the_groups_of_its_network_interface(aws: Sandbox) -> None:
    ec2 = aws.client("ec2")
    vpc = ec2.describe_subnets()["Subnets"][0]["VpcId"]
    group = ec2.create_security_group(GroupName="own", Description="own", VpcId=vpc)["GroupId"]
    own = template(aws, NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [group]}])
    [instance] = described(aws, *launched(_create(aws, own, overrides(aws, "m5.large"))))
    assert [one["GroupId"] for one in instance["SecurityGroups"]] == [group]


def test_the_template_gives_profile_groups_volumes_and_metadata_options(aws: Sandbox) -> None:
    ec2 = aws.client("ec2")
    profile(aws, "fleet-nodes")
    vpc = ec2.describe_subnets()["Subnets"][0]["VpcId"]
    tags = [{"ResourceType": "security-group", "Tags": [{"Key": "for", "Value": "nodes"}]}]
    ec2.create_security_group(
        GroupName="nodes", Description="nodes", VpcId=vpc, TagSpecifications=tags
    )
    by_tag = [{"Name": "tag:for", "Values": ["nodes"]}]
    [group] = ec2.describe_security_groups(Filters=by_tag)["SecurityGroups"]
    own = template(
        aws,
        IamInstanceProfile={"Name": "fleet-nodes"},
        SecurityGroupIds=[group["GroupId"]],
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        BlockDeviceMappings=[
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 33, "Encrypted": True}}
        ],
    )
    [instance] = described(aws, *launched(_create(aws, own, overrides(aws, "m5.large"))))
    assert instance["IamInstanceProfile"]["Arn"].endswith(":instance-profile/fleet-nodes")
    assert [one["GroupId"] for one in instance["SecurityGroups"]] == [group["GroupId"]]
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["MetadataOptions"]["HttpPutResponseHopLimit"] == 2
    [mapping] = instance["BlockDeviceMappings"]
    [volume] = ec2.describe_volumes(VolumeIds=[mapping["Ebs"]["VolumeId"]])["Volumes"]
    assert (volume["Size"], volume["Encrypted"]) == (33, True)


@pytest.fixture
def tags_in_metadata(aws: Sandbox) -> Iterator[None]:
    """The account's default puts tags into the metadata of instances."""
    ec2 = aws.client("ec2")
    ec2.modify_instance_metadata_defaults(InstanceMetadataTags="enabled")
    yield
    ec2.modify_instance_metadata_defaults(InstanceMetadataTags="no-preference")


@pytest.mark.usefixtures("tags_in_metadata")
@pytest.mark.parametrize(
    ("key", "options", "refused"),
    [
        ("kubernetes.io/cluster/prod", {}, True),
        ("kubernetes.io/cluster/prod", {"HttpTokens": "required"}, True),
        ("kubernetes.io/cluster/prod", {"InstanceMetadataTags": "disabled"}, False),
        ("_index", {}, True),
        ("team", {}, False),
    ],
)
def test_a_key_that_the_metadata_cannot_have_is_an_error_unless_the_template_has_no_tags_there(
    aws: Sandbox, key: str, options: dict[str, str], refused: bool
) -> None:
    data: dict[str, Any] = {"MetadataOptions": options} if options else {}
    own = template(aws, **data)
    tags = [{"ResourceType": "instance", "Tags": [{"Key": key, "Value": "owned"}]}]
    pools = overrides(aws, "m5.large", zones=("us-east-1a",))
    answer = _create(aws, own, pools, TagSpecifications=tags)
    assert codes(answer) == (["InvalidParameterValue"] if refused else [])
    if refused:
        assert f"'{key}' is not a valid tag key" in answer["Errors"][0]["ErrorMessage"]


def test_without_the_role_for_spot_only_on_demand_is_launched(aws: Sandbox) -> None:
    iam, pools = aws.client("iam"), overrides(aws, "m5.large", zones=("us-east-1a",))
    iam.delete_service_linked_role(RoleName="AWSServiceRoleForEC2Spot")
    try:
        answer = _create(aws, template(aws), pools)
        assert codes(answer) == ["AuthFailure.ServiceLinkedRoleCreationNotPermitted"]
        assert launched(_create(aws, template(aws), pools, market="on-demand"))
    finally:
        iam.create_service_linked_role(AWSServiceName="spot.amazonaws.com")
    assert iam.get_role(RoleName="AWSServiceRoleForEC2Spot")
    assert launched(_create(aws, template(aws), pools))


def _efa(card: int = 0, kind: str = "efa", **more: Any) -> dict[str, Any]:
    return {
        "InterfaceType": kind,
        "NetworkCardIndex": card,
        "DeviceIndex": min(card, 1),
        "DeleteOnTermination": True,
        **more,
    }


@pytest.mark.parametrize(
    ("kind", "interfaces", "refused"),
    [
        ("m5.large", [_efa()], "does not support network interfaces of type efa"),
        ("c5n.18xlarge", [_efa(), _efa(1)], "on network card 1"),
        ("i7ie.48xlarge", [_efa(), _efa(1)], "does not support 2 EFA interfaces"),
        ("g6e.24xlarge", [_efa(), _efa(1, DeviceIndex=1), _efa(1)], "the same device index"),
        ("g6e.24xlarge", [_efa(AssociatePublicIpAddress=True), _efa(1)], "multiple network"),
        ("g6e.24xlarge", [_efa(), _efa(1, "efa-only", Ipv6AddressCount=1)], "do not support IP"),
        ("g6e.24xlarge", [_efa(), _efa(1)], ""),
        ("c5n.18xlarge", [_efa(AssociatePublicIpAddress=True)], ""),
    ],
)
def test_efa_interfaces_are_those_that_the_network_cards_of_the_type_support(
    aws: Sandbox, kind: str, interfaces: list[dict[str, Any]], refused: str
) -> None:
    offered = aws.client("ec2").describe_instance_type_offerings(
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": [kind]}],
    )["InstanceTypeOfferings"]
    zone = min(one["Location"] for one in offered)
    pools = overrides(aws, kind, zones=(zone,))
    own = template(aws, NetworkInterfaces=interfaces)
    answer = _create(aws, own, pools, market="on-demand")
    message = "".join(one["ErrorMessage"] for one in answer["Errors"])
    assert refused in message
    assert bool(launched(answer)) == (not refused), message


def test_a_dry_run_launches_nothing(aws: Sandbox) -> None:
    wanted = request(template(aws), overrides(aws, "m5.large"), DryRun=True)
    fleets = len(aws.journal("fleet"))
    assert _refusal(aws, wanted) == "DryRunOperation"
    assert len(aws.journal("fleet")) == fleets


def test_each_instance_uses_an_address_and_a_full_subnet_refuses_launches(
    aws: Sandbox,
) -> None:
    ec2 = aws.client("ec2")
    vpc = ec2.describe_subnets()["Subnets"][0]["VpcId"]
    small = ec2.create_subnet(
        VpcId=vpc, CidrBlock="172.31.242.0/28", AvailabilityZone="us-east-1b"
    )["Subnet"]["SubnetId"]

    def free() -> int:
        [subnet] = ec2.describe_subnets(SubnetIds=[small])["Subnets"]
        return int(subnet["AvailableIpAddressCount"])

    assert free() == 11
    own = template(aws)
    pools = [{"InstanceType": kind, "SubnetId": small} for kind in ("m5.large", "c5.large")]
    answer = _create(aws, own, pools, 15)
    assert len(launched(answer)) == 11
    assert codes(answer) == ["InsufficientFreeAddressesInSubnet"] * 2
    assert small in answer["Errors"][0]["ErrorMessage"]
    assert free() == 0
    elsewhere = overrides(aws, "m5.large", zones=("us-east-1a",))
    assert len(launched(_create(aws, own, [*pools, *elsewhere], 2))) == 2
    with pytest.raises(ClientError, match="InsufficientFreeAddressesInSubnet"):
        ec2.run_instances(ImageId=image(aws), MinCount=1, MaxCount=1, SubnetId=small)


def test_the_addresses_of_an_instance_that_has_ended_are_free_again(aws: Sandbox) -> None:
    ec2 = aws.client("ec2")
    vpc = ec2.describe_subnets()["Subnets"][0]["VpcId"]
    small = ec2.create_subnet(
        VpcId=vpc, CidrBlock="172.31.243.0/28", AvailabilityZone="us-east-1c"
    )["Subnet"]["SubnetId"]
    own, pools = template(aws), [{"InstanceType": "m5.large", "SubnetId": small}]
    first = launched(_create(aws, own, pools, 11))
    ec2.terminate_instances(InstanceIds=first[:3])
    aws.wait(
        lambda: (
            ec2.describe_subnets(SubnetIds=[small])["Subnets"][0]["AvailableIpAddressCount"] == 3
        )
    )
    second = launched(_create(aws, own, pools, 3))
    standing = described(aws, *first[3:], *second)
    assert len({instance["PrivateIpAddress"] for instance in standing}) == 11


@pytest.mark.parametrize(("market", "launches"), [("spot", 0), ("on-demand", 1)])
def test_a_fault_of_one_market_applies_to_groups_too(
    aws: Sandbox, market: str, launches: int
) -> None:
    name, zone = f"group-{market}", "us-east-1a"
    options = {"InstanceMarketOptions": {"MarketType": "spot"}} if market == "spot" else {}
    aws.group(name, 0, template=options, VPCZoneIdentifier=subnets(aws)[zone])
    _faults(aws, _no_capacity(capacity_type="spot"))
    answer = aws.client("autoscaling").launch_instances(
        AutoScalingGroupName=name, RequestedCapacity=1, ClientToken=name, AvailabilityZones=[zone]
    )
    assert len(answer["Instances"]) == launches
    assert len(answer["Errors"]) == 1 - launches


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"SpotOptions": {"AllocationStrategy": "prioritized"}}, "InvalidParameterValue"),
        ({"LaunchTemplateConfigs": []}, "MissingParameter"),
        (
            {"TargetCapacitySpecification": {"TotalTargetCapacity": 0}},
            "InvalidParameterValue",
        ),
    ],
)
def test_a_request_that_ec2_refuses(aws: Sandbox, changed: dict[str, Any], code: str) -> None:
    wanted = request(template(aws), overrides(aws, "m5.large")) | changed
    assert _refusal(aws, wanted) == code


def test_groups_of_another_network_are_an_error_of_the_pool(aws: Sandbox) -> None:
    ec2 = aws.client("ec2")
    other = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    group = ec2.create_security_group(GroupName="other", Description="other", VpcId=other)
    own = template(aws, SecurityGroupIds=[group["GroupId"]])
    answer = _create(aws, own, overrides(aws, "m5.large", zones=("us-east-1a",)))
    assert codes(answer) == ["InvalidParameter"]
    assert "belong to different networks" in answer["Errors"][0]["ErrorMessage"]


def test_the_answer_names_windows_as_platform(aws: Sandbox) -> None:
    windows = image(
        aws,
        "/aws/service/ami-windows-latest/"
        "Windows_Server-2022-English-Core-EKS_Optimized-1.34/image_id",
    )
    answer = _create(aws, template(aws, ImageId=windows), overrides(aws, "m5.large"))
    assert answer["Instances"][0]["Platform"].lower() == "windows"


@pytest.mark.parametrize(
    ("kind", "seconds", "refused"),
    [("m5.large", 45, False), ("m5.large", 61, True), ("m4.large", 45, True)],
)
def test_timeouts_of_connections_need_the_nitro_system_and_have_bounds(
    aws: Sandbox, kind: str, seconds: int, refused: bool
) -> None:
    tracking = {"ConnectionTrackingSpecification": {"UdpTimeout": seconds}}
    tracked = template(aws, NetworkInterfaces=[{"DeviceIndex": 0, **tracking}])
    answer = _create(aws, tracked, overrides(aws, kind, zones=("us-east-1a",)))
    assert codes(answer) == (["InvalidParameterValue"] if refused else [])
    assert len(launched(answer)) == (0 if refused else 1)
