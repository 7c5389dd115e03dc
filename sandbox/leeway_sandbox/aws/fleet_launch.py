"""Launches the instances of a launch template in one pool, or says why EC2 does not.

The errors are those of RunInstances, which EC2 reports for each override of a fleet.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

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
from leeway_sandbox.aws.instances import NoFreeAddresses, free_addresses
from leeway_sandbox.aws.reservations import (
    CapacityReservation,
    ReservationCalls,
    put_into,
    specify,
)
from leeway_sandbox.aws.volumes import check_volumes

EFA_TYPES = ("efa", "efa-only")
FLEET_TAG = "aws:ec2:fleet-id"
_EFAS = "efa_interfaces"
_METADATA_KEY = re.compile(r"(?!(\.|\.\.|_index)$)[0-9a-zA-Z\-_+=,.@:]{1,255}")
TEMPLATE_TAG, VERSION_TAG = "aws:ec2launchtemplate:id", "aws:ec2launchtemplate:version"


type Market = Literal["on-demand", "spot", "capacity-block", "interruptible-capacity-reservation"]


@dataclass(frozen=True)
class Pool:
    """An instance type in a zone: a launch template version with one override of a request.

    `subnet` is empty for an Auto Scaling group without subnets. `price` is USD per hour in the
    market of the fleet; `request_tags` are by resource type.
    """

    version: LaunchTemplateVersion
    override: Mapping[str, Any]
    instance_type: str
    zone: str
    subnet: str
    price: float
    request_tags: Mapping[str, Mapping[str, str]]

    @property
    def data(self) -> Mapping[str, Any]:
        """The data of the launch template."""
        return self.version.data

    @property
    def image_id(self) -> str:
        """The AMI."""
        return str(self.override.get("ImageId") or self.version.image_id)

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


@dataclass(frozen=True)
class Refused:
    """Why EC2 launches nothing in a pool, or fewer than it needs."""

    pool: Pool
    code: str
    message: str


def room_of(
    cloud: Cloud, ec2: Any, market: Market, pool: Pool, wanted: int, taken: Counter[str]
) -> tuple[int, Refused | None]:
    """How many of so many instances EC2 launches in the pool, and why not all of them.

    `taken` counts the addresses that the same request uses of each subnet, and is kept up to date.
    """
    try:
        for check in _CHECKS:
            check(ec2, market, pool)
    except ServiceException as error:
        return 0, Refused(pool, str(error.code), str(error.message))
    count, refused = wanted, None
    fault = cloud.faults.take_launch("ec2", pool.instance_type, pool.zone, market)
    if fault and fault.error and fault.launched < wanted:
        count, refused = fault.launched, Refused(pool, fault.error, fault.message)
    reservation = _target_of(pool)
    if reservation is not None:
        room = max(reservation.free - taken[reservation.id], 0)
        if room < count:
            message = (
                "The requested reservation does not have sufficient compatible and available "
                "capacity for this request."
            )
            count, refused = room, Refused(pool, "ReservationCapacityExceeded", message)
    free = max(free_addresses(ec2.get_subnet(pool.subnet)) - taken[pool.subnet], 0)
    if free < count:
        full = NoFreeAddresses(pool.subnet)
        count, refused = free, Refused(pool, str(full.code), str(full.message))
    taken[pool.subnet] += count
    if reservation is not None:
        taken[reservation.id] += count
    return count, refused


def _reservation_of(pool: Pool) -> CapacityReservation | None:
    """The capacity reservation that a launch runs in."""
    return ReservationCalls.reservations.target(pool.data, pool.instance_type, pool.zone)


def _target_of(pool: Pool) -> CapacityReservation | None:
    """The capacity reservation that a launch has to run in."""
    specification = pool.data.get("CapacityReservationSpecification") or {}
    return _reservation_of(pool) if specification.get("CapacityReservationTarget") else None


def _check_reservation(_ec2: Any, market: Market, pool: Pool) -> None:
    one = _target_of(pool)
    if one is not None and (one.market or "on-demand") != market:
        raise InvalidParameterValue(
            f"The launch is not eligible for capacity reservation '{one.id}'."
        )


def _check_offering(ec2: Any, _market: Market, pool: Pool) -> None:
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


def _check_image(ec2: Any, _market: Market, pool: Pool) -> None:
    if not pool.image_id:
        raise _refusal("MissingParameter", "The request must contain the parameter ImageId")
    image = ec2.amis.get(pool.image_id)
    if image is None:
        raise InvalidAMIIdError(pool.image_id)
    instance_type = pool.instance_type
    supported = INSTANCE_TYPES[instance_type]["ProcessorInfo"]["SupportedArchitectures"]
    if image.architecture not in supported:
        raise InvalidParameterValue(
            f"The architecture '{','.join(supported)}' of the specified instance type does not "
            f"match the architecture '{image.architecture}' of the specified AMI. Specify an "
            "instance type and an AMI that have matching architectures, and try again. You can use "
            "'describe-instance-types' or 'describe-images' to discover the architecture of the "
            "instance type or AMI."
        )


def _check_volumes(ec2: Any, _market: Market, pool: Pool) -> None:
    check_volumes(ec2, ec2.amis[pool.image_id], pool.data.get("BlockDeviceMappings") or [])


def _check_network(ec2: Any, _market: Market, pool: Pool) -> None:
    subnet = ec2.get_subnet(pool.subnet)
    for group_id in pool.security_groups:
        group = ec2.get_security_group_from_id(group_id)
        if group is None:
            raise InvalidSecurityGroupNotFoundError(group_id)
        if group.vpc_id != subnet.vpc_id:
            raise _refusal(
                "InvalidParameter",
                f"Security group {group_id} and subnet {pool.subnet} belong to different networks.",
            )


def _check_interfaces(_ec2: Any, _market: Market, pool: Pool) -> None:
    interfaces, kind = pool.interfaces, pool.instance_type
    if len(interfaces) > 1 and any(one.get("AssociatePublicIpAddress") for one in interfaces):
        raise InvalidParameterCombination(
            "The associatePublicIPAddress parameter cannot be specified when launching with "
            "multiple network interfaces."
        )
    if interfaces and pool.data.get("SecurityGroupIds"):
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
        if one.get("ConnectionTrackingSpecification"):
            _check_tracking(one["ConnectionTrackingSpecification"], kind)
    if _efas(pool) > network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0):
        raise InvalidParameterCombination(
            f"Instance type {kind} does not support {_efas(pool)} EFA interfaces."
        )


_TIMEOUTS = {
    "TcpEstablishedTimeout": (60, 432_000),
    "UdpStreamTimeout": (60, 180),
    "UdpTimeout": (30, 60),
}
"""Seconds. Source: EC2 API reference, "ConnectionTrackingSpecificationRequest"."""


def _check_tracking(timeouts: Mapping[str, Any], kind: str) -> None:
    if INSTANCE_TYPES[kind].get("Hypervisor") != "nitro":
        raise InvalidParameterValue(
            f"The instance type {kind} does not support configurable connection tracking"
        )
    for name, (least, most) in _TIMEOUTS.items():
        if not least <= int(timeouts.get(name, least)) <= most:
            raise InvalidParameterValue(f"Invalid value '{timeouts[name]}' for {name}.")


def _efas(pool: Pool) -> int:
    return sum(one.get("InterfaceType") in EFA_TYPES for one in pool.interfaces)


def _check_metadata_tags(ec2: Any, _market: Market, pool: Pool) -> None:
    if not metadata_tags(ec2, pool.data.get("MetadataOptions")):
        return
    for key in pool.tags.get("instance", {}):
        if not _METADATA_KEY.fullmatch(key):
            raise InvalidParameterValue(
                f"'{key}' is not a valid tag key. Tag keys must match pattern "
                "([0-9a-zA-Z\\-_+=,.@:]{1,255}), and must not be a reserved name ('.', '..', "
                "'_index')"
            )


def _check_spot_role(_ec2: Any, market: Market, _pool: Pool) -> None:
    if market == "spot" and not has_spot_role():
        raise _refusal(
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
            "The provided credentials do not have permission to create the service-linked role for "
            "EC2 Spot Instances.",
        )


def _check_profile(_ec2: Any, _market: Market, pool: Pool) -> None:
    profile = pool.profile
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


def _check_number_of_tags(_ec2: Any, _market: Market, pool: Pool) -> None:
    if any(len(tags) > MOST_TAGS for tags in pool.tags.values()):
        raise TagLimitExceeded


def _check_spot_tags(_ec2: Any, market: Market, pool: Pool) -> None:
    if market != "spot" and pool.tags.get("spot-instances-request"):
        raise InvalidParameterValue(
            "You cannot specify tags for Spot instances requests if there are no Spot instances "
            "requests being created by the request."
        )


_CHECKS: tuple[Callable[[Any, Market, Pool], None], ...] = (
    _check_number_of_tags,
    _check_spot_tags,
    _check_offering,
    _check_image,
    _check_volumes,
    _check_network,
    _check_interfaces,
    _check_metadata_tags,
    _check_spot_role,
    _check_profile,
    _check_reservation,
)


def _refusal(code: str, message: str) -> ServiceException:
    return ServiceException(code, message)


def launch(
    ec2: Any, fleet_id: str | None, market: Market, pool: Pool, count: int
) -> list[Instance]:
    """Launch so many instances, with the tags that EC2 and the request give them. `fleet_id` is
    None for those of an Auto Scaling group."""
    data, tags = pool.data, pool.tags
    options: dict[str, Any] = {}
    if volumes := [one for one in data.get("BlockDeviceMappings") or () if one.get("Ebs")]:
        options["block_device_mappings"] = volumes
    reservation = ec2.run_instances(
        pool.image_id,
        count,
        data.get("UserData"),
        [],
        instance_type=pool.instance_type,
        is_instance_type_default=True,  # otherwise moto searches its whole catalog for the type
        region_name=ec2.region_name,
        subnet_id=pool.subnet or None,
        placement=None if pool.subnet else pool.zone,
        nics=_interfaces(pool),
        key_name=data.get("KeyName"),
        security_group_ids=list(dict.fromkeys(pool.security_groups)),
        ebs_optimized=data.get("EbsOptimized") or False,
        monitoring_state="enabled" if _enabled(data.get("Monitoring")) else "disabled",
        metadata_options=data.get("MetadataOptions") or {},
        instance_market_options="spot" if market == "spot" else None,
        tags=tags,
        **options,
    )
    launched = list(reservation.instances)
    _tag_the_rest(ec2, launched, tags)
    version = pool.version
    system = {TEMPLATE_TAG: version.template.id, VERSION_TAG: str(version.number)}
    if fleet_id:
        system[FLEET_TAG] = fleet_id
    reservation = _reservation_of(pool) if market != "spot" else None
    for instance in launched:
        specify(instance, data)
        if reservation is not None and reservation.free:
            put_into(reservation, instance)
        # Tags of AWS do not count towards the 50 of a resource, as they would in moto.
        ec2.tags[instance.id] |= system
        _associate(ec2, instance, pool.profile)
        setattr(instance, _EFAS, _efas(pool))
    return launched


def efas_of(instance: Instance) -> int:
    """The number of EFA interfaces with which a fleet launched an instance."""
    return getattr(instance, _EFAS, 0)


def _enabled(monitoring: Mapping[str, Any] | None) -> bool:
    return bool(monitoring and monitoring.get("Enabled"))


def _interfaces(pool: Pool) -> list[dict[str, Any]]:
    """The network interfaces of the template's primary network card, in the pool's subnet: moto
    knows no other card."""
    primary = [one for one in pool.interfaces if not one.get("NetworkCardIndex")]
    interfaces: list[dict[str, Any]] = [dict(deepcopy(one)) for one in primary]
    for number, interface in enumerate(interfaces):
        interface.setdefault("DeviceIndex", number)
        interface["SubnetId"] = pool.subnet
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
