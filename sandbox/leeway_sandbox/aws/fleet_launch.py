"""Launches the instances of a launch template in one pool, or says why EC2 does not.

The errors are those of RunInstances, which EC2 reports for each override of a fleet.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from moto.core.exceptions import ServiceException
from moto.ec2.exceptions import (
    InvalidAMIIdError,
    InvalidParameterCombination,
    InvalidParameterValue,
    InvalidSecurityGroupNotFoundError,
    TagLimitExceeded,
)
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance
from moto.ec2.models.launch_templates import LaunchTemplateVersion
from moto.ec2.utils import convert_tag_spec
from moto.iam.models import iam_backends

from leeway_sandbox.aws import instances as ec2_instances
from leeway_sandbox.aws.account import has_spot_role, metadata_tags
from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.ec2_requests import MOST_TAGS
from leeway_sandbox.aws.fleet_plan import Market, Pool, Refused, Room
from leeway_sandbox.aws.instances import NoFreeAddresses, free_addresses

EFA_TYPES = ("efa", "efa-only")
FLEET_TAG = "aws:ec2:fleet-id"
_EFAS = "efa_interfaces"
_METADATA_KEY = re.compile(r"(?!(\.|\.\.|_index)$)[0-9a-zA-Z\-_+=,.@:]{1,255}")
TEMPLATE_TAG, VERSION_TAG = "aws:ec2launchtemplate:id", "aws:ec2launchtemplate:version"


@dataclass(frozen=True)
class LaunchSpecification:
    """A launch template version with the override of one pool; `request_tags` by resource type."""

    version: LaunchTemplateVersion
    pool: Pool
    request_tags: Mapping[str, Mapping[str, str]]

    @property
    def data(self) -> Mapping[str, Any]:
        """The data of the launch template."""
        return self.version.data

    @property
    def image_id(self) -> str:
        """The AMI."""
        return str(self.pool.override.get("ImageId") or self.version.image_id)

    @property
    def tags(self) -> dict[str, dict[str, str]]:
        """The tags by resource type: the request's win over the template's."""
        tags = convert_tag_spec(self.data.get("TagSpecifications") or [])
        for kind, more in self.request_tags.items():
            tags[kind] = {**tags.get(kind, {}), **more}
        return tags

    @property
    def interfaces(self) -> list[Mapping[str, Any]]:
        """The network interfaces that the template names."""
        return list(self.data.get("NetworkInterfaces") or ())

    @property
    def security_groups(self) -> list[str]:
        """The ids of the security groups."""
        named = [group for one in self.interfaces for group in one.get("Groups") or ()]
        return [*(self.data.get("SecurityGroupIds") or ()), *named]

    @property
    def profile(self) -> Mapping[str, str]:
        """The instance profile, by `Name` or `Arn`; empty if there is none."""
        return self.data.get("IamInstanceProfile") or {}


def room_of(
    cloud: Cloud,
    ec2: Any,
    market: Market,
    specification: LaunchSpecification,
    wanted: int,
    taken: Counter[str],
) -> Room:
    """How many of so many instances EC2 launches in the pool, and why not all of them.

    `taken` counts the addresses that the same request uses of each subnet, and is kept up to date.
    """
    pool = specification.pool
    try:
        for check in _CHECKS:
            check(ec2, market, specification)
    except ServiceException as error:
        return Room(0, Refused(pool, str(error.code), str(error.message)))
    fault = cloud.faults.take_launch("ec2", pool.instance_type, pool.zone, market)
    if fault and fault.error and fault.launched < wanted:
        lacking = Refused(pool, fault.error, fault.message)
        return _with_addresses(ec2, pool, Room(fault.launched, lacking), taken)
    return _with_addresses(ec2, pool, Room(wanted), taken)


def _with_addresses(ec2: Any, pool: Pool, room: Room, taken: Counter[str]) -> Room:
    """As much of a pool's room as its subnet has addresses for."""
    if pool.subnet is None or not room.count:
        return room
    free = max(free_addresses(ec2.get_subnet(pool.subnet)) - taken[pool.subnet], 0)
    taken[pool.subnet] += min(free, room.count)
    if free >= room.count:
        return room
    full = NoFreeAddresses(pool.subnet)
    return Room(free, Refused(pool, str(full.code), str(full.message)))


def _check_offering(ec2: Any, _market: Market, specification: LaunchSpecification) -> None:
    pool = specification.pool
    if pool.zone[:-1] != ec2.region_name:
        raise InvalidParameterValue(f"Invalid availability zone: [{pool.zone}]")
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(ec2.region_name, [])
    wanted = {"InstanceType": pool.instance_type, "Location": pool.zone}
    if pool.instance_type not in INSTANCE_TYPES:
        raise _refusal(
            "InvalidParameterValue", f"Invalid value '{pool.instance_type}' for InstanceType."
        )
    if not any(wanted.items() <= offering.items() for offering in offered):
        raise _refusal(
            "InvalidFleetConfiguration",
            f"Your requested instance type ({pool.instance_type}) is not supported in your "
            f"requested Availability Zone ({pool.zone}).",
        )


