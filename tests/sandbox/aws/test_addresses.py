"""Instances have unique private addresses."""

from ipaddress import IPv4Address, IPv4Network
from itertools import islice

from leeway_sandbox.aws.instances import addresses

from tests.sandbox.aws.started import Sandbox


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
