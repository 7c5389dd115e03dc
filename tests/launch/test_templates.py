"""Launch templates hold all that a node boots with, and equal ones have one name."""

import json
from base64 import b64decode
from typing import Any

import pytest
from leeway.launch.templates import LaunchTemplate, NodeResources, TemplateImage, template_of

from tests.launch.pools import node_class, settings

RESOURCES = NodeResources(("sg-1", "sg-2"), "prod-nodes", {"team": "a"})
IMAGE = TemplateImage("ami-1")


def template(user_data: str = "boot", image: TemplateImage = IMAGE, **spec: Any) -> LaunchTemplate:
    return template_of("prod", settings(node_class(**spec)), RESOURCES, image, user_data)


def data(made: LaunchTemplate) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made.data)
    return found


def test_a_node_boots_with_imdsv2_and_an_encrypted_volume() -> None:
    found = data(template())
    assert found["ImageId"] == "ami-1"
    assert found["IamInstanceProfile"] == {"Name": "prod-nodes"}
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    assert found["SecurityGroupIds"] == ["sg-1", "sg-2"]
    assert b64decode(found["UserData"]) == b"boot"
    (volume,) = found["BlockDeviceMappings"]
    assert volume["DeviceName"] == "/dev/xvda"
    assert volume["Ebs"] == {
        "DeleteOnTermination": True,
        "Encrypted": True,
        "VolumeSize": 20,
        "VolumeType": "gp3",
    }


@pytest.mark.parametrize(
    ("family", "devices"),
    [
        ("AL2", ["/dev/xvda"]),
        ("Bottlerocket", ["/dev/xvda", "/dev/xvdb"]),
        ("Windows2022", ["/dev/sda1"]),
    ],
)
def test_every_family_has_encrypted_volumes(family: str, devices: list[str]) -> None:
    volumes = data(template(amiFamily=family))["BlockDeviceMappings"]
    assert [one["DeviceName"] for one in volumes] == devices
    assert all(one["Ebs"]["Encrypted"] for one in volumes)


def test_the_root_volume_of_a_custom_image_is_encrypted() -> None:
    terms = [{"id": "ami-01"}]
    image = TemplateImage("ami-01", "/dev/sda1")
    found = data(template(image=image, amiFamily="Custom", amiSelectorTerms=terms))
    assert found["BlockDeviceMappings"] == [
        {"DeviceName": "/dev/sda1", "Ebs": {"DeleteOnTermination": True, "Encrypted": True}}
    ]


def test_the_users_volumes_replace_the_default_ones() -> None:
    own = {"volumeSize": "100G", "volumeType": "io2", "iops": 5000, "kmsKeyID": "key-1"}
    found = data(template(blockDeviceMappings=[{"deviceName": "/dev/xvdc", "ebs": own}]))
    (volume,) = found["BlockDeviceMappings"]
    assert volume["DeviceName"] == "/dev/xvdc"
    assert volume["Ebs"] == {
        "DeleteOnTermination": True,
        "Encrypted": True,
        "Iops": 5000,
        "KmsKeyId": "key-1",
        "VolumeSize": 94,  # 100 * 10**9 bytes, rounded up to GiB
        "VolumeType": "io2",
    }
    plain = {"volumeSize": "1Gi", "encrypted": False, "deleteOnTermination": False}
    found = data(template(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": plain}]))
    ebs = found["BlockDeviceMappings"][0]["Ebs"]
    assert (ebs["Encrypted"], ebs["DeleteOnTermination"]) == (False, False)


def test_a_public_address_moves_the_security_groups_to_the_interface() -> None:
    found = data(template(associatePublicIPAddress=True))
    assert "SecurityGroupIds" not in found
    (interface,) = found["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is True
    assert interface["Groups"] == ["sg-1", "sg-2"]


def test_equal_content_has_one_name_and_any_difference_another() -> None:
    assert template() == template()
    others = [
        template(user_data="other"),
        template(image=TemplateImage("ami-2")),
        template(detailedMonitoring=True),
        template(metadataOptions={"httpPutResponseHopLimit": 2}),
        template_of("other", settings(node_class()), RESOURCES, IMAGE, "boot"),
    ]
    assert len({template().name, *(one.name for one in others)}) == 6


def test_a_name_is_one_that_ec2_accepts() -> None:
    made = template_of("c" * 100, settings(node_class()), RESOURCES, IMAGE, "boot")
    assert len(made.name) <= 128
    assert made.name.startswith("leeway-ccc")


def test_templates_and_network_interfaces_have_the_tags_of_the_cluster() -> None:
    made = template()
    assert made.tags["kubernetes.io/cluster/prod"] == "owned"
    (specification,) = data(made)["TagSpecifications"]
    tags = {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
    assert specification["ResourceType"] == "network-interface"
    assert tags == {**made.tags, "team": "a"}
