"""EC2's fleets of type instant, by boto3."""

from collections.abc import Callable, Collection, Mapping
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.ec2 import capacity_type_of, reservation_of
from leeway.aws.errors import aws_errors, code_of
from leeway.instances.owners import INTENT_TAG
from leeway.launch.fleets import FleetAnswer, FleetError, FleetInstance, FleetRequest, Override
from leeway.launch.templates import VERSION, tag_list
from leeway.ports.aws import CloudRefused
from leeway.selection.labels import ON_DEMAND, RESERVED, SPOT
from leeway.selection.offers.reservations import BLOCK, INTERRUPTIBLE

_BY_PRICE = {SPOT: "price-capacity-optimized", ON_DEMAND: "lowest-price"}
_BY_PRIORITY = {SPOT: "capacity-optimized-prioritized", ON_DEMAND: "prioritized"}
"""Allocation strategies. Source: EC2 user guide, "Allocation strategies for EC2 Fleet"."""

_IN_ONE_CALL = 200
"""Values that one filter takes. Source: EC2 user guide, "Filter resources"."""


class Ec2Fleets:
    """The Fleets Protocol; `client` makes boto3's EC2 client when it is first used."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def create(self, request: FleetRequest, token: str) -> FleetAnswer:
        """Launch instances; the same request with the same token launches nothing again.

        Raises:
            CloudUnavailable: the instances may have been launched: repeat the call.
        """
        try:
            with aws_errors():
                answer = self._client().create_fleet(ClientToken=token, **_parameters(request))
        except CloudRefused as refusal:
            return FleetAnswer((), (_refusal(refusal, request),))
        return FleetAnswer(
            tuple(
                FleetInstance(
                    instance,
                    entry["InstanceType"],
                    _override(entry).zone,
                    # The answer names the market, which is on-demand for most reservations.
                    RESERVED
                    if request.reservation
                    else entry.get("Lifecycle", request.capacity_type),
                    request.reservation,
                )
                for entry in answer.get("Instances", [])
                for instance in entry["InstanceIds"]
            ),
            tuple(_error(entry, request) for entry in answer.get("Errors", [])),
        )

    def launched_by(self, intent: str) -> list[FleetInstance]:
        """List the instances with the tag of an intent that start or run."""
        filters = [
            {"Name": f"tag:{INTENT_TAG}", "Values": [intent]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
        with aws_errors():
            pages = self._client().get_paginator("describe_instances").paginate(Filters=filters)
            return [
                FleetInstance(
                    found["InstanceId"],
                    found["InstanceType"],
                    found["Placement"]["AvailabilityZone"],
                    capacity_type_of(found),
                    reservation_of(found),
                )
                for page in pages
                for reserved in page["Reservations"]
                for found in reserved["Instances"]
            ]

    def alive(self, instances: Collection[str]) -> frozenset[str]:
        """Return those of some instances that start or run. A filter, unlike InstanceIds, accepts
        instances that EC2 has forgotten."""
        found: set[str] = set()
        for some in batched(sorted(instances), _IN_ONE_CALL, strict=False):
            filters = [
                {"Name": "instance-id", "Values": list(some)},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ]
            with aws_errors():
                pages = self._client().get_paginator("describe_instances").paginate(Filters=filters)
                found |= {
                    one["InstanceId"]
                    for page in pages
                    for reserved in page["Reservations"]
                    for one in reserved["Instances"]
                }
        return frozenset(found)


def _parameters(request: FleetRequest) -> dict[str, Any]:
    target, strategy = _market(request)
    tags = tag_list(request.tags)
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": one.template,
                    "Version": VERSION,
                },
                "Overrides": [
                    {
                        "InstanceType": override.instance_type,
                        "SubnetId": override.subnet,
                        "AvailabilityZone": override.zone,
                        **({} if override.priority is None else {"Priority": override.priority}),
                    }
                    for override in one.overrides
                ],
            }
            for one in request.templates
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": request.count,
            "DefaultTargetCapacityType": target,
        },
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags} for kind in ("fleet", "instance", "volume")
        ],
        **strategy,
    }


def _market(request: FleetRequest) -> tuple[str, dict[str, Any]]:
    """The capacity type of the fleet as EC2 names it, and its options. Source: EC2 API reference,
    TargetCapacitySpecificationRequest: a fleet for a reservation is on-demand, unless it is a
    Capacity Block or interruptible."""
    allocation = _BY_PRIORITY if request.prioritized else _BY_PRICE
    if request.capacity_type == SPOT:
        return SPOT, {"SpotOptions": {"AllocationStrategy": allocation[SPOT]}}
    if request.reservation is not None and request.reservation.block:
        return BLOCK, {}
    if request.reservation is not None and request.reservation.interruptible:
        return "reserved-capacity", {
            "ReservedCapacityOptions": {"ReservationTypes": [INTERRUPTIBLE]}
        }
    return ON_DEMAND, {"OnDemandOptions": {"AllocationStrategy": allocation[ON_DEMAND]}}


def _override(entry: Mapping[str, Any]) -> Override:
    found = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return Override(
        found.get("InstanceType", ""), found.get("AvailabilityZone", ""), found.get("SubnetId", "")
    )


def _error(entry: Mapping[str, Any], request: FleetRequest) -> FleetError:
    override = _override(entry)
    return FleetError(
        entry.get("ErrorCode", ""),
        entry.get("ErrorMessage", ""),
        RESERVED if request.reservation else entry.get("Lifecycle", request.capacity_type),
        override if override.instance_type else None,
        request.reservation.id if request.reservation else "",
    )


def _refusal(refusal: CloudRefused, request: FleetRequest) -> FleetError:
    cause = refusal.__cause__
    if isinstance(cause, ClientError):
        message = str(cause.response.get("Error", {}).get("Message", ""))
        return FleetError(code_of(cause), message, request.capacity_type)
    raise refusal