def _check_price(_ec2: Any, market: Market, specification: LaunchSpecification) -> None:
    pool = specification.pool
    most = str(pool.override.get("MaxPrice") or "")
    if most and not re.fullmatch(r"\d+(\.\d+)?", most):
        raise InvalidParameterValue(f"Invalid value '{most}' for MaxPrice.")
    if market == "spot" and most and float(most) < pool.price:
        raise _refusal(
            "SpotMaxPriceTooLow",
            f"Your Spot request price of {most} is lower than the minimum required Spot request "
            f"fulfillment price of {pool.price:.4f}.",
        )


def _check_image(ec2: Any, _market: Market, specification: LaunchSpecification) -> None:
    if not specification.image_id:
        raise _refusal("MissingParameter", "The request must contain the parameter ImageId")
    image = ec2.amis.get(specification.image_id)
    if image is None:
        raise InvalidAMIIdError(specification.image_id)
    instance_type = specification.pool.instance_type
    supported = INSTANCE_TYPES[instance_type]["ProcessorInfo"]["SupportedArchitectures"]
    if image.architecture not in supported:
        raise InvalidParameterValue(
            f"The architecture '{','.join(supported)}' of the specified instance type does not "
            f"match the architecture '{image.architecture}' of the specified AMI. Specify an "
            "instance type and an AMI that have matching architectures, and try again. You can use "
            "'describe-instance-types' or 'describe-images' to discover the architecture of the "
            "instance type or AMI."
        )


def _check_network(ec2: Any, _market: Market, specification: LaunchSpecification) -> None:
    subnet_id = specification.pool.subnet
    subnet = ec2.get_subnet(subnet_id) if subnet_id else None
    for group_id in specification.security_groups:
        group = ec2.get_security_group_from_id(group_id)
        if group is None:
            raise InvalidSecurityGroupNotFoundError(group_id)
        if subnet and group.vpc_id != subnet.vpc_id:
            raise _refusal(
                "InvalidParameter",
                f"Security group {group_id} and subnet {subnet_id} belong to different networks.",
            )


def _check_interfaces(_ec2: Any, _market: Market, specification: LaunchSpecification) -> None:
    interfaces, kind = specification.interfaces, specification.pool.instance_type
    if len(interfaces) > 1 and any(one.get("AssociatePublicIpAddress") for one in interfaces):
        raise InvalidParameterCombination(
            "The associatePublicIPAddress parameter cannot be specified when launching with "
            "multiple network interfaces."
        )
    if interfaces and specification.data.get("SecurityGroupIds"):
        raise InvalidParameterCombination(
            "Network interfaces and an instance-level security groups may not be specified on the "
            "same request"
        )
    places = [(one.get("NetworkCardIndex", 0), one.get("DeviceIndex")) for one in interfaces]
    if len({*places}) < len(places):
        raise InvalidParameterCombination("Two network interfaces have the same device index.")
    network = INSTANCE_TYPES[kind]["NetworkInfo"]
    cards = {one["NetworkCardIndex"]: one for one in network.get("NetworkCards", ())}
    for one in interfaces:
        wanted = one.get("InterfaceType") or "interface"
        card = cards.get(one.get("NetworkCardIndex", 0), {})
        if wanted != "interface" and wanted not in card.get("InterfaceTypes", ()):
            raise InvalidParameterCombination(
                f"Instance type {kind} does not support network interfaces of type {wanted} on "
                f"network card {one.get('NetworkCardIndex', 0)}."
            )
        if wanted == "efa-only" and {"AssociatePublicIpAddress", "Ipv6AddressCount"} & one.keys():
            raise InvalidParameterValue("EFA-only network interfaces do not support IP addresses.")
    if _efas(specification) > network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0):
        raise InvalidParameterCombination(
            f"Instance type {kind} does not support {_efas(specification)} EFA interfaces."
        )


def _efas(specification: LaunchSpecification) -> int:
    return sum(one.get("InterfaceType") in EFA_TYPES for one in specification.interfaces)


def _check_metadata_tags(ec2: Any, _market: Market, specification: LaunchSpecification) -> None:
    if not metadata_tags(ec2, specification.data.get("MetadataOptions")):
        return
    for key in specification.tags.get("instance", {}):
        if not _METADATA_KEY.fullmatch(key):
            raise InvalidParameterValue(
                f"'{key}' is not a valid tag key. Tag keys must match pattern "
                "([0-9a-zA-Z\\-_+=,.@:]{1,255}), and must not be a reserved name ('.', '..', "
                "'_index')"
            )


def _check_spot_role(_ec2: Any, market: Market, _specification: LaunchSpecification) -> None:
    if market == "spot" and not has_spot_role():
        raise _refusal(
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
            "The provided credentials do not have permission to create the service-linked role for "
            "EC2 Spot Instances.",
        )


