"""Answers CreateFleet of type instant as EC2 does, and describes such fleets.

Stands in for moto's fleets, which ignore client tokens, prices, capacity and errors. Other types of
fleets are left to moto.

Sources: EC2 API reference, CreateFleet, CreateFleetError and "Error codes for the Amazon EC2 API";
EC2 user guide, "Use an EC2 Fleet of type instant". A template that does not exist fails the call.
An AMI, a subnet, a security group or an instance profile that does not exist is an error of each
override, as are capacity, addresses and prices.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError, InvalidParameterValue, MissingParameterError
from moto.ec2.models.instances import Instance
from moto.ec2.models.launch_templates import LaunchTemplateVersion
from moto.ec2.responses.fleets import Fleets
from moto.ec2.utils import random_fleet_id

from leeway_sandbox.aws import prices
from leeway_sandbox.aws.cloud import Cloud
from leeway_sandbox.aws.ec2_requests import ClientTokens, tags_by_resource
from leeway_sandbox.aws.fleet_launch import LaunchSpecification, launch, room_of
from leeway_sandbox.aws.fleet_plan import Market, Plan, Pool, Refused, Room, duplicates, plan
from leeway_sandbox.aws.launch_templates import LAUNCHED, find, version_of

DEFAULT_STRATEGY = "lowest-price"  # of both markets
STRATEGIES: Mapping[Market, set[str]] = {
    "on-demand": {"lowest-price", "lowestPrice", "prioritized"},
    "spot": {
        "capacity-optimized",
        "capacity-optimized-prioritized",
        "diversified",
        "lowest-price",
        "lowestPrice",
        "price-capacity-optimized",
    },
}
UNFULFILLABLE = "UnfulfillableCapacity"
UNFULFILLABLE_MESSAGE = (
    "Unable to fulfill capacity due to your request configuration. Please adjust your request and "
    "try again."
)


@dataclass
class InstantFleet:
    """A fleet of type instant, as DescribeFleets shows it and DeleteFleets ends it."""

    ec2_backend: Any
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

    def terminate_instances(self) -> None:
        """Terminate all that runs of its instances."""
        launched = [name for entry in self.instances for name in entry["InstanceIds"]]
        known = [name for name in launched if self.ec2_backend.get_instance_by_id(name)]
        self.ec2_backend.terminate_instances(known)


@dataclass(frozen=True)
class _Targets:
    """Units of capacity that a request wants of each market."""

    on_demand: float
    spot: float


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
    targets = _targets(call._get_param("TargetCapacitySpecification", {}))
    tags = tags_by_resource(call._get_param("TagSpecifications", []), ("fleet", *LAUNCHED))
    request = _Request(cloud, call, _configurations(call, tags))
    options: dict[Market, Mapping[str, Any]] = {
        "on-demand": call._get_param("OnDemandOptions", {}),
        "spot": call._get_param("SpotOptions", {}),
    }
    plans = [
        request.planned("on-demand", targets.on_demand, options["on-demand"]),
        request.planned("spot", targets.spot, options["spot"]),
    ]
    fleet_id = random_fleet_id()
    instances = [
        _launched(pool, made.market, request.launched(fleet_id, made.market, pool, count))
        for made in plans
        for pool, count in made.launches
    ]
    errors = [_error(made.market, refused) for made in plans for refused in made.errors]
    call.ec2_backend.create_tags([fleet_id], tags.get("fleet", {}))
    call.ec2_backend.fleets[fleet_id] = InstantFleet(
        call.ec2_backend,
        fleet_id,
        call._get_param("TargetCapacitySpecification"),
        call._get_param("LaunchTemplateConfigs"),
        options["spot"],
        options["on-demand"],
        [{"Key": key, "Value": value} for key, value in tags.get("fleet", {}).items()],
        instances,
        errors,
        sum(made.capacity for made in plans),
        int(targets.on_demand + targets.spot),
    )
    cloud.journal.add(
        "fleet",
        fleet=fleet_id,
        instances=[name for one in instances for name in one["InstanceIds"]],
        errors=[error["ErrorCode"] for error in errors],
        tags=dict(tags.get("instance", {})),
        launched=[
            {"instance": name, **_place(made.market, pool)}
            for one, (made, pool) in zip(
                instances,
                ((made, pool) for made in plans for pool, _ in made.launches),
                strict=True,
            )
            for name in one["InstanceIds"]
        ],
        refused=[
            {"code": refused.code, **_place(made.market, refused.pool)}
            for made in plans
            for refused in made.errors
        ],
    )
    return {"FleetId": fleet_id, "Instances": instances, "Errors": errors}


def _targets(specification: Mapping[str, Any]) -> _Targets:
    if specification.get("TotalTargetCapacity") is None:
        raise MissingParameterError("TargetCapacitySpecification.TotalTargetCapacity")
    total = float(specification["TotalTargetCapacity"])
    if total <= 0:
        raise InvalidParameterValue("TotalTargetCapacity must be greater than 0.")
    on_demand = float(specification.get("OnDemandTargetCapacity") or 0)
    spot = float(specification.get("SpotTargetCapacity") or 0)
    if on_demand + spot > total:
        raise InvalidParameterValue(
            "The sum of OnDemandTargetCapacity and SpotTargetCapacity exceeds TotalTargetCapacity."
        )
    default = specification.get("DefaultTargetCapacityType") or "on-demand"
    if default not in {"on-demand", "spot"}:
        raise InvalidParameterValue(f"DefaultTargetCapacityType {default} is not supported here.")
    rest = total - on_demand - spot
    return _Targets(on_demand + rest * (default == "on-demand"), spot + rest * (default == "spot"))


@dataclass(frozen=True)
class _Configuration:
    """A launch template version, its overrides, and the tags of the request."""

    version: LaunchTemplateVersion
    overrides: list[Mapping[str, Any]]
    tags: Mapping[str, Mapping[str, str]]


def _configurations(call: Fleets, tags: Mapping[str, Mapping[str, str]]) -> list[_Configuration]:
    found = []
    for config in call._get_param("LaunchTemplateConfigs", []):
        named = config.get("LaunchTemplateSpecification") or {}
        template = find(
            call.ec2_backend, named.get("LaunchTemplateId"), named.get("LaunchTemplateName")
        )
        version = version_of(template, named.get("Version"))
        found.append(_Configuration(version, config.get("Overrides") or [{}], tags))
    if not found:
        raise MissingParameterError("LaunchTemplateConfigs")
    return found


@dataclass(frozen=True)
class _Request:
    """One call of CreateFleet; `taken` counts the addresses that it uses of each subnet."""

    cloud: Cloud
    call: Fleets
    configurations: list[_Configuration]
    taken: Counter[str] = field(default_factory=Counter)

    def planned(self, market: Market, capacity: float, options: Mapping[str, Any]) -> Plan:
        """What this market launches."""
        strategy = options.get("AllocationStrategy") or DEFAULT_STRATEGY
        if strategy not in STRATEGIES[market]:
            raise InvalidParameterValue(f"AllocationStrategy {strategy} is not valid for {market}.")
        if not capacity:
            return Plan(market)
        zones = {one.id: one.availability_zone for one in self.call.ec2_backend.describe_subnets()}
        pools = [
            self._pool(market, number, override, zones)
            for number, configuration in enumerate(self.configurations)
            for override in configuration.overrides
        ]
        if duplicates(pools):
            raise EC2ClientError(
                "InvalidFleetConfig", "The fleet configuration contains duplicate instance pools."
            )
        made = plan(market, capacity, pools, strategy, partial(self._room, market))
        if made.capacity < float(options.get("MinTargetCapacity") or 0):
            made.errors += [
                Refused(pool, UNFULFILLABLE, UNFULFILLABLE_MESSAGE) for pool, _ in made.launches
            ]
            made.launches.clear()
        return made

    def launched(self, fleet_id: str, market: Market, pool: Pool, count: int) -> list[Instance]:
        """Launch so many instances in a pool."""
        return launch(self.call.ec2_backend, fleet_id, market, self._specification(pool), count)

    def _specification(self, pool: Pool) -> LaunchSpecification:
        configuration = self.configurations[pool.config]
        return LaunchSpecification(configuration.version, pool, configuration.tags)

    def _room(self, market: Market, pool: Pool, wanted: int) -> Room:
        specification = self._specification(pool)
        return room_of(self.cloud, self.call.ec2_backend, market, specification, wanted, self.taken)

    def _pool(
        self,
        market: Market,
        number: int,
        override: Mapping[str, Any],
        zones: Mapping[str | None, str],
    ) -> Pool:
        """The pool of one override; `zones` has the zone of each subnet."""
        version = self.configurations[number].version
        instance_type = override.get("InstanceType") or version.instance_type
        if not instance_type:
            raise MissingParameterError("InstanceType")
        subnet = override.get("SubnetId") or _subnet_of(version.data)
        named = override.get("AvailabilityZone") or f"{self.call.region}a"
        zone = zones.get(subnet, named)
        is_spot = market == "spot"
        priority = override.get("Priority")
        return Pool(
            instance_type,
            zone,
            subnet,
            prices.spot_price(instance_type, zone)
            if is_spot
            else prices.on_demand_price(instance_type),
            {"LaunchTemplateId": version.template.id, "Version": str(version.number)},
            override,
            number,
            float(override.get("WeightedCapacity") or 1),
            float("inf") if priority is None else float(priority),
        )


def _subnet_of(data: Mapping[str, Any]) -> str | None:
    interfaces = data.get("NetworkInterfaces") or ()
    return next((one["SubnetId"] for one in interfaces if one.get("SubnetId")), None)


def _place(market: Market, pool: Pool) -> dict[str, str]:
    """The offering of a pool, for the journal."""
    return {"instance_type": pool.instance_type, "zone": pool.zone, "capacity_type": market}


def _launched(pool: Pool, market: Market, instances: list[Instance]) -> dict[str, Any]:
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
    return {"LaunchTemplateSpecification": dict(pool.template), "Overrides": dict(pool.override)}
