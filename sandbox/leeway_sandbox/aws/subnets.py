"""Counts the free addresses of subnets, and refuses launches that need more.

moto's subnets raise StopIteration when they are full, and keep the addresses of instances that
have ended.
"""

from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance
from moto.ec2.models.subnets import Subnet

from leeway_sandbox.aws.cloud import Cloud


class NoFreeAddresses(EC2ClientError):
    """EC2's error for a subnet with fewer free addresses than a launch needs."""

    def __init__(self, subnet: str) -> None:
        super().__init__(
            "InsufficientFreeAddressesInSubnet",
            f"There are not enough free addresses in subnet '{subnet}' to satisfy the requested "
            "number of instances.",
        )


def free_addresses(subnet: Subnet) -> int:
    """How many instances the subnet has addresses for."""
    return max(subnet.available_ip_address_count, 0)


def check_free_addresses(ec2: Any, subnet_id: str | None, count: int) -> None:
    """Raise EC2's error if a launch into a subnet needs more addresses than it has."""
    if subnet_id and free_addresses(ec2.get_subnet(subnet_id)) < count:
        raise NoFreeAddresses(subnet_id)


def install(cloud: Cloud) -> None:
    """Give an instance's addresses back to its subnets when it has ended."""

    def changed(instance: Instance, state: str) -> None:
        if state == "terminated":
            _release(instance)

    cloud.watch_instances(changed)


def _release(instance: Instance) -> None:
    interfaces = instance.ec2_backend.enis
    for interface in instance.nics.values():
        interfaces.pop(interface.id, None)
        interface.subnet.del_subnet_ip(interface.private_ip_address)
    # Otherwise moto frees them again when it forgets the instance: another one may have them then.
    instance._private_ips.clear()