def _check_profile(_ec2: Any, _market: Market, specification: LaunchSpecification) -> None:
    profile = specification.profile
    if not profile:
        return
    name, arn = profile.get("Name"), profile.get("Arn")
    profiles = iam_backends[ACCOUNT]["aws"].instance_profiles.values()
    found = [one for one in profiles if one.name == name or one.arn == arn]
    if not found:
        field, value, kind = ("name", name, "name") if name else ("arn", arn, "ARN")
        raise InvalidParameterValue(
            f"Value ({value}) for parameter iamInstanceProfile.{field} is invalid. Invalid IAM "
            f"Instance Profile {kind}"
        )
    if not found[0].roles:
        raise InvalidParameterValue(
            f'IAM Instance Profile "{found[0].arn}" has no associated IAM Roles'
        )


def _check_number_of_tags(_ec2: Any, _market: Market, specification: LaunchSpecification) -> None:
    if any(len(tags) > MOST_TAGS for tags in specification.tags.values()):
        raise TagLimitExceeded


def _check_spot_tags(_ec2: Any, market: Market, specification: LaunchSpecification) -> None:
    if market != "spot" and specification.tags.get("spot-instances-request"):
        raise InvalidParameterValue(
            "You cannot specify tags for Spot instances requests if there are no Spot instances "
            "requests being created by the request."
        )


_CHECKS: tuple[Callable[[Any, Market, LaunchSpecification], None], ...] = (
    _check_number_of_tags,
    _check_spot_tags,
    _check_offering,
    _check_image,
    _check_network,
    _check_interfaces,
    _check_metadata_tags,
    _check_spot_role,
    _check_profile,
    _check_price,
)


def _refusal(code: str, message: str) -> ServiceException:
    return ServiceException(code, message)


def launch(
    ec2: Any, fleet_id: str | None, market: Market, specification: LaunchSpecification, count: int
) -> list[Instance]:
    """Launch so many instances, with the tags that EC2 and the request give them. `fleet_id` is
    None for those of an Auto Scaling group."""
    data, pool, tags = specification.data, specification.pool, specification.tags
    options: dict[str, Any] = {}
    if volumes := [one for one in data.get("BlockDeviceMappings") or () if one.get("Ebs")]:
        options["block_device_mappings"] = volumes
    reservation = ec2.run_instances(
        specification.image_id,
        count,
        data.get("UserData"),
        [],
        instance_type=pool.instance_type,
        is_instance_type_default=True,  # otherwise moto searches its whole catalog for the type
        region_name=ec2.region_name,
        placement=None if pool.subnet else pool.zone,
        subnet_id=pool.subnet,
        nics=_interfaces(specification),
        key_name=data.get("KeyName"),
        security_group_ids=list(data.get("SecurityGroupIds") or ()),
        ebs_optimized=data.get("EbsOptimized") or False,
        monitoring_state="enabled" if _enabled(data.get("Monitoring")) else "disabled",
        metadata_options=data.get("MetadataOptions") or {},
        instance_market_options="spot" if market == "spot" else None,
        tags=tags,
        **options,
    )
    launched = list(reservation.instances)
    _tag_the_rest(ec2, launched, tags)
    version = specification.version
    system = {TEMPLATE_TAG: version.template.id, VERSION_TAG: str(version.number)}
    if fleet_id:
        system[FLEET_TAG] = fleet_id
    for instance in launched:
        # Tags of AWS do not count towards the 50 of a resource, as they would in moto.
        ec2.tags[instance.id] |= system
        _associate(ec2, instance, specification.profile)
        setattr(instance, _EFAS, _efas(specification))
    return launched


def efas_of(instance: Instance) -> int:
    """The number of EFA interfaces with which a fleet launched an instance."""
    return getattr(instance, _EFAS, 0)


def _enabled(monitoring: Mapping[str, Any] | None) -> bool:
    return bool(monitoring and monitoring.get("Enabled"))


def _interfaces(specification: LaunchSpecification) -> list[dict[str, Any]]:
    """The network interfaces of the template's primary network card, in the pool's subnet: moto
    knows no other card."""
    primary = [one for one in specification.interfaces if not one.get("NetworkCardIndex")]
    interfaces: list[dict[str, Any]] = [dict(deepcopy(one)) for one in primary]
    for number, interface in enumerate(interfaces):
        interface.setdefault("DeviceIndex", number)
        if specification.pool.subnet:
            interface["SubnetId"] = specification.pool.subnet
    return interfaces


def _tag_the_rest(
    ec2: Any, launched: Iterable[Instance], tags: Mapping[str, Mapping[str, str]]
) -> None:
    """Tag the network interfaces and the Spot requests; moto tags instances and volumes."""
    for instance in launched:
        interfaces = [interface.id for interface in instance.nics.values()]
        ec2.create_tags(interfaces, dict(tags.get("network-interface", {})))
        if request := getattr(instance, "spot_instance_request_id", None):
            ec2.create_tags([request], dict(tags.get("spot-instances-request", {})))


def _associate(ec2: Any, instance: Instance, profile: Mapping[str, str]) -> None:
    if profile:
        ec2.associate_iam_instance_profile(
            instance.id,
            iam_instance_profile_name=profile.get("Name"),
            iam_instance_profile_arn=profile.get("Arn"),
        )


def fleet_of(instance: Instance) -> str | None:
    """The fleet that launched an instance, or None."""
    return ec2_instances.tag(instance, FLEET_TAG)
