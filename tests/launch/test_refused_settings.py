"""A refusal of EC2 names the field of the manifest that causes it."""

from typing import Any

import pytest
from leeway.launch.fleet_errors import consequences_of, refused_setting
from leeway.launch.fleets import FleetError, Override
from leeway.launch.node_settings import NodeSettings

from tests.launch.pools import document, node_class, settings

AMI = "ami-0123456789abcdef0"


def volume(device: str = "/dev/xvda", **ebs: Any) -> dict[str, Any]:
    return {"deviceName": device, "ebs": {"volumeSize": "20Gi", **ebs}}


def of_class(**spec: Any) -> NodeSettings:
    return settings(node_class(**spec))


def devices(*mappings: dict[str, Any]) -> NodeSettings:
    return of_class(blockDeviceMappings=[*mappings])


TOO_SMALL = (
    "InvalidBlockDeviceMapping: Volume of size 2GB is smaller than snapshot "
    "'snap-0f59de5aef3442431', expect size>= 4GB"
)
REFUSALS = [
    (TOO_SMALL, devices(volume(volumeSize="2Gi")), "blockDeviceMappings[0].ebs.volumeSize"),
    (
        TOO_SMALL,
        devices(volume(volumeSize="20Gi"), volume("/dev/xvdb", volumeSize="2G")),
        "blockDeviceMappings[1].ebs.volumeSize",
    ),
    (
        "InvalidBlockDeviceMapping: Invalid device name /dev/sde1",
        devices(volume(), volume("/dev/sde1")),
        "blockDeviceMappings[1].deviceName",
    ),
    (
        "InvalidSnapshot.NotFound: The snapshot 'snap-ef2791a9' does not exist.",
        devices(volume(snapshotID="snap-ef2791a9")),
        "blockDeviceMappings[0].ebs.snapshotID",
    ),
    (
        "InvalidParameterCombination: The parameter iops is not supported for gp2 volumes.",
        devices(volume(volumeType="io2", iops=100), volume("/dev/xvdb", volumeType="gp2", iops=1)),
        "blockDeviceMappings[1].ebs.iops",
    ),
    (
        "InvalidParameterValue: Iops to volume size ratio of 750.0 is too high; maximum is 500",
        devices(volume(volumeType="gp3", iops=15000)),
        "blockDeviceMappings[0].ebs.iops",
    ),
    (
        "InvalidParameterValue: Throughput (MiBps) to iops ratio of 0.333333 is too high",
        devices(volume(), volume("/dev/xvdb", volumeType="gp3", throughput=1000)),
        "blockDeviceMappings[1].ebs.throughput",
    ),
    (
        f"InvalidAMIID.NotFound: The image id '[{AMI}]' does not exist",
        of_class(
            amiSelectorTerms=[{"id": "ami-0fedcba9876543210"}, {"id": AMI}], amiFamily="AL2023"
        ),
        "amiSelectorTerms[1].id",
    ),
    (
        f"AuthFailure: Not authorized for images: [{AMI}]",
        of_class(amiSelectorTerms=[{"id": AMI}], amiFamily="AL2023"),
        "amiSelectorTerms[0].id",
    ),
    (
        "InvalidParameterValue: Value (x) for parameter iamInstanceProfile.name is invalid.",
        of_class(),
        "role",
    ),
    (
        "InvalidParameter: Security group sg-1 and subnet subnet-a belong to different networks.",
        of_class(),
        "securityGroupSelectorTerms",
    ),
    (
        "InvalidSubnetID.NotFound: The subnet ID 'subnet-a' does not exist",
        of_class(),
        "subnetSelectorTerms",
    ),
    (
        "CreateLaunchTemplate: InvalidUserData.Malformed: User data is limited to 16384 bytes.",
        of_class(userData="#!/bin/sh\n"),
        "userData",
    ),
    (
        "InvalidParameterValue: 'a/b' is not a valid tag key. Tag keys must match pattern",
        of_class(tags={"a/b": "1"}),
        "tags",
    ),
]


@pytest.mark.parametrize(("refusal", "given", "field"), REFUSALS)
def test_a_refusal_names_the_field(refusal: str, given: NodeSettings, field: str) -> None:
    said = refused_setting(refusal, given)
    assert said is not None
    assert said.startswith(f"EC2NodeClass default, spec.{field}: ")
    assert not said.endswith(".")


def test_what_ec2_says_stays_behind_the_field() -> None:
    given = devices(volume(volumeSize="2Gi"))
    code, _, message = TOO_SMALL.partition(": ")
    error = FleetError(code, message, "spot", Override("m5.large", "us-east-1a", "subnet-a"))
    blocked = consequences_of("web", [error], settings=given).blocked
    assert blocked is not None
    assert blocked.message == (
        "EC2 refuses a launch of pool web: correct EC2NodeClass default, "
        "spec.blockDeviceMappings[0].ebs.volumeSize: 2Gi is smaller than snapshot "
        f"snap-0f59de5aef3442431, which needs 4Gi ({TOO_SMALL})."
    )


def test_a_setting_of_the_cluster_manifest_is_named_there() -> None:
    cluster = document("Cluster", "prod", {"defaults": {"nodeRole": "prod-nodes"}})
    given = settings(node_class(role=None), cluster)
    refusal = "InvalidParameterValue: Value (x) for parameter iamInstanceProfile.name is invalid."
    assert (said := refused_setting(refusal, given)) is not None
    assert said.startswith("Cluster prod, spec.defaults.nodeRole: ")


def test_a_volume_of_leeway_itself_is_not_blamed_on_another_field() -> None:
    assert (said := refused_setting(TOO_SMALL, of_class())) is not None
    assert said.startswith("EC2NodeClass default, spec.blockDeviceMappings: ")


@pytest.mark.parametrize("refusal", ["InvalidParameterValue: Something new.", "SomethingNew: no."])
def test_a_refusal_that_nobody_has_seen_keeps_the_general_remedy(refusal: str) -> None:
    given = of_class()
    assert refused_setting(refusal, given) is None
    code, _, message = refusal.partition(": ")
    (reason,) = consequences_of("web", [FleetError(code, message, "spot")], settings=given).reasons
    assert message.removesuffix(".") in reason.message
