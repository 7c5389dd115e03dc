"""LaunchInstances: launches instances of a group while the caller waits.

Sources: EC2 Auto Scaling API reference, "LaunchInstances"; user guide, "Launch instances
synchronously" and "Launching instances with synchronous provisioning". AWS does not document three
cases. Here, a success raises the desired capacity by the launched units; a group at its maximum and
a group with a suspended Launch process refuse.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.ec2.models.instances import Instance

from leeway_sandbox.aws.groups import LaunchError, ReconcilingGroup

TOKEN_LIVES = 8 * 3600.0
"""Seconds for which the answer of a client token is kept."""

LARGEST = 100
"""The most instances of one call."""

RETRY = "retry-with-group-configuration"


@dataclass(frozen=True)
class Launch:
    """The parameters of a call, of which a client token allows one set. `capacity` is in units."""

    group: str
    capacity: int
    zones: tuple[str, ...]
    zone_ids: tuple[str, ...]
    subnets: tuple[str, ...]
    retry: str


@dataclass
class Launches:
    """The answers of LaunchInstances, by client token."""

    _answers: dict[str, tuple[float, Launch, dict[str, Any]]] = field(default_factory=dict)

    def answer(self, group: ReconcilingGroup, wanted: Launch, token: str) -> dict[str, Any]:
        """Launch, or return the answer of a known token; raises AWS's errors."""
        at, known, before = self._answers.get(token, (0.0, wanted, {}))
        if time.time() - at < TOKEN_LIVES:
            if known != wanted:
                raise AutoscalingClientError(
                    "IdempotentParameterMismatch",
                    f"The client token {token} was used with other parameters.",
                )
            return before
        zone, subnet = _place(group, wanted)
        _check(group, wanted)
        launched, errors = group.launch_in(zone, subnet, wanted.capacity)
        units = sum(group.weight_of(instance.instance_type) for instance in launched)
        if units < wanted.capacity and wanted.retry == RETRY:
            units = wanted.capacity
            group.reconcile_soon()
        group.desired_capacity = (group.desired_capacity or 0) + units
        answer = {
            "AutoScalingGroupName": group.name,
            "ClientToken": token,
            "Instances": [_launched(instance) for instance in launched],
            "Errors": [_refused(error) for error in errors],
        }
        self._answers[token] = (time.time(), wanted, answer)
        return answer


def _check(group: ReconcilingGroup, wanted: Launch) -> None:
    """Raise AWS's errors before the launch."""
    if group.warm_pool:
        message = "LaunchInstances is not supported for groups with a warm pool."
        raise AutoscalingClientError("UnsupportedOperation", message)
    if group.ec2_launch_template is None:
        raise ValidationError("LaunchInstances is only supported for groups with launch templates.")
    if _is_mixed(group.mixed_instances_policy or {}):
        raise ValidationError(
            "LaunchInstances is not supported for mixed instances policies of both On-Demand and "
            "Spot Instances."
        )
    if group.suspends("Launch"):
        raise ValidationError(f"The Launch process of group {group.name} is suspended.")
    if wanted.capacity < 1:
        raise ValidationError("RequestedCapacity must be at least 1.")
    desired, most = group.desired_capacity or 0, group.max_size or 0
    if desired + wanted.capacity > most:
        raise ValidationError(
            f"New desired capacity {desired + wanted.capacity} is above max value {most} "
            "for the AutoScalingGroup."
        )
    if wanted.capacity > LARGEST and not group.mixed_instances_policy:
        raise ValidationError(f"At most {LARGEST} instances can be launched by one call.")


def _is_mixed(policy: dict[str, Any]) -> bool:
    """Whether a group can have both On-Demand and Spot Instances."""
    distribution = policy.get("InstancesDistribution") or {}
    share = distribution.get("OnDemandPercentageAboveBaseCapacity")
    if not policy or share is None or int(share) == 100:
        return False
    return int(share) != 0 or bool(int(distribution.get("OnDemandBaseCapacity") or 0))


def _place(group: ReconcilingGroup, wanted: Launch) -> tuple[str, str | None]:
    """Return the zone and the subnet of the launch; raises ValidationError."""
    if max(map(len, (wanted.zones, wanted.zone_ids, wanted.subnets))) > 1:
        raise ValidationError("At most one Availability Zone or subnet can be specified.")
    if wanted.zones and wanted.zone_ids:
        raise ValidationError("AvailabilityZones and AvailabilityZoneIds exclude each other.")
    subnets = group.subnets()
    named = list(wanted.zones)
    if wanted.zone_ids:
        known = group.ec2_backend.describe_availability_zones()
        named = [zone.name for zone in known if zone.zone_id in wanted.zone_ids]
    in_subnet = [zone for zone, subnet in subnets.items() if subnet in wanted.subnets]
    if wanted.subnets and not in_subnet:
        raise ValidationError(f"Group {group.name} has no subnet {wanted.subnets[0]}.")
    named = named or in_subnet
    if not named and not wanted.zone_ids and len(group.availability_zones) == 1:
        named = list(group.availability_zones)
    if len(named) != 1 or named[0] not in group.availability_zones:
        raise ValidationError(f"Specify one Availability Zone or subnet of group {group.name}.")
    if in_subnet and in_subnet != named:
        raise ValidationError(f"Subnet {wanted.subnets[0]} is not in {named[0]}.")
    return named[0], subnets.get(named[0])


def _launched(instance: Instance) -> dict[str, Any]:
    return {
        "InstanceType": instance.instance_type,
        "MarketType": _market("spot" if instance.lifecycle == "spot" else None),
        "SubnetId": instance.subnet_id,
        "AvailabilityZone": instance.placement.zone,
        "InstanceIds": [instance.id],
    }


def _refused(error: LaunchError) -> dict[str, Any]:
    return {
        "InstanceType": error.instance_type,
        "MarketType": _market(error.market),
        "SubnetId": error.subnet,
        "AvailabilityZone": error.zone,
        "ErrorCode": error.code,
        "ErrorMessage": error.message,
    }


def _market(market: str | None) -> str:
    return "Spot" if market else "OnDemand"
