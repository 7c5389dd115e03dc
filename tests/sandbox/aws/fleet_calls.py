"""Calls that tests of fleets make, with what EC2 needs and a test does not care about."""

from base64 import b64encode
from itertools import count
from typing import Any

from tests.sandbox.aws.started import Sandbox

AL2023 = (
    "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"
)
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
_names = count(1)


def image(aws: Sandbox, parameter: str = AL2023) -> str:
    """The id of the AMI that an SSM parameter names."""
    answer = aws.client("ssm").get_parameter(Name=parameter)
    return str(answer["Parameter"]["Value"])


def profile(aws: Sandbox, name: str) -> None:
    """Create an instance profile with a role of the same name."""
    iam = aws.client("iam")
    iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName=name)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)


def template(aws: Sandbox, user_data: bytes | None = None, **data: Any) -> str:
    """A new launch template's id; its AMI is AL2023's unless `ImageId` says otherwise."""
    content = {"ImageId": image(aws), **data}
    if user_data is not None:
        content["UserData"] = b64encode(user_data).decode()
    answer = aws.client("ec2").create_launch_template(
        LaunchTemplateName=f"template-{next(_names)}", LaunchTemplateData=content
    )
    return str(answer["LaunchTemplate"]["LaunchTemplateId"])


def subnets(aws: Sandbox) -> dict[str, str]:
    """The default subnet of each zone."""
    filters = [{"Name": "default-for-az", "Values": ["true"]}]
    described = aws.client("ec2").describe_subnets(Filters=filters)["Subnets"]
    return {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in described}


def overrides(aws: Sandbox, *types: str, zones: tuple[str, ...] = ZONES) -> list[dict[str, Any]]:
    """Every type in every zone."""
    known = subnets(aws)
    return [
        {"InstanceType": kind, "SubnetId": known[zone], "AvailabilityZone": zone}
        for kind in types
        for zone in zones
    ]


def request(
    template_id: str, pools: list[dict[str, Any]], capacity: int = 1, **more: Any
) -> dict[str, Any]:
    """The parameters of CreateFleet: Spot by price, unless `market` says on-demand."""
    market = more.pop("market", "spot")
    strategies = {
        "spot": {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}},
        "on-demand": {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}},
    }
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": template_id,
                    "Version": "$Latest",
                },
                "Overrides": pools,
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": capacity,
            "DefaultTargetCapacityType": market,
        },
        **strategies[market],
        **more,
    }


def launched(answer: dict[str, Any]) -> list[str]:
    """The ids of the instances that an answer of CreateFleet names."""
    return [name for entry in answer["Instances"] for name in entry["InstanceIds"]]


def codes(answer: dict[str, Any]) -> list[str]:
    """The codes of the errors of such an answer."""
    return [error["ErrorCode"] for error in answer["Errors"]]


def described(aws: Sandbox, *instances: str) -> list[dict[str, Any]]:
    """The instances as DescribeInstances shows them."""
    answer = aws.client("ec2").describe_instances(InstanceIds=list(instances))
    return [one for entry in answer["Reservations"] for one in entry["Instances"]]
