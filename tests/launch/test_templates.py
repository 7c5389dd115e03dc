"""Launch templates hold all that a node boots with, and equal ones have one name."""

import json
from base64 import b64decode
from typing import Any

import pytest
from leeway.bootstrap.node import ClusterDetails
from leeway.launch.templates import (
    LaunchTemplate,
    NodeResources,
    TemplateImage,
    network_cards,
    template_of,
)

from tests.launch.pools import node_class, settings

RESOURCES = NodeResources(("sg-1", "sg-2"), "prod-nodes", {"team": "a"})
IMAGE = TemplateImage("ami-1")


def cluster(name: str = "prod", services: str = "10.100.0.0/16") -> ClusterDetails:
    return ClusterDetails(name, f"https://{name}.example.com", "Q0E=", services)


IPV6 = cluster(services="fd30:1c53:5f8a::/108")


def template(
    user_data: str = "boot",
    image: TemplateImage = IMAGE,
    details: ClusterDetails | None = None,
    efas: int = 0,
    efa_card: int = 0,
    **spec: Any,
) -> LaunchTemplate:
    cards = network_cards(efas, efa_card)
    given = settings(node_class(**spec))
    return template_of(details or cluster(), given, RESOURCES, image, user_data, cards)


def data(made: LaunchTemplate) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made.data)
    return found


def test_a_node_boots_with_imdsv2_and_an_encrypted_volume() -> None:
    found = data(template())
    assert found["ImageId"] == "ami-1"
    assert found["IamInstanceProfile"] == {"Name": "prod-nodes"}
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    (interface,) = found["NetworkInterfaces"]
    assert interface["Groups"] == ["sg-1", "sg-2"]
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


def test_security_groups_are_those_of_the_interface_and_not_also_of_the_instance() -> None:
    for made in (template(), template(associatePublicIPAddress=True)):
        found = data(made)
        assert "SecurityGroupIds" not in found
        (interface,) = found["NetworkInterfaces"]
        assert interface["Groups"] == ["sg-1", "sg-2"]


@pytest.mark.parametrize("public", [True, False])
def test_the_node_class_decides_about_a_public_address(public: bool) -> None:
    (interface,) = data(template(associatePublicIPAddress=public))["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is public
    (interface,) = data(template())["NetworkInterfaces"]
    assert "AssociatePublicIpAddress" not in interface


def test_tags_are_not_in_the_metadata_whatever_the_default_of_the_account() -> None:
    for made in (template(), template(metadataOptions={"httpPutResponseHopLimit": 2})):
        assert data(made)["MetadataOptions"]["InstanceMetadataTags"] == "disabled"


def test_a_node_of_an_ipv6_cluster_has_a_primary_ipv6_address() -> None:
    (interface,) = data(template(details=IPV6))["NetworkInterfaces"]
    assert (interface["Ipv6AddressCount"], interface["PrimaryIpv6"]) == (1, True)
    (interface,) = data(template())["NetworkInterfaces"]
    assert not {"Ipv6AddressCount", "PrimaryIpv6"} & interface.keys()


def test_timeouts_of_connections_are_on_every_interface_with_an_address() -> None:
    timeouts = {"tcpEstablishedTimeout": 3600, "udpTimeout": 45}
    expected = {"TcpEstablishedTimeout": 3600, "UdpTimeout": 45}
    made = data(template(efas=2, efa_card=1, connectionTracking=timeouts))
    found = [one.get("ConnectionTrackingSpecification") for one in made["NetworkInterfaces"]]
    assert found == [expected, None, None]
    (plain,) = data(template())["NetworkInterfaces"]
    assert "ConnectionTrackingSpecification" not in plain


def test_each_network_card_has_an_efa_and_only_the_primary_one_is_device_0() -> None:
    interfaces = data(template(efas=4))["NetworkInterfaces"]
    places = [(one["NetworkCardIndex"], one["DeviceIndex"]) for one in interfaces]
    assert places == [(0, 0), (1, 1), (2, 1), (3, 1)]
    assert {one["InterfaceType"] for one in interfaces} == {"efa"}
    assert all(one["Groups"] == ["sg-1", "sg-2"] for one in interfaces)
    assert all(one["DeleteOnTermination"] for one in interfaces)


def test_a_primary_card_that_takes_no_efa_has_an_interface_and_the_others_have_no_address() -> None:
    made = template(efas=2, efa_card=1, details=IPV6, associatePublicIPAddress=False)
    found = data(made)
    first, *others = found["NetworkInterfaces"]
    assert "InterfaceType" not in first
    assert (first["PrimaryIpv6"], first["AssociatePublicIpAddress"]) == (True, False)
    assert [one["NetworkCardIndex"] for one in others] == [1, 2]
    for one in others:
        assert (one["InterfaceType"], one["DeviceIndex"]) == ("efa-only", 0)
        assert not {"AssociatePublicIpAddress", "Ipv6AddressCount", "PrimaryIpv6"} & one.keys()


def test_equal_content_has_one_name_and_any_difference_another() -> None:
    assert template() == template()
    others = [
        template(user_data="other"),
        template(image=TemplateImage("ami-2")),
        template(detailedMonitoring=True),
        template(metadataOptions={"httpPutResponseHopLimit": 2}),
        template(details=cluster("other")),
        template(efas=1),
    ]
    assert len({template().name, *(one.name for one in others)}) == 7


def test_a_name_is_one_that_ec2_accepts() -> None:
    made = template(details=cluster("c" * 100))
    assert len(made.name) <= 128
    assert made.name.startswith("leeway-ccc")


def test_templates_and_network_interfaces_have_the_tags_of_the_cluster() -> None:
    made = template()
    assert made.tags["kubernetes.io/cluster/prod"] == "owned"
    (specification,) = data(made)["TagSpecifications"]
    tags = {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
    assert specification["ResourceType"] == "network-interface"
    assert tags == {**made.tags, "team": "a"}
