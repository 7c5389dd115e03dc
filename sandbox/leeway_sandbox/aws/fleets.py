"""Answers CreateFleet of type instant as EC2 does, and describes such fleets.

Stands in for moto's fleets, which ignore client tokens, prices, capacity and errors. Supported are
the fleets of one market that Leeway requests; EC2's other strategies, weights and split targets are
refused, and fleets of other types are left to moto.

Sources: EC2 API reference, CreateFleet, CreateFleetError and "Error codes for the Amazon EC2 API";
EC2 user guide, "Use an EC2 Fleet of type instant". A template that does not exist fails the call.
An AMI, a subnet, a security group or an instance profile that does not exist is an error of each
override, as are capacity and addresses. The sandbox knows no depth of capacity: the price decides,
or the priority if the strategy uses priorities.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from math import inf
from typing import Any

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError, InvalidParameterValue, MissingParameterError
from moto.ec2.responses.fleets import Fleets
from moto.ec2.utils import random_fleet_id

from leeway_sandbox.aws import prices
from leeway_sandbox.aws.cloud import Cloud
from leeway_sandbox.aws.ec2_requests import ClientTokens, tags_by_resource
from leeway_sandbox.aws.fleet_launch import Market, Pool, Refused, launch, room_of
from leeway_sandbox.aws.launch_templates import LAUNCHED, find, version_of
from leeway_sandbox.aws.reservations import BLOCK, INTERRUPTIBLE

_BY_PRICE = {"on-demand": "lowest-price", "spot": "price-capacity-optimized"}
_BY_PRIORITY = {"on-demand": "prioritized", "spot": "capacity-optimized-prioritized"}
_RESERVED: dict[str, Market] = {BLOCK: BLOCK, "reserved-capacity": INTERRUPTIBLE}
_OPTIONS = {"on-demand": "OnDemandOptions", "spot": "SpotOptions"}
_FIELDS = {"AvailabilityZone", "ImageId", "InstanceType", "Priority", "SubnetId"}  # of overrides


@dataclass
class InstantFleet:
    """A fleet of type instant, as DescribeFleets shows it."""

    id: str
    target_capacity_specification: Mapping[str, Any]
    launch_template_configs: Any
    spot_options: Mapping[str, Any]
    on_demand_options: Mapping[str, Any]
    tags: list[dict[str, str]]
    instances: list[dict[str, Any]]
    errors: list[dict[str, Any]]
    fulfilled_capacity: float
    target_capacity: int
    state: str = "active"
    type: str = "instant"
    create_time: datetime = field(default_factory=utcnow)


def install(cloud: Cloud) -> None:
    """Put this CreateFleet in place of moto's for fleets of type instant."""
    moto_create, tokens = Fleets.create_fleet, defaultdict[str, ClientTokens](ClientTokens)

    def create_fleet(self: Fleets) -> ActionResult:
        if self._get_param("Type") != "instant":
            return moto_create(self)
        self.error_on_dryrun()
        act = partial(_created, self, cloud)
        answer = tokens[self.region].answer(self._get_param("ClientToken"), self.data, act)
        return ActionResult(answer)

    Fleets.create_fleet = create_fleet  # type: ignore[method-assign]


def _created(call: Fleets, cloud: Cloud) -> dict[str, Any]:
    """Fill the capacity from the pools of the highest priority, or else from the cheapest ones. A
    pool that refuses is left for the next one, and its error is part of the answer."""
    market, wanted, by_priority = _target(call)
    tags = tags_by_resource(call._get_param("TagSpecifications", []), ("fleet", *LAUNCHED))
    pools, fleet_id, ec2 = _pools(call, market, tags), random_fleet_id(), call.ec2_backend
    launches: list[tuple[Pool, int]] = []
    refusals: list[Refused] = []
    taken: Counter[str] = Counter()
    left = wanted
    for pool in sorted(pools, key=_priority if by_priority else lambda pool: pool.price):
        if left <= 0:
            break
        count, refused = room_of(cloud, ec2, market, pool, left, taken)
        if refused:
            refusals.append(refused)
        if count:
            launches.append((pool, count))
            left -= count
    instances = [_launched(ec2, fleet_id, market, pool, count) for pool, count in launches]
    errors = [_error(market, refused) for refused in refusals]
    ec2.create_tags([fleet_id], tags.get("fleet", {}))
    ec2.fleets[fleet_id] = InstantFleet(
        fleet_id,
        call._get_param("TargetCapacitySpecification"),
        call._get_param("LaunchTemplateConfigs"),
        call._get_param("SpotOptions", {}),
        call._get_param("OnDemandOptions", {}),
        [{"Key": key, "Value": value} for key, value in tags.get("fleet", {}).items()],
        instances,
        errors,
        wanted - left,
        wanted,
    )
    cloud.journal.add(
        "fleet",
        fleet=fleet_id,
        instances=[name for one in instances for name in one["InstanceIds"]],
        errors=[error["ErrorCode"] for error in errors],
        tags=dict(tags.get("instance", {})),
        launched=[
            {"instance": name, **_place(market, pool)}
            for one, (pool, _) in zip(instances, launches, strict=True)
            for name in one["InstanceIds"]
        ],
        refused=[{"code": one.code, **_place(market, one.pool)} for one in refusals],
    )
    return {"FleetId": fleet_id, "Instances": instances, "Errors": errors}


