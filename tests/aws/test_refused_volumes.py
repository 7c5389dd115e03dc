"""What the sandbox's EC2 refuses about volumes, and the field of the manifest that Leeway names."""

from typing import Any

import pytest
from leeway.launch.fleet_errors import refused_setting

from tests.launch.pools import node_class, settings
from tests.sandbox.aws.fleet_calls import overrides, request, template
from tests.sandbox.aws.started import Sandbox

ROOT = "/dev/xvda"
BAD = [
    ({"volumeSize": "2Gi"}, ROOT, "InvalidBlockDeviceMapping", "ebs.volumeSize"),
    ({"volumeSize": "20Gi"}, "/dev/sde1", "InvalidBlockDeviceMapping", "deviceName"),
    ({"snapshotID": "snap-0123456789abcdef0"}, "/dev/sdb", "InvalidSnapshot", "ebs.snapshotID"),
    (
        {"volumeSize": "20Gi", "volumeType": "gp2", "iops": 100},
        ROOT,
        "InvalidParameterCombination",
        "ebs.iops",
    ),
    (
        {"volumeSize": "20Gi", "volumeType": "gp3", "iops": 15000},
        ROOT,
        "InvalidParameterValue",
        "ebs.iops",
    ),
    (
        {"volumeSize": "20Gi", "volumeType": "gp3", "throughput": 1000},
        ROOT,
        "InvalidParameterValue",
        "ebs.throughput",
    ),
    (
        {"volumeSize": "20Gi", "volumeType": "io2", "throughput": 200},
        ROOT,
        "InvalidParameterCombination",
        "ebs.throughput",
    ),
]
OF_EC2 = {
    "volumeSize": "VolumeSize",
    "snapshotID": "SnapshotId",
    "volumeType": "VolumeType",
    "iops": "Iops",
    "throughput": "Throughput",
}


def refusal(aws: Sandbox, device: str, ebs: dict[str, Any]) -> tuple[str, str]:
    """The error of a fleet whose template has such a volume."""
    data = {OF_EC2[key]: value for key, value in ebs.items()}
    if "VolumeSize" in data:
        data["VolumeSize"] = int(data["VolumeSize"].removesuffix("Gi"))
    made = template(aws, BlockDeviceMappings=[{"DeviceName": device, "Ebs": data}])
    wanted = request(made, overrides(aws, "m5.large", zones=("us-east-1a",)))
    answer = aws.client("ec2").create_fleet(**wanted)
    (error,) = answer["Errors"] or [{"ErrorCode": "", "ErrorMessage": ""}]
    return str(error["ErrorCode"]), str(error["ErrorMessage"])


@pytest.mark.parametrize(("ebs", "device", "code", "field"), BAD)
def test_a_volume_that_ec2_does_not_create_is_named_by_its_field(
    aws: Sandbox, ebs: dict[str, Any], device: str, code: str, field: str
) -> None:
    found, message = refusal(aws, device, ebs)
    assert found.startswith(code)
    given = settings(node_class(blockDeviceMappings=[{"deviceName": device, "ebs": ebs}]))
    said = refused_setting(f"{found}: {message}", given)
    assert said is not None
    assert said.startswith(f"EC2NodeClass default, spec.blockDeviceMappings[0].{field}: ")


@pytest.mark.parametrize(
    ("device", "ebs"),
    [
        (ROOT, {"volumeSize": "20Gi", "volumeType": "gp3", "iops": 3000, "throughput": 750}),
        ("/dev/sdb", {"volumeSize": "1Gi", "volumeType": "gp3"}),
    ],
)
def test_volumes_that_ec2_creates_are_launched(
    aws: Sandbox, device: str, ebs: dict[str, Any]
) -> None:
    assert refusal(aws, device, ebs) == ("", "")