def _priority(pool: Pool) -> float:
    """The lowest number first; an override without a priority comes last."""
    return float(pool.override.get("Priority", inf))


def _target(call: Fleets) -> tuple[Market, int, bool]:
    """Return the market of a request, how many instances it wants, and whether priorities decide;
    raises EC2's errors."""
    specification = call._get_param("TargetCapacitySpecification", {})
    total = specification.get("TotalTargetCapacity")
    if total is None:
        raise MissingParameterError("TargetCapacitySpecification.TotalTargetCapacity")
    if int(total) <= 0:
        raise InvalidParameterValue("TotalTargetCapacity must be greater than 0.")
    market = specification.get("DefaultTargetCapacityType")
    if market in _RESERVED:
        return _reserved(call, market), int(total), False
    if market not in _BY_PRICE or len(specification) > 2:
        raise InvalidParameterValue("The sandbox supports fleets of one market, spot or on-demand.")
    options = call._get_param(_OPTIONS[market], {})
    known = {_BY_PRICE[market]: False, _BY_PRIORITY[market]: True}
    if options.get("AllocationStrategy") not in known or len(options) > 1:
        raise InvalidParameterValue(
            f"The sandbox supports AllocationStrategy {' and '.join(known)} for {market}, and no "
            "other option."
        )
    return market, int(total), known[options["AllocationStrategy"]]


def _reserved(call: Fleets, capacity_type: str) -> Market:
    """Return the market of a fleet of reserved capacity; raises EC2's errors."""
    options = call._get_param("ReservedCapacityOptions", {})
    wanted = {} if capacity_type == BLOCK else {"ReservationTypes": [INTERRUPTIBLE]}
    others = [name for name in _OPTIONS.values() if call._get_param(name, {})]
    if options != wanted or others:
        raise InvalidParameterValue(
            f"A fleet of {capacity_type} has the options {wanted}, and no strategy."
        )
    return _RESERVED[capacity_type]


def _pools(call: Fleets, market: Market, tags: Mapping[str, Mapping[str, str]]) -> list[Pool]:
    zones = {one.id: one.availability_zone for one in call.ec2_backend.describe_subnets()}
    pools = []
    for config in call._get_param("LaunchTemplateConfigs", []):
        named = config.get("LaunchTemplateSpecification") or {}
        template = find(
            call.ec2_backend, named.get("LaunchTemplateId"), named.get("LaunchTemplateName")
        )
        version = version_of(template, named.get("Version"))
        for override in config.get("Overrides") or ():
            if not {"InstanceType", "SubnetId"} <= override.keys() <= _FIELDS:
                raise InvalidParameterValue("The sandbox supports overrides of types and subnets.")
            kind, subnet = override["InstanceType"], override["SubnetId"]
            zone = zones.get(subnet) or override.get("AvailabilityZone", "")
            is_spot = market == "spot"
            price = prices.spot_price(kind, zone) if is_spot else prices.on_demand_price(kind)
            pools.append(Pool(version, override, kind, zone, subnet, price, tags))
    if not pools:
        raise MissingParameterError("LaunchTemplateConfigs")
    # One type in one zone is one pool, even in different subnets.
    if len({(pool.instance_type, pool.zone) for pool in pools}) < len(pools):
        raise EC2ClientError(
            "InvalidFleetConfig", "The fleet configuration contains duplicate instance pools."
        )
    return pools


def _place(market: Market, pool: Pool) -> dict[str, str]:
    """The offering of a pool, for the journal."""
    return {"instance_type": pool.instance_type, "zone": pool.zone, "capacity_type": market}


def _launched(ec2: Any, fleet_id: str, market: Market, pool: Pool, count: int) -> dict[str, Any]:
    instances = launch(ec2, fleet_id, market, pool, count)
    platform = instances[0].platform
    return {
        "LaunchTemplateAndOverrides": _template_and_overrides(pool),
        "Lifecycle": market,
        "InstanceIds": [instance.id for instance in instances],
        "InstanceType": pool.instance_type,
        **({"Platform": platform} if platform else {}),
    }


def _error(market: Market, refused: Refused) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": _template_and_overrides(refused.pool),
        "Lifecycle": market,
        "ErrorCode": refused.code,
        "ErrorMessage": refused.message,
    }


def _template_and_overrides(pool: Pool) -> dict[str, Any]:
    version = pool.version
    named = {"LaunchTemplateId": version.template.id, "Version": str(version.number)}
    return {"LaunchTemplateSpecification": named, "Overrides": dict(pool.override)}
